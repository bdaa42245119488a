"""Helpers for tests of damaged and read-only caches."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from visioneval.running.calls.cache import Cache
from visioneval.running.calls.cache_files import CacheEntry, decoded

ONE, TWO = b"the first image", b"the second image, a little longer"


def named(*images: bytes) -> list[tuple[str, bytes]]:
    return [(sha256(data).hexdigest(), data) for data in images]


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("files/*/*")}


def answer_files(folder: Path) -> dict[Path, CacheEntry]:
    """All answers of a cache, by file."""
    paths = sorted(folder.glob("answers/*/*/*.json"))
    return {path: decoded(path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths}


def rewrite(folder: Path, change: Callable[[CacheEntry], dict[str, Any] | None]) -> None:
    """Replaces answers by others with the fields that ``change`` returns; ``None`` deletes one. All names are right."""
    for path, entry in answer_files(folder).items():
        changed = change(entry)
        path.unlink()
        if changed is not None:
            name, data = entry.model_copy(update=changed).encoded()
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def abandon(path: Path) -> None:
    """Makes a file so old that no answer that is being stored can need it."""
    os.utime(path, (time.time() - 7200,) * 2)


class CacheOpener:
    """Opens a cache for each use, and collects its warnings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warned: list[str] = []

    def __call__(self, run_id: str = "r") -> Cache:
        return Cache(self.folder, run_id=run_id, warn=self.warned.append)

    def age(self, **days: str) -> None:
        """Sets the days when answers were stored."""

        def aged(entry: CacheEntry) -> dict[str, Any]:
            return {"stored_at": f"{days[entry.key]}T00:00:00.000000+00:00"} if entry.key in days else {}

        rewrite(self.folder, aged)


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
