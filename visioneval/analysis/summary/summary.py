"""The summary of a run, from its records and what it has of outputs that were compared with each other (pairs that
judges chose between, how much samples differ), and its exit code. Pure, but for reading the latter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Protocol

from pydantic import Field

from visioneval.analysis.left_out import DueMetrics, NeverAsked, NeverAskedCells
from visioneval.analysis.preferences import PreferenceFinding, never_asked_pairs, preferences_within, unjudged
from visioneval.analysis.scores import Estimate, Scores, case_of, word_shares
from visioneval.analysis.sides import Rerouting, Reroutings
from visioneval.analysis.summary.counts import (
    CostFinding,
    Costs,
    Model,
    ModelFindings,
    VerdictCounts,
    Verdicts,
    most_common,
    read_pair_costs,
)
from visioneval.analysis.summary.duplicates import Duplicates, DuplicatesFinding, not_compared_outputs
from visioneval.analysis.summary.gates import FailingCell, FailingCells, GateAccumulator, GateFinding
from visioneval.analysis.summary.graders import (
    AlignedCell,
    Alignments,
    QuestionFindings,
    Questions,
    Separation,
    Separations,
)
from visioneval.analysis.summary.judges import (
    Disagreement,
    Disagreements,
    JudgeCard,
    JudgeCards,
    PairCard,
    PanelFinding,
    Panels,
    read_pair_cards,
)
from visioneval.analysis.summary.same_question import SameQuestion, SameQuestions
from visioneval.analysis.summary.until import sampled_gates
from visioneval.analysis.summary.variance import NoiseFinding, Noises
from visioneval.errors import ExitCode
from visioneval.records.between_cells import CaseDiversity, CellDuplicate, read_diversity, read_duplicates
from visioneval.records.model import Record, RunInfo, RunState, StoppedBy, known_sum, suite_order
from visioneval.records.untrusted import SCHEMA_VERSION
from visioneval.rules import parse_gate, parse_rule
from visioneval.suite.entries.graders import SAMPLES, BaseGrader, of_kind
from visioneval.suite.filters import any_glob
from visioneval.suite.metrics import Meaning, left_out, meanings_of
from visioneval.suite.model import Suite
from visioneval.suite.rules import GateRule
from visioneval.suite.runs import Shard
from visioneval.types import Frozen, Metric

DISTANCE = Metric(type="number", range=(0, 2), better="none")
DELTA_E = Metric(type="number", range=(0, None), better="none")


@dataclass(frozen=True, slots=True)
class Compared:
    """The judged pairs of a run's own model runs, their judges and costs, the distances of its samples, and which
    outputs repeat those of other cases."""

    pairs: Sequence[PreferenceFinding] = ()
    judges: Sequence[PairCard] = ()
    costs: Sequence[CostFinding] = ()
    samples: Sequence[CaseDiversity] = ()
    duplicates: Sequence[CellDuplicate] = ()

    @classmethod
    def read(cls, folder: Path, info: RunInfo, *, has_pairs: bool = True, has_costs: bool = True) -> Compared:
        """Reads what a run has of these.

        ``has_pairs`` is false for a part of the cells of a run, which has no pairs of its own. ``has_costs`` is false
        for a single model run: the cost of a pair belongs to two. Raises ``RunFormatError``.
        """
        return cls(
            preferences_within(folder, info) if has_pairs else (),
            read_pair_cards(folder) if has_pairs else (),
            read_pair_costs(folder) if has_pairs and has_costs else (),
            read_diversity(folder),
            read_duplicates(folder),
        )


NOTHING_COMPARED = Compared()


class DiversityFinding(Frozen):
    """The mean distance of the samples of a case, over the cases of one model run.

    ``distance`` is 1 - SSIM, 0..2, and ``delta_e`` is CIEDE2000, 0 and up; 0 is identical. Both count cases with fewer
    than two images as unmeasured, and the ``failed`` ones too: those whose images exist but were not all measured.
    """

    grader: str
    model_label: str
    distance: Estimate
    delta_e: Estimate
    failed: int = 0
    is_optional: bool = False


class Diversities:
    """Collects the images of each case and model run, to match the lines of ``diversity.jsonl`` with them."""

    def __init__(self, info: RunInfo, lines: Iterable[CaseDiversity]) -> None:
        """Starts without cells."""
        suite = info.selected_suite
        self._graders = of_kind(suite.graders, SAMPLES)
        self._cases = {case.id: case for case in suite.cases}
        self._lines = {line.key: line for line in lines}
        self._images: dict[str, dict[str, dict[int, str]]] = {}

    def add(self, cell: Record) -> None:
        """Counts a cell, also without an image."""
        if not self._graders:
            return
        images = self._images.setdefault(cell.model_label, {}).setdefault(cell.test_id, {})
        if cell.mime is not None and cell.artifact_path is not None and cell.artifact_sha256 is not None:
            images[cell.sample_index] = cell.artifact_sha256

    def result(self, labels: Iterable[str]) -> tuple[DiversityFinding, ...]:
        """Returns a finding for each grader and each of these model runs that has any cases for it."""
        findings = [self._finding(grader, label) for grader in self._graders for label in labels]
        return tuple(finding for finding in findings if finding is not None)

    def _finding(self, grader: BaseGrader, label: str) -> DiversityFinding | None:
        distances, differences, failed = Scores(), Scores(), 0
        cases = [id_ for id_ in self._images.get(label, {}) if id_ in self._cases and grader.is_for(self._cases[id_])]
        for case in cases:
            images = tuple(digest for _, digest in sorted(self._images[label][case].items()))
            line = self._lines.get((grader.key, case, label))
            if line is not None and (line.outputs != images or line.error is not None):
                line = None
            failed += len(images) > 1 and line is None
            distances.add(line and line.distance, case_of(case))
            differences.add(line and line.delta_e, case_of(case))
        if not cases:
            return None
        return DiversityFinding(
            grader=grader.key,
            model_label=label,
            distance=distances.estimate(DISTANCE),
            delta_e=differences.estimate(DELTA_E),
            failed=failed,
            is_optional=bool(grader.optional),
        )


def unmeasured_groups(findings: Iterable[DiversityFinding]) -> int:
    """The number of sets of samples that a grader failed to measure, except optional graders."""
    return sum(finding.failed for finding in findings if not finding.is_optional)


class SamplesFinding(Frozen):
    """The cells of a run with ``--until-decided``, and those that it would have with a fixed number of samples."""

    cells: int
    """Its cells."""
    max_samples: int
    """The most samples of a case."""
    most_cells: int
    """The cells with so many samples of every case."""


ERROR_GATE = GateRule(rule="error_rate == 0")
UNMEASURED_GATE = GateRule(rule="unmeasured_rate == 0")


class Summary(Frozen):
    """The findings of a run, for ``summary.json`` and ``--json``."""

    schema_version: int = SCHEMA_VERSION
    """2."""
    run_id: str
    """The run."""
    suite: str
    """The suite's name."""
    experiment: str | None
    """The suite's ``experiment``."""
    state: RunState
    """As in ``run.json``."""
    stopped_by: StoppedBy | None = None
    """As in ``run.json``."""
    planned_cells: int
    """The cells of the selection."""
    shard: Shard | None = None
    """``number`` and ``count``: which part of a run this is. Its gates are evaluated when all shards are merged."""
    left_out_graders: tuple[str, ...] = ()
    """Graders that ``--grader`` left out. Rules over their metrics are not evaluated, gates over them are skipped."""
    counts: VerdictCounts
    """Cells by verdict, and the pass rate."""
    models: tuple[ModelFindings, ...]
    """The same by model run, with metrics, cost and seconds."""
    metrics: dict[str, Meaning]
    """What each metric measures."""
    tags: dict[str, VerdictCounts]
    """Cells by verdict of each tag."""
    failure_tags: dict[str, int]
    """How often each was given."""
    warned_rules: dict[str, int]
    """How many cells broke each rule of the level ``warn``."""
    judge_disagreements: dict[str, Disagreement]
    """By rubric: cells that it judged, and those of them in which its own verdict differs from the rules."""
    same_question: tuple[SameQuestion, ...] = ()
    """Metrics of judges beside local measures: ``cells`` that have both, those that ``only_judge_passes`` and
    ``only_measure_passes``, which ``contradicted`` lists.
    """
    judges: tuple[JudgeCard, ...] = ()
    """What the records contain about the judge of each grader."""
    pair_judges: tuple[PairCard, ...] = ()
    """The judges that compared outputs of this run in pairs, with each other or with those of another run."""
    separations: dict[str, dict[str, Separation]]
    """By metric and model run: aligned cells and counter-examples."""
    questions: dict[str, QuestionFindings]
    """By gecko grader: rates by type of question."""
    noise: tuple[NoiseFinding, ...] = ()
    """Where the variance of the pass rate and of each metric arises."""
    failing: tuple[FailingCell, ...]
    """The first 5,000 cells that did not pass, in suite order. ``counts`` has the number of all."""
    failure_reasons: dict[str, int] = Field(default_factory=dict)
    """How many cells did not pass for each reason: a failed rule, ``refused``, or the stage and kind of an error. A
    cell can have several. Most frequent first."""
    deciding_metrics: tuple[str, ...] = ()
    """The metrics that verdict rules and gates read, sorted."""
    alignments: tuple[AlignedCell, ...] = ()
    """The alignment of each cell, passing ones included; of more than 5,000, those with the lowest scores."""
    alignments_left_out: int = 0
    """How many more cells have an alignment."""
    gates: tuple[GateFinding, ...]
    """The gates."""
    until_decided: SamplesFinding | None = None
    """With ``--until-decided``: what it saved against a fixed number of samples."""
    optional_unmeasured: dict[str, int] = Field(default_factory=dict)
    """The number of cells that each optional grader could not measure."""
    never_asked: tuple[NeverAsked, ...] = ()
    """Judges and models that were not asked about some cells or pairs, which nothing excuses."""
    panels: dict[str, PanelFinding] = Field(default_factory=dict)
    """By grader: ``judges``, ``cells``, ``unanswered`` cells of each judge, and by metric ``alpha`` and ``split``,
    the cells on which the judges were evenly split.
    """
    diversity: tuple[DiversityFinding, ...] = ()
    """By grader and model run: the mean ``distance`` and ``delta_e`` over cases, and ``failed``, the cases whose
    images exist but were not compared.
    """
    duplicates: tuple[DuplicatesFinding, ...] = ()
    """By grader and model run: how many of the compared ``outputs`` are ``duplicates`` of those of other cases, the
    first of them as ``cells``, and ``failed``, the outputs that exist but were not compared.
    """
    reroutings: tuple[Rerouting, ...] = ()
    """Judges that answered with another model than the one that was asked."""
    unjudged_pairs: int = 0
    """Pairs of the run's own model runs that no judge answered in both orders."""
    reused_outputs: int = 0
    """How many outputs came from the cache."""
    reused_since: str | None = None
    """When the oldest of them was generated."""
    costs: tuple[CostFinding, ...] = ()
    """Calls and costs of each model and judge."""
    cost_usd: float | None
    """The sum of the known costs, with those of pairs."""
    pairwise_usd: float | None = None
    """The part of ``cost_usd`` that judges of pairs cost."""
    unpriced: int = 0
    """Calls whose cost is unknown."""
    exit_code: int
    """The exit code."""

    @property
    def lacks_outputs(self) -> bool:
        """Whether a model was never asked for outputs."""
        return any(entry.what == "output" for entry in self.never_asked)


def summarize(
    info: RunInfo,
    records: Iterable[Record],
    compared: Compared = NOTHING_COMPARED,
) -> Summary:
    """Summarizes a run from its records, in any order, and what it has of outputs that were compared with each other.

    Reads one record at a time. Its ``exit_code`` is the exit code of the run, wherever the run is shown.
    """
    suite, due = info.selected_suite, DueMetrics(info)
    without, words = left_out(suite, info.metrics), word_shares(info.metrics)
    all_cells = Verdicts()
    models = defaultdict(
        partial(Model, without, words), {str(entry.label): Model(without, words) for entry in suite.models}
    )
    tags = defaultdict(Verdicts, {tag: Verdicts() for case in suite.cases for tag in case.tags})
    duplicates = Duplicates(info, compared.duplicates)
    entries, sampled = gates_of(info.suite), sampled_gates(info)
    gate_counters = [GateAccumulator(entry, info, due, of, duplicates) for entry, of in zip_longest(entries, sampled)]
    failing = FailingCells(info, gate_counters)
    disagreements, reroutings = Disagreements(suite), Reroutings(info)
    separations, questions, noises = Separations(info), Questions(info, without), Noises(info, without)
    judges, panels, alignments = JudgeCards(info), Panels(info), Alignments(info)
    costs, asked, diversities = Costs(info), NeverAskedCells(), Diversities(info, compared.samples)
    same_questions = SameQuestions(info)
    counters: list[_Counter] = [
        all_cells,
        disagreements,
        same_questions,
        separations,
        questions,
        noises,
        judges,
        panels,
    ]
    counters += [alignments, failing, costs, asked, diversities, duplicates, *gate_counters]
    warned_rules, optional_unmeasured, reused = Counter[str](), Counter[str](), 0
    for cell in records:
        models[cell.model_label].add(cell)
        for tag in cell.tags:
            tags[tag].add(cell)
        for counter in counters:
            counter.add(cell)
        reroutings.add_graders(cell.graders)
        warned_rules.update(cell.warned_rules)
        optional_unmeasured.update(part.key for part in cell.graders if part.is_unmeasured and part.is_optional)
        reused += cell.cached and cell.artifact_path is not None

    rules = chain(info.suite.verdict, *(case.verdict for case in info.suite.cases if case.verdict is not None))
    deciding = {parse_rule(rule.rule).metric for rule in rules} | {
        parse_gate(gate.rule).metric for gate in info.suite.gates
    }
    chosen = info.selection.graders
    counts, disagreed, samples = all_cells.result(), disagreements.result(), diversities.result(models)
    gates, copies = tuple(gate.result() for gate in gate_counters), duplicates.result(models)
    never_asked = (*asked.result(), *never_asked_pairs(compared.pairs))
    money = sum((model.money.sum for model in models.values()), Fraction())
    is_known = any(model.money.known for model in models.values())
    pairwise_usd = known_sum(*(cost.usd for cost in compared.costs if cost.paid or cost.cached))
    return Summary(
        run_id=info.run_id,
        suite=info.suite.name,
        experiment=info.experiment,
        state=info.state,
        stopped_by=info.stopped_by,
        planned_cells=info.planned_cells,
        shard=info.selection.shard,
        left_out_graders=tuple(
            grader.key for grader in info.suite.graders if chosen and not any_glob(chosen, grader.key)
        ),
        counts=counts,
        models=tuple(model.result(label, info, costs.unknown[label]) for label, model in models.items()),
        metrics=meanings_of(info.metrics, info.suite),
        tags={tag: verdicts.result() for tag, verdicts in tags.items()},
        failure_tags=most_common(sum((model.failure_tags for model in models.values()), Counter())),
        warned_rules=most_common(warned_rules),
        judge_disagreements=disagreed,
        same_question=same_questions.result(),
        judges=judges.result(disagreed),
        pair_judges=tuple(compared.judges),
        separations=separations.result(models),
        questions=questions.result(models),
        noise=noises.result(
            [model.verdicts.passes for model in models.values()], [model.scores for model in models.values()]
        ),
        failing=failing.result(gates),
        failure_reasons=most_common(failing.reasons),
        deciding_metrics=tuple(sorted(filter(None, deciding))),
        alignments=alignments.result(),
        alignments_left_out=alignments.left_out,
        gates=gates,
        until_decided=_samples_finding(info, counts.cells),
        optional_unmeasured=dict(optional_unmeasured),
        never_asked=never_asked,
        panels=panels.result(),
        diversity=samples,
        duplicates=copies,
        reroutings=reroutings.result(),
        unjudged_pairs=unjudged(compared.pairs),
        reused_outputs=reused,
        reused_since=info.reused_since,
        costs=(*costs.result(), *compared.costs),
        cost_usd=known_sum(float(money) if is_known else None, pairwise_usd),
        pairwise_usd=pairwise_usd,
        unpriced=costs.unknown.total() + sum(cost.unknown for cost in compared.costs),
        exit_code=exit_code(
            info,
            gates,
            unmeasured_pairs=unjudged(compared.pairs) + unmeasured_groups(samples) + not_compared_outputs(copies),
            missing_cells=info.planned_cells - counts.cells,
            never_asked=bool(never_asked),
        ),
    )


def _samples_finding(info: RunInfo, cells: int) -> SamplesFinding | None:
    until = info.until_decided
    if until is None or not info.samples_itself:
        return None
    return SamplesFinding(cells=cells, max_samples=until.max_samples, most_cells=until.most_cells)


class _Counter(Protocol):
    """Takes one cell at a time."""

    def add(self, cell: Record) -> None: ...


def in_order(info: RunInfo, records: Iterable[Record]) -> list[Record]:
    """Sorts records in suite order: by case, model run and sample."""
    position = suite_order(info)
    return sorted(records, key=lambda cell: position(cell.test_id, cell.model_label, cell.sample_index))


def gates_of(suite: Suite) -> tuple[GateRule, ...]:
    """The gates of the suite, and those that every suite has unless an unscoped gate replaces them.

    They are ``error_rate == 0`` and ``unmeasured_rate == 0``. A limit on ``error_rate`` limits ``unmeasured_rate`` too.
    A suite without rules has ``pass_rate == 1``, which then only counts models that refused.
    """
    unscoped = {parse_gate(entry.rule).fn: parse_gate(entry.rule) for entry in suite.gates if entry.is_unrestricted}
    errors, implied = unscoped.get("error_rate"), []
    if errors is None:
        implied.append(ERROR_GATE)
    if "unmeasured_rate" not in unscoped:
        is_limit = errors is not None and errors.op in ("<=", "<", "==")
        limit = f"unmeasured_rate {errors.op} {errors.threshold:g}" if errors is not None and is_limit else None
        implied.append(UNMEASURED_GATE if limit is None else GateRule(rule=limit))
    return (*suite.declared_gates, *implied)


def exit_code(
    info: RunInfo,
    gates: Sequence[GateFinding],
    *,
    unmeasured_pairs: int = 0,
    missing_cells: int = 0,
    never_asked: bool = False,
) -> ExitCode:
    """Returns the exit code of a run, by the first that applies.

    3 if its budget, a spent quota or a refused API key ended it; 130 if it was interrupted; 3 if cells are missing or
    unplanned, pairs were not judged or measured, or a judge or a model was never asked, whatever a gate allows; for a
    shard, 3 if a gate allows no error and it has one, else 0, as its other gates wait for the other shards; 3 if a gate
    on errors or unmeasured cells failed, a gate is unmeasured, cannot tell or leaves out too many cells, or a selection
    left out all gates of the suite; 1 if another gate failed; otherwise 0. ``gates`` begins with those of the suite. A
    suite without rules has no pass rate to decide: its run passes if its outputs exist.
    """
    if info.stopped_by:
        return ExitCode.INCOMPLETE
    if info.state in ("interrupted", "stopped"):
        return ExitCode.INTERRUPTED
    if missing_cells or unmeasured_pairs or never_asked:
        return ExitCode.INCOMPLETE
    if info.selection.shard is not None:
        return ExitCode.INCOMPLETE if any(gate.state == "failed" for gate in gates) else ExitCode.PASSED
    declared = gates[: len(info.suite.declared_gates)] if info.suite.has_rules else ()
    if any(gate.is_incomplete for gate in gates) or (declared and all(gate.state == "skipped" for gate in declared)):
        return ExitCode.INCOMPLETE
    return ExitCode.GATE_FAILED if any(gate.state == "failed" for gate in gates) else ExitCode.PASSED
