"""Planted bugs, each of which at least one of its tests must find: ``make mutants``.

``entries`` reads the lists beside it, ``copies`` runs tests on a copy of the project with a bug, ``server``
starts these runs and ``observer`` is their pytest plugin, ``results`` says what became of each bug, and ``__main__`` is the command.
"""
