"""The lists of planted bugs: ``*.yaml`` in this folder."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent
_KEYS = {"bug": str, "file": str, "find": str, "replace": str, "tests": list}


class EntryError(Exception):
    """An entry that plants no bug, in one line."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug. ``name`` is its list and number, as in ``engine:3``; ``tests`` are files or node ids of pytest."""

    name: str
    bug: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    @property
    def package(self) -> str:
        """The package that has the bug; for the engine (``running``) also its folder."""
        folders = Path(self.file).parent.parts[1:]
        return "/".join(folders[: 2 if folders[:1] == ("running",) else 1]) or Path(self.file).name

    def planted(self, root: Path) -> str:
        """The text of its file with the bug. Raises ``EntryError``."""
        try:
            text = (root / self.file).read_text(encoding="utf-8")
        except OSError as error:
            raise EntryError(f"{self.file}: {error.strerror}") from None
        count = text.count(self.find)
        if count != 1:
            raise EntryError(f"{self.file}: the text to find occurs {count} times, not once")
        planted = text.replace(self.find, self.replace)
        if planted == text:
            raise EntryError(f"{self.file}: the replacement changes nothing")
        try:
            if self.file.endswith(".py"):
                ast.parse(planted)
        except SyntaxError as error:
            raise EntryError(
                f"{self.file}: with the bug it does not compile: line {error.lineno}: {error.msg}"
            ) from None
        return planted


def read_mutants(names: Sequence[str] = (), folder: Path = FOLDER) -> list[Mutant]:
    """The bugs of all lists, or those of the lists and the single ones named (``engine``, ``engine:3``).

    Raises ``EntryError`` for an invalid list or an unknown name.
    """
    mutants = [mutant for path in sorted(folder.glob("*.yaml")) for mutant in _read_list(path)]
    known = {name for mutant in mutants for name in _names(mutant)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise EntryError(f"there is no list or bug named {', '.join(unknown)}")
    return [mutant for mutant in mutants if not names or not _names(mutant).isdisjoint(names)]


def _names(mutant: Mutant) -> set[str]:
    return {mutant.name, mutant.name.partition(":")[0]}


def _read_list(path: Path) -> list[Mutant]:
    try:
        entries = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise EntryError(f"{path.name}: {' '.join(str(error).split())}") from None
    if not isinstance(entries, list):
        raise EntryError(f"{path.name}: must be a list of bugs")
    return [_mutant(f"{path.stem}:{number}", entry) for number, entry in enumerate(entries, 1)]


def _mutant(name: str, entry: object) -> Mutant:
    if not isinstance(entry, dict) or set(entry) != set(_KEYS):
        raise EntryError(f"{name}: must have exactly the keys {', '.join(_KEYS)}")
    for key, kind in _KEYS.items():
        if not isinstance(entry[key], kind):
            raise EntryError(f"{name}: {key} must be a {kind.__name__}")
    if not entry["tests"] or not all(isinstance(test, str) for test in entry["tests"]):
        raise EntryError(f"{name}: tests must be a list of files or node ids")
    return Mutant(name=name, **{**entry, "tests": tuple(entry["tests"])})
