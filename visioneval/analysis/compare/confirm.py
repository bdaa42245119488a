"""Cases tagged ``must_pass``, and new samples of a comparison (``compare --confirm``): which cases can get them,
whether a run can give any, and what they decide. Pure.

A judge turns some verdicts round by chance. With one verdict per sample, more samples would mean more false alarms;
with a majority, they mean fewer. What leaves a doubt is a matter of the gate: that of ``regressed`` is in
``regressed.py``.

What is uncertain, and what decides it, by gate:

- ``must_pass``: each case that broke. Most of its own and new samples decide: `broke: boat (failed 4 of 5)`, or
  `broke, but new samples did not confirm it: boat (failed 1 of 4)`
- ``regressed``, single cases: an adjusted p from .005 to .025; below, the case fails at once. In doubt, it
  fails unless most of its new samples pass; a tie does not clear it. A case with turns gets all, which count together
- ``regressed``, pass rate: one-sided p from .005 to .3, or the gate could not tell. Two steps: .005 by the run's
  samples, .02 by all, together the .025 of one step
- ``regressed``, metrics: adjusted p from .01 to .3. Two steps: .01 by the run's samples (Holm), .04 by all samples,
  divided by the number of metrics with a direction that three or more cases have (Bonferroni)
- ``METRIC:NUMBER``: it failed, and the 95 % interval does not exclude that B is worse by at most NUMBER. The value
  over all samples of B decides
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from visioneval.analysis.compare.compare import Comparison, shortened
from visioneval.analysis.compare.metrics import NO_SAMPLES, SampleCounts
from visioneval.analysis.compare.pairing import CaseKey
from visioneval.analysis.left_out import LeftOut
from visioneval.analysis.sides import Cells, Side
from visioneval.errors import count_of
from visioneval.records.model import RunInfo
from visioneval.suite.filters import chain_of
from visioneval.types import Score, Verdict

CaseState = Literal["passed", "broken", "unmeasured"]


@dataclass(frozen=True, slots=True)
class SampledCase:
    """A case on a model run that gets new samples: at most ``planned``, of which ``new`` counts those that exist.

    A number over all cases needs all of them.
    """

    test_id: str
    model_label: str
    planned: int = 0
    new: SampleCounts = NO_SAMPLES

    @property
    def key(self) -> CaseKey:
        """Identifies the case."""
        return self.test_id, self.model_label

    @property
    def state(self) -> CaseState:
        """``passed`` if all new samples have a verdict, else ``unmeasured``."""
        return "passed" if self.new.measured >= self.planned else "unmeasured"

    @property
    def needed(self) -> int:
        """The smallest number of further samples that may decide; 0 if none can."""
        return max(0, self.planned - self.new.total)

    def with_new(self, planned: int, verdicts: Sequence[Verdict]) -> Self:
        """The same case with the first ``planned`` of some new samples."""
        return replace(self, planned=planned, new=SampleCounts.of(verdicts[:planned]))


@dataclass(frozen=True, slots=True)
class MustPassCase(SampledCase):
    """A case tagged ``must_pass``, whose new samples confirm that it broke.

    ``missing`` counts samples that only A has, except where flags left them out.
    """

    a: SampleCounts = NO_SAMPLES
    b: SampleCounts = NO_SAMPLES
    missing: int = 0

    @property
    def samples(self) -> SampleCounts:
        """The samples of B, with the new ones."""
        return self.b + self.new

    @property
    def a_decided(self) -> bool:
        """Whether any sample of A has a verdict."""
        return bool(self.a.passed or self.a.failed)

    @property
    def state(self) -> CaseState:
        """``broken`` if most of A's measured samples passed and most of B's samples fail. A tie is not broken.

        B's samples include those without a verdict, which could have any: ``unmeasured`` if they would decide. A case
        without a verdict in A is measured only where it passes in B.
        """
        passes, failures = self._limits
        if self.a_decided and self.a.passed <= self.a.failed:
            return "passed"
        if self.a_decided and self.samples.failed >= failures:
            return "broken"
        return "passed" if self.samples.passed >= passes else "unmeasured"

    @property
    def needed(self) -> int:
        """The smallest number of further samples that may decide; 0 if it is decided, or cannot be any more."""
        if self.state != "unmeasured" or not self.planned:
            return 0
        left = self.planned - self.new.total
        return self.samples.fewest_to_decide(*self._limits, left)

    @property
    def _limits(self) -> tuple[int, int]:
        """The passes with which it holds, and the failures that break it."""
        total = self.b.total + self.missing + self.planned
        return (total + 1) // 2, total // 2 + 1


@dataclass(frozen=True, slots=True)
class Confirmation:
    """New samples of the uncertain cases: their verdicts, in order, of up to ``samples`` asked for of each case.

    ``stopped`` is why samples are missing that would be needed to decide. ``scores`` are those of the new samples that
    have a verdict, by metric. ``failed`` are the gates that failed before all compared cases got new samples, so that
    they got none.
    """

    samples: int
    verdicts: Mapping[CaseKey, Sequence[Verdict]]
    stopped: str | None = None
    scores: Mapping[CaseKey, Sequence[Mapping[str, Score]]] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    def planned(self, key: CaseKey) -> int:
        """The maximum number of new samples of a case: more than ``samples`` if it has more, which all count."""
        return max(self.samples, len(self.verdicts.get(key, ())))

    @property
    def of_each_case(self) -> str:
        """``3 new samples of each case``, or ``3 to 5 new samples`` where an earlier confirmation had more of some."""
        numbers = list(map(self.planned, self.verdicts)) or [self.samples]
        fewest, most = min(numbers), max(numbers)
        count = count_of(most, "new sample")
        return f"{count if fewest == most else f'{fewest:,} to {count}'} of each case"


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
        """The state of a gate that is uncertain and lacks too many new samples, and why, after its numbers.

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


def must_pass_cases(
    comparison: Comparison, lost: Cells, confirmation: Confirmation | None = None
) -> tuple[MustPassCase, ...]:
    """The ``must_pass`` cases that are not flaky, in the order of B. ``lost`` are the cells that B should have.

    A case that broke by B's own samples is judged with those of ``confirmation``.
    """
    labels, tagged = dict(comparison.labels), comparison.tagged_cases
    missing = Counter((test_id, labels.get(label, label)) for test_id, label, _ in (lost.names() if tagged else ()))
    cases = [
        MustPassCase(*key, a=case.a, b=case.b, missing=missing[key])
        for key, case in tagged.items()
        if case.is_in_a and case.must_pass and not case.flaky and (case.is_in_b or missing[key])
    ]
    if confirmation is None:
        return tuple(cases)
    verdicts = confirmation.verdicts
    return tuple(
        case.with_new(confirmation.planned(case.key), verdicts.get(case.key, ())) if case.state == "broken" else case
        for case in cases
    )


def describe_cases(cases: Sequence[MustPassCase], confirmation: Confirmation | None = None) -> str:
    """What broke, what new samples did not confirm, and what could not be measured, with the samples of each case."""
    broken, passed, unmeasured = (
        [c for c in cases if c.state == state] for state in ("broken", "passed", "unmeasured")
    )
    unjudged = [case for case in unmeasured if case.b.total and not case.planned]
    judged = sum(case.b.total > 0 for case in cases) - len(unjudged)
    reason = f" ({confirmation.stopped})" if confirmation is not None and confirmation.stopped else ""
    parts = (
        ("broke, but new samples did not confirm it", [case for case in passed if case.planned]),
        (f"broke and could not be confirmed{reason}", [case for case in unmeasured if case.planned]),
        (
            "that passed in A could not be measured in B",
            [case for case in unjudged if case.a_decided and case.b.errors],
        ),
        ("not measured", [case for case in unjudged if not case.a_decided]),
    )
    is_run_named = len({case.model_label for case in cases}) > 1
    message = f"{len(broken)} of {count_of(judged, 'case')} tagged must_pass broke"
    message += f": {_with_samples(broken, is_run_named=is_run_named)}" if broken else ""
    for text, some in parts:
        message += f"; {len(some)} {text}: {_with_samples(some, is_run_named=is_run_named)}" if some else ""
    if missing := sum(case.missing for case in cases):
        names = list(dict.fromkeys(case.test_id for case in cases if case.missing))
        message += f"; {missing} more cell{'s' * (missing != 1)} of A missing from B: {shortened(names)}"
    return message


def _with_samples(cases: Sequence[MustPassCase], *, is_run_named: bool) -> str:
    """``boat (failed 4 of 5), tree (failed 2 of 3, 1 not measured)``. A new sample without a verdict is none."""
    names = []
    for case in cases:
        label = f" on {case.model_label}" if is_run_named else ""
        unmeasured = case.b.errors + case.missing
        tail = f", {unmeasured} not measured" if unmeasured else ""
        tail += "" if case.a_decided else ", ERROR in A"
        names.append(
            f"{case.test_id}{label} (failed {case.samples.failed} of {case.samples.measured + unmeasured}{tail})"
        )
    return shortened(names)


def chain_key(key: CaseKey) -> CaseKey:
    """The case whose turn this is, or the case itself, on its model run."""
    return chain_of(key[0]), key[1]


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
        passes, failures = self._limits
        if self.new.passed >= passes:
            return "passed"
        return "broken" if self.new.failed >= failures else "unmeasured"

    @property
    def needed(self) -> int:
        """The smallest number of further samples that may decide; 0 if it is decided, or cannot be any more."""
        left = self.planned - self.new.total
        return self.new.fewest_to_decide(*self._limits, left) if self.state == "unmeasured" else 0

    @property
    def _limits(self) -> tuple[int, int]:
        """The passes that clear it, and the failures that confirm it."""
        return self.planned // 2 + 1, (self.planned + 1) // 2


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
