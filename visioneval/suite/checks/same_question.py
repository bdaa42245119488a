"""Checks of ``same_question``: one metric of a judge and one local measure, of which some case has both, and of which
the suite says which values pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.errors import did_you_mean
from visioneval.suite.checks.rules import Problems, SuiteContext
from visioneval.suite.metrics import describe_meaning
from visioneval.suite.same_question import judged_metrics, says_which_pass


def same_question_problems(view: SuiteContext, broken: frozenset[str]) -> Problems:
    """Problems of the pairs of metrics. ``broken`` names the top-level keys that lost invalid entries."""
    pairs = {} if broken & {"judges", "verdict"} else view.suite.same_question
    judged = judged_metrics(view.suite, view.suite_metrics, {*pairs, *pairs.values()})
    for judge, measure in pairs.items():
        yield from ((("same_question", judge), message) for message in _pair(view, judge, measure, judged))


def _pair(view: SuiteContext, judge: str, measure: str, judged: frozenset[str]) -> Iterator[str]:
    unknown = [name for name in (judge, measure) if name not in view.metric_names]
    for name in unknown:
        if name not in view.suite.metrics:  # else reported where it is defined
            yield f"no grader writes {name!r}{did_you_mean(name, view.metric_names)}"
    if unknown:
        return
    if judge not in judged and measure in judged:
        yield f"the metric of the judge comes first: write '{measure}: {judge}'"
    elif judge not in judged:
        yield f"no judge answers {judge!r}: write 'METRIC_OF_A_JUDGE: {measure}'"
    elif measure in judged:
        yield f"a judge answers {measure!r} too: name a local measure, such as one of 'extract: ocr'"
    else:
        yield from _comparable(view, judge, measure)


def _comparable(view: SuiteContext, judge: str, measure: str) -> Iterator[str]:
    cases = list(zip(view.suite.cases, view.available, strict=True))
    both = [(case, metrics) for case, metrics in cases if judge in metrics and measure in metrics]
    if not both:
        yield f"no case has both {judge!r} and {measure!r}: check 'when' of their graders"
        return
    for name in (judge, measure):
        if not any(says_which_pass(view.suite, case, name, metrics[name]) for case, metrics in both):
            metric = both[0][1][name]
            rule = f'{name} == "{metric.choices[0]}"' if metric.choices else name
            rule = f"{name} >= NUMBER" if metric.type == "number" else rule
            meaning = describe_meaning(metric)
            yield (
                f"{name!r} is {meaning}, and no rule says which values pass: add '{{rule: {rule}, level: warn}}' to"
                " 'verdict'"
            )
