"""The summary of a run, from its records, and its exit code. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Protocol

from pydantic import Field

from visioneval.analysis.alignments import AlignedCell, Alignments
from visioneval.analysis.compare.preferences import never_asked_pairs, unjudged
from visioneval.analysis.disagreements import Disagreement, Disagreements
from visioneval.analysis.left_out import DueMetrics, NeverAsked, NeverAskedCells
from visioneval.analysis.rerouting import Rerouting, Reroutings
from visioneval.analysis.scores import word_shares
from visioneval.analysis.summary.cells import FailingCell, FailingCells
from visioneval.analysis.summary.compared import (
    NOTHING_COMPARED,
    Compared,
    Diversities,
    DiversityFinding,
    unmeasured_groups,
)
from visioneval.analysis.summary.counts import (
    CostFinding,
    Costs,
    Counts,
    Model,
    ModelFindings,
    Verdicts,
    most_common,
)
from visioneval.analysis.summary.gates import GateAccumulator, GateFinding
from visioneval.analysis.summary.graders import (
    QuestionFindings,
    Questions,
    Separation,
    Separations,
)
from visioneval.analysis.summary.judges import JudgeCard, JudgeCards, PairCard, PanelFinding, Panels
from visioneval.analysis.summary.variance import NoiseFinding, Noises
from visioneval.errors import ExitCode
from visioneval.records.model import Record, RunInfo, RunState, StoppedBy, known_sum, suite_order
from visioneval.records.untrusted import SCHEMA_VERSION
from visioneval.rules import parse_gate, parse_rule
from visioneval.suite.deciding import left_out
from visioneval.suite.filters import GateRule, any_glob
from visioneval.suite.metrics import Meaning, meanings_of
from visioneval.suite.model import Suite
from visioneval.suite.selection import Shard
from visioneval.types import Frozen

ERROR_GATE = GateRule(rule="error_rate == 0")
UNMEASURED_GATE = GateRule(rule="unmeasured_rate == 0")


class Summary(Frozen):
    """The findings of a run, for ``summary.json`` and ``--json``."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    suite: str
    experiment: str | None
    state: RunState
    stopped_by: StoppedBy | None = None
    planned_cells: int
    shard: Shard | None = None
    """Which part of a run this is: gates are evaluated when all shards are merged."""
    left_out_graders: tuple[str, ...] = ()
    """The suite's graders that ``--grader`` left out: rules over their metrics were not evaluated."""
    counts: Counts
    models: tuple[ModelFindings, ...]
    metrics: dict[str, Meaning]
    tags: dict[str, Counts]
    failure_tags: dict[str, int]
    warned_rules: dict[str, int]
    judge_disagreements: dict[str, Disagreement]
    judges: tuple[JudgeCard, ...] = ()
    """What the records contain about the judge of each grader."""
    pair_judges: tuple[PairCard, ...] = ()
    """The judges that compared outputs of this run in pairs, with each other or with those of another run."""
    separations: dict[str, dict[str, Separation]]
    questions: dict[str, QuestionFindings]
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
    optional_unmeasured: dict[str, int] = Field(default_factory=dict)
    """The number of cells that each optional grader could not measure."""
    never_asked: tuple[NeverAsked, ...] = ()
    """The judges and models that were not asked about some cells or pairs, which nothing excuses."""
    panels: dict[str, PanelFinding] = Field(default_factory=dict)
    """How far the judges of each panel agree, by grader key."""
    diversity: tuple[DiversityFinding, ...] = ()
    """How much the samples of a case differ, by grader and model run."""
    reroutings: tuple[Rerouting, ...] = ()
    """Judges that answered with another model than the one that was asked."""
    unjudged_pairs: int = 0
    """Pairs of the run's own model runs that no judge answered in both orders."""
    reused_outputs: int = 0
    reused_since: str | None = None
    costs: tuple[CostFinding, ...] = ()
    cost_usd: float | None
    """The sum of the known costs, with those of pairs."""
    pairwise_usd: float | None = None
    """The part of ``cost_usd`` that judges of pairs cost."""
    unpriced: int = 0
    exit_code: int

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
    gate_counters = [GateAccumulator(entry, info, due) for entry in gates_of(info.suite)]
    failing = FailingCells(info, gate_counters)
    disagreements, reroutings = Disagreements(suite), Reroutings(info)
    separations, questions, noises = Separations(info), Questions(info, without), Noises(info, without)
    judges, panels, alignments = JudgeCards(info), Panels(info), Alignments(info)
    costs, asked, diversities = Costs(info), NeverAskedCells(), Diversities(info, compared.samples)
    counters: list[_Counter] = [all_cells, disagreements, separations, questions, noises, judges, panels]
    counters += [alignments, failing, costs, asked, diversities, *gate_counters]
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

    chosen = info.selection.graders
    counts, disagreed, samples = all_cells.result(), disagreements.result(), diversities.result(models)
    gates = tuple(gate.result() for gate in gate_counters)
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
        judges=judges.result(disagreed),
        pair_judges=tuple(compared.judges),
        separations=separations.result(models),
        questions=questions.result(models),
        noise=noises.result(
            [model.verdicts.passes for model in models.values()], [model.scores for model in models.values()]
        ),
        failing=failing.result(gates),
        failure_reasons=most_common(failing.reasons),
        deciding_metrics=_deciding_metrics(info.suite),
        alignments=alignments.result(),
        alignments_left_out=alignments.left_out,
        gates=gates,
        optional_unmeasured=dict(optional_unmeasured),
        never_asked=never_asked,
        panels=panels.result(),
        diversity=samples,
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
            unmeasured_pairs=unjudged(compared.pairs) + unmeasured_groups(samples),
            missing_cells=info.planned_cells - counts.cells,
            never_asked=bool(never_asked),
        ),
    )


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


def _deciding_metrics(suite: Suite) -> tuple[str, ...]:
    """The names of the metrics that rules and gates read, sorted."""
    by_case = (case.verdict for case in suite.cases if case.verdict is not None)
    rules = (parse_rule(entry.rule).metric for entry in chain(suite.verdict, *by_case))
    gates = (parse_gate(entry.rule).metric for entry in suite.gates)
    return tuple(sorted({name for name in chain(rules, gates) if name is not None}))
