"""A suite while it is loaded: raw data gathered from its files, the origin of each case, and the problems so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from visioneval.errors import Problem
from visioneval.media.urls import is_url, public_address
from visioneval.suite.findings import Loc
from visioneval.suite.loading.messages import error_path, explain, root_errors
from visioneval.suite.loading.paths import rebased
from visioneval.suite.loading.yaml_reader import Positions, read_positions

KEY_ERRORS = {"extra_forbidden"}


@dataclass(slots=True)
class Source:
    """One source file of a suite. Positions are computed only when a problem needs them."""

    name: str
    text: str
    _positions: Positions | None = None

    @property
    def positions(self) -> Positions:
        """The positions of all keys and values."""
        if self._positions is None:
            self._positions = read_positions(self.text, self.name)
        return self._positions

    def has(self, loc: Sequence[str | int]) -> bool:
        """Whether all of ``loc`` exists in the text, where a case's ``mask`` is short for ``masks``."""
        short = ["mask" if step == "masks" else step for step in loc]
        return self._has(loc) or self._has(short)

    def _has(self, loc: Sequence[str | int]) -> bool:
        return all(self.positions.find(loc[:end])[2] for end in range(1, len(loc) + 1))

    def position(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """File, line and column of the deepest part of ``loc`` that exists in the text."""
        of_key = of_key or loc[-1:] == ("[key]",)
        key_at, value_at, is_exact = self.positions.find([step for step in loc if step != "[key]"])
        if not is_exact and "masks" in loc:
            key_at, value_at, _ = self.positions.find(["mask" if step == "masks" else step for step in loc])
        return (self.name, *(key_at if of_key and is_exact else value_at))


@dataclass(frozen=True, slots=True)
class Written:
    """A mapping at ``loc`` of a YAML file with values of many cases, apart from those in ``replaced``."""

    source: Source
    loc: Loc
    replaced: frozenset[str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a case comes from: ``loc`` in a YAML file, or a line of a dataset with its ``defaults``.

    If the case is one of the ``turns`` there, ``turn`` is its index. What the turn does not say is where its case is.
    """

    source: Source | str
    loc: Loc = ()
    line: int = 0
    defaults: Written | None = None
    turn: int | None = None

    def position(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """File, line and column of ``loc``, a path in the case."""
        if self.turn is not None:
            case, in_turn = replace(self, turn=None), ("turns", self.turn, *loc)
            is_shared = loc[:1] != ("prompt",) and not case.has(in_turn[:3]) and case.has(loc[:1])
            is_shared |= self.turn == 0 and loc[:1] == ("images",) and case.has(loc[:2])  # before those of the turn
            return case.position(loc if is_shared else in_turn, of_key=of_key)
        if not isinstance(self.source, str):
            return self.source.position((*self.loc, *loc), of_key=of_key)
        defaults = self.defaults
        if defaults and loc and loc[0] not in defaults.replaced and defaults.source.has((*defaults.loc, loc[0])):
            return defaults.source.position((*defaults.loc, *loc), of_key=of_key)
        return self.source, self.line, 1

    def has(self, loc: Sequence[str | int]) -> bool:
        """Whether all of ``loc``, a path in the case, is in a YAML file."""
        if not isinstance(self.source, str):
            return self.source.has((*self.loc, *loc))
        return self.defaults is not None and self.defaults.source.has((*self.defaults.loc, *loc))


@dataclass(slots=True)
class Document:
    """A suite's raw data with the cases of all its files, and its problems."""

    source: Source
    data: dict[str, Any]
    cases: list[Any] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    """What is read in a way that its author may not expect."""

    def position(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """File, line and column of ``loc``, a path in the gathered suite."""
        if len(loc) >= 2 and loc[0] == "cases" and isinstance(loc[1], int) and loc[1] < len(self.origins):
            return self.origins[loc[1]].position(loc[2:], of_key=of_key)
        return self.source.position(loc, of_key=of_key)

    def report(self, loc: Sequence[str | int], message: str, *, of_key: bool = False) -> None:
        """Adds a problem at ``loc``."""
        self.problems.append(Problem(*self.position(loc, of_key=of_key), message))

    def report_errors(
        self, errors: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], origin: Origin | None = None
    ) -> None:
        """Adds a problem for each entry of a pydantic ``errors()`` list, which checked the data at ``origin``."""
        for error in root_errors(errors):
            loc, of_key = error_path(error, schema), error["type"] in KEY_ERRORS
            position = origin.position(loc, of_key=of_key) if origin else self.position(loc, of_key=of_key)
            self.problems.append(Problem(*position, explain(error, schema)))

    def display_name(self, path: str, folder: Path, suite_folder: Path) -> str:
        """The name in problem messages of a file that a file in ``folder`` refers to."""
        shown = public_address(path)
        if is_url(path):
            return shown
        return (Path(self.source.name).parent / rebased(shown, folder, suite_folder)).as_posix()
