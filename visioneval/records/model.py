"""The on-disk format of a run, and how to read it; ``writer`` writes it.

runs/<run id>/run.json        the suite, the selection and the state of the run
              results.jsonl   one record per finished cell, appended; the last record of a cell counts
              artifacts/      generated images, and images that graders saved
              summary.json    derived, for users and CI; never read by visioneval
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal, TypeVar

from pydantic import Field, JsonValue, PrivateAttr, TypeAdapter, ValidationError

from visioneval.errors import RunFormatError, UsageError
from visioneval.media.urls import is_url
from visioneval.records import fields
from visioneval.records.files.links import check_links
from visioneval.records.files.untrusted_json import UnfitJsonError, UnreadableJsonError, read_json
from visioneval.records.judge_answers import JudgeAnswer
from visioneval.suite.cases.case import CaseId
from visioneval.suite.model import Suite, VarName
from visioneval.suite.selection import Selection, selected
from visioneval.types import Frozen, Metric, Score, Status, TaskType, Verdict

SCHEMA_VERSION = 2

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
UPGRADES: dict[str, dict[int, Upgrade]] = {
    kind: {} for kind in ("run", "record", "label", "labeling", "draw", "preference")
}
"""For each kind of file and old version, the function that upgrades to the next version."""

RunState = Literal["running", "complete", "interrupted", "stopped"]
"""``stopped`` is never written: readers report it for a ``running`` run whose writer was killed (``current_state``)."""
CellKey = tuple[str, str, int]
PartT = TypeVar("PartT")


class CellError(Frozen):
    """The error of a cell or of one of its graders."""

    stage: Literal["generate", "grade", "verdict"]
    kind: str
    message: str


class Fingerprint(Frozen):
    """What a grader's scores depend on, apart from the image."""

    judge_model: str | None = None
    template_sha256: str | None = None
    schema_sha256: str | None = None
    config_sha256: str
    tool_versions: dict[str, str] = Field(default_factory=dict)
    version: str | None = None
    """The ``version`` of the grader's class, if it has one."""


StoppedBy = Literal["budget", "refused_key"]
"""What ended a run before all of its cells were done."""


class GraderRecord(Frozen):
    """The result of one grader."""

    key: str
    type: str
    error: str | None = None
    is_unmeasured: bool = False
    """Whether it raised, or a metric that it owes the cell is null."""
    is_optional: bool = False
    """Whether the cell can have a verdict without it."""
    details: dict[str, JsonValue] = Field(default_factory=dict)
    usage: dict[str, fields.Amount] | None = None
    cost_usd: fields.Number | None = None
    seconds: fields.Duration = 0.0
    """At work, without ``waited_seconds``."""
    waited_seconds: fields.Duration = 0.0
    """Spent waiting for a rate limit, a retry, a lock or a free thread."""
    cached: bool = False
    refused: fields.CellCount | None = None
    """How many of its questions the judge refused; ``None`` if it has no judge, or in an older record."""
    fingerprint: Fingerprint
    judges: tuple[JudgeAnswer, ...] = ()
    """The answers of a panel, in its order; empty for a single judge."""

    @property
    def all_details(self) -> tuple[dict[str, JsonValue], ...]:
        """Its details and those of each judge of its panel."""
        return self.details, *(answer.details for answer in self.judges)


class Record(Frozen):
    """One finished cell."""

    schema_version: int = SCHEMA_VERSION
    run_id: fields.RunId
    test_id: CaseId
    model_label: fields.ModelLabel
    sample_index: fields.SampleIndex
    task_type: TaskType
    prompt: str
    tags: tuple[str, ...] = ()
    flaky: bool = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    provider: str
    run_params: dict[str, JsonValue] = Field(default_factory=dict)
    status: Status
    verdict: Verdict
    failed_rules: tuple[fields.RuleText, ...] = ()
    warned_rules: tuple[fields.RuleText, ...] = ()
    skipped_rules: tuple[fields.RuleText, ...] = ()
    scores: dict[str, Score] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    failure_tags: tuple[str, ...] = ()
    graders: tuple[GraderRecord, ...] = ()
    artifact_path: fields.PathInRun | None = None
    artifact_sha256: str | None = None
    mime: str | None = None
    width: fields.Pixels | None = None
    height: fields.Pixels | None = None
    usage: dict[str, fields.Amount] | None = None
    cost_usd: fields.Number | None = None
    seconds: fields.Duration = 0.0
    """Of the generation, at work."""
    waited_seconds: fields.Duration = 0.0
    attempts: fields.CellCount = 0
    cached: bool = False
    error: CellError | None = None
    generation_key: str
    grade_key: str

    @property
    def cell(self) -> CellKey:
        """Identifies the cell."""
        return self.test_id, self.model_label, self.sample_index

    @property
    def is_unmeasured(self) -> bool:
        """Whether a grader failed that the cell needs."""
        return any(grader.is_unmeasured and not grader.is_optional for grader in self.graders)

    @property
    def total_cost_usd(self) -> float | None:
        """The sum of the known costs of generation and grading; ``None`` if none is known."""
        return known_sum(self.cost_usd, *(grader.cost_usd for grader in self.graders))


def known_sum(*costs: float | None) -> float | None:
    """The sum of the known costs; ``None`` if none is known."""
    known_costs = [cost for cost in costs if cost is not None]
    return sum(known_costs) if known_costs else None


@dataclass(frozen=True, slots=True)
class _CellName:
    """Identifies the cell of a record."""

    test_id: str
    model_label: str
    sample_index: int


LONGEST_LINE = 64 << 20
"""The maximum length of a line in bytes; a longer line is invalid."""
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_NAME: TypeAdapter[_CellName] = TypeAdapter(_CellName)
_CURRENT = f'{{"schema_version":{SCHEMA_VERSION},'.encode()
"""The start of a line that ``RunWriter`` wrote: such a line is parsed once, without a version check."""


@dataclass(slots=True)
class _View:
    """What a selection left of a suite, computed once. Not a part of what a run is, so all are equal."""

    suite: Suite | None = field(default=None, compare=False)
    selection: Selection | None = field(default=None, compare=False)
    selected: Suite | None = field(default=None, compare=False)


class RunInfo(Frozen):
    """The contents of ``run.json``.

    ``suite`` is resolved, so it expands to the same cells again. It is the whole suite: ``selection`` narrows it.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    state: RunState
    started_at: fields.WrittenTime
    ended_at: fields.WrittenTime | None = None
    stopped_by: StoppedBy | None = None
    reused_since: fields.WrittenTime | None = None
    """When the oldest image from the cache was generated."""
    resumed_at: tuple[fields.WrittenTime, ...] = ()
    planned_cells: fields.CellCount
    visioneval_version: str
    python_version: str
    experiment: str | None = None
    note: str | None = None
    graded_from: str | None = None
    """For a regrade: the source run of the images, as RUN_ID or RUN_ID@label."""
    command_line: tuple[str, ...] = ()
    git_commit: str | None = None
    suite_path: str
    source_sha256: str
    selection: Selection = Selection()
    metrics: dict[str, Metric]
    hidden_vars: tuple[VarName, ...] = ()  # secret values, which resume asks for again
    suite: Suite
    _view: _View = PrivateAttr(default_factory=_View)

    @property
    def selected_suite(self) -> Suite:
        """The suite with the selected cases, model runs and graders only."""
        view = self._view
        if view.selected is None or view.suite is not self.suite or view.selection is not self.selection:
            narrowed = selected(self.suite, self.selection)
            self._view = _View(self.suite, self.selection, narrowed)
            return narrowed
        return view.selected

    def of_model_run(self, label: str, cells: int) -> RunInfo:
        """The run narrowed to one model run, which has ``cells`` records."""
        suite = self.selected_suite
        models = tuple(entry for entry in suite.models if entry.label == label)
        planned = self.planned_cells if len(suite.models) == 1 else cells
        selection = self.selection.model_copy(update={"models": (label,)})
        info = self.model_copy(update={"selection": selection, "planned_cells": planned})
        # not by the selection, whose limit may mean other cases without the other model runs
        info._view = _View(  # noqa: SLF001 - of the same class
            info.suite, info.selection, suite.model_copy(update={"models": models})
        )
        return info


def suite_order(info: RunInfo) -> Callable[[str, str, int], tuple[int, int, int]]:
    """A sort key for suite order: by case, model run and sample; cells that the suite lacks come last."""
    cases = {case.id: index for index, case in enumerate(info.suite.cases)}
    labels = {str(entry.label): index for index, entry in enumerate(info.suite.models)}
    return lambda test_id, label, sample: (cases.get(test_id, len(cases)), labels.get(label, len(labels)), sample)


_INFO: TypeAdapter[RunInfo] = TypeAdapter(RunInfo)
_RUN_ID: TypeAdapter[str] = TypeAdapter(fields.RunId)


def read_info(folder: Path) -> RunInfo:
    """Reads ``run.json``. Raises ``RunFormatError``."""
    path = folder / "run.json"
    data = _header_bytes(path)
    raw = _header(data, path)
    current = _upgrade("run", raw, str(path))
    try:
        _RUN_ID.validate_python(current.get("run_id"))  # RunWriter reports an invalid --run-id itself
        data = data if current is raw else json.dumps(current).encode()
        return read_json(_INFO, data, str(path), "run", largest=None)  # a suite may contain any number
    except ValidationError:
        raise RunFormatError(f"{path}: run_id: not a valid run ID; restore this file, or run the suite again") from None
    except RunFormatError as error:
        raise RunFormatError(f"{error}; restore this file, or run the suite again") from None


def read_records(folder: Path) -> Iterator[Record]:
    """The records of a run, one per cell, in the order of the file.

    Reads the file twice, so that only the cell names stay in memory. Raises ``RunFormatError`` with file and line.
    Ignores a truncated last line.
    """
    path = folder / "results.jsonl"
    with _open_lines(path, "record") as lines:
        is_last = _last_records(_parsed_lines(lines, path, _NAME, "record"))
        lines.seek(0)
        for keep, record in zip(is_last, _parsed_lines(lines, path, _RECORD, "record"), strict=False):
            if keep:
                yield record


def _last_records(names: Iterable[_CellName]) -> bytearray:
    """A flag for each record of a file: 1 for the last record of its cell."""
    shared: dict[str, str] = {}
    last: dict[CellKey, int] = {}
    for number, cell in enumerate(names):
        case, label = (shared.setdefault(word, word) for word in (cell.test_id, cell.model_label))
        last[case, label, cell.sample_index] = number
    flags = bytearray(max(last.values(), default=-1) + 1)
    for number in last.values():
        flags[number] = 1
    return flags


def read_lines(path: Path, adapter: TypeAdapter[PartT], kind: str = "record") -> Iterator[PartT]:
    """All lines of a file, parsed with ``adapter``; a later line of a cell replaces an earlier one.

    ``kind`` is the file's key in ``UPGRADES``. Raises the same errors as ``read_records``.
    """
    with _open_lines(path, kind) as lines:
        yield from _parsed_lines(lines, path, adapter, kind)


@contextmanager
def _open_lines(path: Path, kind: str) -> Iterator[BinaryIO]:
    """Opens a JSON Lines file, and adds advice to its errors."""
    try:
        with path.open("rb") as lines:
            yield lines
    except (UnreadableJsonError, UnfitJsonError) as error:
        raise RunFormatError(f"{error}: delete this line{_rerun_hint(path) if kind == 'record' else ''}") from None
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None


def _rerun_hint(path: Path) -> str:
    """The advice for a deleted line of a run; empty for other files."""
    if path.name != "results.jsonl" or not (path.parent / "run.json").is_file():
        return ""
    with suppress(RunFormatError):
        if read_header(path.parent).get("graded_from"):
            return ", or grade the source run again"
    return f"; then 'visioneval run --resume {path.parent}' reruns this cell"


def _parsed_lines(lines: BinaryIO, path: Path, adapter: TypeAdapter[PartT], kind: str) -> Iterator[PartT]:
    for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), b""), 1):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise UnfitJsonError(f"{path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB: not a {kind}")
        if not line.isspace():
            yield from _parse_line(kind, line, f"{path}:{number}", adapter)


class GrowingFile(Generic[PartT]):
    """Reads a JSON Lines file while other processes append to it."""

    def __init__(self, path: Path, adapter: TypeAdapter[PartT], kind: str) -> None:
        self._path, self._wanted, self._kind = path, adapter, kind
        self._file: tuple[int, int] | None = None
        self._end = self._count = 0

    def new(self) -> tuple[list[PartT], bool]:
        """The new lines since the last call, and whether the file is new or was replaced.

        Skips a line without a newline until it is complete. Raises ``RunFormatError`` with file and line.
        """
        if not self._path.is_file():
            was, self._file, self._end, self._count = self._file, None, 0, 0
            return [], was is not None
        with _open_lines(self._path, self._kind) as lines:
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
                parts += _parse_line(self._kind, line, f"{self._path}:{count}", self._wanted)
        self._file, self._end, self._count = (stat.st_dev, stat.st_ino), end, count
        return parts, not same


def _parse_line(kind: str, line: bytes, where: str, adapter: TypeAdapter[PartT]) -> Iterator[PartT]:
    """The parsed line, or nothing if it is truncated."""
    if line.startswith(_CURRENT) and line.endswith(b"\n"):
        yield read_json(adapter, line, where, kind)
        return
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        if not line.endswith(b"\n"):
            return
        raise UnreadableJsonError(f"{where}: not a {kind}: damaged or truncated") from None
    if not isinstance(data, dict):
        raise UnfitJsonError(f"{where}: not a {kind}: not a JSON object")
    current = _upgrade(kind, data, where)
    yield read_json(adapter, line if current is data else json.dumps(current).encode(), where, kind)


def _upgrade(kind: str, data: dict[str, Any], where: str) -> dict[str, Any]:
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise RunFormatError(f"{where}: no schema_version: not written by visioneval")
    if version > SCHEMA_VERSION:
        raise RunFormatError(
            f"{where}: schema_version {version} is newer than the supported version {SCHEMA_VERSION}: upgrade"
            f" visioneval"
        )
    while version < SCHEMA_VERSION:
        step = UPGRADES[kind].get(version)
        if step is None:
            raise RunFormatError(
                f"{where}: schema_version {version} is older than the supported version {SCHEMA_VERSION}: create"
                f" it again with this version"
            )
        data = {**step(data), "schema_version": version + 1}
        version += 1
    return data


def read_header(folder: Path) -> dict[str, Any]:
    """The raw contents of ``run.json``. Raises ``RunFormatError``."""
    return _header(_header_bytes(folder / "run.json"), folder / "run.json")


def _header_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None


def _header(data: bytes, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunFormatError(f"{path}: not JSON: {error}; restore this file, or run the suite again") from None
    if not isinstance(header, dict):
        raise RunFormatError(f"{path}: not a run; restore this file, or run the suite again")
    return header


def list_runs(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """All runs in a folder with the raw contents of ``run.json``, oldest first. Skips invalid runs."""
    runs = []
    for path in sorted(root.glob("*/run.json")):
        try:
            runs.append((path.parent, read_header(path.parent)))
        except RunFormatError:
            continue
    return sorted(runs, key=lambda run: (str(run[1].get("started_at")), run[0].name))


def find_run(name: str, root: Path) -> Path:
    """Finds a run by path, ID, unique ID prefix, or ``latest``. Raises ``UsageError`` and ``RunFormatError``."""
    return check_links(_find_run(name, root))


def _find_run(name: str, root: Path) -> Path:
    if is_url(name):
        raise UsageError(f"{name}: is a URL: only local runs can be read")
    if (Path(name) / "run.json").is_file():
        return Path(name)
    if name == "latest":
        runs = list_runs(root)
        if not runs:
            raise UsageError(f"{root}: contains no runs")
        return runs[-1][0]
    matches = [path.parent for path in sorted(root.glob("*/run.json")) if path.parent.name.startswith(name)]
    exact = [path for path in matches if path.name == name]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    if matches:
        raise UsageError(
            f"{name!r} is ambiguous: it matches {len(matches)} runs: {', '.join(path.name for path in matches[:5])}"
        )
    raise UsageError(f"{name!r}: no such run in {root}: list runs with 'visioneval runs'")
