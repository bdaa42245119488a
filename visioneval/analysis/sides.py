"""One side of a comparison: the cells of a run, a file of records or a baseline, and what is known of them. Cells are
without the fields that only show a single one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from math import fsum
from pathlib import Path
from typing import Literal

from visioneval.plugins import PROVIDERS, config_of
from visioneval.records.baselines import Baseline, BaselineLine, run_key
from visioneval.records.model import (
    CellError,
    CellKey,
    Fingerprint,
    GraderRecord,
    Record,
    RunInfo,
    RunState,
    first_look,
)
from visioneval.records.reader import Records, listed
from visioneval.records.stores.writing import has_confirmations
from visioneval.records.untrusted import Duration, ModelLabel, PathInRun, RuleText, SampleIndex, Usd
from visioneval.suite.case import CaseId
from visioneval.suite.metrics import (
    BUILT_IN,
    DecidingRules,
    RulesOf,
    SuiteMetrics,
    counter_examples,
    meanings_of,
    unknown_rules,
)
from visioneval.suite.model import Suite
from visioneval.types import MOST_CHOICES, Frozen, Metric, Score, Verdict

ALIGNMENT, GECKO = "alignment", "gecko"
"""The types of the graders that list gaps, and that ask questions."""
_SNAPSHOT = re.compile(r"[-@](\d{3,8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{2}-\d{4}|preview[-\d]*|latest|exp[-\d]*)")


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
    cost_usd: Usd | None = None
    is_unmeasured: bool = False
    is_optional: bool = False
    never_asked: bool = False
    judges: tuple[CellJudge, ...] = ()


MEASURED = (Verdict.PASS, Verdict.FAIL)
"""The verdicts of measured cells."""


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
    cost_usd: Usd | None = None
    seconds: Duration | None = None
    attempts: int | None = None
    grade_key: str = ""
    graders: tuple[CellGrader, ...] = ()

    @property
    def key(self) -> CellKey:
        """The case, the model run and the sample."""
        return self.test_id, self.model_label, self.sample_index

    @property
    def is_unmeasured(self) -> bool:
        """Whether a grader failed that the cell needs, or a computed metric is null that it needs."""
        is_lost = any(grader.is_unmeasured and not grader.is_optional for grader in self.graders)
        return is_lost or bool(self.unmeasured_metrics)

    @property
    def total_cost_usd(self) -> float | None:
        """The known cost of generation and grading, or ``None`` if none is known."""
        total = self.cost_usd
        for grader in self.graders:
            if grader.cost_usd is not None:
                total = grader.cost_usd if total is None else total + grader.cost_usd
        return total


Cells = Records[Cell]
"""The cells of one side of a comparison."""


@dataclass(slots=True)
class PooledCell(Cell):
    """The same cell in the runs of a baseline, of which ``cells`` has the newest first and ``None`` where one lacks it.

    Its verdict is that of most runs that measured it. A score is the mean over the runs that have it, or their most
    frequent word. The rest is that of the newest run with this verdict.
    """

    cells: tuple[Cell | None, ...] = ()


def pooled_cell(cells: tuple[Cell | None, ...]) -> PooledCell:
    """Pools a cell that the first of some runs has."""
    present = [cell for cell in cells if cell is not None]
    verdicts = [cell.verdict for cell in present]
    passed, failed = verdicts.count(Verdict.PASS), verdicts.count(Verdict.FAIL)
    verdict = verdicts[0]
    if passed or failed:
        verdict = Verdict.PASS if passed > failed else Verdict.FAIL
    typical = next((cell for cell in present if cell.verdict is verdict), present[0])
    values = {
        name: [cell.scores.get(name) for cell in present]
        for name in dict.fromkeys(name for cell in present for name in cell.scores)
    }
    fields = {item.name: getattr(typical, item.name) for item in dataclass_fields(Cell)}
    fields |= {"verdict": verdict, "scores": {name: _mean(scores) for name, scores in values.items()}}
    return PooledCell(**fields, cells=cells)


def _mean(scores: list[Score]) -> Score:
    """The mean; of words, the one of most runs, or else of the newest."""
    if words := [score for score in scores if isinstance(score, str)]:
        return Counter(words).most_common(1)[0][0]
    measured = [score for score in scores if score is not None and not isinstance(score, str)]
    if len(set(measured)) <= 1:
        return measured[0] if measured else None
    return fsum(measured) / len(measured)


class Rerouting(Frozen):
    """A judge of the suite whose replies name another model, in ``cells`` cells of one grader."""

    grader: str
    judge: str
    asked: str
    answered: str
    cells: int


class Reroutings:
    """Counts the graders' answers by model."""

    def __init__(self, info: RunInfo | None) -> None:
        """Reads which model each grader of the run asks. Without a run, nothing is counted."""
        judges, graders = ({}, ()) if info is None else (info.suite.judges, info.suite.graders)
        self._models = {name: getattr(judge, "model", None) for name, judge in judges.items()}
        self._judges = {grader.key: grader.judge_names for grader in graders} if any(self._models.values()) else {}
        self._counts: Counter[tuple[str, str, str, str]] = Counter()

    def add_graders(self, graders: Iterable[GraderRecord | CellGrader]) -> None:
        """Counts the graders of a cell."""
        if not self._judges:
            return
        for grader in graders:
            names = self._judges.get(grader.key, ())
            replies = [(answer.judge, answer.model) for answer in grader.judges]
            for judge, answered in [(names[0], grader.fingerprint.judge_model)] if len(names) == 1 else replies:
                asked = self._models.get(judge)
                if asked and answered and not is_same_model(asked, answered):
                    self._counts[grader.key, judge, asked, answered] += 1

    def result(self) -> tuple[Rerouting, ...]:
        """Returns the reroutings, by grader."""
        return tuple(
            Rerouting(grader=grader, judge=judge, asked=asked, answered=answered, cells=cells)
            for (grader, judge, asked, answered), cells in sorted(self._counts.items())
        )


def is_same_model(asked: str, answered: str) -> bool:
    """Whether a reply may come from the model that was asked: it names that model, or a dated snapshot of it.

    An alias, which ends in ``-latest``, may stand for any model.
    """
    asked, answered = (name.rpartition("/")[2].lower() for name in (asked, answered))
    if asked == answered or asked.endswith("-latest"):
        return True
    return answered.startswith(asked) and _SNAPSHOT.fullmatch(answered[len(asked) :]) is not None


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs that are compared.

    ``writers`` maps each metric to the key of its grader, and ``sources`` each computed metric to the graders' metrics
    that it reads. ``rules_of`` are the rules that can fail a cell. ``folder`` contains the images. A file of records
    has no ``suite`` and no ``source_sha256``; its ``metrics`` have no ``Meaning``, but ``values``, the lowest and the
    highest of each number. Neither it nor a baseline has a ``state`` or a ``folder``. ``is_narrowed`` is true if
    ``RUN@LABEL`` excluded model runs. ``left_out_cases`` and ``left_out_labels`` are what flags left out of the
    run's suite, and ``samples_flag`` is ``--samples``. ``is_partial`` marks a baseline of a run that had not all cells
    of its suite.
    ``unused_confirmations`` is true if the run has new samples of an earlier ``--confirm`` that this comparison does
    not use. ``info`` is that of a run, and ``others`` are its cells that ``RUN@LABEL`` excluded. A comparison sets
    ``reroutings``: judges of the run that answered with another model.
    """

    name: str
    cells: Cells
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    writers: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules_of: RulesOf = unknown_rules
    suite: str | None = None
    source_sha256: str | None = None
    state: RunState | None = None
    planned_cells: int | None = None
    counter_examples: frozenset[str] | None = None
    """The ids of cases whose prompt does not match their image; ``None`` for a file of records."""
    must_detect: float | None = None
    runs: int = 1
    """The number of runs of a baseline."""
    run_ids: tuple[tuple[str, str], ...] = ()
    """The key and the id of each of its runs, the newest first; none for a file of records.

    A baseline of an earlier version has no keys: they are empty.
    """
    folder: Path | None = None
    file: Path | None = None
    """That of a baseline or of records."""
    is_narrowed: bool = False
    left_out_cases: frozenset[str] = frozenset()
    left_out_labels: frozenset[str] = frozenset()
    samples_flag: int | None = None
    is_partial: bool = False
    values: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reroutings: tuple[Rerouting, ...] = ()
    unused_confirmations: bool = False
    info: RunInfo | None = None
    others: Cells | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its model runs, in order."""
        return self.cells.columns.used_labels

    def __post_init__(self) -> None:
        """Accepts any cells."""
        if not isinstance(self.cells, Records):
            object.__setattr__(self, "cells", listed(self.cells))

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


def side_of_run(name: str, info: RunInfo, cells: Cells, folder: Path) -> Side:
    """Builds a side from ``run.json`` and the cells, in suite order."""
    selected = info.selected_suite
    return Side(
        name=name,
        cells=of_first_look(info, cells).in_order(info),
        metrics=meanings_of(info.metrics, info.suite),
        writers=writers_of(info),
        sources=SuiteMetrics(info.suite, selected).grader_sources(),
        rules_of=DecidingRules(info.suite, selected).of_cell,
        suite=info.suite.name,
        source_sha256=info.source_sha256,
        state=info.state,
        planned_cells=None if info.until_decided is not None else info.planned_cells,
        counter_examples=counter_examples(selected),
        must_detect=info.suite.compare.must_detect,
        folder=folder,
        left_out_cases=frozenset(case.id for case in info.suite.cases) - {case.id for case in selected.cases},
        left_out_labels=frozenset(_labels(info.suite)) - set(_labels(selected)),
        samples_flag=info.suite.samples if info.until_decided is not None else info.selection.samples,
        unused_confirmations=has_confirmations(folder),
        run_ids=((run_key(info), info.run_id),),
        info=info,
    )


def of_first_look(info: RunInfo, cells: Cells) -> Cells:
    """The cells that are compared: of a run with ``--until-decided`` those of the suite's number of samples.

    Further samples exist because of the results of these.
    """
    counts = first_look(info)
    return cells if counts is None else cells.where(lambda cell: cell[2] < counts.get(cell[1], cell[2] + 1))


def _labels(suite: Suite) -> list[str]:
    return [str(entry.label) for entry in suite.models]


def side_of_baseline(name: str, runs: Sequence[Baseline]) -> Side:
    """Builds a side from the runs of a baseline, the newest first. They store no prompts, reasons or times."""
    return pooled_side([_side_of_stored_run(name, run) for run in runs])


def _side_of_stored_run(name: str, baseline: Baseline) -> Side:
    head = baseline.header
    rules = {
        (line.test_id, line.model_label): head.rules[line.rules] for line in baseline.lines if line.rules is not None
    }

    def cell_of(line: BaselineLine) -> Cell:
        graders = tuple(
            CellGrader(
                key,
                head.gradings[short].type,
                head.gradings[short].fingerprint,
                is_unmeasured=key in line.failed_graders,
                is_optional=key in line.optional_graders,
                never_asked=key in line.never_asked_graders,
            )
            for key, short in line.graders.items()
        )
        other = ("graders", "failed_graders", "optional_graders", "never_asked_graders", "rules")
        fields = {name: getattr(line, name) for name in BaselineLine.model_fields if name not in other}
        return Cell(**fields, graders=graders)

    return Side(
        name=name,
        cells=listed(map(cell_of, baseline.lines)),
        metrics=head.metrics,
        writers=head.writers,
        sources=head.sources,
        rules_of=lambda case, label: rules.get((case, label)),
        suite=head.suite,
        source_sha256=head.source_sha256,
        counter_examples=frozenset(head.counter_examples),
        must_detect=head.must_detect,
        is_partial=head.is_partial,
        run_ids=((head.run_key, head.run),),
    )


def pooled_side(sides: Sequence[Side]) -> Side:
    """Pools the runs of a baseline, the newest first: it says which cells there are and what is known of them."""
    newest, *older = sides
    others = [{cell.key: cell for cell in side.cells} for side in older]
    if not others:
        return newest
    pooled = (pooled_cell((cell, *(cells.get(cell.key) for cells in others))) for cell in newest.cells)
    run_ids = tuple(item for side in sides for item in side.run_ids)
    return replace(newest, cells=listed(pooled), runs=len(sides), run_ids=run_ids)


@dataclass(frozen=True, slots=True)
class SeriesRun:
    """A run of an experiment. ``side`` is ``None`` where it cannot be read, for the reason ``problem``."""

    run_id: str
    started_at: str
    side: Side | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """The runs of one suite of an experiment, oldest first: those ``shown``, and those before them that their windows
    of ``last`` runs reach.

    ``other_suites`` are the runs of the experiment that are not among them, in words, and ``is_over`` says that these
    run and the suite no more.
    """

    experiment: str
    last: int
    runs: tuple[SeriesRun, ...]
    shown: int
    other_suites: str = ""
    is_over: str = ""


def newest_run(side: Side) -> Side:
    """The newest run of a baseline of several; any other side as it is."""
    if side.runs == 1:
        return side
    newest = (
        next(item for item in cell.cells if item) if isinstance(cell, PooledCell) else cell for cell in side.cells
    )
    return replace(side, cells=listed(newest), runs=1, run_ids=side.run_ids[:1])


def with_built_in(side: Side, names: Iterable[str]) -> Side:
    """The side with built-in metrics that its suite does not read, so that its records lack them.

    A baseline has none: it stores no times.
    """
    added = [name for name in names if name in BUILT_IN and name not in side.metrics]
    if not added:
        return side

    def change(cell: Cell) -> Cell:
        measured = built_in_scores(cell)
        return replace(cell, scores={**cell.scores, **{name: measured[name] for name in added}}) if measured else cell

    metrics = {**side.metrics, **{name: BUILT_IN[name] for name in added}}
    return replace(side, cells=side.cells.changed(change), metrics=metrics)


def built_in_scores(cell: Cell | Record) -> dict[str, Score]:
    """The built-in metrics of a cell; none if its output is from a cache or a file."""
    reads = cell.provider in PROVIDERS and config_of(PROVIDERS, cell.provider).reads_outputs
    if not cell.attempts or cell.artifact_sha256 is None or reads:
        return {}
    return {name: getattr(cell, name) for name in BUILT_IN}


def side_of_records(name: str, cells: Cells) -> Side:
    """Builds a side from a file of records without ``run.json``. Metrics come from the scores, without direction.

    Scores of more than ``MOST_CHOICES`` different words are free text, which is no metric.
    """
    types: dict[str, Literal["bool", "number", "one_of"]] = {}
    words: dict[str, dict[str, None]] = {}
    values: dict[str, tuple[float, float]] = {}
    for cell in cells:
        for metric, score in cell.scores.items():
            if isinstance(score, str):
                types.setdefault(metric, "one_of")
                seen = words.setdefault(metric, {})
                if len(seen) <= MOST_CHOICES:
                    seen[score] = None
            elif isinstance(score, bool):
                types.setdefault(metric, "bool")
            elif score is not None:
                types.setdefault(metric, "number")
                low, high = values.get(metric, (score, score))
                values[metric] = min(low, score), max(high, score)
    metrics: dict[str, Metric] = {}
    for metric, kind in types.items():
        if kind != "one_of":
            metrics[metric] = Metric(type=kind, better="none")
        elif len(words[metric]) <= MOST_CHOICES:
            choices = tuple(words[metric])  # as the records have them, also those that no suite could declare
            metrics[metric] = Metric.model_construct(type=kind, choices=choices, better="none")
    return Side(name=name, cells=cells, metrics=metrics, values=values)
