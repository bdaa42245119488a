"""What makes a run: cells, grading, resume and the loop around them.

Imports graders, providers and below. What reads a run never imports it.
"""
