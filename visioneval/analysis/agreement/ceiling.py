"""How far raters agree among themselves, and the grader measured in the same way. Pure.

Each rater in turn is left out: the other raters of a cell are the reference for the rater's answer and for the grader's
score. So a grader that is as good as one more rater has the raters' value, whatever their number. A comparison with all
raters of a cell would not show that, as the majority or mean of more raters is a better reference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visioneval.analysis.agreement.measures import Kind, headline_measure
from visioneval.analysis.stats.interval import Floats
from visioneval.analysis.stats.measure import Statistic

_NO_OTHERS = "no cell has answers from two raters: the ceiling is unknown"
_ALL_SPLIT = "the other raters of every cell are evenly split: the ceiling is unknown"
_ONE_ANSWER = "the raters give every cell the same answer: the measure is undefined"


def against_other_raters(
    kind: Kind, answers: Sequence[Sequence[float]], grader: Floats, cases: Sequence[str]
) -> tuple[Statistic, Statistic]:
    """The headline measure of each rater against the other raters, and of the grader against the same raters.

    ``answers`` are those of all raters by cell; ``grader`` and ``cases`` have one entry per cell. For yes or no, the
    reference is the majority of the other raters, and evenly split ones are left out; else it is their mean.
    """
    raters, references, scores, row_cases = [], [], [], []
    for codes, score, case in zip(answers, grader, cases, strict=True):
        total = sum(codes)
        for code in codes if len(codes) > 1 else ():
            mean = (total - code) / (len(codes) - 1)
            if kind != "bool" or mean != 0.5:
                raters.append(code)
                references.append(round(mean) if kind == "bool" else mean)
                scores.append(score)
                row_cases.append(case)
    if not raters:
        reason = _ALL_SPLIT if any(len(codes) > 1 for codes in answers) else _NO_OTHERS
        return Statistic(note=reason), Statistic(note=reason)
    reference = np.asarray(references, dtype=float)
    ceiling, in_place = (
        headline_measure(kind, np.asarray(column, dtype=float), reference, row_cases, undefined=undefined)
        for column, undefined in ((raters, _ONE_ANSWER), (scores, None))
    )
    return ceiling, in_place
