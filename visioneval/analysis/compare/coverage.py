"""What a comparison lost between A and B: metrics, measured cells, and cells. Pure.

A number over the rest says nothing about what is gone, so each loss is reported like a gate that was not measured,
until ``--allow`` accepts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.gates import CANNOT_TELL, FailOn, GateResult, cells_lost
from visioneval.analysis.left_out import LeftOut, parse_allow
from visioneval.errors import count_of
from visioneval.rules import is_true
from visioneval.suite.entries.metrics import BUILT_IN

METRICS, ERRORS, CELLS, EXCUSES = ("missing-metrics", "errors", "missing-cells", "excuses")
KINDS = (METRICS, ERRORS, CELLS, EXCUSES, CANNOT_TELL)
UNMEASURED = "unmeasured"
"""Pairs that a gate leaves out, see ``unmeasured``."""
_MAX_NAMES = 5

Allowed = Mapping[str, float]
"""The losses that are accepted, by kind; for ``errors`` and ``unmeasured``, up to this share of the pairs."""


def parse_allowed(values: Iterable[str]) -> Allowed:
    """Parses the values of ``--allow``. Raises ``UsageError``."""
    return parse_allow(values, (*KINDS, UNMEASURED), rated=(ERRORS, UNMEASURED))


def check_coverage(comparison: Comparison, allowed: Allowed) -> tuple[GateResult, ...]:
    """One result for each kind of loss."""
    return (
        _result(METRICS, _lost_metrics(comparison), "every metric of A is measured in B", allowed),
        _new_errors(comparison, allowed.get(ERRORS, 0.0)),
        _result(CELLS, _lost_cells(comparison), _no_cell_lost(comparison), allowed),
        _result(EXCUSES, _excuses(comparison), "B excuses nothing that A does not", allowed),
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
        listed = _listed(cases, ", ")
        lost.append(f"{name} means another thing in {count_of(len(cases), 'case')}, whose tags it reads: {listed}")
    for name, (before, after) in comparison.coverage.measured.items():
        if name in BUILT_IN:
            continue  # an output from the cache has none, and loses nothing by that
        if before and (not after or LeftOut(before - after, before).is_too_much()):
            lost.append(f"{name} is measured in {after:,} of {pairs:,} pairs, in A in {before:,}")
    return _listed(lost, "; ")


def _new_errors(comparison: Comparison, allowed_rate: float) -> GateResult:
    new = comparison.marks.new_errors(comparison.pairs)
    if not new:
        in_both = comparison.changed("still_error").columns.used_cases
        named = f"; ERROR in both: {_listed(in_both, ', ')}" if in_both else ""
        return GateResult(FailOn(ERRORS), "passed", f"no cell of B has an error that A has not{named}")
    rate = len(new) / len(comparison.pairs)
    names = _listed(new.columns.used_cases, ", ")
    message = f"{len(new):,} of {len(comparison.pairs):,} cells were measured in A and have errors in B: {names}"
    if is_true(rate, "<=", allowed_rate):
        return GateResult(FailOn(ERRORS), "passed", f"{message} (allowed)")
    return GateResult(FailOn(ERRORS), "unmeasured", f"{message} (--allow {ERRORS} accepts this)")


def _lost_cells(comparison: Comparison) -> str:
    lost = cells_lost(comparison)
    names = _listed(lost.columns.used_cases, ", ")
    return f"not in B: {count_of(len(lost), 'cell')} of A: {names}" if lost else ""


def _excuses(comparison: Comparison) -> str:
    excuses = [
        f"{count_of(excuse.cells, 'cell')} {excuse.what}: {_listed(excuse.cases, ', ')}"
        for excuse in comparison.excuses
    ]
    return f"excused in B, but not in A: {_listed(excuses, '; ')}" if excuses else ""


def _no_cell_lost(comparison: Comparison) -> str:
    if not comparison.only_a:
        return "every cell of A is in B"
    return f"every cell of A is in B, except {len(comparison.only_a):,} that flags left out"


def _listed(names: Sequence[str], separator: str) -> str:
    more = len(names) - _MAX_NAMES
    return separator.join(names[:_MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")
