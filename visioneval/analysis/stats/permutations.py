"""A permutation test of scores within cases: B's samples of a case against A's samples of the same case. Pure.

If nothing changed, the samples of a case are exchangeable: each of them could as well have been A's. So the samples of
each case are dealt to A and B again, at random, as many to each as they have. That holds however skewed the scores are
and however unequal the numbers of samples, where a t test over cases finds B worse too often.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, fsum, prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float64]]

_PERMUTATIONS = 10_000
"""With these, 200 of them decide at .02, and at the .002 of ten tests 20. More tests get more of them."""
_TESTS = 10
_SEED = 0
"""Fixed, so that the same samples always have the same p-value."""
_ROUNDING = 1e-12
"""A difference below this, relative to the largest of the scores, comes from rounding."""


class Samples(NamedTuple):
    """The samples of a case on a model run, of which there is at least one on each side.

    A sample has a score for each turn, NaN where it has none. ``weights`` are what the difference of each turn counts
    in the mean over cases. Samples are dealt as a whole, as their turns are not independent.
    """

    a: Sequence[Sequence[float]]
    b: Sequence[Sequence[float]]
    weights: Sequence[float]


def mean_change(cases: Sequence[Samples]) -> float:
    """The mean over cases of B's mean minus A's; 0 where it comes from rounding."""
    changes, largest = [], 0.0
    for case in cases:
        scores, is_b = _scores(case)
        changes += _changes(scores, is_b[None], case.weights).tolist()
        largest = max(largest, _largest(scores))
    change = fsum(changes)
    return 0.0 if abs(change) <= _ROUNDING * largest else change


class Permuted(NamedTuple):
    """The one-sided p-value that B's mean is lower only by chance, and the variance of its difference by chance."""

    p: float
    variance: float


def permutation_test(cases: Sequence[Samples], tests: int = 1) -> Permuted:
    """Tests whether ``mean_change`` is lower than 0, as one of some tests.

    The samples of a case must be exchangeable, and may have any distribution. The p-value is the share of permutations
    with a lower difference, and half of those with the same one (a mid-p, as in ``worse_p``), of those that were drawn
    and the observed one. A turn that no sample of a side has does not count in that permutation.

    Source: P. Good, "Permutation Tests" (2000), with the samples of each case as a stratum; for counting the observed
    one B. Phipson and G. K. Smyth, "Permutation p-values should never be zero", Statistical Applications in Genetics
    and Molecular Biology 9 (2010). Size: ``make calibration``.
    """
    import numpy as np

    random, number = np.random.default_rng(_SEED), _PERMUTATIONS * -(-tests // _TESTS) - 1
    drawn, largest = np.zeros(number), 0.0
    for case in cases:
        scores, is_b = _scores(case)
        largest = max(largest, _largest(scores))
        if (np.nanmax(scores, axis=0) > np.nanmin(scores, axis=0)).any():
            drawn += _changes(scores, random.permuted(np.tile(is_b, (number, 1)), axis=1), case.weights)
    observed, nearly = mean_change(cases), _ROUNDING * largest
    lower, same = (drawn < observed - nearly).sum(), (abs(drawn - observed) <= nearly).sum()
    return Permuted(float(lower + (1 + same) / 2) / (1 + number), float(drawn.var()))


def lowest_p(cases: Sequence[Samples]) -> float:
    """The lowest p-value that ``permutation_test`` could have with these numbers of samples, however they lie."""
    return prod((1 / comb(len(case.a) + len(case.b), len(case.a)) for case in cases), start=0.5)


def _scores(case: Samples) -> tuple[Floats, Floats]:
    """The scores of all samples (rows) by turn, and for each sample 1 if it is B's and else 0."""
    import numpy as np

    return np.array([*case.a, *case.b], dtype=float), np.repeat([0.0, 1.0], [len(case.a), len(case.b)])


def _largest(scores: Floats) -> float:
    import numpy as np

    return float(np.nanmax(np.abs(scores)))


def _changes(scores: Floats, is_b: Floats, weights: Sequence[float]) -> Floats:
    """The weighted differences of the means, for each way to deal the samples (a row of ``is_b``)."""
    import numpy as np

    has_score = ~np.isnan(scores)
    filled = np.where(has_score, scores, 0.0)
    of_b, sums_of_b = is_b @ has_score, is_b @ filled
    of_a, sums_of_a = has_score.sum(axis=0) - of_b, filled.sum(axis=0) - sums_of_b
    is_on_both = (of_a > 0) & (of_b > 0)
    changes = sums_of_b / np.maximum(of_b, 1) - sums_of_a / np.maximum(of_a, 1)
    weighted: Floats = np.where(is_on_both, changes, 0.0) @ np.asarray(weights)
    return weighted
