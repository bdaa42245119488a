"""The commands: each parses its flags, calls the API, prints the result and exits."""
