"""Files that a reader sees as they were or as they are, never a half."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_whole(path: Path, data: bytes | str) -> None:
    """Puts a file in the place of an older one; text is UTF-8. Raises ``OSError``, and then the older one is kept."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        part.write_bytes(data.encode() if isinstance(data, str) else data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
