"""Human labels of the cells of a run, and the random draws that chose what to label.

``labels.jsonl`` and ``anchors.jsonl``, read and written only here, have one answer per line, appended and never
changed. The newest answer of a rater to a question about a cell counts; older ones stay in the file to measure how
consistent a rater is.

In ``labeling_draws.jsonl``, a draw is one line about it, and then one line per drawn cell in the order in which the
cells are to be labeled. Only labels of a recorded draw say something about the cells that nobody labeled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from visioneval.errors import RunFormatError, UsageError
from visioneval.records.model import Record, RunInfo
from visioneval.records.reader import read_lines
from visioneval.records.stores.lookup import append_shared
from visioneval.records.untrusted import SCHEMA_VERSION, CellCount, Duration, ModelLabel, Moment, OfCell, SampleIndex
from visioneval.suite.files import ONE_LINE, Trust
from visioneval.types import Frozen, Score, Status

LABELS, ANCHORS = "labels.jsonl", "anchors.jsonl"

Answer = Score | str | tuple[str, ...]
"""A boolean; a step of a scale; a choice, a free text, or ``a``, ``b``, ``tie`` for a pair; the selected tags in suite
order; ``None`` if the question was skipped or the answer was withdrawn."""
LabelKey = tuple[str, str, str, int, str | None, str]
AS_FORMULA = re.compile(r"[\s']*[=+\-@]")
"""Matches the start of a text that a spreadsheet would treat as a formula; exports prefix it with an apostrophe."""
Images = tuple[str | None, str | None]
PAIR_ANSWERS = ("a", "b", "tie")


Rater = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80, pattern=ONE_LINE)]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Line = Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=ONE_LINE)]


class Seen(Protocol):
    """Anything that names the images it is about."""

    @property
    def artifact_sha256(self) -> str | None: ...

    @property
    def other_sha256(self) -> str | None: ...


class Label(OfCell, Frozen):
    """One answer. For a pair, the cell itself is ``a``, and ``other``, a ``RUN_ID@label``, is ``b``.

    ``artifact_sha256`` is the hash of the labeled image, and ``other_sha256`` that of the other image of a pair;
    ``None`` if not recorded. ``seconds`` is the rater's time for the answer, ``None`` if not measured; ``at`` is the
    time of the answer in UTC. ``source`` is ``anchor`` for an agreed answer, and for an answer to an item that was
    shown because it has an agreed one.
    """

    schema_version: int = SCHEMA_VERSION
    """2."""
    rater: Rater
    """Who answered."""
    test_id: Line
    """The case."""
    model_label: Line
    """The model run."""
    sample_index: SampleIndex
    """Starts at 0."""
    other: Line | None = None
    """For a pair: ``RUN_ID@label`` of the image ``b`` (the cell itself is ``a``); otherwise ``null``."""
    question: Line
    """The question's key; the reason for the answer to a pair is stored under ``<key>.why``."""
    answer: Answer
    """True or false, a step of the scale, a choice, a list of tags, a text, or ``a``, ``b``, ``tie``; ``null`` if the
    question was skipped or the answer was withdrawn.
    """
    seconds: Duration | None = None
    """How long the rater looked, or ``null``."""
    at: Moment
    """Time of the answer, in UTC. Of several answers of a rater to a question about a cell, the latest counts. Earlier
    ones stay, unless withdrawn, and measure the rater's consistency.
    """
    source: Literal["page", "import", "anchor"]
    """``page``, ``import``, or ``anchor`` for an item with an agreed answer."""
    artifact_sha256: Digest | None = None
    """Hash of the image that the rater saw. The label counts for this image only: after the cell was generated again,
    ``label`` asks again. ``null`` if it was not recorded: the label counts for any image of the cell.
    """
    other_sha256: Digest | None = None
    """For a pair: hash of the image ``b``."""

    @property
    def key(self) -> LabelKey:
        """Identifies the rater, the cell and the question."""
        return self.rater, *self.cell, self.other, self.question


_RATER: TypeAdapter[str] = TypeAdapter(Rater)


def rater_name(text: str) -> str:
    """The normalized name of a rater. Raises ``UsageError``."""
    try:
        return _RATER.validate_python(text)
    except ValidationError:
        raise UsageError("a rater's name must be one line of 1 to 80 characters") from None


def append_labels(path: Path, labels: Sequence[Label]) -> None:
    """Appends answers to a file, all or none, and syncs them to disk. Raises ``StorageError``."""
    append_shared(path, [label.model_dump_json().encode() for label in labels])


def read_labels(path: Path) -> list[Label]:
    """All answers of a file in order; empty if the file does not exist.

    Raises ``RunFormatError`` with file and line. Ignores a truncated last line.
    """
    return list(read_lines(path, Label, "label"))


def is_current(images: Images, label: Seen) -> bool:
    """Whether a label is about the current ``images`` of the cell and of the other cell of a pair.

    It is not if an image was generated again since. Unknown hashes count as equal.
    """
    pairs = zip((label.artifact_sha256, label.other_sha256), images, strict=True)
    return all(then is None or now is None or then == now for then, now in pairs)


def drop_outdated(labels: Sequence[Label], images: Callable[[Label], Images]) -> tuple[list[Label], int]:
    """The current labels, and the number of counting answers that have no current label."""
    current = [label for label in labels if is_current(images(label), label)]
    return current, len({label.key for label in newest(labels)} - {label.key for label in current})


def newest(labels: Iterable[Label]) -> list[Label]:
    """The answers that count: the last one per rater, cell and question, without withdrawn answers."""
    last = {label.key: label for label in labels}
    return [label for label in last.values() if label.answer is not None]


def read_anchors(folder: Path, info: RunInfo) -> list[Label]:
    """The agreed answers for a run: from its ``anchors.jsonl``, or else from the file that its suite names.

    Raises ``RunFormatError``.
    """
    run_anchors = folder / ANCHORS
    suite_file = info.suite.labels.anchors if info.suite.labels else None
    if run_anchors.exists() or suite_file is None:
        return newest(read_labels(run_anchors))
    suite = Path(info.suite_path).parent
    if refusal := Trust.for_run_suite().refusal(suite_file, suite):
        raise RunFormatError(f"labels.anchors: {refusal.partition(', or pass')[0]}")
    return newest(read_labels(suite / suite_file))


DRAWS = "labeling_draws.jsonl"
DrawId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{12}$")]


class FrameRun(Frozen):
    """A model run that was drawn from: the number of its cells with an output, and a hash of their names."""

    model_label: ModelLabel
    cells: CellCount
    cells_sha256: Digest


class CellDraw(Frozen):
    """A draw. ``draw`` identifies it, ``which`` is the request, and ``frame`` the cells that it was drawn from."""

    draw: DrawId
    """Identifies the draw: a hash of its contents."""
    which: Annotated[str, StringConstraints(pattern="^(random|stratified):[1-9][0-9]{0,8}$")]
    """``random:N`` or ``stratified:N``."""
    seed: Annotated[int, Field(ge=0)]
    """The seed of the draw."""
    frame: tuple[FrameRun, ...]
    """What was drawn from: for each model run its ``model_label``, the number of its ``cells`` with an output, and
    ``cells_sha256``, a hash of their names.
    """


class DrawnCell(OfCell, Frozen):
    """A drawn cell. ``probability`` is that of being drawn, above 0 and equal for all cells of its ``stratum``."""

    draw: DrawId
    """The draw."""
    test_id: Line
    """The case."""
    model_label: ModelLabel
    """The model run."""
    sample_index: SampleIndex
    """Starts at 0."""
    stratum: Line
    """``all``, or the verdict when it was drawn."""
    probability: Annotated[float, Field(gt=0, le=1)]
    """The drawn share of the cells of its stratum, above 0 and at most 1. ``agreement --correct`` weighs a label by 1 /
    ``probability``.
    """


class DrawEntry(Frozen):
    """One line of the file: a draw or a drawn cell."""

    schema_version: int = SCHEMA_VERSION
    at: Moment
    draw: CellDraw | None = None
    cell: DrawnCell | None = None


@dataclass(frozen=True, slots=True)
class RecordedDraw:
    """A draw with its cells, in order. ``at`` is when it was drawn."""

    at: str
    about: CellDraw
    cells: tuple[DrawnCell, ...]


def frame_of(records: Iterable[Record]) -> tuple[FrameRun, ...]:
    """The cells with an output by model run, in the order of their labels."""
    cells: dict[str, list[str]] = {}
    for record in records:
        if record.status is Status.COMPLETED:
            cells.setdefault(record.model_label, []).append(repr((record.test_id, record.sample_index)))
    return tuple(
        FrameRun(
            model_label=label, cells=len(names), cells_sha256=sha256("\n".join(sorted(names)).encode()).hexdigest()
        )
        for label, names in sorted(cells.items())
    )


def draw_id(which: str, seed: int, frame: Sequence[FrameRun], cells: Sequence[DrawnCell]) -> str:
    """The id of a draw: a hash of its contents, so that a changed or incomplete draw is found."""
    drawn = [cell.model_dump(exclude={"draw"}) for cell in cells]
    contents = [which, seed, [part.model_dump() for part in frame], drawn]
    return sha256(json.dumps(contents).encode()).hexdigest()[:12]


def append_draw(folder: Path, draw: RecordedDraw) -> None:
    """Adds a draw to a run, unless the run has it. Raises ``StorageError`` and ``RunFormatError``."""
    if any(draw.about.draw == known.about.draw for known in read_draws(folder)):
        return
    entries = [DrawEntry(at=draw.at, draw=draw.about), *(DrawEntry(at=draw.at, cell=cell) for cell in draw.cells)]
    append_shared(folder / DRAWS, [entry.model_dump_json(exclude_none=True).encode() for entry in entries])


def read_draws(folder: Path) -> list[RecordedDraw]:
    """All draws of a run, oldest first; empty if there are none. Raises ``RunFormatError`` with file and line."""
    path = folder / DRAWS
    headers: dict[str, tuple[str, CellDraw]] = {}
    cells: dict[str, list[DrawnCell]] = {}
    for entry in read_lines(path, DrawEntry, "draw"):
        if entry.draw is not None:
            headers[entry.draw.draw] = entry.at, entry.draw
        if entry.cell is not None:
            if entry.cell.draw not in headers:
                raise RunFormatError(
                    f"{path}: a cell of the unknown draw {entry.cell.draw}: restore or delete the file"
                )
            cells.setdefault(entry.cell.draw, []).append(entry.cell)
    draws = []
    for draw, (at, about) in headers.items():
        drawn = tuple(cells.get(draw, ()))
        if len({cell.cell for cell in drawn}) < len(drawn):
            raise RunFormatError(f"{path}: the draw {draw} has a cell twice: restore or delete the file")
        if draw != draw_id(about.which, about.seed, about.frame, drawn):
            raise RunFormatError(
                f"{path}: the draw {draw} was changed or is incomplete: restore the file, or delete it"
            )
        draws.append(RecordedDraw(at, about, drawn))
    return draws
