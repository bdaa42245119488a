"""The power that the number of cases of ``plan --detect`` really has, which is to be 0.8.

python -m tests.calibration.plan [REPETITIONS]
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.calibration.designs import Row, odds, repetitions, show
from visioneval.analysis.sample_size import parse_detect, stated_noise
from visioneval.analysis.stats.clusters import paired_test

POINTS = (5, 10, 20)
RATES = (0.5, 0.8, 0.95)
CORRELATIONS = (0.2, 0.5, 0.8)
SAMPLES = (1, 3, 8)


def power(times: int) -> Iterator[Row]:
    """How often a comparison of the stated size finds a drop of the stated size, which every case has in proportion."""
    for points in POINTS:
        for rate in RATES:
            for correlation in CORRELATIONS:
                for samples in SAMPLES:
                    detect = parse_detect(points, {}, [])
                    cases = stated_noise(detect, rate, correlation).cases_for(detect, samples)
                    if cases is None:
                        continue
                    random = np.random.default_rng([points, int(100 * rate), int(10 * correlation), samples])
                    ability = odds(rate, correlation, (times, cases), random)
                    worse = ability * (1 - detect.difference / rate)
                    changes = (random.binomial(samples, worse) - random.binomial(samples, ability)) / samples
                    tests = (paired_test(run, 1.0) for run in changes.tolist())
                    share = float(np.mean([test is not None and test.p < 0.05 for test in tests]))
                    design = f"{points} points from {rate}, correlation {correlation}, {cases} cases x {samples}"
                    yield Row(design, "power", share, times)


if __name__ == "__main__":
    show("Power of the planned number of cases", power(repetitions(500)))
