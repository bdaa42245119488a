"""Cases tagged ``must_pass``: whether a case broke, by the majority of its samples. Pure.

A judge turns some verdicts round by chance. With one verdict per sample, more samples would mean more false alarms;
with a majority, they mean fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from visioneval.analysis.cells import Cells
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.table import NO_SAMPLES, CaseKey, SampleCounts
from visioneval.errors import count_of
from visioneval.types import Score, Verdict

CaseState = Literal["passed", "broken", "unmeasured"]
MAX_NAMES = 5


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
        if not self.a_decided:
            return "passed" if self.samples.passed >= self._passes_to_hold else "unmeasured"
        if self.a.passed <= self.a.failed:
            return "passed"
        if self.samples.failed >= self._failures_to_break:
            return "broken"
        return "passed" if self.samples.passed >= self._passes_to_hold else "unmeasured"

    @property
    def needed(self) -> int:
        """The smallest number of further samples that may decide; 0 if it is decided, or cannot be any more."""
        if self.state != "unmeasured" or not self.planned:
            return 0
        left = self.planned - self.new.total
        return self.samples.fewest_to_decide(self._passes_to_hold, self._failures_to_break, left)

    @property
    def _failures_to_break(self) -> int:
        return self._total // 2 + 1

    @property
    def _passes_to_hold(self) -> int:
        return (self._total + 1) // 2

    @property
    def _total(self) -> int:
        return self.b.total + self.missing + self.planned


@dataclass(frozen=True, slots=True)
class Confirmation:
    """New samples of the cases in doubt: their verdicts, in order, of up to ``samples`` asked for of each case.

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


def flaky_must_pass(comparison: Comparison) -> int:
    """The number of cases tagged ``must_pass``, on each model run, that are left out as A calls them flaky."""
    return sum(case.must_pass and case.flaky for case in comparison.tagged_cases.values())


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
    message = f"{len(broken)} of {judged} cases tagged must_pass broke"
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


def shortened(names: Sequence[str], separator: str = ", ") -> str:
    """The first names, and how many more there are."""
    more = len(names) - MAX_NAMES
    return separator.join(names[:MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")
