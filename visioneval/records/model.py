"""The on-disk format of a run; ``reader`` reads its records and ``writer`` writes them.

runs/<run id>/run.json        the suite, the selection and the state of the run
              results.jsonl   one record per finished cell, appended; the last record of a cell counts
              artifacts/      generated images, and images that graders saved
              summary.json    derived, for users, CI and the index of `view`; never read by other commands
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError

from visioneval.errors import RunFormatError
from visioneval.media.urls import public_address
from visioneval.records.until import UntilDecided
from visioneval.records.untrusted import (
    SCHEMA_VERSION,
    Amount,
    CellCount,
    Duration,
    JsonObject,
    ModelLabel,
    OfCell,
    PathInRun,
    Pixels,
    RuleText,
    RunId,
    SampleIndex,
    Usd,
    WrittenTime,
    bytes_of,
    check_version,
    parse_header,
    read_json,
)
from visioneval.records.untrusted import CellKey as CellKey
from visioneval.suite.case import CaseId, TestCase
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.filters import Scope, any_glob
from visioneval.suite.model import Suite, VarName
from visioneval.suite.runs import Selection, cells_per_sample, selected
from visioneval.types import Frozen, Metric, Score, Status, TaskType, Verdict

RunState = Literal["running", "complete", "interrupted", "stopped"]
"""``stopped`` is never written: readers report it for a ``running`` run whose writer was killed (``current_state``)."""


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


def options_hash(grader: BaseGrader) -> str:
    """The ``config_sha256`` of a grader: the hash of its options, except of the cases that it is for."""
    return digest({name: value for name, value in grader.key_options.items() if name != "when"})


StoppedBy = Literal["budget", "refused_key", "quota"]
"""What ended a run before all of its cells were done."""


class JudgeAnswer(Frozen):
    """The answer of one judge of a panel, after its votes were combined. A score is ``None`` if it was not measured."""

    judge: str
    """Its key under ``judges``."""
    model: str | None = None
    """The model that answered, or ``null``."""
    scores: dict[str, Score] = Field(default_factory=dict)
    """By metric, after its votes were combined; ``null`` if it could not be measured."""
    reasons: dict[str, str] = Field(default_factory=dict)
    """By metric, or under the grader's key."""
    failure_tags: tuple[str, ...] = ()
    """The tags that it gave."""
    error: str | None = None
    """Why a score is ``null``, or ``null``."""
    never_asked: bool = False
    """Whether a question was not asked at all, offline or beyond the budget: its scores are then ``null``."""
    details: JsonObject = Field(default_factory=dict)
    """Its details, as for a single judge."""
    usage: dict[str, Amount] | None = None
    """Tokens of its calls."""
    cost_usd: Usd | None = None
    """Cost of its calls; ``null`` if it gave no reply."""
    cached: bool = False
    """Whether all its answers came from the cache."""
    refused: int = Field(default=0, ge=0)
    """How many of its questions it refused."""

    @property
    def is_unmeasured(self) -> bool:
        """Whether it failed to measure a metric."""
        return self.error is not None or not self.is_complete

    @property
    def is_complete(self) -> bool:
        """Whether it measured every metric."""
        return bool(self.scores) and None not in self.scores.values()


class GraderRecord(Frozen):
    """The result of one grader."""

    key: str
    """The grader's key."""
    type: str
    """The grader's type."""
    error: str | None = None
    """Why a metric is ``null``, or ``null``."""
    is_unmeasured: bool = False
    """Whether it failed, or a metric that it owes the cell is ``null``."""
    is_optional: bool = False
    """Whether the cell can have a verdict without it."""
    never_asked: bool = False
    """Whether a judge was not asked at all, offline or beyond the budget: the scores are then ``null``, and the grader
    is not optional.
    """
    details: JsonObject = Field(default_factory=dict)
    """What its type records: answers, votes, boxes, differences. Of gecko: ``questions``, each with its keys,
    ``expected``, ``answer``, ``choice`` (what the answer names), ``right`` (before dependencies), ``score``,
    ``reason``, and where they apply ``unanswered`` and ``asked_again``. Of a rubric with several ``votes``: ``votes``,
    a list for each metric; ``null`` is a lost vote. With a judge: ``extra_keys`` (at most 20 keys that were not
    requested), ``read`` (``extracted`` from other text, or ``repaired``), and ``scaled`` (images above the limits of
    the judge, with both sizes).
    """
    usage: dict[str, Amount] | None = None
    """Tokens of its calls."""
    cost_usd: Usd | None = None
    """Cost of its calls."""
    seconds: Duration = 0.0
    """Duration without waits."""
    waited_seconds: Duration = 0.0
    """Waits for limits, retries, locks and free threads."""
    cached: bool = False
    """Whether all answers of its judge came from the cache, or, without a judge, all its measurements."""
    refused: CellCount | None = None
    """How many of its questions the judge refused; ``null`` without a judge."""
    fingerprint: Fingerprint
    """What the grading depends on. It has the ``version`` of a custom grader, and in ``tool_versions`` those of the
    custom judges that it asked.
    """
    judges: tuple[JudgeAnswer, ...] = ()
    """The answers of a panel, in the order of the suite; empty for a single judge, and if no judge had to be asked."""

    @property
    def all_details(self) -> tuple[JsonObject, ...]:
        """Its details and those of each judge of its panel."""
        return self.details, *(answer.details for answer in self.judges)


class Record(OfCell, Frozen):
    """One finished cell."""

    schema_version: int = SCHEMA_VERSION
    """2."""
    run_id: RunId
    """The run."""
    test_id: CaseId
    """The case; ``CASE/2`` is the second of its turns."""
    model_label: ModelLabel
    """The model run."""
    sample_index: SampleIndex
    """Starts at 0."""
    task_type: TaskType
    """``image_generation``, ``image_editing``, ``video_generation``."""
    prompt: str
    """The case's own, as rendered."""
    sent_prompt: str | None = None
    """What the model was sent, if that differs from ``prompt``: because of an entry of ``prompts``, or because the
    case's prompt changed later; else ``null``. Also ``null`` for existing outputs and cases with ``output_of``.
    """
    graded_prompt: str | None = None
    """What graders saw, if that differs from ``prompt`` (``graded_as: sent``); else ``null``."""
    tags: tuple[str, ...] = ()
    """The case's tags."""
    flaky: bool = False
    """From the case: comparisons with this run as A never fail on it."""
    metadata: JsonObject = Field(default_factory=dict)
    """The case's metadata."""
    base_path: PathInRun | None = None
    """Of a later turn: the image that it edits, which is the output of the turn before; else ``null``."""
    base_sha256: str | None = None
    """Hash of that file when it was edited; ``--resume`` and ``grade`` compare it with the output of the turn before.
    """
    provider: str
    """The provider that generated the output."""
    run_params: JsonObject = Field(default_factory=dict)
    """As sent, without secrets."""
    status: Status
    """``completed``, ``refused``, ``error``."""
    verdict: Verdict
    """``PASS``, ``FAIL``, ``ERROR``; ``NONE`` for an output in a suite without rules, see agreement.md."""
    failed_rules: tuple[RuleText, ...] = ()
    """As written; the verdict is FAIL if there are any."""
    warned_rules: tuple[RuleText, ...] = ()
    """Failed rules of the level ``warn``."""
    skipped_rules: tuple[RuleText, ...] = ()
    """Rules over metrics that no grader writes for this cell."""
    scores: dict[str, Score] = Field(default_factory=dict)
    """By metric: true, false, a number, a word of a metric of type ``one_of``, or ``null`` if it could not be measured.
    """
    unmeasured_metrics: tuple[str, ...] = ()
    """Computed metrics that are ``null`` and that the verdict needs; the cell counts as unmeasured."""
    reasons: dict[str, str] = Field(default_factory=dict)
    """By metric; a reason for all metrics of a grader is stored under the grader's key. For a computed metric: the
    scores that it was computed from, or why it is ``null``.
    """
    failure_tags: tuple[str, ...] = ()
    """Tags that a judge gave; ``refused``."""
    graders: tuple[GraderRecord, ...] = ()
    """What each grader did. See GraderRecord."""
    artifact_path: PathInRun | None = None
    """The output, relative to the run's folder; ``null`` if there is no output, or if only its address was needed
    (``run_params.by_address``). A case with ``output_of`` names the other case's file.
    """
    artifact_sha256: str | None = None
    """Hash of the file."""
    mime: str | None = None
    """Type of the file."""
    width: Pixels | None = None
    """Pixels, as stored."""
    height: Pixels | None = None
    """Pixels, as stored."""
    reply_path: PathInRun | None = None
    """The raw answer to the generation, relative to the run's folder, if not all of it was used and this cell needs it,
    or an output that this machine cannot use; else ``null``. Cells of one call share it.
    """
    reply_note: str | None = None
    """What of that answer was not used, and why."""
    usage: dict[str, Amount] | None = None
    """Tokens of the generation call, which may have generated several images; ``null`` if they are unknown or
    impossible; ``video_milliseconds`` of a generated video.
    """
    cost_usd: Usd | None = None
    """Cost of the generation; the cost of a call is split evenly over its images; ``null`` if it is unknown. A record
    with a negative cost is refused.
    """
    seconds: Duration = 0.0
    """Duration of the generation without waits, split the same way."""
    waited_seconds: Duration = 0.0
    """Waits of the generation for limits, retries, locks and free threads, split the same way."""
    attempts: CellCount = 0
    """Calls started for the generation, including failed ones; 0 if there was none."""
    cached: bool = False
    """Whether the generation came from the cache."""
    error: CellError | None = None
    """``null``, or ``stage`` (``generate``, ``grade``, ``verdict``), ``kind`` and ``message``."""
    generation_key: str
    """Hashes of everything the generation depends on, part by part."""
    grade_key: str
    """Hashes of everything the grading depends on besides the image, part by part."""

    @property
    def is_unusable(self) -> bool:
        """Whether its generation was answered, and may be paid, without an image that can be used."""
        return self.error is not None and self.error.kind == "unusable"

    @property
    def is_unmeasured(self) -> bool:
        """Whether a grader failed that the cell needs, or a computed metric is null that it needs."""
        for grader in self.graders:  # a loop, as a summary asks several times for each cell
            if grader.is_unmeasured and not grader.is_optional:
                return True
        return bool(self.unmeasured_metrics)

    @property
    def shown_prompt(self) -> str:
        """The prompt that graders saw, and that raters see."""
        return self.prompt if self.graded_prompt is None else self.graded_prompt

    @property
    def shown_output(self) -> str | None:
        """Where its output is: the path in the run, or the address at which it stayed, without query and fragment."""
        if self.artifact_path is None and self.run_params.get("by_address"):
            return str(self.shown_params.get("path", "")) or None
        return self.artifact_path

    @property
    def shown_params(self) -> dict[str, Any]:
        """The parameters of its call, without the query of an output's address, which may be a signature."""
        path = self.run_params.get("path")
        return {**self.run_params, "path": public_address(path)} if isinstance(path, str) else dict(self.run_params)

    @property
    def total_cost_usd(self) -> float | None:
        """The sum of the known costs of generation and grading; ``None`` if none is known."""
        return known_sum(self.cost_usd, *(grader.cost_usd for grader in self.graders))


def known_sum(*costs: float | None) -> float | None:
    """The sum of the known costs; ``None`` if none is known."""
    known_costs = [cost for cost in costs if cost is not None]
    return sum(known_costs) if known_costs else None


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
    """2."""
    run_id: str
    """The run."""
    state: RunState
    """Commands print ``stopped`` for a ``running`` run whose writer was killed."""
    started_at: WrittenTime
    """In UTC."""
    ended_at: WrittenTime | None = None
    """In UTC; ``null`` while it runs."""
    stopped_by: StoppedBy | None = None
    """What ended the run early."""
    reused_since: WrittenTime | None = None
    """When the oldest image from the cache was generated."""
    resumed_at: tuple[WrittenTime, ...] = ()
    """When it was resumed."""
    planned_cells: CellCount
    """The cells of the selection."""
    visioneval_version: str
    """The version that started it."""
    python_version: str
    """The version of Python."""
    experiment: str | None = None
    """The suite's ``experiment``."""
    note: str | None = None
    """The text of ``--note``."""
    graded_from: str | None = None
    """Of a run of ``grade``: the run whose images it used, ``RUN_ID`` or ``RUN_ID@LABEL``."""
    merged_from: tuple[RunId, ...] = ()
    """The shards that ``merge`` combined."""
    command_line: tuple[str, ...] = ()
    """The command that started it."""
    git_commit: str | None = None
    """The commit of the suite's repository."""
    suite_path: str
    """The suite's file."""
    source_sha256: str
    """Hash of the suite's file."""
    selection: Selection = Selection()
    """The flags that narrowed the run, such as ``cases``, ``limit`` and ``shard``. Resuming, grading and reports
    apply them.
    """
    metrics: dict[str, Metric]
    """The metrics of the selection."""
    hidden_vars: tuple[VarName, ...] = ()
    """The suite's secret variables; their values are ``***``."""
    until_decided: UntilDecided | None = None
    """Of a run with ``--until-decided``: its samples."""
    suite: Suite
    """The whole suite, with files and datasets read and one entry of ``models`` per model run."""
    _view: _View = PrivateAttr(default_factory=_View)

    @property
    def payer(self) -> str:
        """What the cache and baselines know this run by. Not its ID alone: a deleted run may have had the same."""
        return f"{self.run_id} of {self.started_at}"

    @property
    def samples_itself(self) -> bool:
        """Whether it generates samples until its gates are decided; a run of ``grade`` generates none."""
        return self.until_decided is not None and self.graded_from is None

    @property
    def case_samples(self) -> dict[tuple[str, str], int]:
        """The samples of each case, by its ID and model run, that has more than the suite's number."""
        more = () if self.until_decided is None else self.until_decided.case_samples
        return {(entry.test_id, entry.model_label): entry.samples for entry in more}

    @property
    def most_samples(self) -> int:
        """The largest number of samples of a case on a model run."""
        return max(self.suite.samples, *self.case_samples.values()) if self.case_samples else self.suite.samples

    @property
    def selected_suite(self) -> Suite:
        """The suite with the selected cases, model runs and graders only."""
        view = self._view
        if view.selected is None or view.suite is not self.suite or view.selection is not self.selection:
            narrowed = selected(self.suite, self.selection)
            self._view = _View(self.suite, self.selection, narrowed)
            return narrowed
        return view.selected

    def within(self, scope: Scope, cells: int) -> RunInfo:
        """The run narrowed to the cases and model runs of a scope: ``cells`` records."""
        suite = self.selected_suite
        cases = tuple(case for case in suite.cases if scope.fits(case.id, case.task_type, case.tags))
        models = tuple(entry for entry in suite.models if not scope.models or any_glob(scope.models, str(entry.label)))
        is_whole = (len(cases), len(models)) == (len(suite.cases), len(suite.models))
        chosen = {name: patterns for name in ("cases", "tags", "models") if (patterns := getattr(scope, name))}
        selection = self.selection.model_copy(update=chosen)
        planned = self.planned_cells if is_whole else cells
        info = self.model_copy(update={"selection": selection, "planned_cells": planned})
        # not by the selection, whose limit may mean other cases without the other model runs
        info._view = _View(  # noqa: SLF001 - of the same class
            info.suite, info.selection, suite.model_copy(update={"cases": cases, "models": models})
        )
        return info

    def with_cases(self, change: Callable[[TestCase], TestCase]) -> RunInfo:
        """The run with changed cases, as many as before."""

        def changed(suite: Suite) -> Suite:
            return suite.model_copy(update={"cases": tuple(map(change, suite.cases))})

        info = self.model_copy(update={"suite": changed(self.suite)})
        info._view = _View(info.suite, info.selection, changed(self.selected_suite))  # noqa: SLF001 - of the same class
        return info


def first_look(info: RunInfo) -> dict[str, int] | None:
    """By model run: the cells of a case before the first look of ``--until-decided``; ``None`` for another run."""
    if info.until_decided is None:
        return None
    return {label: cells * info.suite.samples for label, cells in cells_per_sample(info.suite).items()}


def suite_places(info: RunInfo) -> tuple[dict[str, int], dict[str, int]]:
    """The places of the cases in the suite of a run, by id, and those of its model runs, by label."""
    return (
        {case.id: index for index, case in enumerate(info.suite.cases)},
        {str(entry.label): index for index, entry in enumerate(info.suite.models)},
    )


def suite_order(info: RunInfo) -> Callable[[str, str, int], tuple[int, int, int]]:
    """A sort key for suite order: by case, model run and sample; cells that the suite lacks come last."""
    cases, labels = suite_places(info)
    return lambda test_id, label, sample: (cases.get(test_id, len(cases)), labels.get(label, len(labels)), sample)


_RUN_ID: TypeAdapter[str] = TypeAdapter(RunId)


def read_info(folder: Path) -> RunInfo:
    """Reads ``run.json``. Raises ``RunFormatError``."""
    path = folder / "run.json"
    data = bytes_of(path)
    header = parse_header(data, path)
    check_version(header, str(path))
    try:
        _RUN_ID.validate_python(header.get("run_id"))  # RunWriter reports an invalid --run-id itself
        return read_json(RunInfo, data, str(path), "run", largest=None)  # a suite may contain any number
    except ValidationError:
        raise RunFormatError(f"{path}: run_id: not a valid run ID; restore this file, or run the suite again") from None
    except RunFormatError as error:
        raise RunFormatError(f"{error}; restore this file, or run the suite again") from None


_ENCODER = json.JSONEncoder(sort_keys=True, default=str, separators=(",", ":"))


def digest(value: Any) -> str:
    """A hash of plain data, independent of the order of keys."""
    return sha256(_ENCODER.encode(value).encode()).hexdigest()


def short_digest(value: Any) -> str:
    """The first 12 digits of ``digest``."""
    return digest(value)[:12]
