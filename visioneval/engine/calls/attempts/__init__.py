"""One attempt of a call: the provider's or judge's code, operations that take minutes, and what a failure means."""
