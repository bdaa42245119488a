"""The parts of a key of generation or grading, each with a hash of what the part depends on."""

from __future__ import annotations

VERDICT_PARTS = frozenset({"rules", "optional", "metrics"})
"""The parts of a grading key that no grader's score depends on."""


def key_parts(key: str) -> dict[str, str]:
    """The hashes of a key by part."""
    return {name: value for name, _, value in (word.rpartition(":") for word in key.split())}


def changed_parts(old: str, new: str) -> frozenset[str]:
    """The names of the parts in which two keys differ."""
    before, after = key_parts(old), key_parts(new)
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def describe_parts(parts: frozenset[str]) -> str:
    """The names of changed parts, for a message; empty if there are none."""
    return " and ".join(sorted(parts))
