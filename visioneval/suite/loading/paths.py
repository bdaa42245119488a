"""Paths that a suite names: relative to the file that names them, and no further than trust reaches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from visioneval.media.urls import beside, is_url, unreadable, url_problem


@lru_cache(maxsize=16)
def _real(folder: Path) -> str:
    return os.path.realpath(folder)


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a suite may reach: its own folder and the working directory, or everything."""

    folder: Path
    working: Path
    everything: bool = False
    is_held: bool = False
    """Whether the suite is that of a run, and so the working directory all that it may reach."""

    @classmethod
    def of_held_suite(cls, *, everything: bool = False) -> Self:
        """For the suite in a run, which may be a stranger's: where it says that it lay is no reason to trust."""
        return cls(Path.cwd(), Path.cwd(), everything, is_held=True)

    @property
    def _tops(self) -> tuple[str, str]:
        return _real(self.folder), _real(self.working)

    def refusal(self, path: str, start: Path, *, remote: bool = False) -> str | None:
        """Why ``path``, named in a file of the folder ``start``, must not be read; ``None`` where it may.

        ``remote`` says that it may be a URL.
        """
        if "\x00" in path:
            return "a path cannot hold a NUL character"
        if is_url(path) and remote:
            return unreadable(path) if self.everything else url_problem(path)
        if is_url(path):
            return f"{path!r} is a URL: only datasets and finished images are read from one"
        if self.everything:
            return None
        real = os.path.realpath(start / path)
        if any(real == top or real.startswith(top.rstrip(os.sep) + os.sep) for top in self._tops):
            return None
        if self.is_held:
            return (
                f"{path!r} lies outside the working directory;"
                " run this where the suite lies, or pass --trust-suite if you trust this suite"
            )
        return (
            f"{path!r} lies outside the suite's folder and the working directory;"
            " pass --trust-suite if you trust this suite"
        )


def located(name: str, folder: Path) -> Path | str:
    """Where ``name``, written in a file of ``folder``, is read from: a path, or a URL as it is."""
    return name if is_url(name) else folder / name


def rebased(path: str, start: Path | str, folder: Path) -> str:
    """``path``, named in a file of the folder ``start`` or in the file at a URL, as named from ``folder``."""
    if start == folder or Path(path).is_absolute() or is_url(path) or "\x00" in path:
        return path
    if isinstance(start, str):
        return beside(start, path)
    return Path(os.path.relpath(start / path, folder)).as_posix()


def rebased_case(case: Mapping[str, Any], start: Path | str, folder: Path) -> dict[str, Any]:
    """A raw case whose file paths are named from ``folder``. What is not text is left for the schema to refuse."""
    if start == folder:
        return dict(case)
    named = {key: value for key, value in case.items() if key in ("mask", "masks", "reference", "images", "outputs")}
    return {**case, **{key: _moved(value, start, folder, key) for key, value in named.items()}}


def _moved(value: Any, start: Path | str, folder: Path, key: str) -> Any:
    """Every path in a value: text, a list, a mapping of names to paths, or the ``path`` of an image."""
    if isinstance(value, str):
        return rebased(value, start, folder)
    if isinstance(value, list):
        return [_moved(item, start, folder, "image") for item in value]
    if isinstance(value, dict):
        paths = value.keys() if key in ("masks", "outputs") else {"path"}
        return {name: _moved(item, start, folder, key) if name in paths else item for name, item in value.items()}
    return value
