"""Which of two images judges preferred: ``preferences.jsonl``, read and written here alone.

One line for each time that a pair was shown: each pair is shown twice, once in either order. What is asked again is
appended, and the last line counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, TypeAdapter, model_serializer

from visioneval.atomic import write_whole
from visioneval.errors import StorageError
from visioneval.records.fields import SampleIndex
from visioneval.records.jsonl import append_lines, locked
from visioneval.records.model import SCHEMA_VERSION, CellKey, read_lines
from visioneval.suite.outputs import split_run
from visioneval.types import Frozen

NAME = "preferences.jsonl"
ORDERS: tuple[Literal["a", "b"], ...] = ("a", "b")
PreferenceKey = tuple[str, int, str, str, str, str]


class Preference(Frozen):
    """One answer about one pair, shown in one order. ``a`` and ``b`` are ``RUN_ID@label``.

    ``first`` is the image that was shown first, as "A"; ``answer`` is the one that was preferred, whichever place it
    had, ``None`` where there is an ``error``. ``reason`` is the judge's own: its A is what it was shown first.
    """

    schema_version: int = SCHEMA_VERSION
    test_id: str
    sample_index: SampleIndex
    a: str
    b: str
    first: Literal["a", "b"]
    answer: Literal["a", "b", "tie"] | None
    reason: str | None
    judge: str
    error: str | None
    extra_keys: dict[str, str] | None = None
    """What the judge said beside what it was asked: keys, and the beginnings of their values."""

    @model_serializer(mode="wrap")
    def _omit_extra_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        line: dict[str, Any] = serialize(self)
        return line if self.extra_keys else {name: value for name, value in line.items() if name != "extra_keys"}

    @property
    def key(self) -> PreferenceKey:
        """What makes this an answer to the same question."""
        return self.test_id, self.sample_index, self.a, self.b, self.judge, self.first

    def is_about(self, run_id: str, cells: Collection[CellKey]) -> bool:
        """Whether one of the two is among these cells of a run."""
        sides = (split_run(side) for side in (self.a, self.b))
        return any(run == run_id and (self.test_id, str(label), self.sample_index) in cells for run, label in sides)

    def is_within(self, run_id: str) -> bool:
        """Whether both are of this run."""
        return all(split_run(side)[0] == run_id for side in (self.a, self.b))


_PREFERENCE: TypeAdapter[Preference] = TypeAdapter(Preference)


def append_preferences(folder: Path, preferences: Iterable[Preference]) -> None:
    """Adds answers to those of a run, all or none. Raises ``StorageError``."""
    append_lines(folder / NAME, [preference.model_dump_json().encode() for preference in preferences])


def read_preferences(folder: Path) -> list[Preference]:
    """The answers of a run that count, in the order in which they were first asked for; none where nobody was asked.

    Raises ``RunFormatError`` with file and line. A last line that was cut off is passed over.
    """
    path = folder / NAME
    lines = read_lines(path, _PREFERENCE, "preference") if path.exists() else ()
    return list({preference.key: preference for preference in lines}.values())


def forget_preferences(folder: Path, run_id: str, cells: Collection[CellKey]) -> None:
    """Takes out what was said of cells that are generated or graded again. Raises ``StorageError``."""
    path = folder / NAME
    if not cells or not path.exists():
        return
    try:
        with locked(path):
            remaining = [
                preference for preference in read_preferences(folder) if not preference.is_about(run_id, cells)
            ]
            write_whole(path, "".join(f"{preference.model_dump_json()}\n" for preference in remaining))
    except OSError as error:
        raise StorageError(f"{path}: cannot write: {error.strerror or error}") from error
