"""Numbers of pairs: samples of cases, pass rates by case, model run and tag, failure tags, metrics, how often they
are measured and how their grading differs. Pure.

Pairs of flaky cases do not count in differences. A pair with a side that is neither PASS nor FAIL is unmeasured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, isnan, nan
from typing import TYPE_CHECKING, NamedTuple

from visioneval.analysis.compare.differences import (
    CASE_ALPHA,
    PASS_RATE,
    PASSED,
    CaseSums,
    Difference,
    PairCounts,
    cases_difference,
    scores_difference,
)
from visioneval.analysis.compare.pairing import (
    ABSENT,
    CellPair,
    PairRow,
    Pairs,
    PairTable,
    case_numbers,
    run_verdicts,
    scores_of,
)
from visioneval.analysis.scores import WORD_SHARE
from visioneval.analysis.sides import MEASURED, Cell, Side
from visioneval.analysis.stats.basic import grouped
from visioneval.analysis.stats.tests import Counts, adjusted_case_ps
from visioneval.analysis.stats.variance import NO_NOISE, Passes, RunNoise, shared_variance
from visioneval.records.key_parts import changed_parts, key_parts
from visioneval.records.model import Fingerprint
from visioneval.suite.metrics import is_metric_of
from visioneval.types import MUST_PASS, Metric, Verdict

if TYPE_CHECKING:
    from visioneval.analysis.compare.pairing import Flags, Numbers

_PARTS = {"rules": "verdict rules", "case": "prompt, criteria, expect, tags or metadata of the case"}
_PARTS |= {"optional": "optional graders", "metrics": "computed metrics"}
_PARTS |= {"images": "input images", "masks": "masks", "reference": "reference image"}
_HASH_LENGTH = 12
HASHED_PARTS = {"config": "options of the grader", "schema": "form of the judge's reply", "template": "judge template"}
"""The parts of a fingerprint whose values are hashes, in words."""


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """The samples of a case on one model run, by verdict."""

    passed: int = 0
    failed: int = 0
    errors: int = 0

    @classmethod
    def of(cls, verdicts: Sequence[Verdict | None]) -> SampleCounts:
        """Counts verdicts."""
        return cls(verdicts.count(Verdict.PASS), verdicts.count(Verdict.FAIL), verdicts.count(Verdict.ERROR))

    @property
    def measured(self) -> int:
        """The samples with a verdict."""
        return self.passed + self.failed

    @property
    def total(self) -> int:
        """All samples, measured or not."""
        return self.measured + self.errors

    def fewest_to_decide(self, passes: int, failures: int, left: int) -> int:
        """The smallest number of further samples that may reach one of these counts; 0 if ``left`` do not."""
        fewest = min(passes - self.passed, failures - self.failed)
        return fewest if fewest <= left else 0

    def __add__(self, other: SampleCounts) -> SampleCounts:
        return SampleCounts(self.passed + other.passed, self.failed + other.failed, self.errors + other.errors)


NO_SAMPLES = SampleCounts()


@dataclass(slots=True)
class TaggedCase:
    """The samples of a case on one model run, those of A in all of its runs.

    ``must_pass`` is as either side says, ``flaky`` as A says.
    """

    a: SampleCounts = NO_SAMPLES
    b: SampleCounts = NO_SAMPLES
    is_in_a: bool = False
    is_in_b: bool = False
    must_pass: bool = False
    flaky: bool = False

    def add(self, a: Cell | None, b: Cell | None) -> None:
        """Counts a sample of the case that is on both sides, or on one."""
        if a is not None:
            self.is_in_a = True
            self.a += SampleCounts.of(run_verdicts(a))
            self.flaky |= a.flaky
        if b is not None:
            self.is_in_b = True
            self.b += SampleCounts.of((b.verdict,))
        self.must_pass |= any(cell is not None and MUST_PASS in cell.tags for cell in (a, b))


class CasePasses(NamedTuple):
    """The passes of a case on a model run. ``p`` is one-sided, for B being worse, and adjusted for all cases."""

    test_id: str
    model_label: str
    counts: Counts
    p: float


def passes_of_runs(cells: Iterable[tuple[Hashable, Sequence[Verdict | None]]]) -> list[list[Passes]]:
    """The passes of each case in each run, for the cases that all runs measured.

    ``cells`` have their case, and their verdict in each run, ``None`` in a run that lacks them.
    """
    cases: dict[Hashable, list[Passes]] = {}
    for case, verdicts in cells:
        before = cases.get(case, [(0, 0)] * len(verdicts))
        cases[case] = [
            (passed + (verdict is Verdict.PASS), measured + (verdict in MEASURED))
            for (passed, measured), verdict in zip(before, verdicts, strict=True)
        ]
    return [runs for runs in cases.values() if all(measured for _, measured in runs)]


def pass_rate(rows: Sequence[PairRow], noise: RunNoise, name: str = PASS_RATE) -> Difference:
    """The difference of the pass rate over rows that are not flaky."""
    measured = [row for row in rows if row.is_measured]
    strata = _strata(measured)
    cases = grouped((case, counts) for (case, _), counts in strata.items())
    sums = []
    for of_case in cases.values():
        before = fsum(item.b * item.a_passed / item.a for item in of_case)
        passed, pairs = sum(item.b_passed for item in of_case), sum(item.b for item in of_case)
        sums.append(CaseSums(pairs, before, passed - before))
    higher = sum(row.verdict_b is Verdict.PASS and row.verdict_a is not Verdict.PASS for row in measured)
    lower = sum(row.verdict_a is Verdict.PASS and row.verdict_b is not Verdict.PASS for row in measured)
    numbers = PairCounts(higher, lower, len(rows) - len(measured))
    return cases_difference(name, PASSED, sums, numbers, list(strata.values()), noise)


def pass_rates_by(
    rows: Sequence[PairRow], noise: RunNoise, names_of: Callable[[PairRow], Iterable[str]]
) -> tuple[Difference, ...]:
    """The differences of the pass rates of groups of rows, such as those of a tag, in the order of their first rows."""
    groups = grouped((name, row) for row in rows for name in names_of(row))
    return tuple(pass_rate(group, noise, name) for name, group in groups.items())


def passes_by_case(rows: Iterable[PairRow], noise: RunNoise) -> tuple[CasePasses, ...]:
    """The passes of each case on each model run, by the label in B. The turns of a case are one case."""
    strata = _strata(row for row in rows if row.is_measured)
    p_values = adjusted_case_ps(list(strata.values()), CASE_ALPHA, noise)
    return tuple(CasePasses(*key, counts, p) for (key, counts), p in zip(strata.items(), p_values, strict=True))


def _strata(measured: Iterable[PairRow]) -> dict[tuple[str, str], Counts]:
    """The passes of both sides, by case and model run: those of all runs of A.

    In the mean over cases, a stratum weighs its share of the pairs of its case.
    """
    strata: dict[tuple[str, str], list[int]] = {}
    pairs: Counter[str] = Counter()
    for row in measured:
        counts = strata.setdefault((row.case, row.label), [0, 0, 0, 0])
        passed = row.run_verdicts.count(Verdict.PASS)
        counts[0] += passed
        counts[1] += passed + row.run_verdicts.count(Verdict.FAIL)
        counts[2] += row.verdict_b is Verdict.PASS
        counts[3] += 1
        pairs[row.case] += 1
    return {
        (case, label): Counts(passed_a, of_a, passed_b, of_b, weight=of_b / pairs[case])
        for (case, label), (passed_a, of_a, passed_b, of_b) in strata.items()
    }


def shares_by_failure_tag(rows: Sequence[PairRow]) -> Iterator[Difference]:
    """The differences of the shares of cells with a failure tag, most frequent tags first."""
    import numpy as np

    frequency = Counter(tag for row in rows for tags in row.failure_tags for tag in tags)
    for tag in sorted(frequency, key=lambda tag: (-frequency[tag], tag)):
        scores = [[float(tag in tags) if row.is_measured else nan for tags in row.failure_tags] for row in rows]
        a, b = np.array(scores).T
        yield scores_difference(tag, Metric(type="bool", better="lower"), (case_numbers(rows), a, b))


@dataclass(frozen=True, slots=True)
class MetricCoverage:
    """The pairs in which B has an output, and by metric, in how many of their cells of A and of B it is measured.

    ``left_out`` are by metric the pairs of its difference that lack the score on a side, without those with an error on
    both sides and those of flaky cases. ``other_tags`` are by metric the cases whose tags differ where it reads them.
    """

    pairs_with_output: int
    measured: Mapping[str, tuple[int, int]]
    left_out: Mapping[str, int] = field(default_factory=dict)
    other_tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricPairs:
    """A metric in each pair: scores of both sides and of each run of A (by run), nan for null, else ``ABSENT``.

    ``compared`` are the pairs of its difference: both have it, or ``null`` for it. Flaky cases are not compared, nor is
    how well counter-examples match their prompts. ``other_tags`` are pairs that have both, and one of the tags that the
    metric reads on one side only: it has two meanings there. ``left_out`` are those that lack a score.
    """

    a: Numbers
    b: Numbers
    of_runs: Numbers
    compared: Flags
    other_tags: Flags
    left_out: Flags

    @property
    def measured(self) -> Flags:
        """Those of the compared pairs that have a score on both sides."""
        import numpy as np

        return self.compared & ~(np.isnan(self.a) | np.isnan(self.b))


def metric_pairs(table: PairTable, name: str, tags: frozenset[str]) -> MetricPairs:
    """A metric that reads these tags."""
    import numpy as np

    at = table.metrics.index(name)
    a, b = table.scores_a[at], table.scores_b[at]
    has_a, has_b, is_stable = a != ABSENT, b != ABSENT, ~table.flags(lambda row: row.flaky)
    is_counted = ~table.flags(lambda row: is_metric_of(name, row.match_keys))
    is_changed = table.flags(lambda row: bool(tags) and not tags.isdisjoint({*row.tags[0]} ^ {*row.tags[1]}))
    other_tags = has_a & has_b & is_changed
    # null, or missing because the cell ended before it was graded: else the metric does not apply
    lacks_a = np.isnan(a) | (~has_a & table.flags(lambda row: row.no_output_a))
    lacks_b = np.isnan(b) | (~has_b & table.flags(lambda row: row.no_output_b))
    is_lost = (has_a | has_b) & (lacks_a | lacks_b) & is_counted
    is_error_in_both = table.flags(lambda row: row.change == "still_error")
    return MetricPairs(
        a,
        b,
        table.run_scores[:, at],
        compared=has_a & has_b & is_stable & is_counted & ~other_tags,
        other_tags=other_tags,
        left_out=(other_tags | is_lost) & is_stable & ~is_error_in_both,
    )


def metric_differences(
    table: PairTable, pairs: Pairs, metrics: Mapping[str, Metric], tags: Mapping[str, frozenset[str]]
) -> tuple[list[Difference], list[Difference], MetricCoverage]:
    """The differences of the metrics that a pair has on both sides, also if it is compared in none, and those of the
    shares of words, of metrics that are one word of a list.

    ``tags`` are those that each metric reads. Without an output, nothing can be measured: such a cell counts as an
    error, not as one that lacks metrics.
    """
    import numpy as np

    case, has_output, differences = case_numbers(table.rows), ~table.flags(lambda row: row.no_output_b), []
    shares: list[Difference] = []
    measured, left_out, other_tags = dict[str, tuple[int, int]](), dict[str, int](), dict[str, tuple[str, ...]]()
    for name in table.metrics:
        of = metric_pairs(table, name, tags[name])
        measured[name] = int((has_output & np.isfinite(of.a)).sum()), int((has_output & np.isfinite(of.b)).sum())
        left_out[name] = int(of.left_out.sum())
        if of.other_tags.any():
            other_tags[name] = pairs.take(np.flatnonzero(of.other_tags).tolist()).columns.used_cases
        compared, b, of_runs = case[of.compared], of.b[of.compared], of.of_runs[:, of.compared]
        for code, share in enumerate(metrics[name].share_names(name).values()):
            has_word = _has(of_runs, code)
            runs = np.isfinite(has_word).sum(axis=0)
            mean_a = np.where(runs, np.nansum(has_word, axis=0) / np.maximum(runs, 1), nan)
            noise = _noise_of_runs(compared, has_word)
            shares.append(scores_difference(share, WORD_SHARE, (compared, mean_a, _has(b, code)), noise))
        if metrics[name].choices:
            continue
        scores = compared, of.a[of.compared], b
        difference = scores_difference(name, metrics[name], scores, _noise_of_runs(compared, of_runs))
        if difference.n_pairs or difference.unmeasured or name in other_tags:
            differences.append(difference)
    return differences, shares, MetricCoverage(int(has_output.sum()), measured, left_out, other_tags)


def _has(codes: Numbers, code: int) -> Numbers:
    """1 where a word is the one of a code, and 0 where it is another; nan without one."""
    import numpy as np

    return np.where(np.isfinite(codes), codes == code, nan)


def _noise_of_runs(case: Numbers, scores: Numbers) -> RunNoise:
    """What the scores of the runs of A have in common, over the cases that all of them measured."""
    import numpy as np

    if len(scores) == 1 or not len(case):
        return NO_NOISE
    _, case = np.unique(case, return_inverse=True)
    numbers = np.stack([np.bincount(case, np.isfinite(of_run)) for of_run in scores])
    totals = np.stack([np.bincount(case, np.where(np.isfinite(of_run), of_run, 0.0)) for of_run in scores])
    is_known = numbers.all(axis=0)
    means = (totals[:, is_known] / numbers[:, is_known]).T.tolist()
    return RunNoise(len(scores), shared_variance(means)) if len(means) > 1 else NO_NOISE


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum in USD or a mean in seconds, over the pairs in which both sides have a value."""

    a: float | None
    b: float | None
    pairs: int


def amount(amounts: Sequence[tuple[float, float]], *, is_mean: bool) -> Amount:
    """The sums, or the means, of the amounts of both sides. Sums are exact."""
    if not amounts:
        return Amount(None, None, 0)
    share = len(amounts) if is_mean else 1
    a, b = (fsum(side) / share for side in zip(*amounts, strict=True))
    return Amount(a, b, len(amounts))


@dataclass(frozen=True, slots=True)
class Alignment:
    """The scores, 0 to 100, of both sides of the pair at a position, by one alignment grader."""

    position: int
    grader: str
    a: float | None
    b: float | None


def alignments_of(table: PairTable, pairs: Pairs, graders: Sequence[str]) -> list[Alignment]:
    """The alignment of every pair that one of these graders graded on both sides, the largest losses first."""
    alignments = []
    for key in graders:
        scores: Iterable[tuple[float, ...]]
        if key in table.metrics:
            at = table.metrics.index(key)
            scores = zip(table.scores_a[at].tolist(), table.scores_b[at].tolist(), strict=True)
        else:  # it is not compared, so the table leaves it out
            scores = ((*scores_of(pair.a, (key,)), *scores_of(pair.b, (key,))) for pair in pairs)
        for position, both in enumerate(scores):
            if ABSENT not in both:
                alignments.append(Alignment(position, key, *(None if isnan(score) else float(score) for score in both)))
    return sorted(alignments, key=lambda item: (item.b or 0.0) - (item.a or 0.0))


@dataclass(slots=True)
class GradingDifference:
    """A metric's grading differs in ``what`` in ``pairs`` pairs. ``a`` and ``b`` are the values of one pair."""

    metric: str
    what: str
    a: str
    b: str
    pairs: int = 0


class Gradings:
    """Compares how the cells of each pair were graded."""

    def __init__(self) -> None:
        """No pairs."""
        self._parts: dict[str, GradingDifference] = {}
        """By the part of grading keys that differs, of the parts that do not belong to a grader."""
        self._graders: dict[str, dict[str, GradingDifference]] = {}
        """By grader, and by what differs in its fingerprints."""

    def add(self, pair: CellPair) -> None:
        """Compares a pair."""
        a, b = pair.a, pair.b
        if a.grade_key != b.grade_key and a.grade_key and b.grade_key:
            before, after = key_parts(a.grade_key), key_parts(b.grade_key)
            for part, what in _PARTS.items():
                if before.get(part) != after.get(part):
                    new = GradingDifference(PASS_RATE, what, before.get(part, "none"), after.get(part, "none"))
                    self._parts.setdefault(part, new).pairs += 1
        fingerprints = {grader.key: grader.fingerprint for grader in a.graders}
        for grader in b.graders:
            first = fingerprints.get(grader.key)
            if first is not None and first != grader.fingerprint:
                differences = self._graders.setdefault(grader.key, {})
                for what, value_a, value_b in _changed_fields(first, grader.fingerprint):
                    new = GradingDifference(grader.key, what, value_a, value_b)
                    differences.setdefault(what, new).pairs += 1

    def differences(self, metrics: Sequence[str], a: Side, b: Side) -> Iterator[GradingDifference]:
        """The differences by metric. Verdict rules and case data are listed under ``pass_rate``."""
        yield from (self._parts[part] for part in _PARTS if part in self._parts)
        writers = {**a.writers, **b.writers}
        for metric in metrics:
            is_computed = metric in a.sources or metric in b.sources
            sources = (*a.sources.get(metric, ()), *b.sources.get(metric, ())) if is_computed else (metric,)
            for key in dict.fromkeys(writers.get(name, name.partition(".")[0]) for name in sources):
                for difference in self._graders.get(key, {}).values():
                    yield replace(difference, metric=metric)


def grading_changes(a: Cell, b: Cell) -> Iterator[str]:
    """What differs in how both cells of a pair were graded, such as ``verdict rules`` or ``text: version 1 -> 2``."""
    if a.grade_key != b.grade_key and a.grade_key and b.grade_key:
        changed = changed_parts(a.grade_key, b.grade_key)
        yield from (what for part, what in _PARTS.items() if part in changed)
    fingerprints = {grader.key: grader.fingerprint for grader in a.graders}
    for grader in b.graders:
        first = fingerprints.get(grader.key)
        if first is not None and first != grader.fingerprint:
            for what, value_a, value_b in _changed_fields(first, grader.fingerprint):
                yield f"{grader.key}: {HASHED_PARTS.get(what, f'{what} {value_a} -> {value_b}')}"


def _changed_fields(before: Fingerprint, after: Fingerprint) -> Iterator[tuple[str, str, str]]:
    """Compares versions, and fields that both fingerprints have. A judge that only one side asked is no difference."""
    fields = (
        ("version", before.version or "none", after.version or "none"),
        ("judge model", before.judge_model, after.judge_model),
        ("template", _short_hash(before.template_sha256), _short_hash(after.template_sha256)),
        ("schema", _short_hash(before.schema_sha256), _short_hash(after.schema_sha256)),
        ("config", _short_hash(before.config_sha256), _short_hash(after.config_sha256)),
    )
    yield from ((what, a, b) for what, a, b in fields if a and b and a != b)
    tools = before.tool_versions
    yield from (
        (f"{name} version", tools[name], b) for name, b in after.tool_versions.items() if tools.get(name, b) != b
    )


def _short_hash(digest: str | None) -> str:
    return (digest or "")[:_HASH_LENGTH]
