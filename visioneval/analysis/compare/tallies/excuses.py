"""What B excuses and A does not: pairs that could fail in A for a reason that cannot fail them in B. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from visioneval.analysis.cells import Cell
from visioneval.analysis.compare.pairing import CellPair
from visioneval.analysis.sides import Side
from visioneval.rules import parse_rule
from visioneval.types import MUST_PASS, Verdict

_EXCLUDES = {">=": (">",), ">": (">",), "<=": ("<",), "<": ("<",), "==": ("<", ">"), "!=": ("!=",)}
"""What each operator excludes: values below, above, or equal to the threshold. A yes/no rule excludes no or yes."""


@dataclass(frozen=True, slots=True)
class Excuse:
    """What B excuses in some cells, and the cases of these cells."""

    what: str
    cells: int
    cases: tuple[str, ...]


class ExcuseTally:
    """Compares what can fail the cells of each pair."""

    def __init__(self, a: Side, b: Side) -> None:
        """No pairs of these sides."""
        self._a, self._b = a, b
        self._cases: dict[str, list[str]] = {}
        self._ungraded: dict[str, list[str]] = {}
        """By grader: the cases of cells that it grades in A and not in B."""
        self._graders_of_b: set[str] = set()
        self._rules: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def add(self, pair: CellPair) -> None:
        """Compares a pair."""
        a, b = pair.a, pair.b
        self._graders_of_b.update(grader.key for grader in b.graders)
        if b.flaky and not a.flaky:
            self._add("flaky", b)
        if MUST_PASS in a.tags and MUST_PASS not in b.tags:
            self._add(f"not tagged {MUST_PASS}", b)
        if a.grade_key and a.grade_key == b.grade_key:
            return  # the same rules and graders
        for rule in self._dropped_rules(a, b):
            self._add(f"not failed by the rule {rule!r}", b)
        if not b.graders and b.verdict is not Verdict.PASS:
            return  # nothing was generated that could be graded
        in_b = {grader.key: grader for grader in b.graders}
        for grader in a.graders:
            if grader.is_optional or grader.never_asked:
                continue  # one that was never asked is not optional in the record, whatever the suite of A says
            if grader.key not in in_b:
                self._ungraded.setdefault(grader.key, []).append(b.test_id)
            elif in_b[grader.key].is_optional:
                self._add(f"not in need of the grader {grader.key!r}, which is optional", b)

    def _add(self, what: str, cell: Cell) -> None:
        self._cases.setdefault(what, []).append(cell.test_id)

    def _dropped_rules(self, a: Cell, b: Cell) -> tuple[str, ...]:
        """The rules that can fail a cell of A, but not that of B. Records without a suite show those that failed."""
        key = b.test_id, a.model_label, b.model_label
        known = self._rules.get(key)
        if known is not None:
            return known
        before = self._a.rules_of(a.test_id, a.model_label)
        after = self._b.rules_of(b.test_id, b.model_label)
        if after is None:
            return ()
        dropped = tuple(dropped_rules(a.failed_rules if before is None else before, after))
        if before is not None:
            self._rules[key] = dropped
        return dropped

    def result(self) -> tuple[Excuse, ...]:
        """The excuses. A grader that B has nowhere excuses nothing: its metrics are missing, or another writes them."""
        ungraded = {
            f"not graded by {key!r}": cases for key, cases in self._ungraded.items() if key in self._graders_of_b
        }
        return tuple(
            Excuse(what, len(cases), tuple(dict.fromkeys(cases))) for what, cases in {**self._cases, **ungraded}.items()
        )


def dropped_rules(before: Sequence[str], after: Iterable[str]) -> Iterator[str]:
    """The rules of ``before`` that neither ``after`` has, nor one with another threshold in their stead."""
    rules_after = set(after)
    replacing = {value for rule in rules_after.difference(before) for value in _excluded(rule)}
    return (rule for rule in before if rule not in rules_after and not replacing.issuperset(_excluded(rule)))


def _excluded(text: str) -> Iterator[tuple[str, str]]:
    """The metric of a rule, with each kind of value that the rule excludes."""
    rule = parse_rule(text)
    excluded = (("no",) if rule.expected else ("yes",)) if rule.op is None else _EXCLUDES[rule.op]
    return ((rule.metric, kind) for kind in excluded)
