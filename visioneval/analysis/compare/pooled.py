"""B's samples and the new ones of a confirmation, taken together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isfinite, nan
from typing import Literal

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.confirm import chain_key, single_cases
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.metrics import metric_pairs
from visioneval.analysis.compare.must_pass import Confirmation, shortened
from visioneval.analysis.compare.table import CaseKey
from visioneval.analysis.left_out import LeftOut
from visioneval.analysis.scores import number_of
from visioneval.analysis.stats.tests import Counts, Samples, lowest_p, mean_change, permutation_test
from visioneval.errors import count_of
from visioneval.suite.filters import chain_of
from visioneval.types import Score, Verdict


@dataclass(slots=True)
class NewSamples:
    """Counts the new samples of some cases.

    Of ``units`` that were generated, ``unmeasured`` are an ERROR or have ``null`` as score, and ``missing`` more were
    planned. ``lacking`` are the cases that lack any of these.
    """

    units: int = 0
    unmeasured: int = 0
    missing: int = 0
    lacking: dict[CaseKey, None] = field(default_factory=dict)

    def add(self, case: CaseKey, *, units: int, unmeasured: int, missing: int) -> None:
        """Counts the samples of a case on a model run, or of one of its turns."""
        self.units += units
        self.unmeasured += unmeasured
        self.missing += missing
        if unmeasured or missing:
            self.lacking[case] = None

    def words(self, confirmation: Confirmation) -> str:
        """``with 3 new samples of each case``, and how many of them were not measured."""
        lost = f" ({self._left_out.sentence('new sample')})" if self.unmeasured else ""
        return f"with {confirmation.of_each_case}{lost}"

    @property
    def _left_out(self) -> LeftOut:
        return LeftOut(self.unmeasured, self.units)

    def why_not_pooled(
        self, confirmation: Confirmation, granted: float
    ) -> tuple[Literal["unmeasured", "cannot_tell"], str] | None:
        """The state of a gate that is in doubt and lacks too many new samples, and why, after its numbers.

        ``None`` if it lacks few enough: as many as of the pairs of a comparison, or the share ``granted``.
        """
        cases = count_of(len(self.lacking), "case")
        if self.missing and confirmation.stopped:
            return "unmeasured", f", and {cases} could not be confirmed ({confirmation.stopped})"
        if self.missing and confirmation.failed:
            failed = " and ".join(confirmation.failed)
            return "cannot_tell", f"; only new samples of all cases can decide, and {failed} failed without them"
        if self.missing:
            return "unmeasured", f", and {cases} could not be confirmed"
        if not self.unmeasured or (self.unmeasured < self.units and not self._left_out.is_too_much(granted)):
            return None
        sentence = self._left_out.sentence("new sample", granted)
        cure = " (--allow unmeasured=RATE accepts more)" if self.unmeasured < self.units else ""
        if confirmation.stopped:
            return "unmeasured", f", and {cases} could not be confirmed ({confirmation.stopped}): {sentence}{cure}"
        is_run_named = len({label for _, label in self.lacking}) > 1
        names = shortened([f"{case} on {label}" if is_run_named else case for case, label in self.lacking])
        return "unmeasured", f", and {sentence}: {names}{cure}"


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

    @property
    def lowest_p(self) -> float:
        """The lowest ``p`` that so many samples could have had."""
        return lowest_p(self.samples)


def pooled_passes(comparison: Comparison, confirmation: Confirmation) -> PooledPasses:
    """The passes of B's samples and the new ones. The turns of a case are one case."""
    sampled, counts, new = single_cases(comparison, confirmation), dict[CaseKey, Counts](), NewSamples()
    for case in comparison.cases:
        key, before = (case.test_id, case.model_label), case.counts
        added, planned = sampled[key].new, sampled[key].planned
        counts[key] = before._replace(b_passed=before.b_passed + added.passed, b=before.b + added.measured)
        new.add(key, units=added.total, unmeasured=added.errors, missing=planned - added.total)
    return PooledPasses(counts, new)


def pooled_metrics(
    comparison: Comparison, confirmation: Confirmation, differences: Collection[Difference]
) -> list[PooledMetric]:
    """The samples of some metrics, B's own and the new ones."""
    return [_with_new(item, _turns(comparison, item.name), confirmation) for item in differences]


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


def _with_new(first: Difference, turns: Mapping[CaseKey, _Turn], confirmation: Confirmation) -> PooledMetric:
    """Adds the new samples of each case on each model run to its own, whose share of the case stays the same.

    A sample without the score is one to which the metric does not apply.
    """
    new, by_chain = NewSamples(), dict[CaseKey, list[_Turn]]()
    pairs = Counter[str]()
    for key, turn in turns.items():
        scores = list(_new_scores(first.name, key, confirmation))
        measured = {-1 - number: value for number, score in scores if (value := number_of(score)) is not None}
        missing = confirmation.planned(key) - len(confirmation.verdicts.get(key, ()))
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


def _new_scores(name: str, case: CaseKey, confirmation: Confirmation) -> Iterator[tuple[int, Score]]:
    """The scores of the new samples of a case, each with its number: ``None`` also if the sample has no verdict."""
    scores = iter(confirmation.scores.get(case, ()))
    for number, verdict in enumerate(confirmation.verdicts.get(case, ())):
        sample: Mapping[str, Score] = {name: None} if verdict is Verdict.ERROR else next(scores, {})
        if name in sample:
            yield number, sample[name]
