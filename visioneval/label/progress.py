"""The progress of raters in ``labeling.jsonl``, beside ``labels.jsonl``. Only this module reads or writes it.

``labels.jsonl`` stores answers. This file stores sessions with their seeds, and the steps of raters, so that a
restarted server resumes where the rater stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from visioneval.label.sampling import Item, ItemKey, Queue, Turn
from visioneval.records.labels import Digest, Rater
from visioneval.records.reader import GrowingFile, read_lines
from visioneval.records.stores.lookup import append_shared
from visioneval.records.untrusted import SCHEMA_VERSION, Moment, SampleIndex
from visioneval.types import Frozen

PROGRESS = "labeling.jsonl"
ANCHOR_VALIDITY = timedelta(hours=12)
"""Anchors are asked again after this time."""


class LabelSession(Frozen):
    """The settings of one start of the server. ``seed`` shuffles order and sides."""

    which: str
    repeat: Annotated[float, Field(ge=0, le=1)]
    cells: str | None = None
    pairs: str | None = None
    seed: Annotated[int, Field(ge=0)]


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


def append_entries(folder: Path, entries: Iterable[SessionEntry]) -> None:
    """Appends lines atomically and durably. Raises ``StorageError``."""
    append_shared(folder / PROGRESS, [entry.model_dump_json().encode() for entry in entries])


def read_entries(folder: Path) -> list[SessionEntry]:
    """All lines, oldest first; empty if the file is missing. Raises ``RunFormatError`` with file and line."""
    return list(read_lines(folder / PROGRESS, SessionEntry, "labeling"))


def growing_entries(folder: Path) -> GrowingFile[SessionEntry]:
    """The lines of a file that other servers append to."""
    return GrowingFile(folder / PROGRESS, SessionEntry, "labeling")


@dataclass(slots=True)
class RaterProgress:
    """One rater's progress: what was done last with each item, and when, in the order of these steps."""

    last: dict[ItemKey, tuple[str, datetime]] = field(default_factory=dict)

    def apply(self, step: LabelStep, at: str) -> None:
        """Applies one step."""
        self.last.pop(step.key, None)
        self.last[step.key] = step.did, datetime.fromisoformat(at)

    def did(self, item: Item) -> str:
        """What was done last with an item; empty if nothing was."""
        return self.last.get(item.key, ("", None))[0]

    def items(self, queue: Queue, *did: str) -> list[Item]:
        """The items of a queue with which this was done last, in order."""
        return [queue[key] for key, (step, _) in self.last.items() if step in did and key in queue]

    def done(self, queue: Queue, now: datetime) -> list[Item]:
        """The items of a queue that are answered or skipped. Anchors expire after ``ANCHOR_VALIDITY``."""
        return [
            item
            for item in self.items(queue, "answered", "skipped")
            if item.turn != "anchor" or now - self.last[item.key][1] < ANCHOR_VALIDITY
        ]

    def next_items(self, queue: Queue, now: datetime, count: int) -> list[Item]:
        """The next items, at most ``count``: undone items first, the last one first, then the order of the queue."""
        again = self.items(queue, "undone")[::-1]
        left_out = {item.key for item in (*again, *self.done(queue, now))}
        return list(islice(chain(again, (item for key, item in queue.items() if key not in left_out)), count))

    def last_item(self, queue: Queue) -> Item | None:
        """The last answered or skipped item of the queue, which *undo* reverts."""
        return next(iter(self.items(queue, "answered", "skipped")[::-1]), None)
