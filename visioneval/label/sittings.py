"""How far each rater is: ``labeling.jsonl``, beside ``labels.jsonl``. Only this module reads or writes it.

``labels.jsonl`` says what was answered; this file says what was asked for (the session, with its seed) and which
items a rater is done with, so that a server that was killed goes on where the rater was.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from visioneval.label.sampling import ItemKey, Turn
from visioneval.records.fields import Moment, SampleIndex
from visioneval.records.jsonl import append_lines
from visioneval.records.labels import Digest, Rater
from visioneval.records.model import SCHEMA_VERSION, GrowingFile, each_line
from visioneval.types import Frozen

PROGRESS = "labeling.jsonl"


class LabelSession(Frozen):
    """What one start of the server asks for. ``seed`` shuffles order and sides."""

    which: str
    repeat: Annotated[float, Field(ge=0, le=1)]
    cells: str | None = None
    pairs: str | None = None
    seed: Annotated[int, Field(ge=0)]

    def has_same_request(self, other: LabelSession) -> bool:
        """Whether two sessions differ by nothing but their seed."""
        return self.model_copy(update={"seed": other.seed}) == other


class LabelStep(Frozen):
    """What a rater did with one item. ``reopened``: it was skipped and shall be asked again."""

    rater: Rater
    test_id: str
    model_label: str
    sample_index: SampleIndex
    other: str | None = None
    turn: Turn
    did: Literal["answered", "skipped", "undone", "reopened"]
    artifact_sha256: Digest | None = None
    other_sha256: Digest | None = None

    @property
    def key(self) -> ItemKey:
        """The item, as the deck names it."""
        return self.test_id, self.model_label, self.sample_index, self.other, self.turn


class SessionEntry(Frozen):
    """One line of the file: a session or a step."""

    schema_version: int = SCHEMA_VERSION
    at: Moment
    session: LabelSession | None = None
    step: LabelStep | None = None


_ENTRY: TypeAdapter[SessionEntry] = TypeAdapter(SessionEntry)


def append_entries(folder: Path, entries: Iterable[SessionEntry]) -> None:
    """Adds lines, all or none; when this returns, they are on disk. Raises ``StorageError``."""
    append_lines(folder / PROGRESS, [entry.model_dump_json().encode() for entry in entries])


def read_entries(folder: Path) -> list[SessionEntry]:
    """Every line, oldest first; none where nobody has labeled yet. Raises ``RunFormatError`` with file and line."""
    path = folder / PROGRESS
    return list(each_line(path, _ENTRY, "labeling")) if path.exists() else []


def growing_entries(folder: Path) -> GrowingFile[SessionEntry]:
    """The lines of a file to which other servers add."""
    return GrowingFile(folder / PROGRESS, _ENTRY, "labeling")
