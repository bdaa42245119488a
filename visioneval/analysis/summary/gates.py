"""The gates of a run, which take the cells of their scope one by one, and the cells that did not pass: why, and in
which failed gates they count. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum
from operator import itemgetter
from sys import intern
from typing import Literal

from pydantic import Field

from visioneval.analysis.left_out import DueMetrics, LeftOut, granted_share, worst
from visioneval.analysis.scores import RATE, Scores, case_of, number_of
from visioneval.analysis.stats.basic import ends
from visioneval.analysis.stats.intervals import Limits, quantile, quantile_interval, weighted_interval
from visioneval.analysis.stats.variance import cells_of, failing_share, repeated_above, repeated_counts
from visioneval.analysis.summary.duplicates import Duplicates
from visioneval.analysis.summary.graders import MAX_LISTED, difference_interval
from visioneval.errors import count_of
from visioneval.records.model import CellError, Record, RunInfo, suite_order
from visioneval.records.until import SampledGate
from visioneval.rules import Gate, gate_passes, is_true, parse_gate, parse_rule, show_failed, show_score
from visioneval.suite.case import TestCase
from visioneval.suite.filters import any_glob
from visioneval.suite.metrics import counter_examples, image_cases
from visioneval.suite.metrics import left_out as left_out_of_means
from visioneval.suite.model import Suite
from visioneval.suite.rules import GateRule
from visioneval.suite.runs import RunCoverage, cells_per_sample
from visioneval.types import Frozen, Metric, Score, Status, Verdict

GateState = Literal["passed", "failed", "cannot_tell", "unmeasured", "skipped", "deferred"]
"""``cannot_tell`` if the value passes a gate that its bound decides, and the bound does not; ``skipped`` if a selection
left nothing in its scope; ``deferred`` in a shard, until all are merged.
"""
Samples = Sequence[Sequence[float]]
"""The values of each case on each model run."""
_CELLS, _COUNTER = "cells", "counter-examples"


class GateFinding(Frozen):
    """The result of a gate: its value over ``n`` measured cells, and the ``errors`` in its scope."""

    rule: str
    """As written."""
    scope: str
    """Its tasks, tags, cases and model runs, as text."""
    value: float | None
    """``null`` if nothing was measured."""
    low: float | None = None
    """The lower end of its 95 % interval over cases."""
    high: float | None = None
    """The upper end."""
    repeat_fails: float | None = None
    """The probability that a run of the same quality, with the same cases and samples, fails the gate; ``null`` if
    it is unknown.
    """
    n: int
    """The measured cells."""
    samples: int | None = None
    """With ``--until-decided``: the samples of each case that count."""
    errors: int
    """The errors in its scope."""
    unmeasured: int = 0
    """The cells that it leaves out, as they were not measured."""
    is_unreliable: bool = False
    """Whether these are too many: the gate does not pass, and the run exits 3."""
    note: str = ""
    """A sentence about them."""
    sampling: str = ""
    """With ``--until-decided``: whether samples decided it."""
    state: GateState
    """``deferred``: ``merge`` evaluates it, as the run is a shard."""

    @property
    def is_incomplete(self) -> bool:
        """Whether the run exits 3 for it: it is undecided, or failed by what was not measured."""
        if self.state == "failed":
            return self.is_unreliable or parse_gate(self.rule).is_about_errors
        return self.state in ("unmeasured", "cannot_tell")


def repeat_fails(gate: Gate, value: float, parts: Sequence[tuple[float, Samples]], *, is_rate: bool) -> float | None:
    """The probability that a repeated run fails a gate. ``parts`` have their share of its ``value``.

    The run that is repeated is no more the truth than the new one, so both vary. Only the variance within cases counts:
    a repeated run has the same cases. A quantile fails if too few cells are on its right side, which is a rate.

    ``None`` if it is unknown: of a gate on errors, which an outage brings all at once or not at all; of a mean without
    variance; and of one that must equal a number, or not equal it.
    """
    if gate.is_about_errors or not all(samples for _, samples in parts):
        return None
    if gate.quantile is not None and not gate.has_side:
        return None
    if gate.quantile is not None:
        right = [[float(is_true(value, gate.op, gate.threshold)) for value in case] for case in parts[0][1]]
        of_cells = cells_of(right, is_rate=True)
        nearest = round((of_cells.number - 1) * gate.quantile)  # the value that decides, from 0 in ascending order
        needed = of_cells.number - nearest if gate.is_minimum else nearest + 1
        return failing_share(repeated_counts(of_cells), lambda count: count >= needed)
    cells = [(share, cells_of(samples, is_rate=is_rate)) for share, samples in parts]
    if is_rate and len(cells) == 1:
        ((_, observed),) = cells
        return failing_share(repeated_counts(observed), lambda count: gate_passes(gate, count / observed.number))
    if not gate.has_side:
        return None
    above = repeated_above(value, gate.threshold, cells)
    return 1 - above if above is not None and gate.is_minimum else above


def _is_fixed(info: RunInfo) -> bool:
    """Whether a repeated run would measure the same: it reads existing outputs, and asks no judge."""
    suite = info.suite
    return all(model.reads_outputs for model in suite.models) and not any(
        grader.judge_names for grader in suite.graders
    )


class GateAccumulator:
    """Evaluates one gate over the cells of its scope, which are added one by one.

    ``separation`` has the cells of counter-examples apart. A gate with weights has the cells of each of these tags, and
    its value is the weighted mean of the values of the tags.
    """

    def __init__(
        self,
        entry: GateRule,
        info: RunInfo,
        due: DueMetrics,
        sampled: SampledGate | None = None,
        duplicates: Duplicates | None = None,
    ) -> None:
        """Starts without cells. All gates share ``due`` and ``duplicates``. ``sampled`` limits the samples."""
        self._entry, self._info, self._due, self._sampled = entry, info, due, sampled
        self._duplicates = duplicates or Duplicates(info, ())
        of_sample = {} if sampled is None else cells_per_sample(info.suite)
        self._cells = {label: number * sampled.samples for label, number in of_sample.items()} if sampled else {}
        self._gate = gate = parse_gate(entry.rule)
        suite, is_separation = info.selected_suite, gate.fn == "separation"
        self._counter = counter_examples(suite) if is_separation else frozenset[str]()
        self._images = image_cases(suite) if is_separation else {}
        self._without = left_out_of_means(suite, info.metrics).cases_of(gate.metric, entry)
        self._granted = granted_share(info.suite.declared_gates, entry)
        self._shares = {_CELLS: 1.0, _COUNTER: -1.0} if is_separation else {_CELLS: 1.0}
        if entry.weights:
            total = fsum(entry.weights.values())
            self._shares = {tag: weight / total for tag, weight in entry.weights.items()}
        self._groups = {name: Scores() for name in self._shares}
        self._samples = {name: Scores() for name in self._shares}
        self._unmeasured: Counter[str] = Counter()
        self._errors = 0

    def add(self, cell: Record) -> None:
        """Counts a cell, if it is in the gate's scope."""
        if not self._covers(cell):
            return
        self._errors += cell.verdict is Verdict.ERROR
        group: str | None = _COUNTER if cell.test_id in self._counter else _CELLS
        if self._entry.weights:
            group = next((tag for tag in cell.tags if tag in self._shares), None)
        if group is None:
            return
        value = self._value_of(cell)
        if value is not None:
            self._count(cell, group, value)
        self._unmeasured[group] += self._is_left_out(cell)

    def _count(self, cell: Record, group: str, value: float) -> None:
        self._groups[group].add(value, case_of(self._images.get(cell.test_id, cell.test_id)))
        if not self._gate.is_about_errors:
            self._samples[group].add(value, intern(f"{cell.model_label} {cell.test_id}"))

    def _covers(self, cell: Record) -> bool:
        if self._cells and cell.sample_index >= self._cells.get(cell.model_label, cell.sample_index + 1):
            return False
        in_scope = self._entry.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)
        return in_scope and cell.test_id not in self._without

    def _value_of(self, cell: Record) -> float | None:
        if self._gate.fn != "duplicate_rate":
            return _cell_value(self._gate, cell)
        state = self._duplicates.state(cell)
        return None if state is None or state.is_duplicate is None else float(state.is_duplicate)

    def _is_left_out(self, cell: Record) -> bool:
        match self._gate.fn:
            case "duplicate_rate":
                state = self._duplicates.state(cell)
                return state is not None and state.is_failed
            case "pass_rate":
                return cell.verdict is Verdict.ERROR
            case "refusal_rate":
                return cell.status is Status.ERROR
            case _:
                return self._gate.metric is not None and self._due.is_left_out(cell, self._gate.metric)

    def counts_against(self, cell: Record) -> bool:
        """Whether a cell that did not pass is in the scope and is what the gate counts: a FAIL, an error, a score."""
        if not self._covers(cell):
            return False
        value = self._value_of(cell)
        return (
            value == 0 if self._gate.fn == "pass_rate" else value is not None and (not self._gate.counts or value > 0)
        )

    def result(self) -> GateFinding:
        """Returns the gate's value and state."""
        value, n = self.value()
        metric = self._info.metrics.get(self._gate.metric or "")
        low, high = self._limits(metric)
        left_out, worst_group = self._left_out()
        state, why = self._sampled_state(self._state(value, n, low if self._gate.is_minimum else high))
        is_decided = state in ("passed", "failed", "cannot_tell")
        is_unreliable = is_decided and worst_group.is_too_much(self._granted)
        samples = [(share, list(self._samples[name].by_case().values())) for name, share in self._shares.items()]
        scope = "; ".join(filter(None, (describe_scope(self._entry), "without counterexamples" * bool(self._without))))
        return GateFinding(
            rule=self._entry.rule,
            scope=scope,
            value=value,
            low=low,
            high=high,
            repeat_fails=None
            if value is None or not is_decided or _is_fixed(self._info)
            else repeat_fails(self._gate, value, samples, is_rate=(metric or RATE).type == "bool"),
            n=n,
            samples=self._sampled and self._sampled.samples,
            errors=self._errors,
            unmeasured=left_out.unmeasured,
            is_unreliable=is_unreliable,
            note=(worst_group if is_unreliable else left_out).sentence("cell", self._granted),
            sampling=why,
            state="unmeasured" if is_unreliable and state == "passed" else state,
        )

    def _state(self, value: float | None, n: int, bound: float | None) -> GateState:
        if self._info.selection.shard is not None:  # other shards can change the value, but cannot undo an error
            return "failed" if self._gate.forbids_errors and value else "deferred"
        if self._info.selection.narrows and not _can_match(self._entry, self._gate, self._info, self._without):
            return "skipped"
        if (
            self._gate.fn == "duplicate_rate"
            and self._info.selection.narrows
            and not n
            and not self._unmeasured.total()
        ):
            return "skipped"  # the selection left out the grader, or nothing to compare
        if self._gate.fn == "pass_rate" and not n and not self._info.suite.has_rules:  # no model refused
            return "skipped"
        if value is None:
            return "unmeasured"
        if not gate_passes(self._gate, value):
            return "failed"
        is_sure = self._entry.decide == "value" or gate_passes(self._gate, bound)
        return "passed" if is_sure else "cannot_tell"

    def _sampled_state(self, state: GateState) -> tuple[GateState, str]:
        """The state of a gate that samples should decide, and what they did. An open gate cannot tell."""
        sampled, until = self._sampled, self._info.until_decided
        if sampled is None or until is None or state not in ("passed", "failed", "cannot_tell"):
            return state, ""
        number, is_bound = count_of(sampled.samples, "sample"), self._entry.decide == "bound"
        match sampled.outcome:
            case "decided":
                return state, f"decided with {number} of each case"
            case "undecided" if is_bound:
                return ("failed" if state == "failed" else "cannot_tell"), f"not decided with {number} of each case"
            case "undecided":
                return state, f"not decided with {number} of each case, so their value counts"
            case "between_cases":
                return (
                    "cannot_tell",
                    "its cases are too few or differ too much: more of them can decide it, not more samples",
                )
            case "open":
                return "cannot_tell", f"not decided with {number} of each case, of at most {until.max_samples}"
        return state, ""

    def _left_out(self) -> tuple[LeftOut, LeftOut]:
        """What is left out of all cells, and of the group that lacks most: each side, or each weighted tag, counts."""
        groups = [LeftOut(lost := self._unmeasured[name], group.n + lost) for name, group in self._groups.items()]
        return LeftOut(sum(group.unmeasured for group in groups), sum(group.units for group in groups)), worst(groups)

    def value(self) -> tuple[float | None, int]:
        """The gate's value and the number of cells in it.

        For ``separation``, the mean of aligned cells minus the mean of counter-examples. ``None`` means that nothing
        was measured, at least on one side or for one of the weighted tags: the gate fails.
        """
        groups = list(self._groups.values())
        n = sum(group.n for group in groups)
        if not all(group.n for group in groups):
            return None, n
        if self._gate.quantile is not None:
            return quantile(groups[0].values, self._gate.quantile), n
        return fsum(share * _mean(group) for share, group in zip(self._shares.values(), groups, strict=True)), n

    def _limits(self, metric: Metric | None) -> Limits:
        """The 95 % interval of the value over cases, each end ``None`` if it is unknown."""
        groups = list(self._groups.values())
        if not all(group.n for group in groups):
            return None, None
        if self._gate.quantile is not None:
            return quantile_interval(list(groups[0].by_case().values()), self._gate.quantile)
        if self._gate.fn == "separation":
            interval = difference_interval(groups[0].by_case(), groups[1].by_case(), metric)
        elif self._entry.weights:
            shares = zip(self._shares.values(), groups, strict=True)
            parts = [(share, _mean(group), group.interval(metric or RATE)) for share, group in shares]
            interval = weighted_interval(parts)
        else:
            interval = groups[0].interval(metric or RATE)
        return ends(interval)


def _mean(scores: Scores) -> float:
    return min(max(scores.mean, min(scores.values)), max(scores.values))  # rounding must not leave this range


def _cell_value(gate: Gate, cell: Record) -> float | None:
    if gate.fn == "pass_rate":
        return None if cell.verdict.passed is None else float(cell.verdict.passed)
    if gate.fn == "error_rate":
        return float(cell.verdict is Verdict.ERROR)
    if gate.fn == "unmeasured_rate":
        return float(cell.is_unmeasured)
    if gate.fn == "refusal_rate":  # nobody knows whether a model would have refused what never reached it
        return None if cell.status is Status.ERROR else float(cell.status is Status.REFUSED)
    return number_of(cell.scores.get(gate.metric or ""))


def _can_match(entry: GateRule, gate: Gate, info: RunInfo, without: frozenset[str]) -> bool:
    """Whether the selection left a cell in the scope of this gate, which leaves out some cases."""
    if gate.metric is not None and gate.metric not in info.metrics:
        return False
    suite = info.selected_suite
    in_scope = (case for case in suite.cases if entry.fits(case.id, case.task_type, case.tags))
    cases = [case for case in in_scope if case.id not in without]
    if not {tag for case in cases for tag in case.tags}.issuperset(entry.weights or ()):
        return False  # what is left would be another number
    labeled = [m for m in suite.models if not entry.models or any_glob(entry.models, str(m.label))]
    coverage = RunCoverage(suite)
    kinds = {case.expect.aligned for case in cases if any(coverage.has_cells(run, case) for run in labeled)}
    return len(kinds) == 2 if gate.fn == "separation" else bool(kinds)


def describe_scope(scope: GateRule) -> str:
    """Describes a scope, its weights and what decides, empty if it covers everything and its value decides."""
    parts = (("cases", scope.cases), ("tags", scope.tags), ("tasks", scope.tasks), ("models", scope.models))
    described = [f"{name}: {', '.join(values)}" for name, values in parts if values]
    weights = (scope.weights or {}).items()
    weighted = [f"weights: {', '.join(f'{tag} {weight:g}' for tag, weight in weights)}"] if weights else []
    bound = ["decide: bound"] if scope.decide == "bound" else []
    return "; ".join((*described, *weighted, *bound))


class FailingCell(Frozen):
    """A cell that did not pass. ``reasons`` maps each failed rule, or ``refused``, to its reason, if it has one.

    ``scores`` are those that its failed rules read, by rule. ``failed_gates`` are the failed gates in which it counts.
    """

    test_id: str
    model_label: str
    sample_index: int
    verdict: Verdict
    failed_rules: tuple[str, ...]
    failure_tags: tuple[str, ...]
    reasons: dict[str, str]
    scores: dict[str, Score] = Field(default_factory=dict)
    failed_gates: tuple[str, ...] = ()
    error: CellError | None

    @property
    def explanations(self) -> dict[str, str]:
        """Why it did not pass: each failed rule, ``refused``, or the stage and kind of its error, with its text.

        The text of a rule begins with the score and the limit, such as ``hierarchy 2 < 3``.
        """
        rules = self.failed_rules or tuple(self.reasons)
        texts = {rule: ": ".join(filter(None, (self.shown(rule), self.reasons.get(rule)))) for rule in rules}
        if self.error is not None:
            texts[f"{self.error.stage}, {self.error.kind}"] = self.error.message
        return texts

    def shown(self, rule: str) -> str:
        """A failed rule with its score and its limit; empty if the rule itself says what was false."""
        return show_failed(rule, self.scores[rule]) if rule in self.scores else ""


class FailingCells:
    """Collects the first cells that did not pass, in suite order."""

    def __init__(self, info: RunInfo, gates: Sequence[GateAccumulator]) -> None:
        """Starts without cells. ``gates`` are all gates of the run."""
        self._suite, self._gates, self._order = info.suite, gates, suite_order(info)
        self._cases = {case.id: case for case in info.suite.cases}
        self._cells: list[tuple[object, FailingCell, frozenset[int]]] = []
        """Their places in the suite, the cells, and the positions of the gates in which they count."""
        self.reasons: Counter[str] = Counter()
        """The number of cells by reason, of all cells that did not pass."""

    def add(self, cell: Record) -> None:
        """Keeps a cell that did not pass."""
        if cell.verdict in (Verdict.PASS, Verdict.NONE):
            return
        case, suite, reasons = self._cases.get(cell.test_id), self._suite, dict[str, str]()
        if cell.status is Status.REFUSED:
            reasons["refused"] = cell.reasons.get("refused", "")
        else:
            of_rules = ((rule, reason_of(parse_rule(rule).metric, cell, case, suite)) for rule in cell.failed_rules)
            reasons = {rule: reason for rule, reason in of_rules if reason}
        failing = FailingCell(
            test_id=cell.test_id,
            model_label=cell.model_label,
            sample_index=cell.sample_index,
            verdict=cell.verdict,
            failed_rules=cell.failed_rules,
            failure_tags=cell.failure_tags,
            reasons=reasons,
            scores={rule: cell.scores.get(parse_rule(rule).metric) for rule in cell.failed_rules},
            error=cell.error,
        )
        self.reasons.update(failing.explanations.keys())
        gates = frozenset(at for at, gate in enumerate(self._gates) if gate.counts_against(cell))
        self._cells.append((self._order(cell.test_id, cell.model_label, cell.sample_index), failing, gates))
        if len(self._cells) >= 2 * MAX_LISTED:
            self._keep_first()

    def result(self, gates: Sequence[GateFinding]) -> tuple[FailingCell, ...]:
        """The first cells. ``gates`` are the findings of all gates, in the same order."""
        failed = [(at, gate.rule) for at, gate in enumerate(gates) if gate.state == "failed"]
        self._keep_first()
        return tuple(
            cell.model_copy(update={"failed_gates": tuple(rule for at, rule in failed if at in positions)})
            for _, cell, positions in self._cells
        )

    def _keep_first(self) -> None:
        self._cells = sorted(self._cells, key=itemgetter(0))[:MAX_LISTED]


def reason_of(metric: str, cell: Record, case: TestCase | None, suite: Suite) -> str:
    """The reason of a metric, else of its grader, else of the grader's other metrics, else the judge's answer."""
    reason = cell.reasons.get(metric)
    if reason or case is None:
        return reason or ""
    for grader in suite.graders:
        metrics = grader.metrics(case)
        if metric in metrics:
            parts = (cell.reasons.get(name) for name in metrics)
            recorded = cell.reasons.get(grader.key) or "; ".join(filter(None, parts))
            return recorded or question_of(metric, cell, case, suite)
    return ""


def question_of(metric: str, cell: Record, case: TestCase, suite: Suite) -> str:
    """What a judge answered that gave no reason for any metric of the grader; empty if it gave one, or was none, or
    answered a word, which the failed rule names.

    Such as ``the judge answered no: "Is this true: the edit is right?"``.
    """
    for grader in suite.graders:
        metrics = grader.metrics(case)
        if metric in metrics and not any(cell.reasons.get(name) for name in (grader.key, *metrics)):
            question = grader.label_questions.get(metric)
            if question is None or isinstance(cell.scores.get(metric), str):
                return ""
            judges = "judges" if len(grader.judge_names) > 1 else "judge"
            return f'the {judges} answered {show_score(cell.scores.get(metric))}: "{question.ask}"'
    return ""
