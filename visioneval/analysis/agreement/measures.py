"""The measures of a grader against people, by the kind of its metric, and how far raters agree among themselves. Pure.

For the ceiling, each rater in turn is left out: the other raters of a cell are the reference for the rater's answer and
for the grader's score. So a grader that is as good as one more rater has the raters' value, whatever their number. A
comparison with all raters of a cell would not show that, as the majority or mean of more raters is a better reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress
from math import isnan, nan
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.stats.agreement import (
    Floats,
    coefficient_measure,
    kappa_measure,
    pairwise_accuracy_measure,
    quadratic_kappa,
    rate_measure,
)
from visioneval.analysis.stats.basic import Statistic
from visioneval.analysis.stats.correlation import kendall, pearson, spearman
from visioneval.rules import Rule
from visioneval.types import Metric

Flags = NDArray[np.bool_]
Kind = Literal["bool", "one_of", "scale", "continuous"]
HEADLINES: dict[Kind, str] = {
    "bool": "kappa",
    "one_of": "kappa",
    "scale": "quadratic_kappa",
    "continuous": "spearman",
}
MEASURES = (
    "kappa",
    "quadratic_kappa",
    "accuracy",
    "fail_precision",
    "fail_recall",
    "spearman",
    "kendall",
    "pearson",
    "pairwise_accuracy",
)
_ONE_ANSWER = "the raters and the grader give every cell the same answer: the measure is undefined"
_CONSTANT = "one side gives every cell the same value: the measure is undefined"
_NO_OTHERS = "no cell has answers from two raters: the ceiling is unknown"
_ALL_SPLIT = "the other raters of every cell are evenly split: the ceiling is unknown"
_RATERS_ALIKE = "the raters give every cell the same answer: the measure is undefined"


def headline_measure(
    kind: Kind, first: Floats, second: Floats, cases: Sequence[str], *, undefined: str | None = None
) -> Statistic:
    """The measure that stands for a kind of metric, of two columns of shape ``(rows,)``."""
    if kind in ("bool", "one_of"):
        return kappa_measure(first, second, cases, undefined=undefined or _ONE_ANSWER)
    if kind == "scale":
        return coefficient_measure(quadratic_kappa, first, second, cases, undefined=undefined or _ONE_ANSWER)
    return coefficient_measure(spearman, first, second, cases, undefined=undefined or _CONSTANT)


def chance_measures(kind: Kind, people: Floats, grader: Floats, cases: Sequence[str]) -> dict[str, Statistic]:
    """Kappa, or kappa with quadratic weights; empty for numbers on different scales. For words also the accuracy."""
    if kind == "one_of":
        equal = rate_measure(people == grader, cases)
        return {"kappa": headline_measure(kind, people, grader, cases), "accuracy": equal}
    return {} if kind == "continuous" else {HEADLINES[kind]: headline_measure(kind, people, grader, cases)}


def rank_measures(people: Floats, grader: Floats, cases: Sequence[str]) -> dict[str, Statistic]:
    """The correlations, and the accuracy over pairs of cells."""
    return {
        "spearman": coefficient_measure(spearman, people, grader, cases, undefined=_CONSTANT),
        "kendall": coefficient_measure(kendall, people, grader, cases, undefined=_CONSTANT),
        "pearson": coefficient_measure(pearson, people, grader, cases, undefined=_CONSTANT),
        "pairwise_accuracy": pairwise_accuracy_measure(people, grader, cases, undefined=_CONSTANT),
    }


def failures(meaning: Metric, rule: Rule | None, values: Floats) -> Flags:
    """Which values fail: those that violate ``rule`` or, without one, the worse answer of yes and no."""
    if rule is None:
        return np.asarray(values == (1.0 if meaning.better == "lower" else 0.0))
    return np.asarray([rule.outcome({rule.metric: float(value)}) == "failed" for value in values], dtype=bool)


def failure_measures(people: Flags, grader: Flags, cases: Sequence[str]) -> dict[str, Statistic]:
    """Accuracy, precision and recall of failures, given which cells fail, shape ``(cells,)`` each. Precision and recall
    are rates over the cells that the grader fails, and that people fail."""

    def share(values: Flags, among: Flags, undefined: str) -> Statistic:
        return rate_measure(values[among], list(compress(cases, among)), undefined=undefined)

    return {
        "accuracy": rate_measure(people == grader, cases),
        "fail_precision": share(people, grader, "the grader fails no cell"),
        "fail_recall": share(grader, people, "the raters fail no cell"),
    }


def joint_answer(kind: Kind, codes: Sequence[float]) -> float:
    """What several raters answer together: their mean, of yes or no the majority, of words the most frequent one.

    nan if they are evenly split between two answers.
    """
    if kind not in ("bool", "one_of"):
        return sum(codes) / len(codes)
    (answer, times), *others = Counter(codes).most_common(2)
    return nan if others and others[0][1] == times else answer


def against_other_raters(
    kind: Kind, answers: Sequence[Sequence[float]], grader: Floats, cases: Sequence[str]
) -> tuple[Statistic, Statistic]:
    """The headline measure of each rater against the other raters, and of the grader against the same raters.

    ``answers`` are those of all raters by cell; ``grader`` and ``cases`` have one entry per cell. The reference is what
    the other raters answer together; evenly split ones are left out.
    """
    raters, references, scores, row_cases = [], [], [], []
    for codes, score, case in zip(answers, grader, cases, strict=True):
        for at, code in enumerate(codes if len(codes) > 1 else ()):
            reference = joint_answer(kind, [*codes[:at], *codes[at + 1 :]])
            if not isnan(reference):
                raters.append(code)
                references.append(reference)
                scores.append(score)
                row_cases.append(case)
    if not raters:
        reason = _ALL_SPLIT if any(len(codes) > 1 for codes in answers) else _NO_OTHERS
        return Statistic(note=reason), Statistic(note=reason)
    others = np.asarray(references, dtype=float)
    ceiling, in_place = (
        headline_measure(kind, np.asarray(column, dtype=float), others, row_cases, undefined=undefined)
        for column, undefined in ((raters, _RATERS_ALIKE), (scores, None))
    )
    return ceiling, in_place
