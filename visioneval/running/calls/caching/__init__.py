"""The cache of answers and measurements: a folder of immutable files, or a bucket with the same layout."""
