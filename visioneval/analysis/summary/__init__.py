"""The findings of one run: ``summary`` adds up records and decides the exit code."""
