"""What ``run.json`` says about the samples of a run with ``--until-decided``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from visioneval.records.untrusted import CellCount
from visioneval.types import Frozen

_Samples = Annotated[int, Field(ge=1, le=1000)]
GateOutcome = Literal["decided", "undecided", "open", "between_cases", "unmeasured", "not_sampled"]
"""What samples did for a gate: they decided it; all of them did not; they are not all there; more of them cannot, as
its cases are too few or differ too much, or as too many cells were not measured; or its decision does not depend on how
many there are."""


class CaseSamples(Frozen):
    """The samples of a case on a model run that has more than the first look."""

    test_id: str
    """The case, of turns without the number."""
    model_label: str
    """The model run."""
    samples: _Samples
    """How many it has."""


class SampledGate(Frozen):
    """A gate of the suite, and the samples of each case that it counts."""

    rule: str
    """As written."""
    samples: _Samples
    """Those of each case in its scope."""
    outcome: GateOutcome
    """``decided``; ``undecided`` with all samples; ``open`` if further samples were not generated; ``between_cases``
    or ``unmeasured`` if they could not decide it; ``not_sampled`` for a gate that does not ask for samples.
    """


class UntilDecided(Frozen):
    """The samples of a run with ``--until-decided``."""

    max_samples: _Samples
    """The most samples of a case."""
    baseline: str | None = None
    """The name of the baseline with which it is compared."""
    most_cells: CellCount
    """The cells that it would have with so many samples of every case."""
    case_samples: tuple[CaseSamples, ...] = ()
    """The cases with more samples than the suite's number."""
    gates: tuple[SampledGate, ...] = ()
    """Those of the suite, after the last look; none before the first one, and of a run of ``grade``."""
