"""What people and machines read of a run: terminal, HTML, Markdown and JUnit.

Imports analysis and below, and nothing of what makes a run.
"""
