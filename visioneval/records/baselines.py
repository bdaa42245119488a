"""Baselines: the records of one run or several in one small file, to commit to a repository and review.

baselines/NAME.jsonl: for each run, the newest first, a header line and one line per cell. Contains hashes of images,
but no images, times or reasons. Lines and keys are sorted, so that two baselines differ only in the lines of changed
cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from visioneval.atomic import write_whole
from visioneval.errors import RunFormatError, UsageError, count_of
from visioneval.records.model import CellError, CellKey, Fingerprint, Record, RunInfo, first_look
from visioneval.records.untrusted import ModelLabel, OfCell, RuleText, SampleIndex, Usd, bytes_of, read_json
from visioneval.suite.case import CaseId
from visioneval.suite.metrics import DecidingRules, Meaning, SuiteMetrics, counter_examples, meanings_of
from visioneval.types import Frozen, Score, Verdict

FOLDER = Path("baselines")
DEFAULT = "main"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}")
_SHORT = 12
VERSION = 3
"""The format version. The meaning of the stored fields is part of it."""
_START = b'{"baseline":'
"""How the header line of each run starts, as keys are sorted."""
_RESTORE = "restore this file, or set the baseline again with 'visioneval baseline set RUN'"
ModelT = TypeVar("ModelT", bound=BaseModel)


class BaselineGrading(Frozen):
    """The type and fingerprint of a grader for some cells."""

    type: str
    fingerprint: Fingerprint


class _Version(BaseModel):
    """The part of the header that every version has."""

    baseline: Annotated[int, Field(strict=True, ge=1)]


class BaselineHeader(Frozen):
    """The header line. As keys are sorted, ``baseline`` comes first."""

    baseline: Annotated[int, Field(strict=True, ge=1)]
    """The format, 3."""
    run: str
    """The id of the run."""
    run_key: str = ""
    """Tells it from another run with its id."""
    suite: str
    """The suite's name."""
    source_sha256: str
    """Hash of the suite's file."""
    metrics: dict[str, Meaning]
    """What each metric measures."""
    writers: dict[str, str]
    """The grader of each metric."""
    sources: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By computed metric: the graders' metrics that it reads."""
    is_partial: bool = False
    """Whether flags left out some cells of the suite, or the run had not finished."""
    counter_examples: tuple[str, ...] = ()
    """The cases whose prompt does not match their image, sorted."""
    gradings: dict[str, BaselineGrading]
    """Types and fingerprints of graders, which cell lines refer to by key."""
    rules: dict[str, tuple[RuleText, ...]]
    """The rules that can fail a cell, which cell lines refer to by key."""
    cells: int
    """The number of lines of the run, as a merge may lose whole ones. A file that lost one is refused."""
    must_detect: float | None = None
    """The drop of the pass rate, in points, that the suite requires ``compare`` to find."""


class BaselineLine(OfCell, Frozen):
    """One cell: the fields of its record that do not depend on the time of the run, and how it was graded."""

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
    cost_usd: Usd | None = None
    error: CellError | None = None
    grade_key: str = ""
    graders: dict[str, str] = Field(default_factory=dict)
    """The key of the grading of each grader."""
    failed_graders: tuple[str, ...] = ()
    """The keys of failed graders that the cell needs."""
    optional_graders: tuple[str, ...] = ()
    """The keys of graders that the cell does not need."""
    never_asked_graders: tuple[str, ...] = ()
    """The keys of failed graders that were not asked at all, which may be optional in the suite."""
    rules: str | None = None
    """The rules that can fail the cell; ``None`` if they are unknown, as its case is not in the suite."""


class Baseline(Frozen):
    """A run of a baseline."""

    header: BaselineHeader
    lines: tuple[BaselineLine, ...]


def baseline_path(name: str) -> Path:
    """The path of a baseline, relative to the working directory. Raises ``UsageError`` for an invalid name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid baseline name: use letters, digits, _ - and . (not first)")
    return FOLDER / f"{name}.jsonl"


def make_baseline(
    info: RunInfo, records: Iterable[Record], writers: dict[str, str], *, is_partial: bool = False
) -> Baseline:
    """Builds the baseline of a run, in a stable order. Of ``--until-decided``, it has the samples of the first look."""
    counts = first_look(info)
    gradings: dict[str, BaselineGrading] = {}
    rules: dict[str, tuple[str, ...]] = {}
    deciding = DecidingRules(info.suite, info.selected_suite)
    lines = []
    for record in records:
        if counts is not None and record.sample_index >= counts.get(record.model_label, record.sample_index + 1):
            continue
        texts = deciding.of_cell(record.test_id, record.model_label)
        short = None if texts is None else _short(json.dumps(texts))
        if texts is not None and short is not None:
            rules[short] = texts
        lines.append(_line(record, gradings, short))
    lines.sort(key=lambda line: line.cell)
    header = BaselineHeader(
        baseline=VERSION,
        run=info.run_id,
        run_key=run_key(info),
        suite=info.suite.name,
        source_sha256=info.source_sha256,
        metrics=meanings_of(info.metrics, info.suite),
        writers=writers,
        sources=SuiteMetrics(info.suite, info.selected_suite).grader_sources(),
        counter_examples=tuple(sorted(counter_examples(info.selected_suite))),
        is_partial=is_partial,
        gradings=gradings,
        rules=rules,
        cells=len(lines),
        must_detect=info.suite.compare.must_detect,
    )
    return Baseline(header=header, lines=tuple(lines))


def run_key(info: RunInfo) -> str:
    """What a baseline knows a run by, beside its id, which a later run may have."""
    return _short(info.payer)


def _line(record: Record, gradings: dict[str, BaselineGrading], rules: str | None) -> BaselineLine:
    computed = ("graders", "failed_graders", "optional_graders", "never_asked_graders", "rules", "cost_usd")
    values = {name: getattr(record, name) for name in BaselineLine.model_fields if name not in computed}
    failed = tuple(grader.key for grader in record.graders if grader.is_unmeasured and not grader.is_optional)
    graders = {}
    for grader in record.graders:
        grading = BaselineGrading(type=grader.type, fingerprint=grader.fingerprint)
        short = _short(_sorted(grading))
        gradings[short] = grading
        graders[grader.key] = short
    return BaselineLine(
        **values,
        graders=graders,
        failed_graders=failed,
        optional_graders=tuple(grader.key for grader in record.graders if grader.is_optional),
        never_asked_graders=tuple(grader.key for grader in record.graders if grader.never_asked),
        rules=rules,
        cost_usd=record.total_cost_usd,
    )


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_SHORT]


def check_replaceable(path: Path, suite: str) -> None:
    """Raises ``UsageError`` if the baseline there is of a suite of another name. Any other file can be replaced."""
    try:
        stored = read_baseline(path)[0].header.suite
    except RunFormatError:
        return
    if stored != suite:
        raise UsageError(
            f"{path}: is the baseline of the suite {stored!r}, and this run is of {suite!r}: choose another name with"
            " --name, or delete the file"
        )


def check_addable(run: Baseline, stored: Sequence[Baseline], path: Path) -> None:
    """Raises ``UsageError`` if a run is not another one of the same suite, graded the same way as the stored runs."""
    newest, again = stored[0], "set the baseline again with 'visioneval baseline set RUN'"
    if (run.header.suite, run.header.source_sha256) != (newest.header.suite, newest.header.source_sha256):
        raise UsageError(f"{path}: its runs are of another suite file than {run.header.run}: {again}")
    for other in stored:
        outputs = [{line.artifact_sha256 for line in item.lines} - {None} for item in (run, other)]
        if run.header.run == other.header.run or (outputs[0] and outputs[0] <= outputs[1]):
            raise UsageError(
                f"{path}: already has {run.header.run}, or a run with its outputs ({other.header.run}): add a run that"
                " generated new ones"
            )
    before = {line.cell: line for line in newest.lines}
    for line in run.lines:
        stored_line = before.get(line.cell)
        if stored_line is None:
            continue
        for key in sorted(line.graders.keys() & stored_line.graders.keys()):
            gradings = newest.header.gradings[stored_line.graders[key]], run.header.gradings[line.graders[key]]
            old, new = (grading.fingerprint.model_dump() | {"type": grading.type} for grading in gradings)
            if changes := ", ".join(name for name in old if old[name] != new[name]):
                raise UsageError(f"{path}: {key!r} graded its runs in another way ({changes}): {again}")


def write_baseline(runs: Sequence[Baseline], path: Path) -> None:
    """Writes the runs of a baseline, the newest first. Raises ``UsageError`` if the file cannot be written."""
    rows = "".join(f"{_sorted(row)}\n" for run in runs for row in (run.header, *run.lines))
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
            return lines.readline(20).startswith(_START)
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None


def read_baseline(path: Path) -> tuple[Baseline, ...]:
    """Reads the runs of a baseline, the newest first. Raises ``RunFormatError`` with file and line."""
    rows = [(number, row) for number, row in enumerate(bytes_of(path).splitlines(), 1) if row.strip()]
    if not rows:
        raise RunFormatError(f"{path}: not a baseline: the file is empty")
    starts = [at for at, (_, row) in enumerate(rows) if at == 0 or row.startswith(_START)]
    lines: dict[str, int] = {}
    runs: list[Baseline] = []
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        run, number = _read_run(rows[start:end], path), rows[start][0]
        where = f"{path}:{number}: run {run.header.run}"
        first = lines.setdefault(run.header.run, number)
        if first != number:
            raise RunFormatError(f"{where} is also in line {first}: {_RESTORE}")
        runs.append(run)
        newest = runs[0].header
        if (run.header.suite, run.header.source_sha256) != (newest.suite, newest.source_sha256):
            raise RunFormatError(f"{where} is of another suite file than the newest: {_RESTORE}")
    return tuple(runs)


def _read_run(rows: Sequence[tuple[int, bytes]], path: Path) -> Baseline:
    (first, head), *rest = rows
    version = _read(_Version, head, f"{path}:{first}").baseline
    if version != VERSION:
        cure = "upgrade visioneval" if version > VERSION else "set it again with 'visioneval baseline set RUN'"
        raise RunFormatError(
            f"{path}:{first}: baseline version {version} is not the supported version {VERSION}: {cure}"
        )
    header = _read(BaselineHeader, head, f"{path}:{first}")
    numbered = [(number, _read(BaselineLine, row, f"{path}:{number}")) for number, row in rest]
    numbers: dict[CellKey, int] = {}
    for number, line in numbered:
        earlier = numbers.setdefault(line.cell, number)
        if earlier != number:  # a merge may leave both versions of a cell
            cell = f"{line.test_id} on {line.model_label}, sample {line.sample_index},"
            raise RunFormatError(f"{path}:{number}: {cell} is also in line {earlier}: {_RESTORE}")
    if header.cells != len(numbered):
        raise RunFormatError(
            f"{path}:{first}: the run has {header.cells} cells, but {count_of(len(numbered), 'line')} of cells:"
            f" {_RESTORE}"
        )
    for number, line in numbered:
        if not header.gradings.keys() >= set(line.graders.values()):
            raise RunFormatError(f"{path}:{number}: graders: refers to a grading that is not in line {first}")
        if line.rules is not None and line.rules not in header.rules:
            raise RunFormatError(f"{path}:{number}: rules: refers to rules that are not in line {first}")
    return Baseline(header=header, lines=tuple(line for _, line in numbered))


def _read(model: type[ModelT], row: bytes, where: str) -> ModelT:
    try:
        return read_json(model, row, where, "baseline")
    except RunFormatError as error:
        raise RunFormatError(f"{error}; {_RESTORE}") from None
