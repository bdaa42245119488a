"""What generates, edits and judges: one file or package for each provider, behind the protocols in ``base``.

The own module of a package has the provider's options, and imports the suite and below only.
"""
