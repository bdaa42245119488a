"""The text of a suite while it is loaded: raw data gathered from its files, where it came from, what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visioneval.errors import Problem
from visioneval.media.urls import is_url
from visioneval.suite.loading.messages import Loc, explain, in_document, worth_telling
from visioneval.suite.loading.paths import rebased
from visioneval.suite.loading.yaml_reader import Places, positions

OF_A_KEY = {"extra_forbidden"}


@dataclass(slots=True)
class Source:
    """One file that suite text came from; positions are worked out when a problem needs them."""

    name: str
    text: str
    _places: Places | None = None

    def place(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """File, line and column of the deepest part of ``loc`` that the text holds."""
        if self._places is None:
            self._places = positions(self.text, self.name)
        of_key = of_key or loc[-1:] == ("[key]",)
        key_at, value_at, whole = self._places.find([step for step in loc if step != "[key]"])
        if not whole and "masks" in loc:
            key_at, value_at, _ = self._places.find(["mask" if step == "masks" else step for step in loc])
        return (self.name, *(key_at if of_key and whole else value_at))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a case was written: at ``loc`` in a file of YAML, or on a line of a dataset."""

    source: Source | str
    loc: Loc = ()
    line: int = 0


@dataclass(slots=True)
class Document:
    """A suite's raw data, with the cases of all its files, and what is wrong with it."""

    source: Source
    data: dict[str, Any]
    cases: list[Any] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def place(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """Where ``loc``, a path in the gathered suite, stands in the files."""
        if len(loc) >= 2 and loc[0] == "cases" and isinstance(loc[1], int) and loc[1] < len(self.origins):
            origin = self.origins[loc[1]]
            if isinstance(origin.source, str):
                return origin.source, origin.line, 1
            return origin.source.place((*origin.loc, *loc[2:]), of_key=of_key)
        return self.source.place(loc, of_key=of_key)

    def report(self, loc: Sequence[str | int], message: str, *, of_key: bool = False) -> None:
        """Adds a problem at ``loc``."""
        self.problems.append(Problem(*self.place(loc, of_key=of_key), message))

    def report_misfits(
        self, errors: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], source: Source | None = None, at: Loc = ()
    ) -> None:
        """Adds a problem for every entry of a pydantic ``errors()`` list about what stands ``at`` a place of a file."""
        for error in worth_telling(errors):
            loc, of_key = (*at, *in_document(error["loc"])), error["type"] in OF_A_KEY
            place = source.place(loc, of_key=of_key) if source else self.place(loc, of_key=of_key)
            self.problems.append(Problem(*place, explain(error, schema)))

    def shown(self, path: str, folder: Path, suite_folder: Path) -> str:
        """How a file that a file of ``folder`` names is called in problems: from where the suite was named."""
        if is_url(path):
            return path
        return (Path(self.source.name).parent / rebased(path, folder, suite_folder)).as_posix()
