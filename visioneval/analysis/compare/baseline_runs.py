"""The runs of a baseline: their pass rates, their noise, and which differ from the others. Pure.

What counts where a baseline has several runs:

- a cell passed in A: most of its measured samples passed
- ``must_pass``: the samples of all runs
- ``METRIC:NUMBER``, values of A: the mean over the runs
- ``broken_same_output``: the newest run that has the file
- what B lost: against the newest run
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.analysis.compare.differences import ALPHA
from visioneval.analysis.compare.metrics import passes_of_runs
from visioneval.analysis.scores import Estimate, verdict_rate
from visioneval.analysis.stats.tests import Counts, holm, two_sided, worse_p
from visioneval.analysis.stats.variance import Passes, run_noise
from visioneval.records.baselines import Baseline
from visioneval.suite.filters import chain_of
from visioneval.types import Frozen


class RunOfBaseline(Frozen):
    """A run of a baseline. ``p`` is that of its pass rate being that of the other runs, adjusted for their number."""

    run: str
    cells: int
    pass_rate: Estimate
    p: float | None

    @property
    def differs(self) -> bool:
        """Whether it differs from the other runs by more than chance."""
        return self.p is not None and self.p < ALPHA


class BaselineSummary(Frozen):
    """The runs of a baseline, the newest first.

    ``between_runs`` is the standard deviation of the pass rate that equal runs share in all cases, in 0..1, and
    ``dispersion`` the variance of the passes of a case as a multiple of that of independent samples; both ``None`` for
    fewer than two runs, and the latter with one sample per case.
    """

    suite: str
    runs: tuple[RunOfBaseline, ...]
    between_runs: float | None
    dispersion: float | None


def summarize_runs(baselines: Sequence[Baseline]) -> BaselineSummary:
    """The runs of a baseline and their noise."""
    passes = passes_of_runs(
        (chain_of(line.test_id), [line.verdict if run is baseline else None for run in baselines])
        for baseline in baselines
        for line in baseline.lines
        if not line.flaky
    )
    noise = run_noise(passes)
    has_samples = any(measured > 1 for row in passes for _, measured in row)
    p_values: list[float | None] = [None] * len(baselines)
    if passes and len(baselines) > 1:  # of the cases of each run against those of the others, adjusted by Holm
        worse = [worse_p([_against_others(row, at) for row in passes]) for at in range(len(baselines))]
        p_values = list(holm([two_sided(p) for p in worse if p is not None]))
    runs = tuple(
        RunOfBaseline(
            run=baseline.header.run,
            cells=len(baseline.lines),
            pass_rate=verdict_rate((line.test_id, line.verdict) for line in baseline.lines),
            p=p,
        )
        for baseline, p in zip(baselines, p_values, strict=True)
    )
    is_known = noise.runs > 1
    return BaselineSummary(
        suite=baselines[0].header.suite,
        runs=runs,
        between_runs=noise.shared**0.5 if is_known else None,
        dispersion=noise.dispersion if is_known and has_samples else None,
    )


def differing_runs(baselines: Sequence[Baseline]) -> Iterator[str]:
    """A sentence for each run that differs from the others by more than chance."""
    for run in summarize_runs(baselines).runs:
        if run.differs and run.pass_rate.value is not None:
            yield (
                f"{run.run} differs from the other runs by more than chance (pass rate {run.pass_rate.value:.1%},"
                f" p {run.p:.2g}): was it another model, prompt or judge?"
            )


def _against_others(runs: Sequence[Passes], at: int) -> Counts:
    """The passes of a case in the run at a position, and in all others."""
    others = [counts for number, counts in enumerate(runs) if number != at]
    return Counts(sum(passed for passed, _ in others), sum(number for _, number in others), *runs[at])
