"""Hashes of plain data."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, default=str, separators=(",", ":"))


def digest(value: Any) -> str:
    """A hash of plain data, independent of the order of keys."""
    return sha256(_ENCODER.encode(value).encode()).hexdigest()


def short_digest(value: Any) -> str:
    """The first 12 digits of ``digest``."""
    return digest(value)[:12]
