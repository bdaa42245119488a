"""How much the graders of a cell disagree, so that people review the most disputed cells first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from visioneval.analysis.disagreements import disagreement_finder
from visioneval.records.model import Record
from visioneval.suite.cases.case import TestCase
from visioneval.suite.model import Suite
from visioneval.types import Metric


class ReviewPriority:
    """Computes the review priority of the cells of one run."""

    def __init__(self, suite: Suite, metrics: Mapping[str, Metric]) -> None:
        self._suite = suite
        self._metrics = metrics
        self._cases = {case.id: case for case in suite.cases}
        self._disagreements_of = disagreement_finder(suite)

    def weight(self, cell: Record) -> float:
        """Returns 0 (full agreement) to 3: up to 1 each for graders, votes, and a judge that contradicts the rules.

        Scores are scaled to 0 (worst) to 1 (best) by the range of their metric. Graders count by the distance between
        the lowest and the highest mean score of a grader, votes by the widest range of a metric.
        """
        means = list(self._grader_means(cell, self._cases.get(cell.test_id)))
        distance = max(means) - min(means) if means else 0.0
        return distance + self._vote_spread(cell) + any(self._disagreements_of(cell).values())

    def _grader_means(self, cell: Record, case: TestCase | None) -> Iterator[float]:
        if case is None:
            return
        for grader in self._suite.graders:
            scores = [self._scaled(name, cell.scores.get(name)) for name in grader.metrics(case)]
            measured = [value for value in scores if value is not None]
            if measured:
                yield sum(measured) / len(measured)

    def _vote_spread(self, cell: Record) -> float:
        votes: list[Any] = [details.get("votes") for grader in cell.graders for details in grader.all_details]
        votes += [
            {name: [answer.scores.get(name) for answer in grader.judges] for name in cell.scores}
            for grader in cell.graders
            if grader.judges
        ]
        ranges = [
            self._vote_range(name, values)
            for by_metric in votes
            if isinstance(by_metric, dict)
            for name, values in by_metric.items()
        ]
        return max(ranges, default=0.0)

    def _vote_range(self, name: str, values: Any) -> float:
        votes = values if isinstance(values, Sequence) and not isinstance(values, str) else ()
        scaled = [value for vote in votes if (value := self._scaled(name, vote)) is not None]
        return max(scaled) - min(scaled) if scaled else 0.0

    def _scaled(self, name: str, score: Any) -> float | None:
        """Scales a score to 0 (worst) to 1 (best). ``None`` without a score, a finite range or a direction."""
        metric = self._metrics.get(name)
        if metric is None or metric.better == "none" or not isinstance(score, (bool, int, float)):
            return None
        if isinstance(score, bool):
            scaled = float(score)
        elif metric.range is None or metric.range[1] is None or metric.range[1] <= metric.range[0]:
            return None
        else:
            low, high = metric.range[0], metric.range[1]
            scaled = min(1.0, max(0.0, (score - low) / (high - low)))
        return scaled if metric.better == "higher" else 1 - scaled
