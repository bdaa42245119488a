"""Messages between the two processes: JSON after its length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

LENGTH_BYTES = 8


def framed(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent. Raises ``TypeError`` if it is not JSON."""
    data = orjson.dumps(message)
    return len(data).to_bytes(LENGTH_BYTES) + data
