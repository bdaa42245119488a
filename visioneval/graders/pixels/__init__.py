"""Graders that compare pixels: locality of an edit, similarity to a reference, and their measurements."""
