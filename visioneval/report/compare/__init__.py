"""A comparison as an HTML page and as JSON."""
