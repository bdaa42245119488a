"""The gate ``regressed``: whether B is worse than A by more than chance, in all cases together or in one of them. Pure.

Tests are one-sided. The pass rate and the single cases share 5 %, half for each; the other metrics share 5 %. With new
samples (``compare --confirm``), that of the pass rate and that of the metrics are spent in two steps: a fifth on the
samples of the run, and the rest on all samples, which are generated only where the first step leaves a doubt. Whatever
made the second step necessary, both steps together fail equal runs at most as often as one would. Single cases are
tested once, as without new samples: those that are worse, but not at a fifth of their level, are cleared where most of
their new samples pass. So they fail no more often than without, and nothing but a passing sample clears them.

Each test, and its level:

- pass rate: within cases: B's samples of a case against A's (conditional, mid-p); .025
- single cases: each case with several samples (Fisher), adjusted over all cases (Holm, Tarone): 8 of 8 to 0 of 8 is a
  regression among 200 cases too; .025
- metrics: the paired test of the table, adjusted over all metrics (Holm, Tarone); .05, two-sided
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, isfinite, nan
from typing import Literal, NamedTuple

from visioneval.analysis.compare.compare import MAX_NAMES, Comparison, shortened
from visioneval.analysis.compare.confirm import (
    Confirmation,
    NewSamples,
    SampledCase,
    SingleCase,
    can_be_sampled,
    chain_key,
    sampled_cases,
    single_cases,
)
from visioneval.analysis.compare.differences import (
    ALPHA,
    CASE_ALPHA,
    Difference,
    missed_text,
    one_sided,
    points_text,
)
from visioneval.analysis.compare.metrics import CasePasses, metric_pairs
from visioneval.analysis.compare.pairing import CaseKey
from visioneval.analysis.scores import number_of
from visioneval.analysis.stats.tests import (
    Counts,
    Samples,
    lowest_case_p,
    lowest_p,
    lowest_worse_p,
    mean_change,
    permutation_test,
    worse_p,
)
from visioneval.analysis.stats.variance import NO_NOISE, RunNoise, detectable_within
from visioneval.errors import count_of
from visioneval.rules import is_true, show_beside
from visioneval.settings import MAX_CONFIRM
from visioneval.suite.filters import chain_of, show_size, turns_of
from visioneval.types import Verdict

FIRST_STEP, SECOND_STEP = 0.005, 0.02
"""One-sided levels with new samples of the pass rate: together half of ``ALPHA``. A single case that is worse at
``FIRST_STEP`` fails without any, and new samples may clear one that is worse only at ``CASE_ALPHA``."""
METRICS_FIRST_STEP, METRICS_SECOND_STEP = 0.01, 0.04
"""Two-sided levels with new samples, of all metrics together: together ``ALPHA``. Only half of each can fail a gate."""
DOUBT = 0.3
"""The pass rate is uncertain up to this one-sided p, and a metric up to this adjusted p. Three in ten equal runs are by
their pass rate, and seven need no new samples."""
_FEWEST_CASES = 3
"""With fewer cases, no metric has an adjusted p up to ``DOUBT``."""

State = Literal["passed", "failed", "unmeasured", "cannot_tell"]
_WORST_FIRST: tuple[State, ...] = ("failed", "unmeasured", "cannot_tell", "passed")
_STATES: dict[str, State] = {"passed": "passed", "broken": "failed", "unmeasured": "unmeasured"}
"""By the state of a single case."""


def cases_in_doubt(comparison: Comparison) -> tuple[CasePasses, ...]:
    """The single cases that are worse at their level, and not so surely that new samples cannot clear them."""
    return tuple(case for case in comparison.cases if FIRST_STEP <= case.p < CASE_ALPHA)


def samples_in_doubt(comparison: Comparison) -> tuple[SampledCase, ...]:
    """What decides about the single uncertain cases. A case with turns needs all new samples of each of them."""
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
    sampled = [case.key for case in sampled_cases(comparison)]
    turns = Counter((chain_of(test_id), label) for test_id, label in sampled)
    labels = {label for _, label in sampled}
    each = round(sum(case.counts.b for case in comparison.cases) / len(sampled))
    runs = f" x {count_of(len(labels), 'model run')}" if len(labels) > 1 else ""
    size = show_size(rate.n_cases, turns_of({test_id for test_id, _ in sampled}), each) + runs
    what = f"{broken:,} of {count_of(rate.n_pairs, 'cell')} broke"

    def decides(new: int) -> bool:
        counts = [
            case.counts._replace(b=case.counts.b + new * turns[case.test_id, case.model_label])
            for case in comparison.cases
        ]
        return lowest_worse_p(counts, comparison.noise) < SECOND_STEP

    # the fewest new samples of each case with which the loss of everything would show
    needed = next(filter(decides, range(1, MAX_CONFIRM + 1)), None) if can_be_sampled(comparison) else None
    cure = f"{count_of(needed, 'new sample')} of each in B (--confirm {needed})" if needed else "more cases"
    if can_show:
        return f"{what}, more than half of those that passed; {size} leave room for chance at 5 %: {cure} would decide"
    return f"{what}; {size} cannot show it at 5 %: {cure} would"


def can_show_regression(samples: Sequence[int]) -> bool:
    """Whether two runs with these numbers of samples, of each case on each model run, could show a regression."""
    return _can_show([Counts(number, number, 0, number) for number in samples])


def _can_show(cases: Sequence[Counts], noise: RunNoise = NO_NOISE) -> bool:
    """Whether these numbers of samples could show a regression at all: if everything passed in A and nothing in B."""
    lost = (case._replace(a_passed=case.a, b_passed=0) for case in cases)
    return 2 * lowest_worse_p(cases, noise) < ALPHA or any(lowest_case_p(case) <= CASE_ALPHA for case in lost)


@dataclass(frozen=True, slots=True)
class PooledPasses:
    """The passes of each case on each model run, with the new samples."""

    counts: Mapping[CaseKey, Counts]
    new: NewSamples

    @property
    def change(self) -> float:
        """By how much the pass rate of B is higher, in -1..1: the mean over cases."""
        total = fsum(case.weight for case in self.counts.values())
        return fsum(case.weight * case.difference for case in self.counts.values()) / total


@dataclass(frozen=True, slots=True)
class PooledMetric:
    """The samples of a metric, with the new ones, by case and model run. ``first`` is its difference without these."""

    first: Difference
    samples: Sequence[Samples]
    new: NewSamples

    @property
    def change(self) -> float:
        """By how much B is higher: the mean over cases of the difference within the case."""
        return mean_change(self.samples)

    @property
    def is_worse(self) -> bool:
        """Whether B is worse, by chance or not."""
        return self.change < 0 if self.first.metric.better == "higher" else self.change > 0

    def p(self, tests: int) -> float:
        """The one-sided p-value, as one of some ``tests``, that B is worse only by chance."""
        sign = 1 if self.first.metric.better == "higher" else -1
        signed = [item._replace(weights=[sign * weight for weight in item.weights]) for item in self.samples]
        p, variance = permutation_test(signed, tests)
        return self.first.noise.widened(p, variance) if variance else p


def pooled_passes(comparison: Comparison, confirmation: Confirmation) -> PooledPasses:
    """The passes of B's samples and the new ones. The turns of a case are one case."""
    sampled, counts, new = single_cases(comparison, confirmation), dict[CaseKey, Counts](), NewSamples()
    for case in comparison.cases:
        key, before = (case.test_id, case.model_label), case.counts
        added, planned = sampled[key].new, sampled[key].planned
        counts[key] = before._replace(b_passed=before.b_passed + added.passed, b=before.b + added.measured)
        new.add(key, units=added.total, unmeasured=added.errors, missing=planned - added.total)
    return PooledPasses(counts, new)


@dataclass(slots=True)
class _Turn:
    """The samples of a case, or of one of its turns, on a model run: the score of each by its number."""

    pairs: int = 0
    a: dict[tuple[int, int], float] = field(default_factory=dict)
    """By run of a baseline, and number of the sample."""
    b: dict[int, float] = field(default_factory=dict)
    """By number of the sample. Those of new ones are negative."""


def _turns(comparison: Comparison, name: str) -> dict[CaseKey, _Turn]:
    """The samples that a metric compares and that have a score on both sides."""
    metric = metric_pairs(comparison.table, name, comparison.metric_tags[name])
    measured = metric.measured
    turns: dict[CaseKey, _Turn] = {}
    names = comparison.pairs.take(measured.nonzero()[0].tolist()).columns.names()
    scores = zip(metric.b[measured].tolist(), metric.of_runs[:, measured].T.tolist(), strict=True)
    for (test_id, label, sample), (score_b, scores_a) in zip(names, scores, strict=True):
        turn = turns.setdefault((test_id, label), _Turn())
        turn.pairs += 1
        turn.b[sample] = score_b
        for run, score in enumerate(scores_a):
            if isfinite(score):
                turn.a[run, sample] = score
    return turns


def pooled_metric(comparison: Comparison, confirmation: Confirmation, first: Difference) -> PooledMetric:
    """The samples of a metric, B's own and the new ones of each case on each model run, whose share of the case stays.

    A sample without the score is one to which the metric does not apply.
    """
    new, by_chain = NewSamples(), dict[CaseKey, list[_Turn]]()
    pairs = Counter[str]()
    for key, turn in _turns(comparison, first.name).items():
        verdicts, scored = confirmation.verdicts.get(key, ()), iter(confirmation.scores.get(key, ()))
        # a sample without a verdict has no score
        samples_of = [{first.name: None} if item is Verdict.ERROR else next(scored, {}) for item in verdicts]
        scores = [(number, sample[first.name]) for number, sample in enumerate(samples_of) if first.name in sample]
        measured = {-1 - number: value for number, score in scores if (value := number_of(score)) is not None}
        missing = confirmation.planned(key) - len(verdicts)
        new.add(chain_key(key), units=len(scores), unmeasured=len(scores) - len(measured), missing=missing)
        turn.b |= measured
        pairs[chain_of(key[0])] += turn.pairs
        by_chain.setdefault(chain_key(key), []).append(turn)
    samples = []
    for (case, _), of_chain in by_chain.items():
        rows_a = dict.fromkeys(row for turn in of_chain for row in turn.a)
        rows_b = dict.fromkeys(row for turn in of_chain for row in turn.b)
        a = [[turn.a.get(row, nan) for turn in of_chain] for row in rows_a]
        b = [[turn.b.get(row, nan) for turn in of_chain] for row in rows_b]
        samples.append(Samples(a, b, [turn.pairs / pairs[case] / len(pairs) for turn in of_chain]))
    return PooledMetric(first, samples, new)


class Regression(NamedTuple):
    """The state of the gate and why."""

    state: State
    message: str


def check_regressed(
    comparison: Comparison, confirmation: Confirmation | None = None, granted: float = 0.0
) -> Regression:
    """Fails where a test shows that B is worse. Where B is worse and no test could show it, it cannot tell.

    ``granted`` is the share of the new samples that may lack a number.
    """
    rate = comparison.pass_rate
    if not rate.n_pairs:
        return Regression("unmeasured", "no pair with both cells measured")
    level, metrics_level = (CASE_ALPHA, ALPHA) if confirmation is None else (FIRST_STEP, METRICS_FIRST_STEP)
    worse = [
        f"{item.name} {_size(item)} (p {item.p_holm:.2g})"
        for item in comparison.metrics
        if item.n_pairs and item.p_holm is not None and item.p_holm < metrics_level and (item.worse_by or 0) > 0
    ]
    if one_sided(rate) < level:
        worse.insert(0, f"{rate.name} {_size(rate)} (p {rate.p:.2g})")
    cases = [case for case in comparison.cases if case.p < level]
    if cases:
        worse.append(f"{count_of(len(cases), 'case')}: {shortened([_name(case, comparison) for case in cases])}")
    if worse:
        return Regression("failed", ", ".join(worse))
    if confirmation is not None and (decided := _second_step(comparison, confirmation, granted)) is not None:
        return decided
    if why := undecided(comparison):
        return Regression("cannot_tell", why)
    cases_read = count_of(rate.n_cases, "case")
    return Regression("passed", f"no regression found over {cases_read}; {missed_text(rate.detectable)}")


def _second_step(comparison: Comparison, confirmation: Confirmation, granted: float) -> Regression | None:
    """The result of all samples of what was uncertain, and of what was not but is worse by all samples; else ``None``.

    The level of a number is that of its test by all samples, whatever made these necessary.
    """
    doubtful = cases_in_doubt(comparison)
    cases = [_cases_again(doubtful, comparison, confirmation)] if doubtful else []
    rate = list(_rate_again(comparison, confirmation, granted))
    found_again = [*cases, *rate, *_metrics_again(comparison, confirmation, granted)]
    if not found_again:
        return None
    state = next(state for state in _WORST_FIRST if any(item.state == state for item in found_again))
    messages = [item.message for item in found_again if item.state == state or item in cases]
    more = len(messages) - MAX_NAMES
    message = "; ".join(messages[:MAX_NAMES]) + (f"; and {more:,} more" if more > 0 else "")
    if state == "passed" and not rate:
        message += f"; {missed_text(comparison.pass_rate.detectable)}"
    return Regression(state, message)


def _cases_again(doubtful: Sequence[CasePasses], comparison: Comparison, confirmation: Confirmation) -> Regression:
    """How single uncertain cases ended, by their new samples alone."""
    sampled = single_cases(comparison, confirmation)
    judged = [(case, sampled[case.test_id, case.model_label]) for case in doubtful]
    judged.sort(key=lambda item: _WORST_FIRST.index(_STATES[item[1].state]))
    state = _STATES[judged[0][1].state]
    endings = {"passed": "not confirmed", "broken": "confirmed", "unmeasured": "could not be confirmed"}
    listed = []
    for case, single in judged[:MAX_NAMES]:
        new = f"{single.new.failed} of {single.new.measured} failed" if single.new.measured else "none measured"
        listed.append(f"{_name(case, comparison)}; new samples: {new}: {endings[single.state]}")
    more = len(judged) - len(listed)
    message = f"{count_of(len(judged), 'case')} {'was' if len(judged) == 1 else 'were'} uncertain: {'; '.join(listed)}"
    message += f"; and {more:,} more" if more else ""
    if confirmation.stopped and any(single.state == "unmeasured" for _, single in judged):
        message += f" ({confirmation.stopped})"
    return Regression(state, message)


def _rate_again(comparison: Comparison, confirmation: Confirmation, granted: float) -> Iterator[Regression]:
    """Whether the pass rate is worse by all samples. Nothing where it was not in doubt and is not."""
    passes = pooled_passes(comparison, confirmation)
    rate, noise, counts = comparison.pass_rate, comparison.noise, list(passes.counts.values())
    is_doubtful = is_rate_in_doubt(comparison)
    first_p = min(1.0, 2 * one_sided(rate))
    at_first = f"{rate.name} {_size(rate)} was uncertain ({_beside_level(first_p, 2 * FIRST_STEP)})"
    if (lack := passes.new.why_not_pooled(confirmation, granted)) is not None:
        if is_doubtful:
            yield Regression(lack[0], at_first + lack[1])
        return
    second = worse_p(counts, noise)
    assert second is not None
    change, p = passes.change, _beside_level(min(1.0, 2 * second), 2 * SECOND_STEP)
    after = f"{passes.new.words(confirmation)} {points_text(change)} ({p})"
    is_halved = rate.a is not None and is_true(-2 * change, ">=", rate.a)
    samples = rate.samples[0], sum(case.b for case in counts) / rate.n_cases
    missed = detectable_within(
        rate.n_cases, rate.a or 0.0, rate.within or 0.0, samples, noise=noise, alpha=2 * SECOND_STEP
    )
    if second < SECOND_STEP:
        yield Regression("failed", f"{at_first}, {after}" if is_doubtful else f"{rate.name} {after}")
    elif is_doubtful:
        is_too_few = change < 0 and (is_halved or lowest_worse_p(counts, noise) >= SECOND_STEP)
        yield _not_confirmed(at_first, after, f"; {missed_text(missed)}", is_too_few=is_too_few)


def _not_confirmed(at_first: str, after: str, missed: str, *, is_too_few: bool) -> Regression:
    """The result of what was uncertain and is not worse at its level by all samples."""
    if is_too_few:
        return Regression("cannot_tell", f"{at_first}, {after}: too few cases and samples to show it")
    return Regression("passed", f"{at_first}, and is not confirmed: {after}{missed}")


def _metrics_again(comparison: Comparison, confirmation: Confirmation, granted: float) -> Iterator[Regression]:
    """Whether each metric is worse by all samples, by Bonferroni. Nothing of one that was not in doubt and is not."""
    doubtful = {item.name for item in metrics_in_doubt(comparison)}
    if not doubtful and not any(confirmation.scores.values()):
        return
    tested = tested_again(comparison)
    for first in tested:
        item, is_doubtful = pooled_metric(comparison, confirmation, first), first.name in doubtful
        first_p = 1.0 if first.p_holm is None else first.p_holm
        at_first = f"{first.name} {_size(first)} was uncertain ({_beside_level(first_p, METRICS_FIRST_STEP)})"
        if (lack := item.new.why_not_pooled(confirmation, granted)) is not None:
            if is_doubtful:
                yield Regression(lack[0], at_first + lack[1])
            continue
        is_worse = item.is_worse
        p = min(1.0, 2 * len(tested) * item.p(len(tested))) if is_worse else 1.0
        size = _size(replace(first, difference=item.change))
        after = f"{item.new.words(confirmation)} {size} ({_beside_level(p, METRICS_SECOND_STEP)})"
        if p < METRICS_SECOND_STEP:
            yield Regression("failed", f"{at_first}, {after}" if is_doubtful else f"{first.name} {after}")
        elif is_doubtful:
            can_show = 2 * len(tested) * lowest_p(item.samples) < METRICS_SECOND_STEP
            yield _not_confirmed(at_first, after, "", is_too_few=is_worse and first_p < ALPHA and not can_show)


def _beside_level(p: float, level: float) -> str:
    """``p 0.046, not below 0.04``."""
    return f"p {show_beside(p, level, 2)}, {'below' if p < level else 'not below'} {level:g}"


def _name(case: CasePasses, comparison: Comparison) -> str:
    counts, label = case.counts, f" on {case.model_label}" if len(comparison.labels) > 1 else ""
    passes = f"{counts.a_passed} of {counts.a} -> {counts.b_passed} of {counts.b}"
    return f"{case.test_id}{label} ({passes}, p {case.p:.2g})"


def _size(difference: Difference) -> str:
    value = difference.difference or 0.0
    return points_text(value) if difference.metric.type == "bool" else f"{value:+.3g}"
