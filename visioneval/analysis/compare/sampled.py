"""Cases of a comparison that get new samples, and what those have shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.must_pass import CaseKey, SampleCounts
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
class SampledCase:
    """A case all of whose planned new samples are needed."""

    test_id: str
    model_label: str
    planned: int = 0
    new: SampleCounts = field(default_factory=SampleCounts)

    @property
    def key(self) -> CaseKey:
        """Identifies the case."""
        return self.test_id, self.model_label

    @property
    def state(self) -> Literal["passed", "unmeasured"]:
        """Whether all new samples have a verdict."""
        return "passed" if self.new.passed + self.new.failed >= self.planned else "unmeasured"

    @property
    def needed(self) -> int:
        """The number of new samples that were not tried yet."""
        return max(0, self.planned - self.new.total)

    def with_new(self, planned: int, verdicts: Sequence[Verdict]) -> SampledCase:
        """The same case with the first ``planned`` of some new samples."""
        return replace(self, planned=planned, new=SampleCounts.of(verdicts[:planned]))


def sampled_cases(comparison: Comparison) -> tuple[SampledCase, ...]:
    """The compared cases of B on each model run, without flaky ones."""
    names = comparison.stable_pairs.columns.names()
    return tuple(SampledCase(*key) for key in dict.fromkeys((case, label) for case, label, _ in names))


def counts_of_chains(verdicts: Mapping[CaseKey, Sequence[Verdict]], planned: int) -> dict[CaseKey, SampleCounts]:
    """The first ``planned`` new samples of cases, where the turns of a case are one case."""
    counts: dict[CaseKey, SampleCounts] = {}
    for (case, label), new in verdicts.items():
        key = chain_of(case), label
        counts[key] = counts.get(key, SampleCounts()) + SampleCounts.of(new[:planned])
    return counts
