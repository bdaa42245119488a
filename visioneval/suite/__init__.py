"""The suite: the model of a YAML file, its cases, sweeps, rules and labels.

Imports ``rules``, ``templates``, ``media`` and lower layers. The options of graders and providers live in their own
packages; the registry finds them by name.

A new key is a field of a model here. It may need a check in ``checks/``, a place in ``running/keys.py`` if results
depend on it, and a suite with a wrong value in ``tests/suite/bad``.
"""
