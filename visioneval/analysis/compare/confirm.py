"""New samples of a comparison (``compare --confirm``): what leaves a doubt, which cases get them, and whether a run can
give any. Pure.

The first of two steps of the gate ``regressed`` leaves a doubt where only new samples can decide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import ALPHA, CASE_ALPHA, Difference
from visioneval.analysis.compare.metrics import CasePasses
from visioneval.analysis.compare.must_pass import CaseState, Confirmation, SampledCase
from visioneval.analysis.compare.table import CaseKey, SampleCounts
from visioneval.analysis.sides import Side
from visioneval.analysis.stats.tests import Counts, lowest_case_p, lowest_worse_p
from visioneval.analysis.stats.variance import NO_NOISE, RunNoise
from visioneval.errors import count_of
from visioneval.records.model import RunInfo
from visioneval.settings import MAX_CONFIRM
from visioneval.suite.filters import chain_of
from visioneval.types import Verdict

FIRST_STEP, SECOND_STEP = 0.005, 0.02
"""One-sided levels with new samples of the pass rate: together half of ``ALPHA``. A single case that is worse at
``FIRST_STEP`` fails without any, and new samples may clear one that is worse only at ``CASE_ALPHA``."""
METRICS_FIRST_STEP, METRICS_SECOND_STEP = 0.01, 0.04
"""Two-sided levels with new samples, of all metrics together: together ``ALPHA``. Only half of each can fail a gate."""
DOUBT = 0.3
"""The pass rate is in doubt up to this one-sided p, and a metric up to this adjusted p. Three in ten equal runs are by
their pass rate, and seven need no new samples."""
_FEWEST_CASES = 3
"""With fewer cases, no metric has an adjusted p up to ``DOUBT``."""


def cases_in_doubt(comparison: Comparison) -> tuple[CasePasses, ...]:
    """The single cases that are worse at their level, and not so surely that new samples cannot clear them."""
    return tuple(case for case in comparison.cases if FIRST_STEP <= case.p < CASE_ALPHA)


def samples_in_doubt(comparison: Comparison) -> tuple[SampledCase, ...]:
    """What decides about the single cases in doubt. A case with turns needs all new samples of each of them."""
    doubtful = {(case.test_id, case.model_label) for case in cases_in_doubt(comparison)}
    return tuple(
        SingleCase(*case.key) if case.key in doubtful else case
        for case in sampled_cases(comparison)
        if chain_key(case.key) in doubtful
    )


def is_in_doubt(comparison: Comparison) -> bool:
    """Whether only new samples of all cases can tell if the pass rate or a metric is worse."""
    return is_rate_in_doubt(comparison) or bool(metrics_in_doubt(comparison))


def is_rate_in_doubt(comparison: Comparison) -> bool:
    """Whether only new samples of all cases can tell if the pass rate is worse."""
    return FIRST_STEP <= one_sided(comparison.pass_rate) <= DOUBT or bool(undecided(comparison))


def metrics_in_doubt(comparison: Comparison) -> list[Difference]:
    """The metrics that are worse, and not yet surely so. Each is one of those ``tested_again``."""
    return [
        item
        for item in tested_again(comparison)
        if (item.worse_by or 0) > 0 and item.p_holm is not None and METRICS_FIRST_STEP <= item.p_holm <= DOUBT
    ]


def tested_again(comparison: Comparison) -> list[Difference]:
    """The metrics that the second step tests, among which it shares its level: those that new samples could show to be
    worse. Which these are depends on no score.
    """
    return [item for item in comparison.metrics if item.metric.better != "none" and item.n_cases >= _FEWEST_CASES]


def undecided(comparison: Comparison) -> str:
    """Why a comparison in which cells broke cannot tell whether that is chance; empty if it can, or if nothing broke.

    That is so where no outcome of these cases and samples could have shown a regression, and where more than half of
    what passed broke.
    """
    rate = comparison.pass_rate
    broken = sum(row.change == "broken" for row in comparison.table.stable)
    if not broken or rate.a is None or rate.b is None or rate.b >= rate.a:
        return ""
    can_show = _can_show([case.counts for case in comparison.cases], comparison.noise)
    if can_show and rate.b >= rate.a / 2:
        return ""
    samples = f"{count_of(rate.n_cases, 'case')} x {count_of(round(rate.samples[1]), 'sample')}"
    what = f"{broken:,} of {count_of(rate.n_pairs, 'cell')} broke"
    needed = _samples_to_decide(comparison) if can_be_sampled(comparison) else None
    cure = f"--confirm {needed} would" if needed else "more cases would"
    if can_show:
        return f"{what}, more than half of those that passed; {samples} leave room for chance at 5 %: {cure} decide"
    return f"{what}; {samples} cannot show it at 5 %: {cure}"


def can_show_regression(samples: Sequence[int]) -> bool:
    """Whether two runs with these numbers of samples, of each case on each model run, could show a regression."""
    return _can_show([Counts(number, number, 0, number) for number in samples])


def _can_show(cases: Sequence[Counts], noise: RunNoise = NO_NOISE) -> bool:
    """Whether these numbers of samples could show a regression at all: if everything passed in A and nothing in B."""
    lost = (case._replace(a_passed=case.a, b_passed=0) for case in cases)
    return 2 * lowest_worse_p(cases, noise) < ALPHA or any(lowest_case_p(case) <= CASE_ALPHA for case in lost)


def one_sided(rate: Difference) -> float:
    """The one-sided p that the pass rate of B is worse."""
    if rate.p is None or rate.difference is None:
        return 1.0
    return rate.p / 2 if rate.difference < 0 else 1 - rate.p / 2


def chain_key(key: CaseKey) -> CaseKey:
    """The case whose turn this is, or the case itself, on its model run."""
    return chain_of(key[0]), key[1]


def _samples_to_decide(comparison: Comparison) -> int | None:
    """The fewest new samples of each case with which the loss of everything would show; ``None`` if none do."""
    for new in range(1, MAX_CONFIRM + 1):
        counts = [case.counts._replace(b=case.counts.b + new) for case in comparison.cases]
        if lowest_worse_p(counts, comparison.noise) < SECOND_STEP:
            return new
    return None


@dataclass(frozen=True, slots=True)
class SingleCase(SampledCase):
    """A case that is worse at the level of single cases, and that only its new samples can clear.

    The turns of a case count as samples of it.
    """

    @property
    def state(self) -> CaseState:
        """``passed`` if most of the new samples pass, ``broken`` if at least half fail. A tie does not clear it.

        ``unmeasured`` while those that are missing could decide either way.
        """
        if self.new.passed >= self._passes_to_clear:
            return "passed"
        return "broken" if self.new.failed >= self._failures_to_confirm else "unmeasured"

    @property
    def needed(self) -> int:
        """The smallest number of further samples that may decide; 0 if it is decided, or cannot be any more."""
        if self.state != "unmeasured":
            return 0
        left = self.planned - self.new.total
        return self.new.fewest_to_decide(self._passes_to_clear, self._failures_to_confirm, left)

    @property
    def _passes_to_clear(self) -> int:
        return self.planned // 2 + 1

    @property
    def _failures_to_confirm(self) -> int:
        return (self.planned + 1) // 2


def sampled_cases(comparison: Comparison) -> tuple[SampledCase, ...]:
    """The compared cases of B on each model run: those that have a pair without an error, and without flaky ones."""
    rows = comparison.table.stable
    measured = [row for row in rows if Verdict.ERROR not in (row.verdict_a, row.verdict_b)]
    return tuple(SampledCase(*key) for key in dict.fromkeys((row.test_id, row.label) for row in measured))


def single_cases(comparison: Comparison, confirmation: Confirmation) -> dict[CaseKey, SingleCase]:
    """The new samples of the compared cases, where the turns of a case are one case."""
    cases: dict[CaseKey, SingleCase] = {}
    for test_id, label in (case.key for case in sampled_cases(comparison)):
        key, planned = (chain_of(test_id), label), confirmation.planned((test_id, label))
        new = SampleCounts.of(confirmation.verdicts.get((test_id, label), ()))
        before = cases.get(key, SingleCase(*key))
        cases[key] = replace(before, planned=before.planned + planned, new=before.new + new)
    return cases


def can_be_sampled(comparison: Comparison) -> bool:
    """Whether B is a run of which ``--confirm`` can generate new samples of all compared cases."""
    b = comparison.b
    if why_not_continued(b) or b.info is None:
        return False
    return not why_not_generated(b.name, b.info, [case.key for case in sampled_cases(comparison)])


def why_not_continued(b: Side) -> str:
    """Why B is no run that can get new samples; empty if it is one."""
    if b.folder is None:
        return f"--confirm generates new samples of B, but {b.name} is not a run"
    if b.state != "complete":
        return f"--confirm needs a complete run B, but {b.name} is {b.state}: resume it, or run it again"
    return ""


def why_not_generated(name: str, info: RunInfo, keys: Collection[CaseKey]) -> str:
    """Why a run cannot generate and grade new samples of these cases on these model runs; empty if it can."""
    if info.graded_from is not None:
        return f"--confirm: {name} grades the outputs of {info.graded_from} and generates nothing: confirm that run"
    cases, labels = {case for case, _ in keys}, {label for _, label in keys}
    for entry in info.suite.models:
        if entry.label in labels and entry.reads_outputs:
            return (
                f"--confirm: {entry.label!r} in {name} reads existing outputs: only a model that generates can"
                " give new samples (B@LABEL selects a model run)"
            )
    suite = info.selected_suite
    for grader in suite.graders:
        recorded = [key for key, judge in suite.judges.items() if judge.is_recorded and key in grader.judge_names]
        if recorded and grader.kind.grades_cells:  # others compare the run's own outputs
            graded = (case for case in suite.cases if case.id in cases and grader.is_for(case))
            if any(grader.metrics(case) for case in graded):
                return (
                    f"--confirm: the judge {recorded[0]!r} of {name} looks up recorded answers: it has none about new"
                    " samples"
                )
    return ""
