"""Cells of a run as they lie on disk: their lines, outputs that exist already, and operations that have begun."""
