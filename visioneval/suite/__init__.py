"""The suite: the model of a YAML file, its cases, sweeps, rules and labels.

Imports ``rules``, ``templates``, ``media`` and lower layers. The options of graders and providers live in their own
packages; the registry finds them by name.
"""
