"""Generation and grading keys: ``part:hash`` words, so that a comparison of two keys shows which parts changed."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

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


_ENCODER = json.JSONEncoder(sort_keys=True, default=str, separators=(",", ":"))


def digest(value: Any) -> str:
    """A hash of plain data, independent of the order of keys."""
    return sha256(_ENCODER.encode(value).encode()).hexdigest()


def short_digest(value: Any) -> str:
    """The first 12 digits of ``digest``."""
    return digest(value)[:12]
