"""What a run says: summary, gates, statistics, comparison and agreement, from records alone.

Imports records and below, and nothing of what makes a run.
"""
