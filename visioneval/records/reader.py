"""Reads JSON Lines files, which may be large, growing, damaged or a stranger's: the records of a run, labels and more.

A last line that a kill cut off is ignored. Of several lines about a cell, the last one counts.
"""

from __future__ import annotations

import codecs
import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Generic, Self, TypeVar, overload

from pydantic import ValidationError

from visioneval.errors import RunFormatError
from visioneval.records.model import Record, RunInfo, options_hash, read_info, suite_places
from visioneval.records.untrusted import (
    MOST_SAMPLES,
    SCHEMA_VERSION,
    CellKey,
    NamedCell,
    SampleIndex,
    UnfitJsonError,
    UnreadableJsonError,
    adapter_of,
    bytes_of,
    check_version,
    one_line,
    read_header,
    read_json,
)
from visioneval.suite.filters import Scope, any_glob
from visioneval.types import Metric, Score


@dataclass(frozen=True, slots=True)
class CellColumns:
    """The names of cells, at 12 bytes each: numbers of the names of their cases and model runs, and their samples."""

    cases: Sequence[str]
    labels: Sequence[str]
    case: array[int]
    label: array[int]
    sample: array[int]

    @classmethod
    def of(cls, names: Iterable[CellKey]) -> Self:
        """The columns of cells with these names."""
        cases: dict[str, int] = {}
        labels: dict[str, int] = {}
        case, label, sample = array("i"), array("i"), array("i")
        for test_id, model_label, sample_index in names:
            case.append(cases.setdefault(test_id, len(cases)))
            label.append(labels.setdefault(model_label, len(labels)))
            sample.append(sample_index)
        return cls(list(cases), list(labels), case, label, sample)

    def __len__(self) -> int:
        return len(self.case)

    def name(self, at: int) -> CellKey:
        """The names of one cell."""
        return self.cases[self.case[at]], self.labels[self.label[at]], self.sample[at]

    def names(self) -> Iterator[CellKey]:
        """The names of all cells, in order."""
        cases, labels = self.cases, self.labels
        for case, label, sample in zip(self.case, self.label, self.sample, strict=True):
            yield cases[case], labels[label], sample

    def take(self, positions: Sequence[int]) -> CellColumns:
        """The columns of some of the cells."""
        case, label, sample = (taken(column, positions) for column in (self.case, self.label, self.sample))
        return CellColumns(self.cases, self.labels, case, label, sample)

    @property
    def used_cases(self) -> tuple[str, ...]:
        """The names of the cases of these cells, in order."""
        return tuple(self.cases[number] for number in dict.fromkeys(self.case))

    @property
    def used_labels(self) -> tuple[str, ...]:
        """The labels of the model runs of these cells, in order."""
        return tuple(self.labels[number] for number in dict.fromkeys(self.label))

    def order(self, cases: Sequence[int], labels: Sequence[int]) -> list[int]:
        """The positions sorted by case, model run and sample, given a rank for each case and label.

        Equal cells stay in their order. Each position is sorted as one number: tuples need three times the memory.
        """
        count, runs = len(self), max(labels, default=0) + 1
        ranks = (
            ((cases[case] * runs + labels[label]) * (MOST_SAMPLES + 1) + sample) * count + at
            for at, (case, label, sample) in enumerate(zip(self.case, self.label, self.sample, strict=True))
        )
        return [rank % count for rank in sorted(ranks)]


def taken(column: array[int], positions: Iterable[int]) -> array[int]:
    """The values at these positions."""
    return array(column.typecode, map(column.__getitem__, positions))


RESULTS = "results.jsonl"
LONGEST_LINE = 64 << 20
"""The maximum length of a line in bytes; a longer line is invalid."""
_CURRENT = f'{{"schema_version":{SCHEMA_VERSION},'.encode()
"""The start of a line that ``RunWriter`` wrote: such a line is parsed once, without a version check."""
PartT = TypeVar("PartT")


CellT = TypeVar("CellT", bound=NamedCell)
Located = tuple[int, CellKey]
"""Where a cell is, and its name."""


@dataclass(frozen=True, eq=False)
class Records(Sequence[CellT]):
    """Cells in order, one for each name, that are read when they are needed: 20 bytes of memory for each.

    Whoever only needs names reads ``columns``, which parses nothing. ``places`` says where each cell is: the byte of
    its file at which its line starts, or the position in a list. ``source`` reads the cells with these places and
    names. ``check`` raises the ``RunFormatError`` of the first invalid record of all in the file.
    """

    columns: CellColumns
    places: array[int]
    source: Callable[[Iterable[Located]], Iterator[CellT]]
    check: Callable[[], None]

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, at: int) -> CellT: ...
    @overload
    def __getitem__(self, at: slice) -> Records[CellT]: ...
    def __getitem__(self, at: int | slice) -> CellT | Records[CellT]:
        positions = range(len(self))[at]
        return self.take(positions) if isinstance(positions, range) else next(self.read((positions,)))

    def __iter__(self) -> Iterator[CellT]:
        return self.read(range(len(self)))

    def names(self) -> Iterator[CellKey]:
        """The case, model run and sample of each cell."""
        return self.columns.names()

    def read(self, positions: Iterable[int]) -> Iterator[CellT]:
        """The cells at these positions, one after another. Raises ``RunFormatError``."""
        return self.source((self.places[at], self.columns.name(at)) for at in positions)

    def take(self, positions: Sequence[int]) -> Records[CellT]:
        """The cells at these positions."""
        return replace(self, columns=self.columns.take(positions), places=taken(self.places, positions))

    def where(self, is_selected: Callable[[CellKey], bool]) -> Records[CellT]:
        """The cells whose names are selected."""
        return self.take([at for at, name in enumerate(self.names()) if is_selected(name)])

    def within(self: Records[Record], scope: Scope) -> Records[Record]:
        """The cells that a scope covers. Reads the records if that depends on more than their model runs."""
        if not (scope.cases or scope.tags or scope.tasks):
            return self.where(lambda name: not scope.models or any_glob(scope.models, name[1]))
        return self.take(
            [
                at
                for at, cell in enumerate(self)
                if scope.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)
            ]
        )

    def in_order(self, info: RunInfo) -> Records[CellT]:
        """The cells in the order of a run's suite: by case, model run and sample; cells that it lacks come last."""
        cases, labels = (
            [places.get(name, len(places)) for name in names]
            for places, names in zip(suite_places(info), (self.columns.cases, self.columns.labels), strict=True)
        )
        return self.take(self.columns.order(cases, labels))

    def changed(self, change: Callable[[CellT], CellT]) -> Records[CellT]:
        """The cells, each of them changed when it is read."""
        before = self.source
        return replace(self, source=lambda located: map(change, before(located)))


def listed(cells: Iterable[CellT]) -> Records[CellT]:
    """Cells that are in memory."""
    items = tuple(cells)
    names = ((cell.test_id, cell.model_label, cell.sample_index) for cell in items)
    columns, places = CellColumns.of(names), array("q", range(len(items)))
    return Records(columns, places, lambda located: (items[at] for at, _ in located), lambda: None)


def open_records(path: Path, select: type[CellT]) -> Records[CellT]:
    """The cells of a file of records, in the order of their last lines.

    ``select`` is ``Record``, or a dataclass of those of its fields that are needed. Finds the names of all cells, and
    checks the records that later lines replaced; the others are checked when they are read. Lines that are appended
    later do not count. Raises ``RunFormatError`` with file and line.
    """
    lines = _Lines(path, select, _score_types(path, select))
    try:
        columns, starts = lines.index()
        order = columns.order(range(len(columns.cases)), range(len(columns.labels)))
        outdated = sorted(at for at, later in pairwise(order) if columns.name(at) == columns.name(later))
        records = Records(columns, starts, lines.read, lines.check)
        for _ in records.read(outdated):
            pass
    except RunFormatError:
        lines.check()
        raise
    replaced = frozenset(outdated)
    return records.take([at for at in range(len(starts)) if at not in replaced]) if replaced else records


def records_of(folder: Path) -> Records[Record]:
    """The records of a run. Raises ``RunFormatError``."""
    return open_records(folder / RESULTS, Record)


def read_records(folder: Path) -> Iterator[Record]:
    """Reads the records of a large or unfinished run one at a time, one per cell, in the order of the file.

    Raises ``RunFormatError`` with file and line.
    """
    yield from records_of(folder)


@dataclass(frozen=True, slots=True)
class _CellName:
    """Identifies the cell of a record."""

    test_id: str
    model_label: str
    sample_index: SampleIndex


def count_cells(folder: Path) -> int:
    """How many cells of a run have records, which are not checked. Raises ``RunFormatError``."""
    return len(open_records(folder / RESULTS, _CellName))


@dataclass(frozen=True, slots=True)
class _Lines(Generic[CellT]):
    """The lines of a file of records."""

    path: Path
    select: type[CellT]
    types: _ScoreTypes | None

    def index(self) -> tuple[CellColumns, array[int]]:
        """The cell of each line, and the byte at which the line starts. Raises ``RunFormatError``."""
        starts = array("q")

        def names(lines: BinaryIO) -> Iterator[CellKey]:
            for line, where in located_lines(lines, self.path, "record"):
                if (name := _name_in(line, where)) is not None:
                    starts.append(lines.tell() - len(line))
                    yield name.test_id, name.model_label, name.sample_index

        with open_lines(self.path) as lines:
            return CellColumns.of(names(lines)), starts

    def read(self, located: Iterable[Located]) -> Iterator[CellT]:
        """The cells with these names whose lines start at these bytes.

        Raises ``RunFormatError``, also if the file has changed.
        """
        try:
            with open_lines(self.path) as lines:
                end = 0
                for start, name in located:
                    if start != end:
                        lines.seek(start)
                    line = lines.readline(LONGEST_LINE)
                    end = start + len(line)
                    cell = parse_line("record", line, str(self.path), self.select)
                    if cell is None or (cell.test_id, cell.model_label, cell.sample_index) != name:
                        break
                    if self.types is not None and self.types.problem(cell) is not None:
                        break
                    yield cell
                else:
                    return
        except RunFormatError:
            pass  # a record is invalid, or no record begins where it did
        self.check()
        raise RunFormatError(f"{self.path}: changed while it was read: run this command again")

    def check(self) -> None:
        """Raises the ``RunFormatError`` of the first invalid line."""
        for _ in read_lines(self.path, self.select, must_exist=True):
            pass


def _name_in(line: bytes, where: str) -> _CellName | None:
    """The cell of a line; ``None`` for a truncated last line. Numbers are only checked when the record is read."""
    if line.startswith(_CURRENT) and line.endswith(b"\n"):
        try:
            return adapter_of(_CellName).validate_json(line)
        except ValidationError:
            pass  # parsed again for the message
    return parse_line("record", line, where, _CellName)


def read_lines(path: Path, model: type[PartT], kind: str = "record", *, must_exist: bool = False) -> Iterator[PartT]:
    """All lines of a file, also those that a later line replaces; none of a file that does not exist.

    ``model`` is their type, and ``kind`` what a line is, for messages. Raises ``RunFormatError`` with file and line,
    also for a file that ``must_exist``.
    """
    if not must_exist and not path.exists():
        return
    types = _score_types(path, model)
    with open_lines(path) as lines:
        for line, where in located_lines(lines, path, kind):
            if (part := parse_line(kind, line, where, model)) is not None:
                if types is not None and (problem := types.problem(part)) is not None:
                    raise UnfitJsonError(f"{where}: {problem}")
                yield part


@dataclass(frozen=True, slots=True)
class _RunMetrics:
    """The part of ``run.json`` with the types of scores."""

    metrics: dict[str, Metric]


class _ScoreTypes:
    """Which scores of a run are words, and of which choices: ``run.json`` says it."""

    def __init__(self, folder: Path, metrics: dict[str, Metric]) -> None:
        self._folder, self._metrics = folder, metrics
        self._words = {name: frozenset(metric.choices) for name, metric in metrics.items()}

    def problem(self, cell: Any) -> str | None:
        """A word of a cell that its metric does not have, or another score of a metric of words; ``None`` if it fits.

        Also in the answers of a panel. A metric that the run does not have fits: a resumed run may have had it before.
        """
        where = self._misfit("scores", cell.scores)
        for place, grader in enumerate(cell.graders):
            for number, answer in enumerate(grader.judges):
                scores = getattr(answer, "scores", {})
                where = where or self._misfit(f"graders.{place}.judges.{number}.scores", scores)
        return None if where is None or self._has_other_options(cell) else where

    def _misfit(self, where: str, scores: dict[str, Score]) -> str | None:
        for name, score in scores.items():
            words = self._words.get(name)
            if score is None or words is None:
                continue
            if (score not in words) if isinstance(score, str) else bool(words):
                metric = self._metrics[name]
                expected = "true, false or null" if metric.type == "bool" else "a number or null"
                if metric.type == "one_of":
                    expected = f"one of {', '.join(metric.choices)}, or null"
                return one_line(f"{where}.{name}: expected {expected}", 400)
        return None

    def _has_other_options(self, cell: Any) -> bool:
        """Whether graders had other options than now: a run that is resumed with a changed suite keeps such scores
        until it grades their cells again."""
        return any(self._hashes.get(grader.key) != grader.fingerprint.config_sha256 for grader in cell.graders)

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return {grader.key: options_hash(grader) for grader in read_info(self._folder).suite.graders}


def _score_types(path: Path, model: type[Any]) -> _ScoreTypes | None:
    """Those of the run in whose folder a file is; ``None`` without one, or if ``model`` has no scores."""
    if "scores" not in model.__annotations__ or not (path.parent / "run.json").is_file():
        return None
    try:
        header = adapter_of(_RunMetrics).validate_json(bytes_of(path.parent / "run.json"))
    except (ValidationError, RunFormatError):  # reported where the run itself is read
        return None
    return _ScoreTypes(path.parent, header.metrics)


@contextmanager
def open_lines(path: Path) -> Iterator[BinaryIO]:
    """Opens a JSON Lines file, and adds advice to its errors."""
    try:
        with path.open("rb") as lines:
            yield lines
    except (UnreadableJsonError, UnfitJsonError) as error:
        raise RunFormatError(f"{error}: delete this line{_advice(path) if _is_of_run(path) else ''}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        if _is_of_run(path):
            is_missing = isinstance(error, FileNotFoundError)
            problem = "the records of this run are missing" if is_missing else f"cannot be read: {reason}"
            reason = (
                f"{problem}: restore this file, or run the suite again with --reuse all, which takes the answers from"
                " the cache"
            )
        raise RunFormatError(f"{path}: {reason}") from None


def _is_of_run(path: Path) -> bool:
    """Whether these are the records of a run, not a file of records that somebody copied."""
    return path.name == RESULTS and (path.parent / "run.json").is_file()


def _advice(path: Path) -> str:
    """How to get the cell of a line back that was deleted."""
    with suppress(RunFormatError):
        if read_header(path.parent).get("graded_from"):
            return ", or grade the source run again"
    return f"; then 'visioneval run --resume {path.parent}' reruns this cell"


def located_lines(lines: BinaryIO, path: Path, kind: str) -> Iterator[tuple[bytes, str]]:
    """The lines of an open file that are not blank, each with its place in messages. Raises ``UnfitJsonError``."""
    for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), b""), 1):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise UnfitJsonError(f"{path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB: not a {kind}")
        if not line.isspace():
            yield line, f"{path}:{number}"


class GrowingFile(Generic[PartT]):
    """Reads a JSON Lines file while other processes append to it."""

    def __init__(self, path: Path, model: type[PartT], kind: str) -> None:
        self._path, self._model, self._kind = path, model, kind
        self._file: tuple[int, int] | None = None
        self._end = self._count = 0

    def new(self) -> tuple[list[PartT], bool]:
        """The new lines since the last call, and whether the file is new or was replaced.

        Skips a line without a newline until it is complete. Raises ``RunFormatError`` with file and line.
        """
        if not self._path.is_file():
            was, self._file, self._end, self._count = self._file, None, 0, 0
            return [], was is not None
        with open_lines(self._path) as lines:
            return self._read(lines)

    def _read(self, lines: BinaryIO) -> tuple[list[PartT], bool]:
        stat = os.fstat(lines.fileno())
        same = (stat.st_dev, stat.st_ino) == self._file and stat.st_size >= self._end
        end, count = (self._end, self._count) if same else (0, 0)
        lines.seek(end)
        parts: list[PartT] = []
        for line in lines:
            if not line.endswith(b"\n"):
                break
            end, count = end + len(line), count + 1
            if not line.isspace():
                part = parse_line(self._kind, line, f"{self._path}:{count}", self._model)
                parts += [] if part is None else [part]
        self._file, self._end, self._count = (stat.st_dev, stat.st_ino), end, count
        return parts, not same


def parse_line(kind: str, line: bytes, where: str, model: type[PartT]) -> PartT | None:
    """The parsed line, or ``None`` if it is truncated. Raises ``UnfitJsonError`` and ``UnreadableJsonError``."""
    if not (line.startswith(_CURRENT) and line.endswith(b"\n")):
        line = line.removeprefix(codecs.BOM_UTF8)  # an editor may have written it
        try:
            data: Any = json.loads(line)
        except (ValueError, RecursionError):
            if not line.endswith(b"\n"):
                return None
            raise UnreadableJsonError(f"{where}: not a {kind}: damaged or truncated") from None
        if not isinstance(data, dict):
            raise UnfitJsonError(f"{where}: not a {kind}: not a JSON object")
        check_version(data, where)
    return read_json(model, line, where, kind)
