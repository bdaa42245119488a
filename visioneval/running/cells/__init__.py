"""One cell: generate or read its output, grade it, decide its verdict and build its record."""
