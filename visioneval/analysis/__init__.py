"""Summary, gates, statistics, comparison and agreement, computed from records.

Imports ``records`` and the layers below it, never the code that runs a suite.
"""
