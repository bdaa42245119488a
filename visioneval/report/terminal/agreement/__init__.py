"""Tables of agreement with people."""
