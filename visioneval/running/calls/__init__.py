"""Calls to providers: rate limits, retries, cache, budget, prices and the call log."""
