"""A comparison as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import starmap
from typing import Any

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.confirm import MustPassCase
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.gates import GateResult
from visioneval.analysis.compare.metrics import Alignment
from visioneval.analysis.compare.pairing import CellPair
from visioneval.analysis.sides import Cell, Side
from visioneval.records.model import CellKey
from visioneval.records.untrusted import SCHEMA_VERSION
from visioneval.report.comparison_notes import notes
from visioneval.types import MUST_PASS

_INTERNAL = ("metric", "interval", "lowest_p", "variance", "within", "samples", "noise")
"""Fields of a difference."""


def comparison_json(
    comparison: Comparison, gates: Sequence[GateResult], exit_code: int, confirmation_notes: Sequence[str] = ()
) -> Iterator[str]:
    """The comparison as one JSON object, in parts: pairs are read one at a time. Those that pass are only counted."""
    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "notes": [*notes(comparison), *confirmation_notes],
        "labels": comparison.labels,
        "counts": comparison.counts,
        "changes": map(_pair, comparison.differing_pairs),
        "only_a": map(_cell_name, comparison.only_a.names()),
        "only_b": map(_cell_name, comparison.only_b.names()),
        "pass_rate": _difference(comparison.pass_rate),
        "metrics": [_difference(difference) for difference in comparison.metrics],
        "by_word": [_difference(difference) for difference in comparison.by_word],
        "by_run": [_difference(difference) for difference in comparison.by_run],
        "by_tag": [_difference(difference) for difference in comparison.by_tag],
        "by_type": [_difference(difference) for difference in comparison.by_type],
        "alignments": starmap(_aligned, comparison.aligned_pairs()),
        "by_failure_tag": [_difference(difference) for difference in comparison.by_failure_tag],
        "not_graded_alike": [asdict(mismatch) for mismatch in comparison.grading_differences],
        "changed_metrics": [asdict(changed) for changed in comparison.changed_metrics],
        "excuses": [asdict(excuse) for excuse in comparison.excuses],
        "suite_text_differs": comparison.has_other_source,
        "cost_usd": asdict(comparison.cost_usd),
        "seconds": asdict(comparison.seconds),
        "gates": [_gate(gate) for gate in gates],
        "exit_code": exit_code,
    }
    opening = "{"
    for name, value in fields.items():
        yield f"{opening}{json.dumps(name)}: "
        yield from _array(value) if isinstance(value, Iterator) else (json.dumps(value),)
        opening = ", "
    yield "}"


def _array(items: Iterator[Any]) -> Iterator[str]:
    opening = "["
    for item in items:
        yield f"{opening}{json.dumps(item)}"
        opening = ", "
    yield "]" if opening == ", " else "[]"


def _side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "suite": side.suite, "state": side.state, "cells": len(side.cells), "runs": side.runs}


def _cell_name(cell: CellKey) -> dict[str, Any]:
    return dict(zip(("test_id", "model_label", "sample_index"), cell, strict=True))


def _pair(pair: CellPair) -> dict[str, Any]:
    return {
        "change": pair.change,
        **_cell_name(pair.b.key),
        "rules_broken": pair.rules_broken,
        "rules_fixed": pair.rules_fixed,
        "tags": pair.tags,
        "must_pass": pair.must_pass,
        "flaky": pair.flaky,
        "same_output": pair.same_output,
        "moved_by_rules": pair.is_moved_by_rules,
        "a": _cell_data(pair.a),
        "b": _cell_data(pair.b),
    }


def _aligned(item: Alignment, pair: CellPair) -> dict[str, Any]:
    return {
        **_cell_name(pair.b.key),
        "grader": item.grader,
        "a": {"score": item.a, "gaps": pair.a.reasons.get(item.grader, "")},
        "b": {"score": item.b, "gaps": pair.b.reasons.get(item.grader, "")},
    }


def _cell_data(cell: Cell) -> dict[str, Any]:
    return {
        "model_label": cell.model_label,
        "verdict": cell.verdict,
        "failed_rules": cell.failed_rules,
        "failure_tags": cell.failure_tags,
        "scores": cell.scores,
        "reasons": cell.reasons,
        "error": cell.error and cell.error.model_dump(),
        "artifact_path": cell.artifact_path,
        "artifact_sha256": cell.artifact_sha256,
    }


def _gate(gate: GateResult) -> dict[str, Any]:
    data: dict[str, Any] = {"fail_on": gate.fail_on.text, "state": gate.state, "message": gate.message}
    return {**data, "cases": list(map(_must_pass_case, gate.cases))} if gate.fail_on.text == MUST_PASS else data


def _must_pass_case(case: MustPassCase) -> dict[str, Any]:
    """``b`` counts B's own samples, ``new`` those that confirm."""
    counts = {"a": asdict(case.a), "b": asdict(case.b), "missing": case.missing, "new": asdict(case.new)}
    return {"test_id": case.test_id, "model_label": case.model_label, "state": case.state, **counts}


def _difference(difference: Difference) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(difference).items() if name not in _INTERNAL}
    return {
        **fields,
        "type": difference.metric.type,
        "better": difference.metric.better,
        "interval": None if difference.interval is None else [difference.interval.low, difference.interval.high],
        "significant": difference.significant,
    }
