"""The cells that did not pass: why, and in which failed gates they count. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from pydantic import Field

from visioneval.analysis.alignments import MAX_LISTED
from visioneval.analysis.summary.gates import GateAccumulator, GateFinding
from visioneval.records.model import CellError, Record, RunInfo, suite_order
from visioneval.rules import parse_rule, show_failed
from visioneval.suite.case import TestCase
from visioneval.suite.model import Suite
from visioneval.types import Frozen, Score, Status, Verdict


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
        failing = FailingCell(
            test_id=cell.test_id,
            model_label=cell.model_label,
            sample_index=cell.sample_index,
            verdict=cell.verdict,
            failed_rules=cell.failed_rules,
            failure_tags=cell.failure_tags,
            reasons=_reasons(cell, self._cases.get(cell.test_id), self._suite),
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


def _reasons(cell: Record, case: TestCase | None, suite: Suite) -> dict[str, str]:
    if cell.status is Status.REFUSED:
        return {"refused": cell.reasons.get("refused", "")}
    reasons = {rule: reason_of(parse_rule(rule).metric, cell, case, suite) for rule in cell.failed_rules}
    return {rule: reason for rule, reason in reasons.items() if reason}


def reason_of(metric: str, cell: Record, case: TestCase | None, suite: Suite) -> str:
    """Returns the reason of a metric, else of its grader, else of the grader's other metrics."""
    reason = cell.reasons.get(metric)
    if reason or case is None:
        return reason or ""
    for grader in suite.graders:
        metrics = grader.metrics(case)
        if metric in metrics:
            parts = (cell.reasons.get(name) for name in metrics)
            return cell.reasons.get(grader.key) or "; ".join(filter(None, parts))
    return ""
