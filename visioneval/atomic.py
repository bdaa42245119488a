"""Atomic file writes: a reader sees the old or the new content, never a part."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_whole(path: Path, data: bytes | str) -> None:
    """Writes or replaces a file atomically; text is UTF-8. On ``OSError``, an existing file stays unchanged."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        part.write_bytes(data.encode() if isinstance(data, str) else data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
