"""How far the judges of a panel agree with each other, and how often each did not answer. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from visioneval.analysis.scores import empty_array
from visioneval.analysis.stats.measure import Statistic
from visioneval.analysis.summary.findings import PanelFinding, PanelMetric
from visioneval.records.model import GraderRecord, Record, RunInfo
from visioneval.suite.turns import chain_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from visioneval.analysis.stats.interval import Floats


class Panels:
    """Collects the answers of every panel, by grader key."""

    def __init__(self, info: RunInfo) -> None:
        """Starts without cells."""
        self._judges = {grader.key: grader.judge_names for grader in info.suite.graders}
        self._answers: dict[str, _PanelAnswers] = {}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for grader in cell.graders:
            if grader.judges:
                self._answers.setdefault(grader.key, _PanelAnswers()).add(cell, grader)

    def result(self) -> dict[str, PanelFinding]:
        """Returns the findings by grader key, in suite order."""
        in_suite_order = [key for key in self._judges if key in self._answers]
        return {key: self._answers[key].result() for key in in_suite_order}


@dataclass(slots=True)
class _MetricAnswers:
    """The moments of the judges' scores of one metric, cell by cell."""

    cases: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[float] = field(default_factory=empty_array)
    sums: array[float] = field(default_factory=empty_array)
    squares: array[float] = field(default_factory=empty_array)
    split: int = 0

    def add(self, case: int, scores: list[float]) -> None:
        self.cases.append(case)
        self.sizes.append(len(scores))
        self.sums.append(sum(scores))
        self.squares.append(sum(score * score for score in scores))

    def result(self) -> PanelMetric:
        return PanelMetric(alpha=self._alpha(), split=self.split)

    def _alpha(self) -> Statistic:
        # loads NumPy, which runs without a panel do without
        import numpy as np

        from visioneval.analysis.stats.agreement.chance import interval_alpha
        from visioneval.analysis.stats.interval import row_measure

        moments = np.array([self.sizes, self.sums, self.squares])
        shared = moments[0] >= 2
        moments, cases = moments[:, shared], np.array(self.cases)[shared]
        if not len(cases):
            return Statistic(note="no cell has answers of two judges")
        undefined = "all answers are the same: alpha is undefined"
        return row_measure(
            lambda rows: interval_alpha(*moments[:, rows]), _is_other(*moments), cases.tolist(), undefined=undefined
        )


def _is_other(sizes: Floats, sums: Floats, squares: Floats) -> NDArray[np.bool_]:
    """The cells in which a judge gave another score than the one that most cells have from all judges."""
    import numpy as np

    is_unanimous = np.isclose(squares * sizes, sums * sums)
    means = np.round(sums / sizes, 9)
    values, times = np.unique(means[is_unanimous], return_counts=True)
    if not len(values):
        return np.ones(len(sizes), dtype=bool)
    return np.asarray(~is_unanimous | (means != values[times.argmax()]), dtype=bool)


@dataclass(slots=True)
class _PanelAnswers:
    """The answers of one panel."""

    cells: int = 0
    metrics: dict[str, _MetricAnswers] = field(default_factory=dict)
    judges: dict[str, None] = field(default_factory=dict)
    unanswered: Counter[str] = field(default_factory=Counter)
    cases: dict[str, int] = field(default_factory=dict)

    def add(self, cell: Record, grader: GraderRecord) -> None:
        self.cells += 1
        case = self.cases.setdefault(chain_of(cell.test_id), len(self.cases))
        self.judges.update(dict.fromkeys(answer.judge for answer in grader.judges))
        self.unanswered.update(
            answer.judge for answer in grader.judges if not (answer.is_complete or answer.never_asked)
        )
        for name in dict.fromkeys(name for answer in grader.judges for name in answer.scores):
            measured = [score for answer in grader.judges if (score := answer.scores.get(name)) is not None]
            answers = self.metrics.setdefault(name, _MetricAnswers())
            answers.add(case, [float(score) for score in measured])
            is_even = all(isinstance(score, bool) for score in measured) and sum(measured) * 2 == len(measured)
            answers.split += bool(measured) and is_even and cell.scores.get(name) is None

    def result(self) -> PanelFinding:
        return PanelFinding(
            judges=tuple(self.judges),
            cells=self.cells,
            metrics={name: answers.result() for name, answers in self.metrics.items()},
            unanswered={judge: self.unanswered[judge] for judge in self.judges if self.unanswered[judge]},
        )
