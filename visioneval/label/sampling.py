"""Selects cells or pairs to label and their order, also by random draws. Pure functions of a seed and the records.

All choices use hashes of the seed and the item, so that they stay the same when a run grows or a server restarts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import zip_longest
from typing import Any, Literal

from visioneval.errors import UsageError
from visioneval.records.labels import CellDraw, DrawnCell, Images, RecordedDraw, draw_id, frame_of
from visioneval.records.model import CellKey, Record
from visioneval.suite.prompts import paired_by_prompt
from visioneval.types import Status

Turn = Literal["anchor", "first", "repeat"]
SubjectKey = tuple[str, str, int, str | None]
ItemKey = tuple[str, str, int, str | None, Turn]
Queue = dict[ItemKey, "Item"]
"""A rater's items in order."""
Weight = Callable[[Record], float]
_SELECTION = re.compile(r"all|(random|stratified|disputed):([1-9][0-9]{0,8})")
RANDOM_KINDS = ("random", "stratified")
"""The kinds of ``--which`` that draw cells with known probabilities."""
_ALL = "all"
_NO_ID = "0" * 12
_REPEAT_DISTANCE = 10
"""Minimum number of items between an item and its repetition, if the queue is long enough."""


@dataclass(frozen=True, slots=True)
class SelectionSpec:
    """The value of ``--which``; ``count`` is ``None`` for all."""

    kind: str
    count: int | None = None

    @classmethod
    def parse(cls, text: str) -> SelectionSpec:
        """``all``, ``random:N``, ``stratified:N`` or ``disputed:N``. Raises ``UsageError``."""
        match = _SELECTION.fullmatch(text)
        if match is None:
            raise UsageError(f"--which {text!r}: write all, random:N, stratified:N or disputed:N")
        return cls("all") if match[1] is None else cls(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cell to label, or a cell and the cell it is compared with (``RUN_ID@label``)."""

    record: Record
    other: Record | None = None
    other_name: str | None = None

    @property
    def key(self) -> SubjectKey:
        """The cell and the name of the other model run."""
        return (*self.record.cell, self.other_name)

    @property
    def outputs(self) -> Images:
        """The hashes of its outputs."""
        return self.record.artifact_sha256, self.other.artifact_sha256 if self.other else None

    @property
    def named(self) -> dict[str, Any]:
        """What lines about it name it by."""
        output, other = self.outputs
        return {**_named(self.record), "other": self.other_name, "artifact_sha256": output, "other_sha256": other}


def _named(record: Record) -> dict[str, Any]:
    return dict(zip(("test_id", "model_label", "sample_index"), record.cell, strict=True))


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a rater's queue. ``id`` is opaque; progress is stored by ``key``."""

    id: str
    subject: Candidate
    key: ItemKey

    @property
    def turn(self) -> Turn:
        """Why the item is in the queue."""
        return self.key[4]

    @property
    def swapped(self) -> bool:
        """Whether the cell itself is shown on the right."""
        return self.id[-1] in "13579bdf"


def rank(seed: int, *parts: object) -> str:
    """A deterministic hexadecimal hash of a seed and values, used as a shuffled sort key."""
    return blake2b(repr((seed, *parts)).encode("utf-8", "replace"), digest_size=12).hexdigest()


def select_candidates(
    subjects: Sequence[Candidate], selection: SelectionSpec, seed: int, weight: Weight
) -> list[Candidate]:
    """The selected subjects, the same for every rater.

    ``stratified`` takes one of each verdict in turn, in a new random order each time, so that the order of the result
    does not give a verdict away. ``disputed`` takes those with the highest positive weight. With the same seed, a
    smaller ``random`` or ``stratified`` selection is the beginning of a larger one.
    """

    def by(purpose: str) -> Callable[[Candidate], str]:
        return lambda subject: rank(seed, purpose, subject.record.cell, subject.other_name)

    shuffled = sorted(subjects, key=by("choose"))
    if selection.kind == "stratified":
        verdicts = sorted({subject.record.verdict for subject in shuffled})
        rows = zip_longest(
            *([subject for subject in shuffled if subject.record.verdict == verdict] for verdict in verdicts)
        )
        shuffled = [subject for row in rows for subject in sorted(filter(None, row), key=by("order"))]
    elif selection.kind == "disputed":
        weighted = [(weight(subject.record), subject) for subject in shuffled]
        disputed = [pair for pair in weighted if pair[0] > 0]
        shuffled = [subject for _, subject in sorted(disputed, key=lambda pair: -pair[0])]
    return shuffled[: selection.count]


def build_queue(
    subjects: Iterable[Candidate],
    anchors: Iterable[Candidate],
    rater: str,
    seed: int,
    repeat: float = 0.0,
    *,
    is_draw: bool = False,
) -> list[Item]:
    """A rater's items: the anchors, then the rest, of which a share is repeated.

    The rest has a random order per rater; that of a draw, which is random already, is the same for all raters, so that
    they label the same part of it. ``repeat`` is 0 to 1. If the queue is long enough, at least ten items lie between an
    item and its repetition.
    """

    def items(candidates: Iterable[Candidate], turn: Turn) -> list[Item]:
        keys = ((candidate, (*candidate.key, turn)) for candidate in candidates)
        return [Item(rank(seed, rater, key), candidate, key) for candidate, key in keys]

    first = sorted(items(anchors, "anchor"), key=_by_id)
    anchored = {item.subject.record.cell for item in first}
    rest = items((subject for subject in subjects if subject.record.cell not in anchored), "first")
    if not is_draw:
        rest.sort(key=_by_id)
    ranks = [rank(seed, "again", item.id) for item in rest]
    too_late = len(rest) - _REPEAT_DISTANCE  # at the end, there are not enough items in between
    repeated = sorted(range(len(rest)), key=lambda at: (at >= too_late, ranks[at]))[: round(repeat * len(rest))]
    positioned = [(float(at), item) for at, item in enumerate(rest)]
    for at, again in zip(repeated, items((rest[at].subject for at in repeated), "repeat"), strict=True):
        positioned.append((at + _REPEAT_DISTANCE + int(rest[at].id, 16) % (len(rest) // 2 + 1) + 0.5, again))
    return first + [item for _, item in sorted(positioned, key=lambda entry: (entry[0], entry[1].id))]


def _by_id(item: Item) -> str:
    return item.id


def pairs(records: Sequence[Record], others: Sequence[Record], other_run: str) -> list[Candidate]:
    """Pairs every cell with the cell of the other run for the same case and sample.

    Uses the same model run if the other run has it, else the one that differs only in the prompt, else the only one.
    Never pairs a cell with itself. Raises ``UsageError`` if the model run is ambiguous.
    """
    labels = sorted({entry.model_label for entry in others})
    by_cell: dict[CellKey, Record] = {entry.cell: entry for entry in others}
    own_labels = {entry.model_label for entry in records}
    counterparts = {} if own_labels & set(labels) else paired_by_prompt(sorted(own_labels), labels)
    unmatched = own_labels - set(labels) - counterparts.keys()
    if len(labels) > 1 and unmatched:
        names = ", ".join(labels[:5])
        raise UsageError(f"--pairs {other_run}: ambiguous model run; write {other_run}@LABEL (available: {names})")
    candidates = []
    for record in records:
        only = labels[0] if labels else ""
        label = record.model_label if record.model_label in labels else counterparts.get(record.model_label, only)
        other = by_cell.get((record.test_id, label, record.sample_index))
        if other is not None and (other.run_id, other.cell) != (record.run_id, record.cell):
            candidates.append(Candidate(record, other, f"{other.run_id}@{label}"))
    return candidates


def draw_cells(records: Sequence[Record], which: SelectionSpec, seed: int, now: datetime) -> RecordedDraw:
    """Draws from the cells with an output: ``random`` from all, ``stratified`` from the cells of each verdict.

    The same seed draws the same cells from runs with the same cells and verdicts. Raises ``UsageError`` if no cell has
    an output.
    """
    candidates = [Candidate(record) for record in records if record.status is Status.COMPLETED]
    if not candidates:
        raise UsageError("no cell has an output to draw from")
    drawn = select_candidates(candidates, which, seed, lambda _: 0.0)

    def stratum_of(subject: Candidate) -> str:
        return str(subject.record.verdict) if which.kind == "stratified" else _ALL

    population, sizes = Counter(map(stratum_of, candidates)), Counter(map(stratum_of, drawn))
    if len(sizes) < len(population):
        raise UsageError(f"stratified:{which.count}: there are cells with {len(population)} verdicts: draw more cells")
    shares = {stratum: sizes[stratum] / number for stratum, number in population.items()}
    strata = [(subject.record, stratum_of(subject)) for subject in drawn]
    cells = [DrawnCell(draw=_NO_ID, **_named(record), stratum=of, probability=shares[of]) for record, of in strata]
    frame, text = frame_of(records), f"{which.kind}:{which.count}"
    draw = draw_id(text, seed, frame, cells)
    about = CellDraw(draw=draw, which=text, seed=seed, frame=frame)
    identified = tuple(cell.model_copy(update={"draw": draw}) for cell in cells)
    return RecordedDraw(now.isoformat(timespec="seconds"), about, identified)
