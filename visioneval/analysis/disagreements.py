"""Where graders, votes, judges and rules disagree about a cell, so that people review the most disputed first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from visioneval.records.model import Record
from visioneval.rules import parse_rule
from visioneval.suite.case import TestCase
from visioneval.suite.filters import VerdictRule
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Frozen, Metric


class Disagreement(Frozen):
    """In ``judged`` cells, the judge has a verdict and all scores that rules read were measured.

    In ``disagreed`` of them, the rules contradict the judge.
    """

    judged: int
    disagreed: int


class Disagreements:
    """Counts disagreements by rubric key. Only rules over the metrics of the rubric count."""

    def __init__(self, suite: Suite) -> None:
        """Starts without cells."""
        self._disagreements_of = disagreement_finder(suite)
        self._counts: dict[str, Counter[bool]] = {key: Counter() for key in _rubrics(suite)}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for key, disagreed in self._disagreements_of(cell).items():
            self._counts[key][disagreed] += 1

    def result(self) -> dict[str, Disagreement]:
        """Returns the counts by rubric key."""
        return {
            key: Disagreement(judged=counts.total(), disagreed=counts[True]) for key, counts in self._counts.items()
        }


def disagreement_finder(suite: Suite) -> Callable[[Record], dict[str, bool]]:
    """Returns a function that maps the rubric keys of a cell to whether judge and rules disagree.

    A rubric is left out if the judge or the rules have no verdict.
    """
    rubrics = _rubrics(suite)
    rules = {case.id: case.verdict for case in suite.cases if case.verdict is not None}

    def disagreements_of(cell: Record) -> dict[str, bool]:
        cell_rules = rules.get(cell.test_id, suite.verdict)
        answers = ((key, _is_disagreement(cell_rules, cell, key, metrics)) for key, metrics in rubrics.items())
        return {key: answer for key, answer in answers if answer is not None}

    return disagreements_of


def _rubrics(suite: Suite) -> dict[str, Set[str]]:
    """By rubric: its metrics, and those that are computed from them alone."""
    computed = SuiteMetrics(suite).grader_sources()
    rubrics: dict[str, Set[str]] = {}
    for grader in suite.graders:
        if asked := grader.label_questions.keys():
            rubrics[grader.key] = {*asked, *(name for name, read in computed.items() if read and asked >= set(read))}
    return rubrics


def _is_disagreement(rules: Sequence[VerdictRule], cell: Record, key: str, metrics: Set[str]) -> bool | None:
    """Whether judge and rules disagree, or ``None`` if either has no verdict, or the judge was not asked for what the
    rules are about.
    """
    verdict = next((grader.details.get("judge_verdict") for grader in cell.graders if grader.key == key), None)
    failed = {parse_rule(rule).metric for rule in cell.failed_rules} & metrics
    deciding = failed | {
        parse_rule(rule.rule).metric
        for rule in rules
        if rule.level == "fail" and rule.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)
    }
    asked = deciding & metrics & cell.scores.keys()
    if verdict is None or not asked or any(cell.scores[name] is None for name in asked):
        return None
    return (verdict == "FAIL") is not bool(failed & asked)


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
        widest = 0.0
        for by_metric in votes:
            for name, values in by_metric.items() if isinstance(by_metric, dict) else ():
                scores = values if isinstance(values, (list, tuple)) else ()
                if len({score for score in scores if isinstance(score, str)}) > 1:
                    widest = 1.0
                scaled = [value for score in scores if (value := self._scaled(name, score)) is not None]
                if scaled:
                    widest = max(widest, max(scaled) - min(scaled))
        return widest

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
