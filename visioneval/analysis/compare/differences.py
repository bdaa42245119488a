"""Paired differences of the pass rate and of metrics, with intervals and significance tests. Pure.

Cells of a case are not independent: intervals resample whole cases, and tests use one number per case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.compare.pairing import CellPair
from visioneval.analysis.stats.basic import Interval, holm, mcnemar_exact
from visioneval.analysis.stats.power import detectable_mean_difference, detectable_rate_difference
from visioneval.analysis.stats.resampling import MIN_CLUSTERS, cluster_bootstrap_mean
from visioneval.analysis.stats.signed_rank import signed_rank
from visioneval.types import Metric, Score, Verdict

ALPHA = 0.05
FEW_CASES = 48
"""With fewer cases, the smallest detectable difference is reported."""
PASS_RATE = "pass_rate"  # noqa: S105 - a rate, not a password
_MEASURED = (Verdict.PASS, Verdict.FAIL)

Test = Literal["mcnemar", "signed_rank"]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a metric or the pass rate over pairs in which both cells were measured.

    ``a`` and ``b`` are means, or rates in 0..1 of a yes-or-no metric. ``difference`` is ``b - a`` with its 95 %
    ``interval``, which is ``None`` for fewer than six cases or if all cases differ by the same amount.
    ``higher`` and ``lower`` count pairs in which B is higher or lower, ``changed_cases`` cases with another mean.
    ``p`` is two-sided. ``p_holm`` is adjusted over all metrics of the comparison, or ``None`` outside of them.
    ``unmeasured`` counts excluded pairs: a score is ``null`` or a cell is an ``ERROR``.
    ``detectable`` is the smallest difference that this number of cases detects with 80 % power, or ``None`` if there
    are many cases or too few to detect any.
    """

    name: str
    metric: Metric
    a: float | None = None
    b: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    test: Test | None = None
    n_pairs: int = 0
    n_cases: int = 0
    higher: int = 0
    lower: int = 0
    changed_cases: int = 0
    unmeasured: int = 0
    detectable: float | None = None

    @property
    def worse_by(self) -> float | None:
        """How much worse B is (negative if better), or ``None`` if the metric has no direction."""
        if self.difference is None or self.metric.better == "none":
            return None
        return -self.difference if self.metric.better == "higher" else self.difference

    @property
    def significant(self) -> bool:
        """Whether the difference is significant after adjustment for all metrics."""
        return self.p_holm is not None and self.p_holm < ALPHA

    @property
    def few(self) -> bool:
        """Whether there are too few cases to rule out a difference."""
        return 0 < self.n_cases < FEW_CASES


def pass_rate_difference(pairs: Sequence[CellPair], name: str = PASS_RATE) -> Difference:
    """The difference of the pass rates, without pairs with an error."""
    before = [_passed(pair.a.verdict) for pair in pairs]
    after = [_passed(pair.b.verdict) for pair in pairs]
    return _difference(name, Metric(type="bool", better="higher"), pairs, before, after)


def metric_difference(name: str, metric: Metric, pairs: Sequence[CellPair]) -> Difference:
    """The difference of a metric over pairs in which both cells have it."""
    scored = [pair for pair in pairs if name in pair.a.scores and name in pair.b.scores]
    return _difference(name, metric, scored, [p.a.scores[name] for p in scored], [p.b.scores[name] for p in scored])


def adjusted(differences: Sequence[Difference]) -> list[Difference]:
    """Adjusts p-values for multiple comparisons by Holm's procedure.

    Metrics that differ in too few cases to ever be significant get 1 and do not count in the adjustment, as they
    cannot be false alarms. Source: R. E. Tarone, "A modified Bonferroni method for
    discrete data", Biometrics 46 (1990).
    """
    testable = [item for item in differences if item.p is not None and mcnemar_exact(item.changed_cases, 0) < ALPHA]
    p_values = iter(holm([item.p for item in testable if item.p is not None]))
    by_name = {item.name: next(p_values) for item in testable}
    return [item if item.p is None else replace(item, p_holm=by_name.get(item.name, 1.0)) for item in differences]


def _passed(verdict: Verdict) -> bool | None:
    return verdict is Verdict.PASS if verdict in _MEASURED else None


def _difference(
    name: str, metric: Metric, pairs: Sequence[CellPair], before: Sequence[Score], after: Sequence[Score]
) -> Difference:
    x, y = _array(before), _array(after)
    measured = ~(np.isnan(x) | np.isnan(y))
    unmeasured = int(len(pairs) - measured.sum())
    if not measured.any():
        return Difference(name, metric, unmeasured=unmeasured)
    x, y = x[measured], y[measured]
    sums, counts = _by_case(
        y - x, [pair.b.test_id for pair, is_measured in zip(pairs, measured, strict=True) if is_measured]
    )
    higher, lower = int((y > x).sum()), int((y < x).sum())
    spread = float(np.ptp(sums / counts)) > 0
    test, p = _test(metric, sums, counts, higher, lower)
    return Difference(
        name,
        metric,
        a=float(x.mean()),
        b=float(y.mean()),
        difference=float(sums.sum() / counts.sum()),
        interval=cluster_bootstrap_mean(sums, counts) if len(sums) >= MIN_CLUSTERS and spread else None,
        p=p,
        test=test,
        n_pairs=len(x),
        n_cases=len(sums),
        higher=higher,
        lower=lower,
        changed_cases=int((sums != 0).sum()),
        unmeasured=unmeasured,
        detectable=_detectable(metric, sums / counts),
    )


def _array(scores: Sequence[Score]) -> Floats:
    return np.array([np.nan if score is None else float(score) for score in scores], dtype=float)


def _by_case(differences: Floats, cases: Sequence[str]) -> tuple[Floats, Floats]:
    """The sum and the number of differences by case."""
    numbers: dict[str, int] = {}
    case_index: Rows = np.array([numbers.setdefault(case, len(numbers)) for case in cases], dtype=np.intp)
    return np.bincount(case_index, weights=differences).astype(float), np.bincount(case_index).astype(float)


def _test(metric: Metric, sums: Floats, counts: Floats, higher: int, lower: int) -> tuple[Test, float]:
    """McNemar's test for yes-or-no metrics with one cell per case, else the signed-rank test of case means."""
    if metric.type == "bool" and (counts == 1).all():
        return "mcnemar", mcnemar_exact(lower, higher)
    return "signed_rank", signed_rank(sums / counts)


def _detectable(metric: Metric, means: Floats) -> float | None:
    if len(means) >= FEW_CASES:
        return None
    if metric.type == "bool":
        return detectable_rate_difference(len(means), float((means != 0).mean()))
    return detectable_mean_difference(len(means), float(means.std(ddof=1)) if len(means) > 1 else 0.0)
