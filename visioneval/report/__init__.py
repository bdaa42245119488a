"""Reports of a run: terminal, HTML, Markdown and JUnit.

Imports analysis and below, and nothing that creates runs.
"""
