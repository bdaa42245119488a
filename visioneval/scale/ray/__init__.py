"""Runs the cells of a run on a Ray cluster. Imported only with ``--ray``, since Ray is an extra.

The driver is the process of the command: it plans, writes ``results.jsonl`` and does what comes after the cells. Each
worker is an actor that runs the engine on one core (``worker``). One more actor has the limits and the budget of the
run, and workers get the turn of every call from it (``limits``).
"""
