"""Reads and compares two runs, and decides: gates, what they leave out, and what B lost. Pure, beside the reading.

The command, the API and the pages of ``view`` all decide here, so that they never differ. A number over the rest says
nothing about what is gone, so each loss (metrics, measured cells, cells) is reported like a gate that was not measured,
until ``--allow`` accepts it. Cells that are an ERROR on both sides are named, and do not count: B lost nothing by them,
and A was accepted with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.differences import PASS_RATE
from visioneval.analysis.compare.gates import (
    CANNOT_TELL,
    REGRESSED,
    FailOn,
    GateResult,
    allow_cannot_tell,
    cells_lost,
    check_applicable,
    check_detectable,
    check_gates,
    parse_fail_on,
)
from visioneval.analysis.compare.must_pass import MAX_NAMES, Confirmation, shortened
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.left_out import LeftOut, parse_allow
from visioneval.analysis.redaction import redacted_sides
from visioneval.analysis.run_lookup import Warn, read_side
from visioneval.analysis.sides import newest_run, with_built_in
from visioneval.errors import UsageError, count_of
from visioneval.rules import is_true
from visioneval.suite.filters import BUILT_IN
from visioneval.types import MUST_PASS, Verdict

METRICS, ERRORS, CELLS, EXCUSES = ("missing-metrics", "errors", "missing-cells", "excuses")
KINDS = (METRICS, ERRORS, CELLS, EXCUSES, CANNOT_TELL)
UNMEASURED = "unmeasured"
"""Pairs that a gate leaves out because a side was not measured."""

Allowed = Mapping[str, float]
"""The losses that are accepted, by kind; for ``errors`` and ``unmeasured``, up to this share of the pairs."""


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


def parse_allowed(values: Iterable[str]) -> Allowed:
    """Parses the values of ``--allow``. Raises ``UsageError``."""
    return parse_allow(values, (*KINDS, UNMEASURED), rated=(ERRORS, UNMEASURED))


def check_coverage(comparison: Comparison, allowed: Allowed) -> tuple[GateResult, ...]:
    """One result for each kind of loss."""
    lost = cells_lost(comparison)
    lost_cells = f"not in B: {count_of(len(lost), 'cell')} of A: {shortened(lost.columns.used_cases)}" if lost else ""
    left_out = f", except {len(comparison.only_a):,} that flags left out" if comparison.only_a else ""
    excuses = [
        f"{count_of(excuse.cells, 'cell')} {excuse.what}: {shortened(excuse.cases)}" for excuse in comparison.excuses
    ]
    excused = f"excused in B, but not in A: {shortened(excuses, '; ')}" if excuses else ""
    return (
        _result(METRICS, _lost_metrics(comparison), "every metric of A is measured in B", allowed),
        _new_errors(comparison, allowed.get(ERRORS, 0.0)),
        _result(CELLS, lost_cells, f"every cell of A is in B{left_out}", allowed),
        _result(EXCUSES, excused, "B excuses nothing that A does not", allowed),
    )


def _result(kind: str, loss: str, none_lost: str, allowed: Allowed) -> GateResult:
    if not loss:
        return GateResult(FailOn(kind), "passed", none_lost)
    if kind in allowed:
        return GateResult(FailOn(kind), "passed", f"{loss} (allowed)")
    return GateResult(FailOn(kind), "unmeasured", f"{loss} (--allow {kind} accepts this)")


def _lost_metrics(comparison: Comparison) -> str:
    lost, pairs = [str(changed) for changed in comparison.changed_metrics], comparison.coverage.pairs_with_output
    for name, cases in comparison.coverage.other_tags.items():
        names = shortened(cases)
        lost.append(f"{name} means another thing in {count_of(len(cases), 'case')}, whose tags it reads: {names}")
    for name, (before, after) in comparison.coverage.measured.items():
        if name in BUILT_IN:
            continue  # an output from the cache has none, and loses nothing by that
        if before and (not after or LeftOut(before - after, before).is_too_much()):
            lost.append(f"{name} is measured in {after:,} of {pairs:,} pairs, in A in {before:,}")
    return shortened(lost, "; ")


def _new_errors(comparison: Comparison, allowed_rate: float) -> GateResult:
    new = comparison.where(lambda row: row.new_error)
    if not new:
        in_both = comparison.changed("still_error").columns.used_cases
        named = f"; ERROR in both: {shortened(in_both)}" if in_both else ""
        return GateResult(FailOn(ERRORS), "passed", f"no cell of B has an error that A has not{named}")
    rate = len(new) / len(comparison.pairs)
    names = shortened(new.columns.used_cases)
    message = f"{len(new):,} of {len(comparison.pairs):,} cells were measured in A and have errors in B: {names}"
    if is_true(rate, "<=", allowed_rate):
        return GateResult(FailOn(ERRORS), "passed", f"{message} (allowed)")
    return GateResult(FailOn(ERRORS), "unmeasured", f"{message} (--allow {ERRORS} accepts this)")


def with_unmeasured(results: Sequence[GateResult], comparison: Comparison, allowed: Allowed) -> tuple[GateResult, ...]:
    """The results with what each gate leaves out. Where that is too much, a gate cannot tell.

    A cell that broke is broken however many others were not measured, so that such a gate remains failed.
    """
    limit = granted_loss(allowed)
    return tuple(_with_unmeasured(result, comparison, limit) for result in results)


def granted_loss(allowed: Allowed) -> float:
    """The share of the pairs, or of new samples, that a gate may leave out."""
    return max(allowed.get(kind, 0.0) for kind in (UNMEASURED, ERRORS))


def _with_unmeasured(result: GateResult, comparison: Comparison, limit: float) -> GateResult:
    lost = [(name, left_out) for name, left_out in _left_out_of(result, comparison) if left_out.unmeasured]
    if not lost:
        return result
    too_many = [entry for entry in lost if entry[1].is_too_much(limit)]
    names_by_sentence: dict[str, list[str]] = {}
    for name, left_out in (too_many or lost)[:MAX_NAMES]:
        names_by_sentence.setdefault(left_out.sentence("pair", limit), []).append(name)
    numbers = [f"{', '.join(names)}: {sentence}" for sentence, names in names_by_sentence.items()]
    more = len(too_many or lost) - MAX_NAMES
    message = "; ".join([result.message, *numbers, *([f"{more} more metrics"] if more > 0 else [])])
    if not too_many:
        return replace(result, message=message)
    is_certain = result.state == "failed" and result.fail_on.text.startswith("broken")
    message += f" (--allow {UNMEASURED}=RATE accepts more)"
    return replace(result, state=result.state if is_certain else "unmeasured", message=message)


def _left_out_of(result: GateResult, comparison: Comparison) -> Iterator[tuple[str, LeftOut]]:
    """What a gate leaves out of each number that it is about. The cases of ``must_pass`` have counts of their own."""
    gate = result.fail_on
    if gate.text == MUST_PASS or not comparison.stable_pairs:
        return
    if gate.metric is None or gate.metric == PASS_RATE:
        rows = [row for row in comparison.table.stable if row.same_output or gate.text != "broken_same_output"]
        only_in_b = sum(row.change == "error_before" for row in rows)
        yield PASS_RATE, LeftOut(only_in_b, sum(row.verdict_b is not Verdict.ERROR for row in rows))
    differences = (*comparison.metrics, *(comparison.by_type if gate.metric is not None else ()))
    for difference in differences:
        is_tested = difference.metric.better != "none" and difference.name not in BUILT_IN
        if difference.name == gate.metric or (gate.text == REGRESSED and is_tested):
            lost = comparison.coverage.left_out.get(difference.name, 0)
            yield difference.name, LeftOut(lost, difference.n_pairs + lost)
