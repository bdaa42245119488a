"""Judges beside local measures of the same question: in how many cells one passes what the other fails. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from visioneval.analysis.left_out import DueMetrics
from visioneval.analysis.summary.gates import reason_of
from visioneval.records.model import Record, RunInfo, suite_order
from visioneval.suite.same_question import Passes
from visioneval.types import Frozen, Score

MAX_CELLS = 1_000
"""How many cells of a pair a summary lists."""


class Outcomes:
    """What the two metrics of a pair say about the cells of a run."""

    def __init__(self, info: RunInfo) -> None:
        """Takes the rules and metrics of a run."""
        self._passes, self._due = Passes(info.suite, info.metrics), DueMetrics(info)
        self._suite, self._cases = info.suite, {case.id: case for case in info.suite.cases}

    def of_cell(self, cell: Record, judge: str, measure: str) -> tuple[bool, bool] | None:
        """Whether the judge and the measure pass a cell; ``None`` unless both were measured and can pass or fail."""
        judged, measured = self._passes.of_cell(cell, judge), self._passes.of_cell(cell, measure)
        return None if judged is None or measured is None else (judged, measured)

    def lacks(self, cell: Record, judge: str, measure: str) -> bool:
        """Whether a cell should have both metrics, and one was not measured."""
        names = (judge, measure)
        missing = [name for name in names if self._due.is_left_out(cell, name)]
        return bool(missing) and all(name in missing or name in cell.scores for name in names)

    def reason(self, cell: Record, name: str) -> str:
        """Why a cell has a score."""
        return reason_of(name, cell, self._cases.get(cell.test_id), self._suite)


class ContradictedCell(Frozen):
    """A cell in which a judge passes what a measure fails (``judge_passes``), or the measure what the judge fails.

    ``why`` explains the score that fails.
    """

    run_id: str
    test_id: str
    model_label: str
    sample_index: int
    judge_passes: bool
    judge: Score
    measure: Score
    why: str = ""


class SameQuestion(Frozen):
    """A metric of a judge beside a local measure that answers the same question.

    ``cells`` have both: the counts are those that both pass, both fail, only the judge passes, and only the measure
    passes. ``contradicted`` lists the first 1,000 of the last two, in suite order. ``unmeasured`` more cells lack a
    score that they should have.
    """

    judge: str
    measure: str
    cells: int
    both_pass: int
    both_fail: int
    only_judge_passes: int
    only_measure_passes: int
    unmeasured: int
    contradicted: tuple[ContradictedCell, ...] = ()


@dataclass(slots=True)
class Pair:
    """Counts the cells of one pair."""

    judge: str
    measure: str
    counts: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    """Of the cells that have both metrics: whether the judge passes, and whether the measure does."""
    unmeasured: int = 0
    contradicted: list[ContradictedCell] = field(default_factory=list)

    def add(self, cell: Record, outcomes: Outcomes) -> tuple[bool, bool] | None:
        """Counts a cell, and returns whether the judge and the measure pass it, if it has both."""
        passes = outcomes.of_cell(cell, self.judge, self.measure)
        if passes is None:
            self.unmeasured += outcomes.lacks(cell, self.judge, self.measure)
            return None
        self.counts[passes] += 1
        judge_passes, measure_passes = passes
        if judge_passes is not measure_passes:
            self.contradicted.append(
                ContradictedCell(
                    run_id=cell.run_id,
                    test_id=cell.test_id,
                    model_label=cell.model_label,
                    sample_index=cell.sample_index,
                    judge_passes=judge_passes,
                    judge=cell.scores[self.judge],
                    measure=cell.scores[self.measure],
                    why=outcomes.reason(cell, self.measure if judge_passes else self.judge),
                )
            )
        return passes

    def result(self, most: int) -> SameQuestion:
        """The counts, with so many cells at most."""
        counts = self.counts
        return SameQuestion(
            judge=self.judge,
            measure=self.measure,
            cells=counts.total(),
            both_pass=counts[True, True],
            both_fail=counts[False, False],
            only_judge_passes=counts[True, False],
            only_measure_passes=counts[False, True],
            unmeasured=self.unmeasured,
            contradicted=tuple(self.contradicted[:most]),
        )


class SameQuestions:
    """Counts the cells of each pair of a suite."""

    def __init__(self, info: RunInfo) -> None:
        """Starts without cells."""
        self._outcomes, self._order = Outcomes(info), suite_order(info)
        self._pairs = [Pair(judge, measure) for judge, measure in info.suite.same_question.items()]

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for pair in self._pairs:
            pair.add(cell, self._outcomes)
            if len(pair.contradicted) >= 2 * MAX_CELLS:
                self._sort(pair)
                del pair.contradicted[MAX_CELLS:]

    def _sort(self, pair: Pair) -> None:
        pair.contradicted.sort(key=lambda cell: self._order(cell.test_id, cell.model_label, cell.sample_index))

    def result(self) -> tuple[SameQuestion, ...]:
        """The pairs, in the order of the suite."""
        for pair in self._pairs:
            self._sort(pair)
        return tuple(pair.result(MAX_CELLS) for pair in self._pairs)
