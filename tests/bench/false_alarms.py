"""How often the default ``--fail-on`` fails equal runs, and how often it sees a drop of ten points.

    python -m tests.bench.false_alarms [PAIRS]

Each simulated pair of runs is judged by ``compare`` itself. A case is good (85 in 100) or bad; every run generates it anew
and asks a noisy judge: with the probability of the noise a yes-or-no answer is turned round and, by itself, a 0-5 score
is any. A cell passes where the answer is yes and the score is 3 or more. For the drop, good cases turn bad until the
share of good ones is ten points lower. ``must_pass`` tags five cases that are always good.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from visioneval import Metric, Verdict
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import check_gates, exit_code, parse_fail_on
from visioneval.analysis.sides import Cell, Side

GOOD, DROP, TAGGED = 0.85, 0.10, 5
NOISES, SIZES = (0.02, 0.05, 0.10), (50, 200, 1000)
METRICS = {"copy": Metric(type="bool"), "look": Metric(type="number", range=(0, 5))}
GATES = parse_fail_on([])
Bools = np.ndarray


def _run(name: str, good: Bools, noise: float, tags: Sequence[tuple[str, ...]], chance: np.random.Generator) -> Side:
    answers = good ^ (chance.random(len(good)) < noise)
    looks = np.where(good, 4, 2)
    looks = np.where(chance.random(len(good)) < noise, chance.integers(0, 6, len(good)), looks)
    cells = [
        Cell(
            test_id=f"case{at}",
            model_label="m",
            sample_index=0,
            verdict=Verdict.PASS if answer and look >= 3 else Verdict.FAIL,
            scores={"copy": bool(answer), "look": int(look)},
            tags=tags[at],
            artifact_sha256=f"{name}{at}",
        )
        for at, (answer, look) in enumerate(zip(answers, looks, strict=True))
    ]
    return Side(name=name, cells=cells, metrics=METRICS, state="complete")


def failed(cases: int, noise: float, drop: float, tagged: int, chance: np.random.Generator) -> bool:
    """Whether one simulated comparison fails."""
    before = chance.random(cases) < GOOD
    after = before & (chance.random(cases) >= drop / GOOD)
    before[:tagged] = after[:tagged] = True
    tags = [("must_pass",) if at < tagged else () for at in range(cases)]
    result = compare(_run("a", before, noise, tags, chance), _run("b", after, noise, tags, chance))
    return exit_code(result, check_gates(result, GATES)) == 1


def main() -> None:
    """Prints the table."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"share of {pairs} simulated comparisons that fail by the default --fail-on")
    print(f"{'cases':>6} {'noise':>6} {'equal':>8} {'equal, 5 must_pass':>20} {'10 points worse':>16}")
    for cases in SIZES:
        for noise in NOISES:
            shares = []
            for drop, tagged in ((0.0, 0), (0.0, TAGGED), (DROP, 0)):
                chance = np.random.default_rng([cases, round(noise * 100), round(drop * 100), tagged])
                shares.append(sum(failed(cases, noise, drop, tagged, chance) for _ in range(pairs)) / pairs)
            print(f"{cases:>6} {noise:>6.0%} {shares[0]:>8.1%} {shares[1]:>20.1%} {shares[2]:>16.1%}", flush=True)


if __name__ == "__main__":
    main()
