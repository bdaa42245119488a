"""Reads and compares two runs, and decides: gates, what they leave out, and what B lost.

The command, the API and the pages of ``view`` all decide here, so that they never differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.coverage import (
    Allowed,
    check_coverage,
    granted_loss,
    parse_allowed,
    with_unmeasured,
)
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
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.redaction import redacted_sides
from visioneval.analysis.run_lookup import Warn, read_side
from visioneval.analysis.sides import newest_run, with_built_in
from visioneval.errors import UsageError


def compare_stored(
    a: str,
    b: str,
    runs: Path,
    gates: Sequence[FailOn],
    *,
    filters: ComparisonFilters,
    model_map: Sequence[str] = (),
    is_confirmed: bool = False,
    warn: Warn,
) -> Comparison:
    """Compares two sides, named as for ``read_side``; the metrics that ``gates`` name are among its metrics.

    Of a baseline of several runs as B, the newest run counts.

    ``is_confirmed``: B's samples of an earlier confirmation are used. Raises ``UsageError`` and ``RunFormatError``.
    """
    named = (*filters.metrics, *(gate.metric or "" for gate in gates))
    first, second = (with_built_in(read_side(name, runs, warn), named) for name in (a, b))
    first, second = redacted_sides(first, newest_run(second), filters.redact)
    if is_confirmed:
        second = replace(second, unused_confirmations=False)
    return compare(first, second, filters, model_map)


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
