"""Labels: what is asked about which cells, random draws, the progress of raters, and labels imported from files.

Imports analysis, records and below, and nothing that creates runs.
"""
