"""Graders that compare pixels: locality of an edit, likeness to a reference, and what both measure with."""
