"""Where a judge's own verdict and the rules over its scores part: a sign that the thresholds or the prompt are off."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from visioneval.records import Record
from visioneval.rules import parse_rule
from visioneval.suite.graders import RubricGrader
from visioneval.suite.model import Suite
from visioneval.suite.scope import VerdictRule
from visioneval.types import Frozen


class Disagreement(Frozen):
    """In ``judged`` cells a judge gave all its scores and a verdict; in ``disagreed`` of them the rules say else."""

    judged: int
    disagreed: int


def disagreements(suite: Suite, cells: Sequence[Record]) -> dict[str, Disagreement]:
    """For each rubric by its key, only the rules over its own metrics being looked at."""
    found: dict[str, list[bool]] = {key: [] for key in _rubrics(suite)}
    for parted in partings(suite, cells):
        for key, disagreed in parted.items():
            found[key].append(disagreed)
    return {key: Disagreement(judged=len(parted), disagreed=sum(parted)) for key, parted in found.items()}


def partings(suite: Suite, cells: Iterable[Record]) -> Iterator[dict[str, bool]]:
    """For each cell, by the key of a rubric, whether judge and rules disagree; no key where either is silent."""
    rubrics = _rubrics(suite)
    rules = {case.id: suite.verdict if case.verdict is None else case.verdict for case in suite.cases}
    for cell in cells:
        own = rules.get(cell.test_id, suite.verdict)
        answers = ((key, _parted(own, cell, key, metrics)) for key, metrics in rubrics.items())
        yield {key: parted for key, parted in answers if parted is not None}


def _rubrics(suite: Suite) -> dict[str, Collection[str]]:
    return {grader.key: grader.asked.keys() for grader in suite.graders if isinstance(grader, RubricGrader)}


def disagrees(suite: Suite, cell: Record) -> bool:
    """Whether the verdict of any rubric's judge and the rules over its metrics part in this cell."""
    case = next((case for case in suite.cases if case.id == cell.test_id), None)
    rules = suite.verdict if case is None or case.verdict is None else case.verdict
    rubrics = (grader for grader in suite.graders if isinstance(grader, RubricGrader))
    return any(_parted(rules, cell, grader.key, grader.asked.keys()) for grader in rubrics)


def _parted(rules: Sequence[VerdictRule], cell: Record, key: str, metrics: Collection[str]) -> bool | None:
    """Whether judge and rules disagree; ``None`` where either has no verdict."""
    own = next((grader.details.get("judge_verdict") for grader in cell.graders if grader.key == key), None)
    if own is None or any(cell.scores.get(name) is None for name in metrics):
        return None
    failed = any(parse_rule(rule).metric in metrics for rule in cell.failed_rules)
    if not failed and not _judged_by_rules(rules, cell, metrics):
        return None
    return (own == "FAIL") is not failed


def _judged_by_rules(rules: Sequence[VerdictRule], cell: Record, metrics: Collection[str]) -> bool:
    """Whether some rule that can fail this cell is about one of the metrics."""
    return any(
        rule.level == "fail"
        and parse_rule(rule.rule).metric in metrics
        and rule.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)
        for rule in rules
    )
