"""What a probe consists of: the graded changes, and the findings as ``--json`` prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from visioneval.records.untrusted_json import SCHEMA_VERSION
from visioneval.types import Frozen, Verdict

HARMLESS = "harmless"
"""The group of changes that are no damage: the first word of their kinds."""


@dataclass(frozen=True, slots=True)
class ProbedCell:
    """One changed output and its grades. ``level`` counts the strengths of its kind from 0, the weakest.

    ``failed`` are the metrics that a failed rule reads, ``measured`` and ``unmeasured`` those that any rule reads.
    """

    case: str
    model: str
    sample: int
    kind: str
    strength: str
    number: float
    level: int
    verdict: Verdict
    failed: frozenset[str] = frozenset()
    measured: frozenset[str] = frozenset()
    unmeasured: frozenset[str] = frozenset()
    detail: str = ""
    """What changed in a prompt."""

    @property
    def is_harmless(self) -> bool:
        """Whether the change is no damage."""
        return self.kind.partition(".")[0] == HARMLESS


class ProbeRate(Frozen):
    """How many changed outputs failed by a metric, or, without a metric, by any rule.

    ``rate`` is a share of ``outputs``, with its 95 % interval over ``cases``. ``unmeasured`` counts outputs without a
    score or verdict. Of damage, they are part of ``outputs`` and not caught; of harmless changes, they are left out.
    """

    kind: str
    strength: str
    metric: str | None
    grader: str | None
    outputs: int
    failed: int
    unmeasured: int
    cases: int
    rate: float | None
    low: float | None
    high: float | None


class WeakestCaught(Frozen):
    """The weakest strength from which on a metric, or without one any rule, fails at least 9 of 10 outputs.

    ``strength`` is ``None`` if the strongest is not caught that often, and empty for a kind without strengths.
    """

    kind: str
    metric: str | None
    strength: str | None


class MissedDamage(Frozen):
    """A damaged output that no rule failed. ``verdict`` is ``ERROR`` if a grader could not measure it."""

    case: str
    model: str
    sample: int
    kind: str
    strength: str
    verdict: Verdict
    detail: str = ""
    """What changed in a prompt."""


class ProbeGate(Frozen):
    """A gate: its text, its state, and the estimate and the bound of the 95 % interval that decides.

    It is about ``outputs`` changed outputs, of which ``unmeasured`` count as the worst that they can be.
    """

    gate: str
    state: Literal["passed", "failed", "unmeasured"]
    value: float | None
    bound: float | None
    outputs: int = 0
    unmeasured: int = 0
    message: str


class ProbeFindings(Frozen):
    """The result of ``probe``."""

    schema_version: int = SCHEMA_VERSION
    visioneval_version: str
    source: str
    suite: str
    seed: int
    outputs: int
    cases: int
    metrics: dict[str, str]
    """The grader of each metric that a rule reads."""
    detections: tuple[ProbeRate, ...]
    false_alarms: tuple[ProbeRate, ...]
    weakest: tuple[WeakestCaught, ...]
    missed: tuple[MissedDamage, ...]
    notes: tuple[str, ...]
    """What was skipped, and why."""
    gates: tuple[ProbeGate, ...]
    stopped: str | None = None
    """Why the probe is incomplete."""
    exit_code: int
