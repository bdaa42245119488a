"""The cells that did not pass: why, and in which failed gates they count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from visioneval.analysis.alignments import MAX_LISTED
from visioneval.analysis.summary.findings import FailingCell, GateFinding
from visioneval.analysis.summary.gates import GateAccumulator
from visioneval.records.model import Record, RunInfo, suite_order
from visioneval.rules import parse_rule
from visioneval.suite.cases.case import TestCase
from visioneval.suite.model import Suite
from visioneval.types import Status, Verdict


class FailingCells:
    """Collects the first cells that did not pass, in suite order."""

    def __init__(self, info: RunInfo, gates: Sequence[GateAccumulator]) -> None:
        """Starts without cells. ``gates`` are all gates of the run."""
        self._info = info
        self._gates = gates
        self._order = suite_order(info)
        self._cases = {case.id: case for case in info.suite.cases}
        self._cells: list[tuple[FailingCell, frozenset[int]]] = []
        """The cells, with the positions of the gates in which they count."""
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
            reasons=_reasons(cell, self._cases.get(cell.test_id), self._info.suite),
            scores={rule: cell.scores.get(parse_rule(rule).metric) for rule in cell.failed_rules},
            error=cell.error,
        )
        self.reasons.update(failing.explanations.keys())
        self._cells.append((failing, frozenset(at for at, gate in enumerate(self._gates) if gate.counts_against(cell))))
        if len(self._cells) >= 2 * MAX_LISTED:
            self._cells = self._first()

    def result(self, gates: Sequence[GateFinding]) -> tuple[FailingCell, ...]:
        """The first cells. ``gates`` are the findings of all gates, in the same order."""
        failed = [(at, gate.rule) for at, gate in enumerate(gates) if gate.state == "failed"]
        return tuple(
            cell.model_copy(update={"failed_gates": tuple(rule for at, rule in failed if at in positions)})
            for cell, positions in self._first()
        )

    def _first(self) -> list[tuple[FailingCell, frozenset[int]]]:
        def position(entry: tuple[FailingCell, frozenset[int]]) -> tuple[int, ...]:
            return self._order(entry[0].test_id, entry[0].model_label, entry[0].sample_index)

        return sorted(self._cells, key=position)[:MAX_LISTED]


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
