"""Cases of a comparison that get new samples, and what those have shown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.must_pass import CaseKey, Confirmation, SampleCounts
from visioneval.suite.turns import chain_of
from visioneval.types import Verdict


class ConfirmedCase(Protocol):
    """A case on a model run that new samples decide about."""

    @property
    def test_id(self) -> str: ...
    @property
    def model_label(self) -> str: ...
    @property
    def key(self) -> CaseKey: ...
    @property
    def state(self) -> Literal["passed", "broken", "unmeasured"]: ...
    @property
    def needed(self) -> int:
        """The smallest number of further samples that may decide; 0 if none can."""

    def with_new(self, planned: int, verdicts: Sequence[Verdict]) -> Self:
        """The same case with the first ``planned`` of some new samples."""


@dataclass(frozen=True, slots=True)
class _PlannedCase:
    """A case on a model run: at most ``planned`` new samples, and ``new`` counts those that exist."""

    test_id: str
    model_label: str
    planned: int = 0
    new: SampleCounts = field(default_factory=SampleCounts)

    @property
    def key(self) -> CaseKey:
        """Identifies the case."""
        return self.test_id, self.model_label

    def with_new(self, planned: int, verdicts: Sequence[Verdict]) -> Self:
        """The same case with the first ``planned`` of some new samples."""
        return replace(self, planned=planned, new=SampleCounts.of(verdicts[:planned]))


@dataclass(frozen=True, slots=True)
class SingleCase(_PlannedCase):
    """A case that is worse at the level of single cases, and that only its new samples can clear.

    The turns of a case count as samples of it.
    """

    @property
    def state(self) -> Literal["passed", "broken", "unmeasured"]:
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


@dataclass(frozen=True, slots=True)
class SampledCase(_PlannedCase):
    """A case all of whose planned new samples are needed."""

    @property
    def state(self) -> Literal["passed", "unmeasured"]:
        """Whether all new samples have a verdict."""
        return "passed" if self.new.measured >= self.planned else "unmeasured"

    @property
    def needed(self) -> int:
        """The number of new samples that were not tried yet."""
        return max(0, self.planned - self.new.total)


def sampled_cases(comparison: Comparison) -> tuple[SampledCase, ...]:
    """The compared cases of B on each model run: those that have a pair without an error, and without flaky ones."""
    names = comparison.measured_pairs.columns.names()
    return tuple(SampledCase(*key) for key in dict.fromkeys((case, label) for case, label, _ in names))


def single_cases(comparison: Comparison, confirmation: Confirmation) -> dict[CaseKey, SingleCase]:
    """The new samples of the compared cases, where the turns of a case are one case."""
    cases: dict[CaseKey, SingleCase] = {}
    for test_id, label in (case.key for case in sampled_cases(comparison)):
        key, planned = (chain_of(test_id), label), confirmation.planned((test_id, label))
        new = SampleCounts.of(confirmation.verdicts.get((test_id, label), ()))
        before = cases.get(key, SingleCase(*key))
        cases[key] = replace(before, planned=before.planned + planned, new=before.new + new)
    return cases
