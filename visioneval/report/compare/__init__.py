"""A comparison as a page, as sentences and as JSON."""
