"""Exports records as tables for spreadsheets and other programs."""
