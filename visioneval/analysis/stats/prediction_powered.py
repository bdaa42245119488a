"""Means of human labels, corrected by a judge that scored every cell (prediction-powered inference). Pure.

- corrected rate or mean (``agreement --correct``): prediction-powered (PPI++) over cases
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.stats.basic import Interval, t_quantile

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LabeledSample:
    """Labeled cells of a random draw, all of shape ``(n,)``.

    ``rows`` are their numbers among all cells, ``people`` the human values, ``weights`` the positive inverse
    probabilities of being drawn, and ``strata`` the codes of the strata that were drawn from.
    """

    rows: Codes
    people: Floats
    weights: Floats
    strata: Codes


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean or a difference of means.

    ``influence``, of shape ``(cases,)``, is what each case contributes to the error. ``center`` and ``floor`` (a
    variance) are the interval's center and what it has at least, whatever the labels. ``cases`` is the number of cases
    with labels, and ``tuning`` the factor of the judge, 0 if it is not used.
    """

    value: float
    center: float
    influence: Floats
    floor: float
    cases: int
    tuning: float = 0.0

    def interval(self) -> Interval:
        """The 95 % t interval with a variance between cases. Raises ``ValueError`` for fewer than two labeled cases."""
        if self.cases < 2:
            raise ValueError(f"an interval needs two or more cases with labels, not {self.cases}")
        variance = self.cases / (self.cases - 1) * float(self.influence @ self.influence) + self.floor
        half = t_quantile(0.975, self.cases - 1) * sqrt(variance)
        return Interval(min(self.value, self.center - half), max(self.value, self.center + half))


def labeled_mean(cases: Codes, sample: LabeledSample, step: float | None = None) -> MeanEstimate:
    """The mean of the labels alone, weighted. Arguments and errors as in ``corrected_mean``."""
    return corrected_mean(np.zeros(len(cases)), cases, sample, step)


def corrected_mean(judge: Floats, cases: Codes, sample: LabeledSample, step: float | None = None) -> MeanEstimate:
    """The mean human value of all cells: the labels' weighted mean, moved by what the judge says about the other cells.

    ``judge`` and ``cases``, of shape ``(N,)``, are the judge's value and the code of the case of every cell. The
    estimate is ``mean(people) + tuning * (mean of judge over all cells - over the labeled ones)``. Its expectation is
    right for any ``tuning``. The one with the least variance is used, the covariance of labels and judge by the judge's
    variance over all cells, or 0 if it is negative.

    Labels that never contradict the judge would give a variance near 0. So, for the interval only, each stratum gets
    two more labels of the weight of an average case: for yes or no (``step=None``) one where people say yes and the
    judge says no, and one the other way round, or, where the judge decided the strata, one of each where it says what
    it says in the stratum; on a scale one that is a ``step`` (0 for none) above the prediction, and one below.

    Raises ``ValueError`` without labels, and for a weight that is not positive.

    Sources: A. N. Angelopoulos, J. C. Duchi and T. Zrnic, "PPI++: Efficient prediction-powered inference", arXiv
    2311.01453 (2023), here with weights, as J. Hajek, "Comment on an essay on the logical foundations of survey
    sampling" (1971), and a variance between cases, as K.-Y. Liang and S. L. Zeger, "Longitudinal data analysis using
    generalized linear models", Biometrika 73 (1986). Added labels: A. Agresti and B. A. Coull, "Approximate is better
    than 'exact' for interval estimation of binomial proportions", The American Statistician 52 (1998).
    """
    if not len(sample.rows) or not (sample.weights > 0).all():
        raise ValueError("a mean of labels needs labels with positive weights")
    shares = sample.weights / sample.weights.sum()
    labeled_judge = judge[sample.rows]
    people_mean, judge_mean = float(shares @ sample.people), float(shares @ labeled_judge)
    people_gaps, judge_gaps = sample.people - people_mean, labeled_judge - judge_mean
    spread = float(judge.var())
    has_spread = spread > 1e-28 * float(np.square(judge).mean())  # else it is floating-point noise
    tuning = max(0.0, float(shares @ (people_gaps * judge_gaps)) / spread) if has_spread else 0.0
    value = people_mean + tuning * (float(judge.mean()) - judge_mean)
    count = int(cases.max()) + 1
    influence = np.bincount(cases, tuning * (judge - judge.mean()) / len(judge), count)
    influence += np.bincount(cases[sample.rows], shares * (people_gaps - tuning * judge_gaps), count)
    labeled_cases = len(np.unique(cases[sample.rows]))
    _, strata, in_stratum = np.unique(sample.strata, return_inverse=True, return_counts=True)
    added_share = len(sample.rows) / labeled_cases * (np.bincount(strata, shares) / in_stratum)
    if step is not None:
        above = below = np.full(len(added_share), step)
    else:
        lowest, highest = np.full(len(added_share), np.inf), np.full(len(added_share), -np.inf)
        np.minimum.at(lowest, strata, labeled_judge)
        np.maximum.at(highest, strata, labeled_judge)
        decides = len(added_share) > 1 and bool((lowest == highest).all())
        if not decides or abs(float(shares @ labeled_judge - judge.mean())) >= 1e-9:
            lowest, highest = np.zeros(len(added_share)), np.ones(len(added_share))
        above = 1 - people_mean - tuning * (lowest - judge_mean)
        below = people_mean + tuning * (highest - judge_mean)
    total = 1 + 2 * float(added_share.sum())
    return MeanEstimate(
        value=value,
        center=value + float(added_share @ (above - below)) / total,
        influence=influence / total,
        floor=float(np.square(added_share) @ (np.square(above) + np.square(below))) / total**2,
        cases=labeled_cases,
        tuning=tuning,
    )


def judge_mean(judge: Floats, cases: Codes, step: float | None = None) -> MeanEstimate:
    """The mean of the judge over all cells, as if they were labels. Arguments and errors as in ``corrected_mean``."""
    rows = np.arange(len(judge))
    return labeled_mean(cases, LabeledSample(rows, judge, np.ones(len(judge)), np.zeros(len(judge), dtype=int)), step)


def difference(first: MeanEstimate, second: MeanEstimate) -> MeanEstimate:
    """The second mean minus the first. Codes must name the same cases in both, so that what they share cancels.

    Its degrees of freedom are the lower of the two.
    """
    return MeanEstimate(
        value=second.value - first.value,
        center=second.center - first.center,
        influence=second.influence - first.influence,
        floor=first.floor + second.floor,
        cases=min(first.cases, second.cases),
    )
