"""The cache of answers and measurements: its index, its files, and a cache that machines share."""
