"""The labeling page, its server, and labels imported from files.

Imports analysis, records and below, and nothing that creates runs.
"""
