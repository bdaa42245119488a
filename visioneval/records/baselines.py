"""Baselines: the records of a run in one small file, to commit to a repository and review.

baselines/NAME.jsonl: a header line about the run, then one line per cell. Contains hashes of images, but no images,
times or reasons. Lines and keys are sorted, so that two baselines differ only in the lines of changed cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from visioneval.atomic import write_whole
from visioneval.counted import count_of
from visioneval.errors import RunFormatError, UsageError
from visioneval.records.fields import ModelLabel, RuleText, SampleIndex
from visioneval.records.files.untrusted_json import read_json
from visioneval.records.model import CellError, Fingerprint, Record, RunInfo
from visioneval.suite.cases.case import CaseId
from visioneval.suite.counter_examples import counter_examples
from visioneval.suite.metrics import SuiteMetrics
from visioneval.types import Frozen, Metric, Score, Verdict

FOLDER = Path("baselines")
DEFAULT = "main"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}")
_SHORT = 12
VERSION = 2
_RESTORE = "restore this file, or set the baseline again with 'visioneval baseline set RUN'"
ModelT = TypeVar("ModelT", bound=BaseModel)


class BaselineGrading(Frozen):
    """The type and fingerprint of a grader for some cells."""

    type: str
    fingerprint: Fingerprint


class Header(Frozen):
    """The header line. ``baseline`` is the format version; as keys are sorted, it comes first.

    ``writers`` names the grader of each metric; cell lines refer to ``gradings`` by key.
    """

    baseline: Annotated[int, Field(strict=True, ge=1)]
    suite: str
    source_sha256: str
    metrics: dict[str, Metric]
    writers: dict[str, str]
    sources: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By computed metric: the graders' metrics that it reads."""
    is_partial: bool = False
    """Whether flags left out some cells of the suite, or the run had not finished."""
    counter_examples: tuple[str, ...] = ()
    """The cases whose prompt does not match their image, sorted."""
    gradings: dict[str, BaselineGrading]
    cells: int | None = None
    """The number of lines that follow, as a merge may lose whole ones. Not in files of earlier versions."""


class BaselineLine(Frozen):
    """One cell: the fields of its record that do not depend on time. ``graders`` maps graders to gradings."""

    test_id: CaseId
    model_label: ModelLabel
    sample_index: SampleIndex
    verdict: Verdict
    tags: tuple[str, ...] = ()
    flaky: bool = False
    failed_rules: tuple[RuleText, ...] = ()
    failure_tags: tuple[str, ...] = ()
    scores: dict[str, Score] = Field(default_factory=dict)
    unmeasured_metrics: tuple[str, ...] = ()
    artifact_sha256: str | None = None
    cost_usd: Annotated[float, Field(allow_inf_nan=False)] | None = None
    error: CellError | None = None
    grade_key: str = ""
    graders: dict[str, str] = Field(default_factory=dict)
    failed_graders: tuple[str, ...] = ()
    """The keys of failed graders that the cell needs."""


class Baseline(Frozen):
    """A parsed baseline."""

    header: Header
    lines: tuple[BaselineLine, ...]


_HEADER: TypeAdapter[Header] = TypeAdapter(Header)
_LINE: TypeAdapter[BaselineLine] = TypeAdapter(BaselineLine)


def baseline_path(name: str) -> Path:
    """The path of a baseline, relative to the working directory. Raises ``UsageError`` for an invalid name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid baseline name: use letters, digits, _ - and . (not first)")
    return FOLDER / f"{name}.jsonl"


def make_baseline(
    info: RunInfo, records: Iterable[Record], writers: dict[str, str], *, is_partial: bool = False
) -> Baseline:
    """Builds the baseline of a run, in a stable order."""
    gradings: dict[str, BaselineGrading] = {}
    lines = [_line(record, gradings) for record in records]
    lines.sort(key=lambda line: (line.test_id, line.model_label, line.sample_index))
    header = Header(
        baseline=VERSION,
        suite=info.suite.name,
        source_sha256=info.source_sha256,
        metrics=info.metrics,
        writers=writers,
        sources=SuiteMetrics(info.suite, info.selected_suite).grader_sources(),
        counter_examples=tuple(sorted(counter_examples(info.selected_suite))),
        is_partial=is_partial,
        gradings=gradings,
        cells=len(lines),
    )
    return Baseline(header=header, lines=tuple(lines))


def _line(record: Record, gradings: dict[str, BaselineGrading]) -> BaselineLine:
    computed = ("graders", "failed_graders", "cost_usd")
    values = {name: getattr(record, name) for name in BaselineLine.model_fields if name not in computed}
    failed = tuple(grader.key for grader in record.graders if grader.is_unmeasured and not grader.is_optional)
    graders = {}
    for grader in record.graders:
        grading = BaselineGrading(type=grader.type, fingerprint=grader.fingerprint)
        short = sha256(_sorted(grading).encode()).hexdigest()[:_SHORT]
        gradings[short] = grading
        graders[grader.key] = short
    return BaselineLine(**values, graders=graders, failed_graders=failed, cost_usd=record.total_cost_usd)


def check_replaceable(path: Path, suite: str) -> None:
    """Raises ``UsageError`` if the baseline there is of a suite of another name. Any other file can be replaced."""
    try:
        stored = read_baseline(path).header.suite
    except RunFormatError:
        return
    if stored != suite:
        raise UsageError(
            f"{path}: is the baseline of the suite {stored!r}, and this run is of {suite!r}: choose another name with"
            " --name, or delete the file"
        )


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Writes a baseline. Raises ``UsageError`` if the file cannot be written."""
    rows = "".join(f"{_sorted(row)}\n" for row in (baseline.header, *baseline.lines))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, rows)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from None


def _sorted(row: BaseModel) -> str:
    return json.dumps(row.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False, sort_keys=True)


def is_baseline(path: Path) -> bool:
    """Whether a file starts like a baseline. Raises ``RunFormatError`` if it cannot be read."""
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
        raise RunFormatError(f"{path}: not a baseline: the file is empty") from None
    header = _read(_HEADER, first, f"{path}:1")
    if header.baseline != VERSION:
        cure = "upgrade visioneval" if header.baseline > VERSION else "set it again with 'visioneval baseline set'"
        raise RunFormatError(
            f"{path}:1: baseline version {header.baseline} is not the supported version {VERSION}: {cure}"
        )
    lines = tuple(_read(_LINE, row, f"{path}:{number}") for number, row in enumerate(rest, 2) if row.strip())
    if header.cells not in (None, len(lines)):
        raise RunFormatError(
            f"{path}:1: the baseline has {header.cells} cells, but {count_of(len(lines), 'line')} of cells: {_RESTORE}"
        )
    for number, line in enumerate(lines, 2):
        if not header.gradings.keys() >= set(line.graders.values()):
            raise RunFormatError(f"{path}:{number}: graders: refers to a grading that is not in the first line")
    return Baseline(header=header, lines=lines)


def _read(adapter: TypeAdapter[ModelT], row: bytes, where: str) -> ModelT:
    try:
        return read_json(adapter, row, where, "baseline")
    except RunFormatError as error:
        raise RunFormatError(f"{error}; {_RESTORE}") from None
