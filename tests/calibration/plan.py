"""The power that the number of cases of ``plan --detect`` really has, which is to be 0.8.

    python -m tests.calibration.plan [REPETITIONS]

The drop is either the same share of what passed in every case, as is planned, or cases that break as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from tests.calibration.designs import Floats, Row, odds, repetitions, show
from visioneval.analysis.planning import parse_detect, stated_noise
from visioneval.analysis.stats.tests import Counts, worse_p

POINTS = (5, 10, 20)
RATES = (0.5, 0.8, 0.95)
CORRELATIONS = (0.2, 0.5, 0.8)
SAMPLES = (1, 3, 8)
LEVEL = 0.025


def power(times: int) -> Iterator[Row]:
    """How often a comparison of the stated size finds a drop of the stated size, of either kind."""
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
                    lost = detect.difference / rate
                    broken = random.random((times, cases)) < lost
                    design = f"{points} points from {rate}, correlation {correlation}, {cases} cases x {samples}"
                    for figure, worse in (("power", ability * (1 - lost)), ("whole cases", ability * ~broken)):
                        yield Row(design, figure, _share_found(ability, worse, samples, random), times)


def _share_found(ability: Floats, worse: Floats, samples: int, random: np.random.Generator) -> float:
    before, after = random.binomial(samples, ability).tolist(), random.binomial(samples, worse).tolist()
    runs = (
        [Counts(*counts) for counts in zip(a, repeat(samples), b, repeat(samples), strict=False)]
        for a, b in zip(before, after, strict=True)
    )
    return float(np.mean([(worse_p(cases) or 0.0) < LEVEL for cases in runs]))


if __name__ == "__main__":
    show("Power of the planned number of cases", power(repetitions(300)))
