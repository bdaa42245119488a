"""Paths that a suite names: relative to the file that names them, and no further than trust reaches."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@lru_cache(maxsize=16)
def _real(folder: Path) -> str:
    return os.path.realpath(folder)


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a suite may reach: its own folder and the working directory, or everything."""

    folder: Path
    working: Path
    everything: bool = False

    @property
    def _tops(self) -> tuple[str, str]:
        return _real(self.folder), _real(self.working)

    def refusal(self, path: str, start: Path) -> str | None:
        """Why ``path``, named in a file of the folder ``start``, must not be read; ``None`` where it may."""
        if "\x00" in path:
            return "a path cannot hold a NUL character"
        if _URL.match(path):
            return f"{path!r} is a URL: pictures and datasets are read from disk"
        if self.everything:
            return None
        real = os.path.realpath(start / path)
        if any(real == top or real.startswith(top.rstrip(os.sep) + os.sep) for top in self._tops):
            return None
        return (
            f"{path!r} lies outside the suite's folder and the working directory;"
            " pass --trust-suite if you trust this suite"
        )


def rebased(path: str, start: Path, folder: Path) -> str:
    """``path``, named in a file of the folder ``start``, as named from ``folder``."""
    if start == folder or Path(path).is_absolute() or _URL.match(path) or "\x00" in path:
        return path
    return Path(os.path.relpath(start / path, folder)).as_posix()


def rebased_case(case: Mapping[str, Any], start: Path, folder: Path) -> dict[str, Any]:
    """A raw case whose file paths are named from ``folder``. What is not text is left for the schema to refuse."""
    if start == folder:
        return dict(case)
    named = {key: value for key, value in case.items() if key in ("mask", "masks", "reference", "images", "pictures")}
    return {**case, **{key: _moved(value, start, folder, key) for key, value in named.items()}}


def _moved(value: Any, start: Path, folder: Path, key: str) -> Any:
    """Every path in a value: text, a list, a mapping of names to paths, or the ``path`` of an input image."""
    if isinstance(value, str):
        return rebased(value, start, folder)
    if isinstance(value, list):
        return [_moved(item, start, folder, key) for item in value]
    if isinstance(value, dict):
        paths = {"path"} if key == "images" else value.keys()
        return {name: _moved(item, start, folder, key) if name in paths else item for name, item in value.items()}
    return value
