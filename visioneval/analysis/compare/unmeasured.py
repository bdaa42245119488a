"""Pairs that a gate of a comparison leaves out because a side was not measured. Pure.

Cells that are an ERROR on both sides are named, and do not count: B lost nothing by them, and A was accepted with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.coverage import ERRORS, UNMEASURED, Allowed
from visioneval.analysis.compare.differences import PASS_RATE, Difference
from visioneval.analysis.compare.gates import REGRESSED, GateResult
from visioneval.analysis.left_out import LeftOut
from visioneval.suite.entries.metrics import BUILT_IN
from visioneval.types import MUST_PASS

_MAX_NAMES = 5


def with_unmeasured(results: Sequence[GateResult], comparison: Comparison, allowed: Allowed) -> tuple[GateResult, ...]:
    """The results with what each gate leaves out. Where that is too much, a gate cannot tell.

    A cell that broke is broken however many others were not measured, so that such a gate remains failed.
    """
    return tuple(_with_unmeasured(result, comparison, allowed) for result in results)


def granted_loss(allowed: Allowed) -> float:
    """The share of the pairs, or of new samples, that a gate may leave out."""
    return max(allowed.get(kind, 0.0) for kind in (UNMEASURED, ERRORS))


def _with_unmeasured(result: GateResult, comparison: Comparison, allowed: Allowed) -> GateResult:
    limit = granted_loss(allowed)
    lost = [(name, left_out) for name, left_out in _left_out_of(result, comparison) if left_out.unmeasured]
    if not lost:
        return result
    too_many = [entry for entry in lost if entry[1].is_too_much(limit)]
    names_by_sentence: dict[str, list[str]] = {}
    for name, left_out in (too_many or lost)[:_MAX_NAMES]:
        names_by_sentence.setdefault(left_out.sentence("pair", limit), []).append(name)
    listed = [f"{', '.join(names)}: {sentence}" for sentence, names in names_by_sentence.items()]
    more = len(too_many or lost) - _MAX_NAMES
    message = "; ".join([result.message, *listed, *([f"{more} more metrics"] if more > 0 else [])])
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
        yield PASS_RATE, comparison.marks.measured_in_b_only(same_output=gate.text == "broken_same_output")
    differences = (*comparison.metrics, *(comparison.by_type if gate.metric is not None else ()))
    for difference in differences:
        if difference.name == gate.metric or (gate.text == REGRESSED and _is_tested(difference)):
            lost = comparison.coverage.left_out.get(difference.name, 0)
            yield difference.name, LeftOut(lost, difference.n_pairs + lost)


def _is_tested(difference: Difference) -> bool:
    return difference.metric.better != "none" and difference.name not in BUILT_IN
