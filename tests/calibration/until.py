"""How often a run until its gates are decided passes, against a fixed number of samples, and what it generates.

    python -m tests.calibration.until [REPETITIONS]

The cells are decided as those of a run are. For a gate that its value decides, the mean rate of the cases is the true
one; for one that its bound decides, the cases are drawn anew, and the mean of all such cases is. ``wrong`` are runs
that were decided on the wrong side before the last look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.calibration.designs import Floats, Row, odds, repetitions, show
from tests.calibration.gates import CORRELATIONS, suites_of
from visioneval import RunInfo, Status, TaskType, Verdict
from visioneval.analysis.left_out import DueMetrics
from visioneval.analysis.summary.gates import GateAccumulator
from visioneval.analysis.summary.until import decide_gates
from visioneval.records.until import SampledGate
from visioneval.suite.model import Suite
from visioneval.types import Metric

MOST = 8
SIZES = (10, 30, 100)
RATE_GATE = {"rule": "pass_rate >= 0.8"}
BOUND_GATE = {**RATE_GATE, "decide": "bound"}
MEAN_GATE = {"rule": "mean(level) >= 0.8"}
TRUE_RATES = (0.7, 0.75, 0.799, 0.85, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class SimulatedCell:
    """What a gate reads of a cell."""

    test_id: str
    sample_index: int
    verdict: Verdict
    scores: dict[str, Any]
    model_label: str = "mock"
    task_type: TaskType = TaskType.IMAGE_GENERATION
    status: Status = Status.COMPLETED
    tags: tuple[str, ...] = ()
    is_unmeasured: bool = False
    graders: tuple[Any, ...] = field(default=())


def simulated_run(cases: int, gate: dict[str, Any], samples: int = 1) -> RunInfo:
    """A run of a suite with one gate, before its first look."""
    suite = Suite.model_validate(
        {
            "name": "demo",
            "samples": samples,
            "cases": [{"id": f"c{number}", "prompt": "a tree"} for number in range(cases)],
            "models": [{"provider": "mock", "label": "mock", "params": {"model": "mock"}}],
            "graders": [{"key": "image", "type": "properties"}],
            "verdict": ["image"],
            "gates": [gate],
        }
    )
    return RunInfo(
        run_id="r",
        state="running",
        started_at="2026-01-01T00:00:00+00:00",
        planned_cells=cases * samples,
        visioneval_version="0",
        python_version="3",
        suite_path="suite.yaml",
        source_sha256="0" * 64,
        metrics={"level": Metric(type="number", range=(0, 1))},
        suite=suite,
    )


def outcomes(info: RunInfo, values: Floats) -> tuple[SampledGate, bool, bool]:
    """The decision about the values of each case and sample, and whether the gate passes by it, and by all of them."""
    cells = [
        SimulatedCell(f"c{case}", sample, Verdict.PASS if value >= 1 else Verdict.FAIL, {"level": float(value)})
        for (case, sample), value in np.ndenumerate(values)
    ]
    most = values.shape[1]
    case_samples = {(f"c{case}", "mock"): most for case in range(len(values))}
    (gate,) = decide_gates(info, cells, case_samples, most)  # type: ignore[arg-type]
    states = []
    for samples in (gate.samples, most):
        counted = GateAccumulator(
            info.suite.gates[0], info, DueMetrics(info), gate.model_copy(update={"samples": samples})
        )
        for cell in cells:
            counted.add(cell)  # type: ignore[arg-type]
        states.append(counted.result().state == "passed")
    passes, fixed = states
    is_unsure = info.suite.gates[0].decide == "bound" and gate.outcome != "decided"
    return gate, passes and not is_unsure, fixed


def figures(design: str, info: RunInfo, runs: Floats, *, is_true: bool) -> Iterator[Row]:
    """The shares of simulated runs (by run, case and sample) that pass, and the mean number of samples."""
    results = [outcomes(info, values) for values in runs]
    wrong = sum(passes != is_true and fixed == is_true for gate, passes, fixed in results if gate.outcome == "decided")
    yield Row(design, "passes", float(np.mean([passes for _, passes, _ in results])), len(runs))
    yield Row(design, f"--samples {MOST}", float(np.mean([fixed for *_, fixed in results])), len(runs))
    yield Row(design, "wrong", wrong / len(runs), len(runs))
    yield Row(design, "samples", float(np.mean([gate.samples for gate, *_ in results])))


def rates(times: int) -> Iterator[Row]:
    """A pass rate, by its value."""
    for cases in SIZES:
        info = simulated_run(cases, RATE_GATE)
        for correlation in CORRELATIONS[:2]:
            for rate in TRUE_RATES:
                random = np.random.default_rng([cases, int(10 * correlation), int(1000 * rate), 1])
                suites = suites_of(times, cases, rate, correlation, random)
                suites = np.clip(suites + (rate - suites.mean(axis=1, keepdims=True)), 0, 1)
                runs = (random.random((times, cases, MOST)) < suites[:, :, None]).astype(float)
                design = f"{cases} cases, correlation {correlation}, true {rate}"
                yield from figures(design, info, runs, is_true=rate >= 0.8)


def means(times: int) -> Iterator[Row]:
    """The mean of a score of three levels, by its value: nearly all at the ceiling, as scores are."""
    for cases in SIZES:
        info = simulated_run(cases, MEAN_GATE)
        for mean in (0.7, 0.799, 0.85, 0.9):
            random = np.random.default_rng([cases, int(1000 * mean), 2])
            chance = random.random((times, cases, MOST))
            lost = 1 - mean
            runs = np.where(chance < lost / 2, 0.0, np.where(chance < 1.5 * lost, 0.5, 1.0))
            yield from figures(f"mean, {cases} cases, true {mean}", info, runs, is_true=mean >= 0.8)


def bounds(times: int) -> Iterator[Row]:
    """A pass rate, by its bound, over cases that are drawn anew."""
    for cases in SIZES:
        info = simulated_run(cases, BOUND_GATE)
        for correlation in CORRELATIONS[:2]:
            for rate in (0.799, 0.9, 0.95):
                random = np.random.default_rng([cases, int(10 * correlation), int(1000 * rate), 3])
                suites = odds(rate, correlation, (times, cases, 1), random)
                runs = (random.random((times, cases, MOST)) < suites).astype(float)
                design = f"bound, {cases} cases, correlation {correlation}, true {rate}"
                yield from figures(design, info, runs, is_true=rate >= 0.8)


def main() -> None:
    """Prints all figures."""
    times = repetitions(200)
    show("pass_rate >= 0.8, from 1 to 8 samples", rates(times))
    show("mean(level) >= 0.8", means(times))
    show("pass_rate >= 0.8, decide: bound", bounds(times))


if __name__ == "__main__":
    main()
