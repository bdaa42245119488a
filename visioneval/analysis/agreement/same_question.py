"""Judges against local measures of the same question, which take the place of a rater. No label is needed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.analysis.agreement.graders import Flags
from visioneval.analysis.stats.agreement import kappa_measure, rate_measure
from visioneval.analysis.stats.basic import Statistic
from visioneval.analysis.summary.same_question import Outcomes, Pair, SameQuestion
from visioneval.suite.filters import chain_of

SHOWN = 10
_ONE_ANSWER = "judge and measure pass all cells or fail all: the measure is undefined"


class MeasureAgreement(SameQuestion):
    """A metric of a judge against a local measure of the same question.

    ``measures`` are over the ``cells`` that have both, by whether they pass: ``kappa``, ``accuracy``,
    ``fail_precision`` (the share of the judge's fails that the measure fails) and ``fail_recall`` (the reverse).
    ``contradicted`` lists ten cells.
    """

    measures: dict[str, Statistic]


def against_measures(runs: Sequence[LabeledRun]) -> tuple[MeasureAgreement, ...]:
    """One entry per pair of the suites' ``same_question`` of which any cell should have both metrics."""
    pairs: dict[tuple[str, str], tuple[Pair, list[tuple[str, bool, bool]]]] = {}
    for run in runs:
        outcomes = Outcomes(run.info)
        for names in run.info.suite.same_question.items():
            pair, rows = pairs.setdefault(names, (Pair(*names), []))
            for record in run.records:
                if (passes := pair.add(record, outcomes)) is not None:
                    rows.append((chain_of(record.test_id), *passes))
    return tuple(
        MeasureAgreement(**dict(pair.result(SHOWN)), measures=_measures(rows))
        for pair, rows in pairs.values()
        if rows or pair.unmeasured
    )


def _measures(rows: Sequence[tuple[str, bool, bool]]) -> dict[str, Statistic]:
    cases = [case for case, _, _ in rows]
    judge, measure = (np.asarray([row[at] for row in rows], dtype=bool) for at in (1, 2))

    def share(values: Flags, among: Flags, undefined: str) -> Statistic:
        return rate_measure(values[among], list(compress(cases, among)), undefined=undefined)

    return {
        "kappa": kappa_measure(measure.astype(float), judge.astype(float), cases, undefined=_ONE_ANSWER),
        "accuracy": rate_measure(measure == judge, cases, undefined="no cell has both"),
        "fail_precision": share(~measure, ~judge, "the judge fails no cell"),
        "fail_recall": share(~judge, ~measure, "the measure fails no cell"),
    }
