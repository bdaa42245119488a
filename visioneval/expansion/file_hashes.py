"""Hashes of a suite's files, each read once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path

from visioneval.media.images import MAX_BYTES

MAX_FILES = 4096


class FileHashes:
    """The SHA-256 of files, by their path relative to the suite's folder. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hashes: dict[str, str] = {}

    async def prepare(self, paths: Iterable[Path]) -> None:
        """Hashes new files in a thread, so that the event loop only looks them up."""
        new = [path for path in paths if str(path) not in self._hashes]
        if new:
            await asyncio.to_thread(lambda: [self(path) for path in new])

    def __call__(self, path: Path) -> str:
        """The hash of a file, or why it has none: ``missing`` or ``too large``."""
        name = str(path)
        known = self._hashes.get(name)
        if known is not None:
            return known
        file_hash = _hash_of(self._folder / path)
        if len(self._hashes) >= MAX_FILES:
            self._hashes.clear()
        self._hashes[name] = file_hash
        return file_hash


def _hash_of(path: Path) -> str:
    try:
        if not path.is_file():
            return "missing"
        if path.stat().st_size > MAX_BYTES:
            return "too large"  # never read by a run
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "missing"
