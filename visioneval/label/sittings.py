"""The progress of raters in ``labeling.jsonl``, beside ``labels.jsonl``. Only this module reads or writes it.

``labels.jsonl`` stores answers. This file stores sessions with their seeds, and the steps of raters, so that a
restarted server resumes where the rater stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from visioneval.label.sampling import ItemKey, Turn
from visioneval.records.fields import Moment, SampleIndex
from visioneval.records.labels import Digest, Rater
from visioneval.records.reader import GrowingFile, read_lines
from visioneval.records.stores.lookup import append_shared
from visioneval.records.untrusted_json import SCHEMA_VERSION
from visioneval.types import Frozen

PROGRESS = "labeling.jsonl"


class LabelSession(Frozen):
    """The settings of one start of the server. ``seed`` shuffles order and sides."""

    which: str
    repeat: Annotated[float, Field(ge=0, le=1)]
    cells: str | None = None
    pairs: str | None = None
    seed: Annotated[int, Field(ge=0)]

    def has_same_request(self, other: LabelSession) -> bool:
        """Whether two sessions are equal except for their seeds."""
        return self.model_copy(update={"seed": other.seed}) == other


class LabelStep(Frozen):
    """What a rater did with one item. ``reopened``: a skipped item will be shown again."""

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
        """The key of the item."""
        return self.test_id, self.model_label, self.sample_index, self.other, self.turn


class SessionEntry(Frozen):
    """One line of the file: a session or a step."""

    schema_version: int = SCHEMA_VERSION
    at: Moment
    session: LabelSession | None = None
    step: LabelStep | None = None


_ENTRY: TypeAdapter[SessionEntry] = TypeAdapter(SessionEntry)


def append_entries(folder: Path, entries: Iterable[SessionEntry]) -> None:
    """Appends lines atomically and durably. Raises ``StorageError``."""
    append_shared(folder / PROGRESS, [entry.model_dump_json().encode() for entry in entries])


def read_entries(folder: Path) -> list[SessionEntry]:
    """All lines, oldest first; empty if the file is missing. Raises ``RunFormatError`` with file and line."""
    path = folder / PROGRESS
    return list(read_lines(path, _ENTRY, "labeling")) if path.exists() else []


def growing_entries(folder: Path) -> GrowingFile[SessionEntry]:
    """The lines of a file that other servers append to."""
    return GrowingFile(folder / PROGRESS, _ENTRY, "labeling")
