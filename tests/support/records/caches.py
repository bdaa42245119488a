"""Helpers for tests of damaged and read-only caches."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from visioneval.engine.calls.caching.cache import Cache

ONE, TWO = b"the first image", b"the second image, a little longer"


def named(*images: bytes) -> list[tuple[str, bytes]]:
    return [(sha256(data).hexdigest(), data) for data in images]


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("files/*/*")}


class CacheOpener:
    """Opens a cache for each use, and collects its warnings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warned: list[str] = []

    @contextmanager
    def __call__(self, run_id: str = "r") -> Iterator[Cache]:
        with Cache(self.folder, run_id=run_id, warn=self.warned.append) as cache:
            yield cache

    def age(self, **days: str) -> None:
        """Sets when answers were stored."""
        with closing(sqlite3.connect(self.folder / "index.sqlite")) as index, index:
            for key, stored_at in days.items():
                index.execute("UPDATE answers SET stored_at = ? WHERE key = ?", (stored_at, key))


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Makes a folder read-only; for root with a read-only mount."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o500)
    mounts = []
    if os.access(folder, os.W_OK):
        for arguments in (["--bind", str(folder), str(folder)], ["-o", "remount,bind,ro", str(folder)]):
            done = subprocess.run(["mount", *arguments], capture_output=True, check=False)
            if done.returncode:
                pytest.skip("cannot mount read-only, and this user can write everywhere")
            mounts.append(arguments)
    try:
        yield
    finally:
        if mounts:
            subprocess.run(["umount", str(folder)], check=True)
        for path in folders:
            path.chmod(0o700)
