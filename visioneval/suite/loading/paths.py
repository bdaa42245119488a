"""Paths in a suite: relative to the file that contains them, and limited to trusted folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from visioneval.errors import TRUST_HINT
from visioneval.media.urls import beside, is_url, public_address, unreadable, url_problem


@lru_cache(maxsize=16)
def _real(folder: Path) -> str:
    return os.path.realpath(folder)


@dataclass(frozen=True, slots=True)
class Trust:
    """What a suite may access: its own folder and the working directory, or everything."""

    folder: Path
    working: Path
    everything: bool = False
    is_from_run: bool = False
    """Whether the suite comes from a run and may access only the working directory."""

    @classmethod
    def for_run_suite(cls, *, everything: bool = False) -> Self:
        """Trust for the suite in a run. The run may come from a stranger, so its recorded folder is not trusted."""
        return cls(Path.cwd(), Path.cwd(), everything, is_from_run=True)

    @property
    def _tops(self) -> tuple[str, str]:
        return _real(self.folder), _real(self.working)

    def refusal(self, path: str, start: Path, *, remote: bool = False) -> str | None:
        """Why ``path``, named in a file of the folder ``start``, must not be read; ``None`` if it may.

        ``remote`` allows URLs.
        """
        if "\x00" in path:
            return "a path cannot contain a NUL character"
        shown = repr(public_address(path))
        if is_url(path) and remote:
            return unreadable(path) if self.everything else url_problem(path)
        if is_url(path):
            return f"{shown} is a URL: only datasets and existing outputs can be read from URLs"
        if self.everything:
            return None
        real = os.path.realpath(start / path)
        if any(real == top or real.startswith(top.rstrip(os.sep) + os.sep) for top in self._tops):
            return None
        if self.is_from_run:
            return f"{shown} is outside the working directory: run visioneval from the suite's folder, or {TRUST_HINT}"
        return f"{shown} is outside the suite's folder and the working directory: {TRUST_HINT}"


def located(name: str, folder: Path) -> Path | str:
    """Resolves ``name``, written in a file of ``folder``, to a path. A URL stays unchanged."""
    return name if is_url(name) else folder / name


def rebased(path: str, start: Path | str, folder: Path) -> str:
    """Rewrites ``path``, relative to the folder or URL ``start``, to be relative to ``folder``."""
    if start == folder or Path(path).is_absolute() or is_url(path) or "\x00" in path:
        return path
    if isinstance(start, str):
        return beside(start, path)
    return Path(os.path.relpath(start / path, folder)).as_posix()


def rebased_case(case: Mapping[str, Any], start: Path | str, folder: Path) -> dict[str, Any]:
    """Rewrites the file paths of a raw case to be relative to ``folder``. Leaves invalid values to the schema."""
    if start == folder:
        return dict(case)
    named = {key: value for key, value in case.items() if key in ("mask", "masks", "reference", "images", "outputs")}
    moved = {key: _moved(value, start, folder, key) for key, value in named.items()}
    if isinstance(turns := case.get("turns"), list):
        moved["turns"] = [rebased_case(turn, start, folder) if isinstance(turn, dict) else turn for turn in turns]
    return {**case, **moved}


def _moved(value: Any, start: Path | str, folder: Path, key: str) -> Any:
    """Rewrites every path in a value: text, a list, a mapping of names to paths, or the ``path`` of an image."""
    if isinstance(value, str):
        return rebased(value, start, folder)
    if isinstance(value, list):
        return [_moved(item, start, folder, "image") for item in value]
    if isinstance(value, dict):
        paths = value.keys() if key in ("masks", "outputs") else {"path"}
        return {name: _moved(item, start, folder, key) if name in paths else item for name, item in value.items()}
    return value
