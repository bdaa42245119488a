"""What a run found: records in, findings out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import fsum
from typing import Literal

from visioneval.analysis.disagreements import Disagreement, disagreements
from visioneval.analysis.questions import QuestionFindings, question_findings
from visioneval.analysis.separation import Separation, counter_examples, separations
from visioneval.analysis.stats import wilson_interval
from visioneval.records import CellError, Record, RunInfo, RunState
from visioneval.rules import Gate, gate_holds, parse_gate, parse_rule, pooled, separated
from visioneval.suite.case import TestCase
from visioneval.suite.model import Suite
from visioneval.suite.scope import GateRule, Scope, any_glob
from visioneval.types import Frozen, Metric, Status, Verdict

GateState = Literal["holds", "unmet", "unmeasured", "skipped"]
ERROR_GATE = GateRule(rule="error_rate == 0")
EXIT_OK, EXIT_GATE, EXIT_INCOMPLETE, EXIT_INTERRUPTED = 0, 1, 3, 130


class Rate(Frozen):
    """A share of ``n`` with its 95 % Wilson interval; ``null`` where ``n`` is 0."""

    value: float | None
    low: float | None
    high: float | None
    n: int


class Counts(Frozen):
    """Cells by verdict; ``refused`` ones are counted in their verdict too. ``pass_rate`` leaves errors out."""

    cells: int
    passed: int
    failed: int
    errors: int
    refused: int
    pass_rate: Rate


class MetricFinding(Frozen):
    """The mean of a number or the rate of a yes over the ``n`` cells that were measured."""

    value: float | None
    n: int
    unmeasured: int


class ModelFindings(Frozen):
    """What one model run did. ``seconds`` is the mean time of a drawing.

    ``cost_usd`` is the sum of what is known; ``unpriced`` drawings and judgements are not.
    """

    label: str
    stand_in: bool
    counts: Counts
    metrics: dict[str, MetricFinding]
    cost_usd: float | None
    unpriced: int = 0
    seconds: float


class CostFinding(Frozen):
    """What the drawings of a model run, or the judges of a grader, cost. ``unknown`` cells have no known cost."""

    what: Literal["drawing", "judging"]
    name: str
    usd: float
    paid: int
    cached: int
    unknown: int


class FailingCell(Frozen):
    """A cell that did not pass. ``reasons`` are those of its failed rules, by rule, or of its refusal."""

    test_id: str
    model_label: str
    sample_index: int
    verdict: Verdict
    failed_rules: tuple[str, ...]
    failure_tags: tuple[str, ...]
    reasons: dict[str, str]
    error: CellError | None


class GateFinding(Frozen):
    """What a gate found: its value over ``n`` counted cells, beside ``errors`` cells of its scope."""

    rule: str
    scope: str
    value: float | None
    n: int
    errors: int
    state: GateState


class Summary(Frozen):
    """The findings of a run: ``summary.json`` and ``--json``."""

    schema_version: int = 1
    run_id: str
    suite: str
    experiment: str | None
    state: RunState
    stopped_by: Literal["budget"] | None = None
    planned_cells: int
    counts: Counts
    models: tuple[ModelFindings, ...]
    metrics: dict[str, Metric]
    tags: dict[str, Counts]
    failure_tags: dict[str, int]
    warned_rules: dict[str, int]
    judge_disagreements: dict[str, Disagreement]
    separations: dict[str, dict[str, Separation]]
    questions: dict[str, QuestionFindings]
    failing: tuple[FailingCell, ...]
    gates: tuple[GateFinding, ...]
    reused_pictures: int = 0
    reused_since: str | None = None
    costs: tuple[CostFinding, ...] = ()
    cost_usd: float | None
    unpriced: int = 0
    exit_code: int


def summarise(info: RunInfo, records: Iterable[Record]) -> Summary:
    """Everything that the summary says, from a run and its records."""
    cells = in_order(info, records)
    gates = tuple(_gate(entry, info, cells) for entry in gates_of(info.suite))
    by_label: dict[str, list[Record]] = {str(entry.label): [] for entry in info.suite.models}
    by_tag: dict[str, list[Record]] = {tag: [] for case in info.suite.cases for tag in case.tags}
    for cell in cells:
        by_label.setdefault(cell.model_label, []).append(cell)
        for tag in cell.tags:
            by_tag.setdefault(tag, []).append(cell)
    stand_ins = {str(entry.label) for entry in info.suite.models if entry.stand_in}
    return Summary(
        run_id=info.run_id,
        suite=info.suite.name,
        experiment=info.experiment,
        state=info.state,
        stopped_by=info.stopped_by,
        planned_cells=info.planned_cells,
        counts=count(cells),
        models=tuple(_model(label, label in stand_ins, own, info) for label, own in by_label.items()),
        metrics=info.metrics,
        tags={tag: count(own) for tag, own in by_tag.items()},
        failure_tags=dict(Counter(tag for cell in cells for tag in cell.failure_tags).most_common()),
        warned_rules=dict(Counter(rule for cell in cells for rule in cell.warned_rules).most_common()),
        judge_disagreements=disagreements(info.suite, cells),
        separations=separations(info, by_label),
        questions=question_findings(info, cells),
        failing=_failing(info, cells),
        gates=gates,
        reused_pictures=sum(cell.cached and cell.artifact_path is not None for cell in cells),
        reused_since=info.reused_since,
        costs=(costs := costs_of(info, cells)),
        cost_usd=_sum(cost for cell in cells for cost in _costs(cell)),
        unpriced=sum(cost.unknown for cost in costs),
        exit_code=EXIT_INCOMPLETE if info.stopped_by else exit_code(info.state, gates),
    )


def in_order(info: RunInfo, records: Iterable[Record]) -> list[Record]:
    """Records in the suite's order, by case, model run and sample, however the cells happened to finish."""
    cases = {case.id: at for at, case in enumerate(info.suite.cases)}
    labels = {str(entry.label): at for at, entry in enumerate(info.suite.models)}

    def place(cell: Record) -> tuple[int, int, int]:
        return cases.get(cell.test_id, len(cases)), labels.get(cell.model_label, len(labels)), cell.sample_index

    return sorted(records, key=place)


def one_model_run(info: RunInfo, label: str, cells: int) -> RunInfo:
    """A run as if one model run of it had been selected, of which there are ``cells`` records."""
    suite = info.suite.model_copy(update={"models": tuple(m for m in info.suite.models if m.label == label)})
    selection = info.selection.model_copy(update={"models": (label,)})
    planned = info.planned_cells if len(info.suite.models) == 1 else cells
    return info.model_copy(update={"suite": suite, "selection": selection, "planned_cells": planned})


def gates_of(suite: Suite) -> tuple[GateRule, ...]:
    """The suite's gates, and ``error_rate == 0`` unless an unscoped gate says what it may be."""
    stated = any(entry.is_everything and parse_gate(entry.rule).about_errors for entry in suite.gates)
    return suite.gates if stated else (*suite.gates, ERROR_GATE)


def exit_code(state: RunState, gates: Sequence[GateFinding]) -> int:
    """130 for a run that was stopped; 3 where the error gate does not hold or a gate had nothing to measure; 1; 0."""
    if state in ("interrupted", "stopped"):
        return EXIT_INTERRUPTED
    incomplete = [
        gate
        for gate in gates
        if gate.state == "unmeasured" or (gate.state == "unmet" and parse_gate(gate.rule).about_errors)
    ]
    if incomplete:
        return EXIT_INCOMPLETE
    return EXIT_GATE if any(gate.state == "unmet" for gate in gates) else EXIT_OK


def count(cells: Sequence[Record]) -> Counts:
    """Cells by verdict, with their pass rate."""
    verdicts = Counter(cell.verdict for cell in cells)
    passed, failed = verdicts[Verdict.PASS], verdicts[Verdict.FAIL]
    return Counts(
        cells=len(cells),
        passed=passed,
        failed=failed,
        errors=verdicts[Verdict.ERROR],
        refused=sum(cell.status is Status.REFUSED for cell in cells),
        pass_rate=rate(passed, passed + failed),
    )


def rate(successes: int, n: int) -> Rate:
    """A rate with its interval; all ``null`` where there is nothing to count."""
    if n == 0:
        return Rate(value=None, low=None, high=None, n=0)
    low, high = wilson_interval(successes, n)
    return Rate(value=successes / n, low=low, high=high, n=n)


def _model(label: str, stand_in: bool, cells: Sequence[Record], info: RunInfo) -> ModelFindings:
    found = {name: finding for name in info.metrics if (finding := _metric(name, cells)) is not None}
    return ModelFindings(
        label=label,
        stand_in=stand_in,
        counts=count(cells),
        metrics=found,
        cost_usd=_sum(cost for cell in cells for cost in _costs(cell)),
        unpriced=sum(cost.unknown for cost in costs_of(info, cells)),
        seconds=sum(cell.seconds for cell in cells) / len(cells) if cells else 0.0,
    )


def _metric(name: str, cells: Sequence[Record]) -> MetricFinding | None:
    scores = [cell.scores[name] for cell in cells if name in cell.scores]
    measured = [float(score) for score in scores if score is not None]
    if not scores:
        return None
    mean = fsum(measured) / len(measured) if measured else None
    return MetricFinding(value=mean, n=len(measured), unmeasured=len(scores) - len(measured))


def _failing(info: RunInfo, cells: Iterable[Record]) -> tuple[FailingCell, ...]:
    cases = {case.id: case for case in info.suite.cases}
    return tuple(
        FailingCell(
            test_id=cell.test_id,
            model_label=cell.model_label,
            sample_index=cell.sample_index,
            verdict=cell.verdict,
            failed_rules=cell.failed_rules,
            failure_tags=cell.failure_tags,
            reasons=_reasons(cell, cases.get(cell.test_id), info.suite),
            error=cell.error,
        )
        for cell in cells
        if cell.verdict is not Verdict.PASS
    )


def _reasons(cell: Record, case: TestCase | None, suite: Suite) -> dict[str, str]:
    if cell.status is Status.REFUSED:
        return {"refused": cell.reasons.get("refused", "")}
    found = {rule: reason_of(parse_rule(rule).metric, cell, case, suite) for rule in cell.failed_rules}
    return {rule: reason for rule, reason in found.items() if reason}


def reason_of(metric: str, cell: Record, case: TestCase | None, suite: Suite) -> str:
    """The reason of a metric, or else of the grader that writes it, or else of the other metrics of that grader."""
    own = cell.reasons.get(metric)
    if own or case is None:
        return own or ""
    for grader in suite.graders:
        written = grader.metrics(case)
        if metric in written:
            parts = (cell.reasons.get(name) for name in written)
            return cell.reasons.get(grader.key) or "; ".join(filter(None, parts))
    return ""


def _gate(entry: GateRule, info: RunInfo, cells: Sequence[Record]) -> GateFinding:
    gate = parse_gate(entry.rule)
    matching = [cell for cell in cells if entry.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)]
    if gate.fn == "separation":
        counter = counter_examples(info)
        sides = ([c for c in matching if c.test_id not in counter], [c for c in matching if c.test_id in counter])
        value, n = separated(gate, *sides)
    else:
        value, n = pooled(gate, matching)
    return GateFinding(
        rule=entry.rule,
        scope=describe_scope(entry),
        value=value,
        n=n,
        errors=sum(cell.verdict is Verdict.ERROR for cell in matching),
        state=_state(gate, value, emptied=info.selection.narrows and not _can_match(entry, gate, info)),
    )


def _state(gate: Gate, value: float | None, *, emptied: bool) -> GateState:
    if emptied:
        return "skipped"
    if value is None:
        return "unmeasured"
    return "holds" if gate_holds(gate, value) else "unmet"


def _can_match(entry: Scope, gate: Gate, info: RunInfo) -> bool:
    """Whether the narrowed suite still holds a cell that this gate is about."""
    if gate.metric is not None and gate.metric not in info.metrics:
        return False
    labelled = [m for m in info.suite.models if not entry.models or any_glob(entry.models, str(m.label))]
    kinds = {
        case.expect.aligned
        for case in info.suite.cases
        if entry.fits(case.id, case.task_type, case.tags) and any(m.does(case.task_type) for m in labelled)
    }
    return len(kinds) == 2 if gate.fn == "separation" else bool(kinds)


def describe_scope(scope: Scope) -> str:
    """A scope in words, empty where it is everything."""
    parts = (("cases", scope.cases), ("tags", scope.tags), ("tasks", scope.tasks), ("models", scope.models))
    return "; ".join(f"{name}: {', '.join(values)}" for name, values in parts if values)


def costs_of(info: RunInfo, cells: Iterable[Record]) -> tuple[CostFinding, ...]:
    """The cost of every model run and of every grader that asks a judge; those that are free are left out."""
    free = {str(entry.label) for entry in info.suite.models if entry.is_free}
    asking = {grader.key for grader in info.suite.graders if grader.judge_name}
    told: dict[tuple[Literal["drawing", "judging"], str], list[tuple[float | None, bool]]] = {}
    for cell in cells:
        if cell.model_label not in free:
            told.setdefault(("drawing", cell.model_label), []).append((cell.cost_usd, cell.cached))
        for grader in cell.graders:
            if grader.key in asking:
                told.setdefault(("judging", grader.key), []).append((grader.cost_usd, grader.cached))
    return tuple(
        CostFinding(
            what=what,
            name=name,
            usd=fsum(cost or 0.0 for cost, _ in each),
            paid=sum(cost is not None and not cached for cost, cached in each),
            cached=sum(cached for _, cached in each),
            unknown=sum(cost is None for cost, _ in each),
        )
        for (what, name), each in told.items()
    )


def _costs(cell: Record) -> Iterable[float | None]:
    yield cell.cost_usd
    yield from (grader.cost_usd for grader in cell.graders)


def _sum(costs: Iterable[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return fsum(known) if known else None
