"""The cells of a run as a comparison needs them, without the fields that only show a single cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from visioneval.analysis.rerouting import Rerouting, Reroutings
from visioneval.records.baselines import Baseline, BaselineGrading, BaselineLine
from visioneval.records.confirmations import has_confirmations
from visioneval.records.fields import Duration, ModelLabel, Number, PathInRun, RuleText, SampleIndex
from visioneval.records.model import CellError, Fingerprint, RunInfo, RunState, suite_order
from visioneval.registry import PROVIDERS, config_of
from visioneval.suite.cases.case import CaseId
from visioneval.suite.entries.metrics import BUILT_IN
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Metric, Score, Verdict


@dataclass(slots=True)
class CellJudge:
    """A judge of a panel that answered about a cell."""

    judge: str
    model: str | None = None


@dataclass(slots=True)
class CellGrader:
    """A grader of a cell, with the fingerprint of everything but the image that its scores depend on."""

    key: str
    type: str
    fingerprint: Fingerprint
    cost_usd: Number | None = None
    is_unmeasured: bool = False
    is_optional: bool = False
    judges: tuple[CellJudge, ...] = ()


@dataclass(slots=True)
class Cell:
    """One cell of one side. Field names are those of its record.

    Nothing changes it, but it is not frozen, as that doubles the time to create it.
    """

    test_id: CaseId
    model_label: ModelLabel
    sample_index: SampleIndex
    verdict: Verdict
    scores: Mapping[str, Score] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    sent_prompt: str | None = None
    tags: tuple[str, ...] = ()
    flaky: bool = False
    unmeasured_metrics: tuple[str, ...] = ()
    failed_rules: tuple[RuleText, ...] = ()
    failure_tags: tuple[str, ...] = ()
    error: CellError | None = None
    artifact_path: PathInRun | None = None
    artifact_sha256: str | None = None
    provider: str = ""
    cost_usd: Number | None = None
    seconds: Duration | None = None
    attempts: int | None = None
    grade_key: str = ""
    graders: tuple[CellGrader, ...] = ()

    @property
    def is_unmeasured(self) -> bool:
        """Whether a grader failed that the cell needs, or a computed metric is null that it needs."""
        for grader in self.graders:  # a loop, which is faster than any()
            if grader.is_unmeasured and not grader.is_optional:
                return True
        return bool(self.unmeasured_metrics)

    @property
    def total_cost_usd(self) -> float | None:
        """The known cost of generation and grading, or ``None`` if none is known."""
        total = self.cost_usd
        for grader in self.graders:
            if grader.cost_usd is not None:
                total = grader.cost_usd if total is None else total + grader.cost_usd
        return total


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs that are compared.

    ``writers`` maps each metric to the key of its grader, and ``sources`` each computed metric to the graders' metrics
    that it reads. ``folder`` contains the images. A file of records has no
    ``suite`` and no ``source_sha256``; neither it nor a baseline has a ``state`` or a ``folder``. ``is_narrowed`` is
    true if ``RUN@LABEL`` excluded model runs. ``left_out_cases`` and ``left_out_labels`` are what flags left out of the
    run's suite, and ``samples_flag`` is ``--samples``. ``is_partial`` marks a baseline of a run that had not all cells
    of its suite.
    ``reroutings`` are judges that answered with another model. ``unused_confirmations`` is true if the run has new
    samples of an earlier ``--confirm`` that this comparison does not use.
    """

    name: str
    cells: Sequence[Cell]
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    writers: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    suite: str | None = None
    source_sha256: str | None = None
    state: RunState | None = None
    planned_cells: int | None = None
    folder: Path | None = None
    is_narrowed: bool = False
    left_out_cases: frozenset[str] = frozenset()
    left_out_labels: frozenset[str] = frozenset()
    samples_flag: int | None = None
    is_partial: bool = False
    reroutings: tuple[Rerouting, ...] = ()
    unused_confirmations: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its model runs, in order."""
        return tuple(dict.fromkeys(cell.model_label for cell in self.cells))

    def leaves_out(self, case: str, label: str, sample: int) -> bool:
        """Whether flags left out a cell that the suite of this run still has."""
        if case in self.left_out_cases or label in self.left_out_labels:
            return True
        return self.samples_flag is not None and sample >= self.samples_flag


def writers_of(info: RunInfo) -> dict[str, str]:
    """Maps each metric of a run to the key of the grader that writes it."""
    writers: dict[str, str] = {}
    suite = info.selected_suite
    for case in suite.cases:
        for grader in suite.graders:
            writers.update(dict.fromkeys(grader.metrics(case), grader.key))
    return writers


def side_of_run(name: str, info: RunInfo, cells: Sequence[Cell], folder: Path) -> Side:
    """Builds a side from ``run.json`` and the cells, sorted in suite order."""
    position, reroutings, selected = suite_order(info), Reroutings(info), info.selected_suite
    for cell in cells:
        reroutings.add_graders(cell.graders)
    return Side(
        name=name,
        cells=sorted(cells, key=lambda cell: position(cell.test_id, cell.model_label, cell.sample_index)),
        metrics=info.metrics,
        writers=writers_of(info),
        sources=SuiteMetrics(info.suite, selected).grader_sources(),
        suite=info.suite.name,
        source_sha256=info.source_sha256,
        state=info.state,
        planned_cells=info.planned_cells,
        folder=folder,
        left_out_cases=frozenset(case.id for case in info.suite.cases) - {case.id for case in selected.cases},
        left_out_labels=frozenset(_labels(info.suite)) - set(_labels(selected)),
        samples_flag=info.selection.samples,
        reroutings=reroutings.result(),
        unused_confirmations=has_confirmations(folder),
    )


def _labels(suite: Suite) -> list[str]:
    return [str(entry.label) for entry in suite.models]


def side_of_baseline(name: str, baseline: Baseline) -> Side:
    """Builds a side from a baseline, which stores no prompts, reasons or times."""
    head = baseline.header
    return Side(
        name=name,
        cells=[_cell_of_line(line, head.gradings) for line in baseline.lines],
        metrics=head.metrics,
        writers=head.writers,
        sources=head.sources,
        suite=head.suite,
        source_sha256=head.source_sha256,
        is_partial=head.is_partial,
    )


def _cell_of_line(line: BaselineLine, gradings: Mapping[str, BaselineGrading]) -> Cell:
    gradings_by_key = ((key, gradings[short]) for key, short in line.graders.items())
    fields = {
        name: getattr(line, name) for name in BaselineLine.model_fields if name not in ("graders", "failed_graders")
    }
    graders = (
        CellGrader(key, grading.type, grading.fingerprint, is_unmeasured=key in line.failed_graders)
        for key, grading in gradings_by_key
    )
    return Cell(**fields, graders=tuple(graders))


def with_built_in(side: Side, names: Iterable[str]) -> Side:
    """The side with built-in metrics that its suite does not read, so that its records lack them.

    A baseline has none: it stores no times.
    """
    added = [name for name in names if name in BUILT_IN and name not in side.metrics]
    if not added:
        return side
    cells = [
        replace(cell, scores={**cell.scores, **{name: getattr(cell, name) for name in added}})
        if _is_generated(cell)
        else cell
        for cell in side.cells
    ]
    return replace(side, cells=cells, metrics={**side.metrics, **{name: BUILT_IN[name] for name in added}})


def _is_generated(cell: Cell) -> bool:
    """Whether the run of a cell generated its output, and did not find it in a cache or a file."""
    reads = cell.provider in PROVIDERS and config_of(PROVIDERS, cell.provider).reads_outputs
    return bool(cell.attempts) and cell.artifact_sha256 is not None and not reads


def side_of_records(name: str, cells: Sequence[Cell]) -> Side:
    """Builds a side from a file of records without ``run.json``. Metrics come from the scores, without direction."""
    return Side(name=name, cells=cells, metrics=_guessed_metrics(cells))


def _guessed_metrics(cells: Sequence[Cell]) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for cell in cells:
        for name, score in cell.scores.items():
            if score is not None and name not in metrics:
                kind = "bool" if isinstance(score, bool) else "number"
                metrics[name] = Metric.model_validate({"type": kind, "better": "none"})
    return metrics
