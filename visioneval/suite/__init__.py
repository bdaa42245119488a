"""The suite: the model of a YAML file, its cases, sweeps, rules and labels.

Imports ``rules``, ``templates``, ``media`` and below. The options of graders and providers live in their own packages
and are looked up in the registry, by name.
"""
