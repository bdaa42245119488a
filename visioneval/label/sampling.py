"""Which cells or pairs a rater is asked about, and in what order. Pure: a seed and the records decide.

Every choice is made by the rank of a hash of the seed and the thing itself, so that a run that grows, or a server that
starts again, moves nothing that was already decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import Literal

from visioneval.errors import UsageError
from visioneval.records.labels import Images
from visioneval.records.model import CellKey, Record

Turn = Literal["anchor", "first", "repeat"]
SubjectKey = tuple[str, str, int, str | None]
ItemKey = tuple[str, str, int, str | None, Turn]
Weight = Callable[[Record], float]
_WHICH = re.compile(r"all|(random|stratified|disputed):([1-9][0-9]{0,8})")
_APART = 10
"""Items between a first look and its repetition, where the deck is long enough."""


@dataclass(frozen=True, slots=True)
class Which:
    """What ``--which`` asks for; ``count`` is ``None`` for all."""

    kind: str
    count: int | None = None

    @classmethod
    def parse(cls, text: str) -> Which:
        """``all``, ``random:N``, ``stratified:N`` or ``disputed:N``. Raises ``UsageError``."""
        match = _WHICH.fullmatch(text)
        if match is None:
            raise UsageError(f"--which {text!r}: write all, random:N, stratified:N or disputed:N")
        return cls("all") if match[1] is None else cls(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one question is about: a cell, or a cell and the one that it is held against (``RUN_ID@label``)."""

    record: Record
    other: Record | None = None
    other_name: str | None = None

    @property
    def key(self) -> SubjectKey:
        """The cell, and the other one's name."""
        return (*self.record.cell, self.other_name)

    @property
    def outputs(self) -> Images:
        """The hashes of its images."""
        return self.record.artifact_sha256, self.other.artifact_sha256 if self.other else None


@dataclass(frozen=True, slots=True)
class Item:
    """One place in a rater's deck. ``id`` tells nothing about it; progress is kept by ``key``."""

    id: str
    subject: Candidate
    key: ItemKey

    @property
    def turn(self) -> Turn:
        """Why it is asked."""
        return self.key[4]

    @property
    def swapped(self) -> bool:
        """Whether the cell itself stands on the right."""
        return self.id[-1] in "13579bdf"


class Sampling:
    """A rater's items in order, and by id and by key."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = tuple(items)
        self.by_id = {item.id: item for item in items}
        self.by_key = {item.key: item for item in items}

    def __len__(self) -> int:
        return len(self.items)


def rank(seed: int, *words: object) -> str:
    """A number in hexadecimal that a seed and some words always give, and that orders things as if shuffled."""
    return blake2b(repr((seed, *words)).encode("utf-8", "replace"), digest_size=12).hexdigest()


def choose(subjects: Sequence[Candidate], which: Which, seed: int, weight: Weight) -> list[Candidate]:
    """The subjects that ``which`` asks for, the same for every rater.

    ``stratified`` takes from the verdicts in turn, as long as each has any. ``disputed`` takes the heaviest, and none
    that nobody disputes.
    """
    shuffled = sorted(subjects, key=lambda each: rank(seed, "choose", each.record.cell, each.other_name))
    if which.kind == "stratified":
        verdicts = sorted({each.record.verdict for each in shuffled})
        rows = zip_longest(*([each for each in shuffled if each.record.verdict == one] for one in verdicts))
        shuffled = [each for row in rows for each in row if each is not None]
    elif which.kind == "disputed":
        weighed = [(weight(each.record), each) for each in shuffled]
        shuffled = [each for _, each in sorted((one for one in weighed if one[0] > 0), key=lambda one: -one[0])]
    return shuffled[: which.count]


def deal(
    subjects: Iterable[Candidate], anchors: Iterable[Candidate], rater: str, seed: int, repeat: float = 0.0
) -> list[Item]:
    """A rater's deck: the anchors, then the rest in an order of his own, of which a share comes back later.

    ``repeat`` is 0 to 1. Where the deck is long enough, a repetition comes at least ten items after the first look.
    """

    def items(some: Iterable[Candidate], turn: Turn) -> list[Item]:
        keys = ((each, (*each.record.cell, each.other_name, turn)) for each in some)
        return [Item(rank(seed, rater, key), each, key) for each, key in keys]

    first = sorted(items(anchors, "anchor"), key=_by_id)
    opened = {each.subject.record.cell for each in first}
    rest = sorted(items((each for each in subjects if each.record.cell not in opened), "first"), key=_by_id)
    again = _repeated([rank(seed, "again", each.id) for each in rest], round(repeat * len(rest))) if repeat else []
    later = {at: at + _APART + int(rest[at].id, 16) % (len(rest) // 2 + 1) for at in again}
    repeats = items((rest[at].subject for at in again), "repeat")
    placed = [(float(at), each) for at, each in enumerate(rest)]
    placed += [(later[at] + 0.5, each) for at, each in zip(again, repeats, strict=True)]
    return first + [each for _, each in sorted(placed, key=lambda one: (one[0], one[1].id))]


def _by_id(item: Item) -> str:
    return item.id


def _repeated(ranks: Sequence[str], count: int) -> list[int]:
    """Which places come back: by rank, those first that leave room between the two looks."""
    order = sorted(range(len(ranks)), key=lambda at: (at >= len(ranks) - _APART, ranks[at]))
    return order[:count]


def pairs(records: Sequence[Record], others: Sequence[Record], other_run: str) -> list[Candidate]:
    """Every cell with the one of the other run for the same case and sample.

    That of the same model run where the other run has it, else of its only model run. A cell is never held against
    itself. Raises ``UsageError`` where it is not clear which model run is meant.
    """
    labels = sorted({each.model_label for each in others})
    by_cell: dict[CellKey, Record] = {each.cell: each for each in others}
    unclear = {each.model_label for each in records} - set(labels)
    if len(labels) > 1 and unclear:
        shown = ", ".join(labels[:5])
        raise UsageError(f"--pairs {other_run}: which model run? Name one, as {other_run}@LABEL (it has {shown})")
    found = []
    for record in records:
        label = record.model_label if record.model_label in labels else labels[0] if labels else ""
        other = by_cell.get((record.test_id, label, record.sample_index))
        if other is not None and (other.run_id, other.cell) != (record.run_id, record.cell):
            found.append(Candidate(record, other, f"{other.run_id}@{label}"))
    return found
