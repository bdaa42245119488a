"""What decides a comparison: its gates, what they leave out, and what B lost. Pure.

The command, the API and the pages of ``view`` all decide here, so that they never differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.coverage import Allowed, check_coverage, parse_allowed
from visioneval.analysis.compare.gates import (
    CANNOT_TELL,
    FailOn,
    GateResult,
    allow_cannot_tell,
    check_applicable,
    check_detectable,
    check_gates,
    parse_fail_on,
)
from visioneval.analysis.compare.must_pass import Confirmation
from visioneval.analysis.compare.unmeasured import granted_loss, with_unmeasured
from visioneval.errors import UsageError


@dataclass(frozen=True, slots=True)
class Criteria:
    """By what a comparison is decided.

    ``must_detect`` is the drop of the pass rate, in points, that must not be missed; by default that of the suites.
    """

    gates: tuple[FailOn, ...]
    allowed: Allowed
    must_detect: float | None = None


def parse_criteria(
    fail_on: Sequence[str] = (), allow: Sequence[str] = (), must_detect: float | None = None
) -> Criteria:
    """Parses the values of ``--fail-on``, ``--allow`` and ``--must-detect``. Raises ``UsageError``."""
    gates, allowed = parse_fail_on(fail_on), parse_allowed(allow)
    if must_detect is not None and not 0 < must_detect <= 100:
        raise UsageError(f"--must-detect {must_detect:g}: must be above 0 and at most 100 points")
    return Criteria(gates, allowed, must_detect)


def decide(
    comparison: Comparison, criteria: Criteria, confirmation: Confirmation | None = None
) -> tuple[GateResult, ...]:
    """The result of every gate, then those of what B lost. Raises ``UsageError`` for a metric without a direction."""
    results = check_gates(comparison, criteria.gates, confirmation, granted_loss(criteria.allowed))
    results = check_applicable(with_unmeasured(results, comparison, criteria.allowed))
    of_suites = [side.must_detect for side in (comparison.a, comparison.b) if side.must_detect is not None]
    points = criteria.must_detect if criteria.must_detect is not None else min(of_suites, default=None)
    if points is not None:
        results = (*results, check_detectable(comparison, points))
    if CANNOT_TELL in criteria.allowed:
        results = allow_cannot_tell(results)
    return (*results, *check_coverage(comparison, criteria.allowed))
