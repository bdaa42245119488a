"""Tables of one run, its cells, and of the list of runs."""
