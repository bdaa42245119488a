"""What runs in LiteLLM's own process: the only modules that import it."""
