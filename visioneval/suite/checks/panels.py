"""Checks of the judges that graders name, and of panels of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from visioneval.suite.checks.rules import Problems
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.panels import combinations_of
from visioneval.suite.loading.messages import Loc, did_you_mean
from visioneval.suite.model import Suite
from visioneval.types import Metric


def panel_problems(suite: Suite) -> Problems:
    """Yields unknown and repeated judges, and options of a panel that do not fit it."""
    for index, grader in enumerate(suite.graders):
        for key, message in (*_judges(suite, grader), *_options(suite, grader)):
            yield ("graders", index, *key), message


def _judges(suite: Suite, grader: BaseGrader) -> Problems:
    names = grader.judge_names
    is_list = not isinstance(getattr(grader, "judge", None), str)
    for position, name in enumerate(names):
        key: Loc = ("judge", position) if is_list else ("judge",)
        if name in names[:position]:
            yield key, f"the panel names the judge {name!r} twice"
        elif name not in suite.judges:
            yield key, f"there is no judge {name!r} under 'judges'{did_you_mean(name, suite.judges)}"
        elif twin := next((other for other in names[:position] if _is_same(suite, other, name)), None):
            yield (
                key,
                f"{twin!r} and {name!r} are the same model with the same settings, so they would share every answer",
            )


def _is_same(suite: Suite, first: str, second: str) -> bool:
    judges = [suite.judges.get(name) for name in (first, second)]
    options = [None if judge is None else judge.answering_options for judge in judges]
    return options[0] is not None and options[0] == options[1]


def _options(suite: Suite, grader: BaseGrader) -> Problems:
    combine, quorum = getattr(grader, "combine", None), getattr(grader, "quorum", None)
    if not grader.has_panel:
        for name, value in (("combine", combine), ("quorum", quorum)):
            if value is not None:
                yield (name,), f"{name} needs a panel: list several judges, as in 'judge: [a, b, c]'"
        return
    judges = len(grader.judge_names)
    if quorum is not None and quorum > judges:
        yield ("quorum",), f"quorum is {quorum}, but the panel has only {judges} judges"
    for name, metric in _metrics(suite, grader).items() if combine is not None else ():
        if combine not in combinations_of(metric):
            kind = {"bool": "yes or no", "number": "a number", "one_of": "one of a list of words"}[metric.type]
            yield ("combine",), f"{combine} does not fit {name!r}, which is {kind}: remove 'combine' for the default"
            return


def panel_warnings(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields panels that can split evenly: an even number of judges with a yes-or-no metric."""
    for index, grader in enumerate(suite.graders):
        judges = len(grader.judge_names)
        if not grader.has_panel or judges % 2:
            continue
        answers = {name: metric for name, metric in _metrics(suite, grader).items() if metric.type != "number"}
        for name, metric in islice(answers.items(), 1):
            odd = "cannot" if metric.type == "bool" else "is split more rarely"
            message = f"{judges} judges can be split on {name!r}, which is then not measured; an odd number {odd}"
            yield ("graders", index, "judge"), message


def _metrics(suite: Suite, grader: BaseGrader) -> dict[str, Metric]:
    cases = (case for case in suite.cases if grader.is_for(case))
    return {name: metric for case in cases for name, metric in grader.metrics(case).items()}
