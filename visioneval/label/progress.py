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
from visioneval.records.fields import Moment, SampleIndex
from visioneval.records.labels import Digest, Rater
from visioneval.records.reader import GrowingFile, read_lines
from visioneval.records.stores.lookup import append_shared
from visioneval.records.untrusted_json import SCHEMA_VERSION
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
    """One rater's progress. ``done`` maps items to their last step and its time; ``order`` is the order of steps."""

    done: dict[ItemKey, tuple[str, datetime]] = field(default_factory=dict)
    order: list[ItemKey] = field(default_factory=list)
    undone: list[ItemKey] = field(default_factory=list)

    def apply(self, step: LabelStep, at: str) -> None:
        """Applies one step."""
        for keys in (self.order, self.undone):
            if step.key in keys:
                keys.remove(step.key)
        if step.did in ("answered", "skipped"):
            self.order.append(step.key)
            self.done[step.key] = step.did, datetime.fromisoformat(at)
            return
        self.done.pop(step.key, None)
        if step.did == "undone":
            self.undone.append(step.key)

    def is_done(self, item: Item, now: datetime) -> bool:
        """Whether an item is done. Anchors expire after ``ANCHOR_VALIDITY``."""
        entry = self.done.get(item.key)
        return entry is not None and (item.turn != "anchor" or now - entry[1] < ANCHOR_VALIDITY)

    def is_skipped(self, item: Item) -> bool:
        """Whether the item was skipped."""
        return self.done.get(item.key, ("", None))[0] == "skipped"

    def count_done(self, queue: Queue, now: datetime) -> int:
        """The number of done items in a queue."""
        return sum(self.is_done(queue[key], now) for key in self.done if key in queue)

    def skipped_items(self, queue: Queue) -> list[Item]:
        """The skipped items of a queue, in order."""
        return [queue[key] for key in self.order if key in queue and self.is_skipped(queue[key])]

    def next_items(self, queue: Queue, now: datetime, count: int) -> list[Item]:
        """The next items, at most ``count``: undone items first, then the order of the queue."""
        again = [queue[key] for key in reversed(self.undone) if key in queue]
        upcoming = (item for item in queue.values() if not self.is_done(item, now) and item not in again)
        return list(islice(chain(again, upcoming), count))

    def last_item(self, queue: Queue) -> Item | None:
        """The last answered or skipped item of the queue, which *undo* reverts."""
        return next((queue[key] for key in reversed(self.order) if key in queue), None)
