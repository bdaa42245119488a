"""Baselines: a run's records in one small file that a repository can hold and a person can review.

baselines/NAME.jsonl: a first line about the run, then a line per cell. No pictures but their hashes, no times, no
reasons; the order and the keys are sorted, so that two baselines differ in the lines whose cells differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from visioneval.errors import RunFormatError, UsageError
from visioneval.record_fields import ModelLabel, RuleText, SampleIndex
from visioneval.records import CellError, Fingerprint, Record, RunInfo
from visioneval.suite.case import CaseId
from visioneval.types import Frozen, Metric, Score, Verdict
from visioneval.untrusted_json import read_json
from visioneval.whole_file import write_whole

FOLDER = Path("baselines")
DEFAULT = "main"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}")
_SHORT = 12
VERSION = 1
ModelT = TypeVar("ModelT", bound=BaseModel)


class Grading(Frozen):
    """A grader as it was for some cells."""

    type: str
    fingerprint: Fingerprint


class Header(Frozen):
    """The first line. ``baseline`` is the version of the format; by sorted keys it comes first.

    ``writers`` names the grader of each metric; lines name ``gradings`` by their keys here.
    """

    baseline: Annotated[int, Field(strict=True, ge=1)]
    suite: str
    source_sha256: str
    metrics: dict[str, Metric]
    writers: dict[str, str]
    gradings: dict[str, Grading]


class Line(Frozen):
    """One cell: the fields of its record that are not about one moment. ``graders`` gives gradings by grader."""

    test_id: CaseId
    model_label: ModelLabel
    sample_index: SampleIndex
    verdict: Verdict
    tags: tuple[str, ...] = ()
    flaky: bool = False
    failed_rules: tuple[RuleText, ...] = ()
    failure_tags: tuple[str, ...] = ()
    scores: dict[str, Score] = Field(default_factory=dict)
    artifact_sha256: str | None = None
    cost_usd: Annotated[float, Field(allow_inf_nan=False)] | None = None
    error: CellError | None = None
    grade_key: str = ""
    graders: dict[str, str] = Field(default_factory=dict)


class Baseline(Frozen):
    """A baseline as it was read."""

    header: Header
    lines: tuple[Line, ...]


_HEADER: TypeAdapter[Header] = TypeAdapter(Header)
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


def baseline_path(name: str) -> Path:
    """Where the baseline of a name is, from the working directory. Raises ``UsageError`` for what is no name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a baseline: letters, digits, _ - and . (not first)")
    return FOLDER / f"{name}.jsonl"


def make_baseline(info: RunInfo, records: Iterable[Record], writers: dict[str, str]) -> Baseline:
    """What a baseline keeps of a run, in a stable order."""
    gradings: dict[str, Grading] = {}
    lines = [_line(record, gradings) for record in records]
    lines.sort(key=lambda line: (line.test_id, line.model_label, line.sample_index))
    header = Header(
        baseline=VERSION,
        suite=info.suite.name,
        source_sha256=info.source_sha256,
        metrics=info.metrics,
        writers=writers,
        gradings=gradings,
    )
    return Baseline(header=header, lines=tuple(lines))


def _line(record: Record, gradings: dict[str, Grading]) -> Line:
    kept = {name: getattr(record, name) for name in Line.model_fields if name not in ("graders", "cost_usd")}
    graders = {}
    for grader in record.graders:
        grading = Grading(type=grader.type, fingerprint=grader.fingerprint)
        short = sha256(_sorted(grading).encode()).hexdigest()[:_SHORT]
        gradings[short] = grading
        graders[grader.key] = short
    return Line(**kept, graders=graders, cost_usd=record.total_cost_usd)


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Writes a baseline. Raises ``UsageError`` where that cannot be."""
    rows = "".join(f"{_sorted(row)}\n" for row in (baseline.header, *baseline.lines))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, rows)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None


def _sorted(row: BaseModel) -> str:
    return json.dumps(row.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False, sort_keys=True)


def is_baseline(path: Path) -> bool:
    """Whether a file says that it is a baseline. Raises ``RunFormatError`` where it cannot be read."""
    try:
        with path.open("rb") as lines:
            return lines.readline(20).startswith(b'{"baseline":')
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None


def read_baseline(path: Path) -> Baseline:
    """Reads a baseline. Raises ``RunFormatError`` with file and line."""
    try:
        first, *rest = path.read_bytes().splitlines()
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise RunFormatError(f"{path}: empty: not a baseline") from None
    header = _read(_HEADER, first, f"{path}:1")
    if header.baseline > VERSION:
        raise RunFormatError(f"{path}:1: a baseline of version {header.baseline}: upgrade visioneval")
    lines = tuple(_read(_LINE, row, f"{path}:{number}") for number, row in enumerate(rest, 2) if row.strip())
    for number, line in enumerate(lines, 2):
        if not header.gradings.keys() >= set(line.graders.values()):
            raise RunFormatError(f"{path}:{number}: graders: names what the first line does not hold")
    return Baseline(header=header, lines=lines)


def _read(wanted: TypeAdapter[ModelT], row: bytes, where: str) -> ModelT:
    try:
        return read_json(wanted, row, where, "baseline")
    except RunFormatError as error:
        raise RunFormatError(f"{error}; restore this file, or write it again: visioneval baseline set RUN") from None
