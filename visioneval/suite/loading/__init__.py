"""From a YAML file to a resolved suite: positions, files, datasets, paths and messages.

Imports the suite model and below.
"""
