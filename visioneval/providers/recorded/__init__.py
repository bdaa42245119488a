"""The `recorded` judge: answers from a file."""
