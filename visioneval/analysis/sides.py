"""One side of a comparison: the cells of a run, a file of records or a baseline, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from visioneval.analysis.cells import Cell, CellGrader, Cells, newest_cell, pooled_cell
from visioneval.analysis.rerouting import Rerouting
from visioneval.plugins import PROVIDERS, config_of
from visioneval.records.baselines import Baseline, BaselineGrading, BaselineLine, run_key
from visioneval.records.model import Record, RunInfo, RunState
from visioneval.records.reader import Records, listed
from visioneval.records.stores.writing import has_confirmations
from visioneval.suite.deciding import DecidingRules, RulesOf, counter_examples, unknown_rules
from visioneval.suite.filters import BUILT_IN
from visioneval.suite.metrics import SuiteMetrics, meanings_of
from visioneval.suite.model import Suite
from visioneval.types import MOST_CHOICES, Metric, Score


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
        cells=cells.in_order(info),
        metrics=meanings_of(info.metrics, info.suite),
        writers=writers_of(info),
        sources=SuiteMetrics(info.suite, selected).grader_sources(),
        rules_of=DecidingRules(info.suite, selected).of_cell,
        suite=info.suite.name,
        source_sha256=info.source_sha256,
        state=info.state,
        planned_cells=info.planned_cells,
        counter_examples=counter_examples(selected),
        must_detect=info.suite.compare.must_detect,
        folder=folder,
        left_out_cases=frozenset(case.id for case in info.suite.cases) - {case.id for case in selected.cases},
        left_out_labels=frozenset(_labels(info.suite)) - set(_labels(selected)),
        samples_flag=info.selection.samples,
        unused_confirmations=has_confirmations(folder),
        run_ids=((run_key(info), info.run_id),),
        info=info,
    )


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
    return Side(
        name=name,
        cells=listed(_cell_of_line(line, head.gradings) for line in baseline.lines),
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


def _cell_of_line(line: BaselineLine, gradings: Mapping[str, BaselineGrading]) -> Cell:
    gradings_by_key = ((key, gradings[short]) for key, short in line.graders.items())
    other = ("graders", "failed_graders", "optional_graders", "never_asked_graders", "rules")
    fields = {name: getattr(line, name) for name in BaselineLine.model_fields if name not in other}
    graders = (
        CellGrader(
            key,
            grading.type,
            grading.fingerprint,
            is_unmeasured=key in line.failed_graders,
            is_optional=key in line.optional_graders,
            never_asked=key in line.never_asked_graders,
        )
        for key, grading in gradings_by_key
    )
    return Cell(**fields, graders=tuple(graders))


def pooled_side(sides: Sequence[Side]) -> Side:
    """Pools the runs of a baseline, the newest first: it says which cells there are and what is known of them."""
    newest, *older = sides
    others = [{cell.key: cell for cell in side.cells} for side in older]
    if not others:
        return newest
    pooled = (pooled_cell((cell, *(cells.get(cell.key) for cells in others))) for cell in newest.cells)
    run_ids = tuple(item for side in sides for item in side.run_ids)
    return replace(newest, cells=listed(pooled), runs=len(sides), run_ids=run_ids)


def newest_run(side: Side) -> Side:
    """The newest run of a baseline of several; any other side as it is."""
    if side.runs == 1:
        return side
    cells = listed(newest_cell(cell) for cell in side.cells)
    return replace(side, cells=cells, runs=1, run_ids=side.run_ids[:1])


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
