"""The Python API, for scripts and notebooks; the command line is a thin layer over it.

A run is: load a suite, expand it, then for each cell generate, grade, decide and record; then summarize.
"""
