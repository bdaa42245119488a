"""Cluster bootstrap: compared with SciPy and between implementations, and its coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap

from visioneval.analysis.stats import resampling
from visioneval.analysis.stats.resampling import cluster_bootstrap, cluster_bootstrap_mean, clusters_of


def _scores(k: int, n: int) -> np.ndarray:
    """Scores of k clusters of n similar rows each."""
    random = np.random.default_rng(7)
    return random.normal(size=(k, 1)) + 0.2 * random.normal(size=(k, n))


def test_clusters_of_one_row_match_the_plain_bootstrap() -> None:
    values = _scores(40, 1)[:, 0]
    expected = bootstrap((values,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    interval = cluster_bootstrap(clusters_of(range(40)), lambda rows: float(values[rows].mean()), resamples=20_000)
    fast = cluster_bootstrap_mean(values, np.ones(40), resamples=20_000)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=0.02)
    assert (fast.low, fast.high) == pytest.approx((expected.low, expected.high), abs=0.02)


def test_correlated_rows_widen_the_interval() -> None:
    values = _scores(30, 8)
    names = np.repeat(np.arange(30), 8)
    flat = values.ravel()
    whole = cluster_bootstrap(clusters_of(names.tolist()), lambda rows: float(flat[rows].mean()))
    fast = cluster_bootstrap_mean(values.sum(axis=1), np.full(30, 8))
    alone = cluster_bootstrap(clusters_of(range(240)), lambda rows: float(flat[rows].mean()))
    assert whole.high - whole.low > 2 * (alone.high - alone.low)
    assert (fast.low, fast.high) == pytest.approx((whole.low, whole.high), abs=0.06)


def test_median_interval_has_its_nominal_coverage() -> None:
    """A 90 % interval of a median contains the true median in about 90 of 100 samples."""
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        values = random.exponential(size=60)
        interval = cluster_bootstrap(
            clusters_of(range(60)), lambda rows, sample=values: float(np.median(sample[rows])), level=0.9, resamples=300
        )
        covered += interval.low <= np.log(2) <= interval.high
    assert 165 <= covered <= 195


def test_seed_determines_the_interval() -> None:
    sums, counts = np.arange(12.0), np.ones(12)
    assert cluster_bootstrap_mean(sums, counts, seed=4) == cluster_bootstrap_mean(sums, counts, seed=4)
    assert cluster_bootstrap_mean(sums, counts, seed=4) != cluster_bootstrap_mean(sums, counts, seed=5)


def test_normal_limit_is_close_to_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    values = _scores(3000, 3)
    sums, counts = values.sum(axis=1), np.full(3000, 3)
    generated = cluster_bootstrap_mean(sums, counts)
    monkeypatch.setattr(resampling, "MANY_CLUSTERS", 3000)
    limit = cluster_bootstrap_mean(sums, counts)
    assert limit != generated
    assert (limit.low, limit.high) == pytest.approx((generated.low, generated.high), abs=0.004)


def test_invalid_input_is_rejected() -> None:
    with pytest.raises(ValueError, match="two or more clusters, not 1"):
        cluster_bootstrap(clusters_of([0, 0]), lambda _: 1.0)
    with pytest.raises(ValueError, match="two or more clusters, not 0"):
        cluster_bootstrap_mean([], [])
    with pytest.raises(ValueError, match="without rows"):
        cluster_bootstrap_mean([1.0, 2.0], [1, 0])
    with pytest.raises(ValueError, match="NaN in every resample"):
        cluster_bootstrap(clusters_of([0, 1]), lambda _: float("nan"))
    with pytest.raises(ValueError, match="resamples must be at least 1, not 0"):
        cluster_bootstrap_mean([1.0, 2.0], [1, 1], resamples=0)


def test_clusters_of_groups_rows() -> None:
    assert [rows.tolist() for rows in clusters_of(["b", "a", "b"])] == [[0, 2], [1]]
