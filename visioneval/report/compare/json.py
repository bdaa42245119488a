"""A comparison for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from visioneval.analysis.cells import Cell, Side
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.gates import GateResult
from visioneval.analysis.compare.pairing import CellPair
from visioneval.records.model import SCHEMA_VERSION


def comparison_json(found: Comparison, held: Sequence[GateResult], exit_code: int) -> str:
    """All findings as one JSON object; of the pairs those that pass in both runs are only counted."""
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "a": _side(found.a),
            "b": _side(found.b),
            "labels": found.labels,
            "counts": found.counts,
            "changes": [_pair(pair) for pair in found.pairs if pair.change != "still_passing"],
            "only_a": [_cell_name(cell) for cell in found.only_a],
            "only_b": [_cell_name(cell) for cell in found.only_b],
            "pass_rate": _difference(found.pass_rate),
            "metrics": [_difference(one) for one in found.metrics],
            "by_run": [_difference(one) for one in found.by_run],
            "by_tag": [_difference(one) for one in found.by_tag],
            "by_type": [_difference(one) for one in found.by_type],
            "not_graded_alike": [asdict(one) for one in found.grading_differences],
            "suite_text_differs": found.has_other_source,
            "cost_usd": asdict(found.cost_usd),
            "seconds": asdict(found.seconds),
            "gates": [{"fail_on": one.fail_on.text, "state": one.state, "found": one.message} for one in held],
            "exit_code": exit_code,
        }
    )


def _side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "suite": side.suite, "state": side.state, "cells": len(side.cells)}


def _cell_name(cell: Cell) -> dict[str, Any]:
    return {"test_id": cell.test_id, "model_label": cell.model_label, "sample_index": cell.sample_index}


def _pair(pair: CellPair) -> dict[str, Any]:
    return {
        "change": pair.change,
        **_cell_name(pair.b),
        "rules_broken": pair.rules_broken,
        "rules_fixed": pair.rules_fixed,
        "tags": pair.tags,
        "must_pass": pair.must_pass,
        "flaky": pair.flaky,
        "same_output": pair.same_output,
        "a": _shown(pair.a),
        "b": _shown(pair.b),
    }


def _shown(cell: Cell) -> dict[str, Any]:
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


def _difference(one: Difference) -> dict[str, Any]:
    own = {name: value for name, value in asdict(one).items() if name not in ("metric", "interval")}
    return {
        **own,
        "type": one.metric.type,
        "better": one.metric.better,
        "interval": None if one.interval is None else [one.interval.low, one.interval.high],
        "significant": one.significant,
    }
