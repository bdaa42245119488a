"""Verdicts and failure tags of pairs: pass rates of all pairs, by case, model run and tag. Pure.

Pairs of flaky cases do not count. A pair with a side that is neither PASS nor FAIL is unmeasured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import fsum, nan
from typing import NamedTuple

from visioneval.analysis.cells import MEASURED
from visioneval.analysis.compare.differences import (
    CASE_ALPHA,
    PASS_RATE,
    PASSED,
    CaseSums,
    Difference,
    PairCounts,
    cases_difference,
    scores_difference,
)
from visioneval.analysis.compare.table import PairRow, case_numbers
from visioneval.analysis.stats.tests import Counts, adjusted_case_ps
from visioneval.analysis.stats.variance import Passes, RunNoise
from visioneval.types import Metric, Verdict


class CasePasses(NamedTuple):
    """The passes of a case on a model run. ``p`` is one-sided, for B being worse, and adjusted for all cases."""

    test_id: str
    model_label: str
    counts: Counts
    p: float


def passes_of_runs(cells: Iterable[tuple[Hashable, Sequence[Verdict | None]]]) -> list[list[Passes]]:
    """The passes of each case in each run, for the cases that all runs measured.

    ``cells`` have their case, and their verdict in each run, ``None`` in a run that lacks them.
    """
    cases: dict[Hashable, list[Passes]] = {}
    for case, verdicts in cells:
        before = cases.get(case, [(0, 0)] * len(verdicts))
        cases[case] = [
            (passed + (verdict is Verdict.PASS), measured + (verdict in MEASURED))
            for (passed, measured), verdict in zip(before, verdicts, strict=True)
        ]
    return [runs for runs in cases.values() if all(measured for _, measured in runs)]


def pass_rate(rows: Sequence[PairRow], noise: RunNoise, name: str = PASS_RATE) -> Difference:
    """The difference of the pass rate over rows that are not flaky."""
    measured = [row for row in rows if row.is_measured]
    strata = _strata(measured)
    cases: dict[str, list[Counts]] = {}
    for (case, _), counts in strata.items():
        cases.setdefault(case, []).append(counts)
    sums = []
    for of_case in cases.values():
        before = fsum(item.b * item.a_passed / item.a for item in of_case)
        passed, pairs = sum(item.b_passed for item in of_case), sum(item.b for item in of_case)
        sums.append(CaseSums(pairs, before, passed - before))
    higher = sum(row.verdict_b is Verdict.PASS and row.verdict_a is not Verdict.PASS for row in measured)
    lower = sum(row.verdict_a is Verdict.PASS and row.verdict_b is not Verdict.PASS for row in measured)
    numbers = PairCounts(higher, lower, len(rows) - len(measured))
    return cases_difference(name, PASSED, sums, numbers, list(strata.values()), noise)


def pass_rates_by_run(rows: Sequence[PairRow], noise: RunNoise) -> tuple[Difference, ...]:
    """The differences of the pass rates of model runs, by their labels in B."""
    by_run: dict[str, list[PairRow]] = {}
    for row in rows:
        by_run.setdefault(row.label, []).append(row)
    return tuple(pass_rate(of_run, noise, label) for label, of_run in by_run.items())


def pass_rates_by_tag(rows: Sequence[PairRow], noise: RunNoise) -> tuple[Difference, ...]:
    """The differences of the pass rates of the tags of either side, in the order in which they appear."""
    by_tag: dict[str, list[PairRow]] = {}
    for row in rows:
        of_a, of_b = row.tags
        for tag in dict.fromkeys((*of_b, *of_a)):
            by_tag.setdefault(tag, []).append(row)
    return tuple(pass_rate(of_tag, noise, tag) for tag, of_tag in by_tag.items())


def passes_by_case(rows: Iterable[PairRow], noise: RunNoise) -> tuple[CasePasses, ...]:
    """The passes of each case on each model run, by the label in B. The turns of a case are one case."""
    strata = _strata(row for row in rows if row.is_measured)
    p_values = adjusted_case_ps(list(strata.values()), CASE_ALPHA, noise)
    return tuple(CasePasses(*key, counts, p) for (key, counts), p in zip(strata.items(), p_values, strict=True))


def _strata(measured: Iterable[PairRow]) -> dict[tuple[str, str], Counts]:
    """The passes of both sides, by case and model run: those of all runs of A.

    In the mean over cases, a stratum weighs its share of the pairs of its case.
    """
    strata: dict[tuple[str, str], list[PairRow]] = {}
    pairs: Counter[str] = Counter()
    for row in measured:
        strata.setdefault((row.case, row.label), []).append(row)
        pairs[row.case] += 1
    return {
        (case, label): Counts(
            a_passed=sum(row.run_verdicts.count(Verdict.PASS) for row in rows),
            a=sum(verdict in MEASURED for row in rows for verdict in row.run_verdicts),
            b_passed=sum(row.verdict_b is Verdict.PASS for row in rows),
            b=len(rows),
            weight=len(rows) / pairs[case],
        )
        for (case, label), rows in strata.items()
    }


def shares_by_failure_tag(rows: Sequence[PairRow]) -> Iterator[Difference]:
    """The differences of the shares of cells with a failure tag, most frequent tags first."""
    import numpy as np

    frequency = Counter(tag for row in rows for tags in row.failure_tags for tag in tags)
    for tag in sorted(frequency, key=lambda tag: (-frequency[tag], tag)):
        scores = [[float(tag in tags) if row.is_measured else nan for tags in row.failure_tags] for row in rows]
        a, b = np.array(scores).T
        yield scores_difference(tag, Metric(type="bool", better="lower"), (case_numbers(rows), a, b))
