"""Whole files, written so that a reader sees the old or the new content, never a part."""

from __future__ import annotations

import os
import secrets
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


def create_whole(path: Path, data: bytes) -> bool:
    """Creates a file atomically, unless it exists. Returns whether this call created it.

    Needs hard links. Any number of machines may do this at once. Raises ``OSError``.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        part.write_bytes(data)
        path.hardlink_to(part)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True
