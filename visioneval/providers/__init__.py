"""What generates, edits and judges: one folder or file for each provider, behind the protocols in ``base``.

``config`` modules import the suite and below only.
"""
