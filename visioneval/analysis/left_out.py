"""Units that a gate leaves out because they were not measured, and when these are too many. Pure.

A number over the rest says nothing about what was not measured, so a gate that leaves out more than ``MAX_SHARE`` of
its units cannot pass, unless the user granted a larger share. Units to which a metric does not apply are no units.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from visioneval.errors import NEVER_ASKED, UsageError, count_of, did_you_mean
from visioneval.plugins import PROVIDERS, config_of
from visioneval.records.model import Record, RunInfo
from visioneval.rules import is_true, parse_gate
from visioneval.suite.filters import Scope
from visioneval.suite.metrics import BUILT_IN, SuiteMetrics
from visioneval.suite.rules import GateRule
from visioneval.types import Frozen, Status

MAX_SHARE = 0.05
"""The largest share of its units that any gate may leave out, if nothing grants more."""


class LeftOut(NamedTuple):
    """How many of the units of a gate were not measured."""

    unmeasured: int
    units: int

    @property
    def share(self) -> float:
        """The share that was not measured, 0 if there are no units."""
        return self.unmeasured / self.units if self.units else 0.0

    def is_too_much(self, granted: float = 0.0) -> bool:
        """Whether a gate over the rest says too little. ``granted`` is the share that the user accepts."""
        return is_true(self.share, ">", max(MAX_SHARE, granted))

    def sentence(self, unit: str, granted: float = 0.0) -> str:
        """``3 of 60 cells were not measured``, and the limit if these are too many; empty if all were measured."""
        if not self.unmeasured:
            return ""
        verb = "was" if self.unmeasured == 1 else "were"
        text = f"{self.unmeasured:,} of {count_of(self.units, unit)} {verb} not measured"
        return f"{text}, more than {100 * max(MAX_SHARE, granted):.3g}%" if self.is_too_much(granted) else text


NOTHING = LeftOut(0, 0)


def worst(groups: Iterable[LeftOut]) -> LeftOut:
    """The group with the largest share, as a number over several groups needs each of them."""
    return max(groups, key=lambda group: group.share, default=NOTHING)


def granted_share(declared: Sequence[GateRule], scope: Scope) -> float:
    """The share of unmeasured cells that a suite accepts in a scope: the largest limit of its gates on errors.

    Only a gate without a scope counts, and one with the same scope.
    """
    gates = [parse_gate(entry.rule) for entry in declared if entry.is_unrestricted or entry.has_scope_of(scope)]
    return max((gate.threshold for gate in gates if gate.is_about_errors and gate.op in ("<=", "<", "==")), default=0.0)


def parse_allow(values: Iterable[str], kinds: Collection[str], rated: Sequence[str]) -> dict[str, float]:
    """Parses the values of ``--allow``: the share of each kind of loss that is accepted, unlimited without a rate.

    Only the kinds ``rated`` take a rate. Raises ``UsageError``.
    """
    allowed: dict[str, float] = {}
    for value in values:
        kind, equals, number = value.partition("=")
        if kind not in kinds:
            raise UsageError(f"--allow {value!r}: is none of what can be allowed{did_you_mean(kind, kinds)}")
        if not equals:
            allowed[kind] = math.inf
            continue
        try:
            rate = float(number)
        except ValueError:
            rate = math.nan
        if kind not in rated or not 0 <= rate <= 1:
            takes = f"{' and '.join(rated)} take{'s' * (len(rated) == 1)}"
            raise UsageError(f"--allow {value!r}: only {takes} a rate, from 0 to 1, such as {rated[0]}=0.02")
        allowed[kind] = rate
    return allowed


class DueMetrics:
    """Which metrics the cells of a run should have, whether they were measured or not."""

    def __init__(self, info: RunInfo) -> None:
        """Reads nothing before it is asked."""
        self._info = info

    def is_left_out(self, cell: Record, metric: str) -> bool:
        """Whether a cell lacks a score that it should have: it is null, or the cell ended before it was graded.

        A cell without the score otherwise is one to which the metric does not apply, such as a refusal.
        """
        if metric in cell.scores:
            return cell.scores[metric] is None
        if cell.status is not Status.ERROR or metric not in self._by_case.get(cell.test_id, ()):
            return False
        reads_outputs = cell.provider in PROVIDERS and config_of(PROVIDERS, cell.provider).reads_outputs
        return metric not in BUILT_IN or not reads_outputs

    @cached_property
    def _by_case(self) -> dict[str, frozenset[str]]:
        suite = self._info.selected_suite
        metrics = SuiteMetrics(self._info.suite, suite)
        return {case.id: frozenset(metrics.of_case(case)) for case in suite.cases}


class NeverAsked(Frozen):
    """A judge that was not asked about some cells or pairs, or a model not for some outputs. Nothing excuses that.

    Its name is ``GRADER``, ``GRADER by JUDGE`` of a panel, ``generation by LABEL``, or ``provider:model`` for pairs.
    """

    name: str
    what: Literal["cell", "pair", "output"]
    number: int


class NeverAskedCells:
    """Counts the cells that were not generated, or about which a judge was not asked."""

    def __init__(self) -> None:
        """Starts without cells."""
        self._numbers: Counter[tuple[Literal["cell", "output"], str]] = Counter()

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        if cell.error is not None and cell.error.stage == "generate" and cell.error.kind in NEVER_ASKED:
            self._numbers["output", f"generation by {cell.model_label}"] += 1
        for grader in cell.graders:
            if grader.never_asked:
                of_panel = [f"{grader.key} by {answer.judge}" for answer in grader.judges if answer.never_asked]
                self._numbers.update(("cell", name) for name in of_panel or [grader.key])

    def result(self) -> tuple[NeverAsked, ...]:
        """The judges, then the models, by name, so that the order of the cells does not matter."""
        numbers = sorted(self._numbers.items())
        return tuple(NeverAsked(name=name, what=what, number=number) for (what, name), number in numbers)
