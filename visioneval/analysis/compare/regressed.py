"""The gate ``regressed``: whether B is worse than A by more than chance, in all cases together or in one of them. Pure.

Tests are one-sided. The pass rate and the single cases share 5 %, half for each; the other metrics share 5 %. With new
samples (``compare --confirm``), each half is spent in two steps: a fifth of it on the samples of the run, and the rest
on all samples, which are generated only where the first step leaves a doubt. Whatever made the second step necessary,
both steps together fail equal runs at most as often as one would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import ALPHA, CASE_ALPHA, Difference
from visioneval.analysis.compare.must_pass import CaseKey, Confirmation, SampleCounts
from visioneval.analysis.compare.new_samples import can_be_sampled
from visioneval.analysis.compare.sampled import SampledCase, counts_of_chains, sampled_cases
from visioneval.analysis.compare.tallies.verdicts import CasePasses
from visioneval.analysis.stats.power import detectable_within
from visioneval.analysis.stats.within_cases import Counts, case_p, lowest_case_p, lowest_worse_p, worse_p
from visioneval.counted import count_of
from visioneval.defaults import MAX_CONFIRM
from visioneval.suite.turns import chain_of

State = Literal["passed", "failed", "unmeasured", "cannot_tell"]
FIRST_STEP, SECOND_STEP = 0.005, 0.02
"""One-sided levels with new samples, of the pass rate and of the single cases each: together ``CASE_ALPHA``."""
DOUBT = 0.3
"""The pass rate is in doubt up to this one-sided p. Three in ten equal runs are, and seven need no new samples."""
_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class Regression:
    """The state of the gate and why."""

    state: State
    message: str


def check_regressed(comparison: Comparison, confirmation: Confirmation | None = None) -> Regression:
    """Fails where a test shows that B is worse. Where B is worse and no test could show it, it cannot tell."""
    rate = comparison.pass_rate
    if not rate.n_pairs:
        return Regression("unmeasured", "no pair with both cells measured")
    level = CASE_ALPHA if confirmation is None else FIRST_STEP
    worse = [f"{item.name} {_size(item)} (p {item.p_holm:.2g})" for item in _worse_metrics(comparison)]
    if _one_sided(rate) < level:
        worse.insert(0, f"{rate.name} {_size(rate)} (p {rate.p:.2g})")
    cases = [case for case in comparison.cases if case.p < level]
    worse += [f"{count_of(len(cases), 'case')}: {_named(cases, comparison)}"] if cases else []
    if worse:
        return Regression("failed", ", ".join(worse))
    if confirmation is not None and (decided := _second_step(comparison, confirmation)) is not None:
        return decided
    if why := undecided(comparison):
        return Regression("cannot_tell", why)
    cases_read = count_of(rate.n_cases, "case")
    return Regression("passed", f"no regression found over {cases_read}; {_missed(rate.detectable)}")


def cases_in_doubt(comparison: Comparison) -> tuple[SampledCase, ...]:
    """The cases that broke, most of their samples passing in A and failing in B, and whose loss is not yet sure."""
    doubtful = {
        (case.test_id, case.model_label)
        for case in comparison.cases
        if case.p >= FIRST_STEP and (case.p < CASE_ALPHA or _broke(case))
    }
    return tuple(case for case in sampled_cases(comparison) if _chain(case.key) in doubtful)


def is_in_doubt(comparison: Comparison) -> bool:
    """Whether only new samples of all cases can tell if the pass rate is worse."""
    p = _one_sided(comparison.pass_rate)
    return FIRST_STEP <= p <= DOUBT or bool(undecided(comparison))


def undecided(comparison: Comparison) -> str:
    """Why a comparison in which cells broke cannot tell whether that is chance; empty if it can, or if nothing broke.

    That is so where no outcome of these cases and samples could have shown a regression, and where more than half of
    what passed broke.
    """
    rate = comparison.pass_rate
    broken = comparison.marks.breaks(same_output=False).broken
    if not broken or rate.a is None or rate.b is None or rate.b >= rate.a:
        return ""
    can_show = rate.lowest_p < ALPHA or any(_lowest(case.counts) <= CASE_ALPHA for case in comparison.cases)
    if can_show and rate.b >= rate.a / 2:
        return ""
    samples = f"{count_of(rate.n_cases, 'case')} x {count_of(round(rate.samples[1]), 'sample')}"
    what = f"{broken:,} of {count_of(rate.n_pairs, 'cell')} broke"
    needed = _samples_to_decide(comparison) if can_be_sampled(comparison) else None
    cure = f"--confirm {needed} would" if needed else "more cases would"
    if can_show:
        return f"{what}, more than half of those that passed; {samples} leave room for chance at 5 %: {cure} decide"
    return f"{what}; {samples} cannot show it at 5 %: {cure}"


def _second_step(comparison: Comparison, confirmation: Confirmation) -> Regression | None:
    """The result of all samples of what was in doubt; ``None`` if nothing was."""
    new = counts_of_chains(confirmation.verdicts, confirmation.planned)
    doubtful = dict.fromkeys(_chain(case.key) for case in cases_in_doubt(comparison))
    cases = {(case.test_id, case.model_label): case.counts for case in comparison.cases}
    turns = Counter(_chain(case.key) for case in sampled_cases(comparison))
    lacking = [key for key in cases if _measured(new.get(key)) < confirmation.planned * turns[key]]
    noise = comparison.noise
    second_ps = {key: noise.widened_of_case(case_p(_with_new(cases[key], new.get(key)))) for key in doubtful}
    confirmed = [key for key, p in second_ps.items() if key not in lacking and p * len(cases) < SECOND_STEP]
    if confirmed:
        names = ", ".join(f"{case} on {label}" for case, label in confirmed[:_MAX_NAMES])
        return Regression("failed", f"{count_of(len(confirmed), 'case')} confirmed by new samples: {names}")
    first_ps = {(case.test_id, case.model_label): case.p for case in comparison.cases}
    unsure = [key for key in doubtful if key in lacking and first_ps[key] < CASE_ALPHA]
    if unsure:
        names = ", ".join(f"{case} on {label}" for case, label in unsure[:_MAX_NAMES])
        why = f" ({confirmation.stopped})" if confirmation.stopped else ""
        return Regression("unmeasured", f"{count_of(len(unsure), 'case')} could not be confirmed{why}: {names}")
    if not is_in_doubt(comparison):
        return None
    rate, p = comparison.pass_rate, _one_sided(comparison.pass_rate)
    at_first = f"{rate.name} {_size(rate)} was in doubt (p {min(1.0, 2 * p):.2g})"
    if lacking and not confirmation.stopped:
        return Regression("cannot_tell", f"{at_first}; new samples would decide, but another gate has failed")
    if lacking:
        names = count_of(len(lacking), "case")
        return Regression("unmeasured", f"{at_first}, and {names} could not be confirmed ({confirmation.stopped})")
    counts = [_with_new(case, new.get(key)) for key, case in cases.items()]
    second = worse_p(counts, comparison.noise)
    assert second is not None
    total = sum(case.weight for case in counts)
    change = 100 * sum(case.weight * case.difference for case in counts) / total
    after = (
        f"with {count_of(confirmation.planned, 'new sample')} of each case {change:+.1f} points (p {2 * second:.2g})"
    )
    if second < SECOND_STEP:
        return Regression("failed", f"{at_first}, {after}")
    is_halved = rate.a is not None and 2 * change < -100 * rate.a
    if (lowest_worse_p(counts, noise) >= SECOND_STEP and change < 0) or is_halved:
        return Regression("cannot_tell", f"{at_first}, {after}: too few cases and samples to show it")
    samples = rate.samples[0], rate.samples[1] + confirmation.planned
    missed = detectable_within(
        rate.n_cases, rate.a or 0.0, rate.within or 0.0, samples, noise=noise, alpha=2 * SECOND_STEP
    )
    return Regression("passed", f"{at_first}, and is not confirmed: {after}; {_missed(missed)}")


def _with_new(case: Counts, new: SampleCounts | None) -> Counts:
    if new is None:
        return case
    return case._replace(b_passed=case.b_passed + new.passed, b=case.b + new.passed + new.failed)


def _measured(new: SampleCounts | None) -> int:
    return 0 if new is None else new.passed + new.failed


def _chain(key: CaseKey) -> CaseKey:
    return chain_of(key[0]), key[1]


def _broke(case: CasePasses) -> bool:
    counts = case.counts
    return 2 * counts.a_passed > counts.a and 2 * counts.b_passed < counts.b


def _one_sided(rate: Difference) -> float:
    """The one-sided p that B is worse."""
    if rate.p is None or rate.difference is None:
        return 1.0
    return rate.p / 2 if rate.difference < 0 else 1 - rate.p / 2


def _worse_metrics(comparison: Comparison) -> Sequence[Difference]:
    return [item for item in comparison.metrics if item.n_pairs and item.significant and (item.worse_by or 0) > 0]


def can_show_regression(samples: Sequence[int]) -> bool:
    """Whether two runs with these numbers of samples, of each case on each model run, could show a regression at all:
    if everything passed in A and nothing in B.
    """
    counts = [Counts(number, number, 0, number) for number in samples]
    return 2 * lowest_worse_p(counts) < ALPHA or any(lowest_case_p(case) <= CASE_ALPHA for case in counts)


def _samples_to_decide(comparison: Comparison) -> int | None:
    """The fewest new samples of each case with which the loss of everything would show; ``None`` if none do."""
    for new in range(1, MAX_CONFIRM + 1):
        counts = [case.counts._replace(b=case.counts.b + new) for case in comparison.cases]
        if lowest_worse_p(counts, comparison.noise) < SECOND_STEP:
            return new
    return None


def _lowest(counts: Counts) -> float:
    return 1 / comb(counts.a + counts.b, counts.b)


def _named(cases: Sequence[CasePasses], comparison: Comparison) -> str:
    is_run_named = len(comparison.labels) > 1
    names = [
        f"{case.test_id}{f' on {case.model_label}' if is_run_named else ''}"
        f" ({case.counts.a_passed} of {case.counts.a} -> {case.counts.b_passed} of {case.counts.b}, p {case.p:.2g})"
        for case in cases[:_MAX_NAMES]
    ]
    more = len(cases) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def _size(difference: Difference) -> str:
    value = difference.difference or 0.0
    return f"{value * 100:+.1f} points" if difference.metric.type == "bool" else f"{value:+.3g}"


def _missed(detectable: float | None) -> str:
    """Which drops of the pass rate would be missed more than one time in five."""
    if detectable is None:
        return "any drop can be missed"
    points = 100 * detectable
    size = f"{points:.0f}" if points >= 10 else f"{points:.2g}"
    return f"a drop below {size} points can be missed"
