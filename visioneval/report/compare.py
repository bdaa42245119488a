"""A comparison as a report and as JSON: what broke and what was fixed, then the numbers, then the gates."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import starmap
from typing import Any
from urllib.parse import urlencode

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.drift import Drift, Night
from visioneval.analysis.compare.gates import GateResult
from visioneval.analysis.compare.metrics import Alignment
from visioneval.analysis.compare.pairing import CellPair, Change
from visioneval.analysis.sides import Cell as RunCell
from visioneval.analysis.sides import Cells, Side
from visioneval.errors import count_of
from visioneval.records.model import CellKey, Record
from visioneval.records.stores.lookup import name_of_run
from visioneval.records.untrusted import SCHEMA_VERSION
from visioneval.report.differences import (
    CHANGE_WORDS,
    MAX_LISTED,
    compared_lines,
    comparison_outcome,
    counts_text,
    difference_sections,
    drift_section,
    grading_lines,
    listed,
    notes,
)
from visioneval.report.sections import STATES, Cell, Column, Report, Section, Tone, Value, dim, numbers, quoted
from visioneval.report.text import cut_middle, failed_text, one_line
from visioneval.rules import parse_rule
from visioneval.types import MUST_PASS

MAX_ROWS = 20
"""Rows of a table of pairs, which are read from disk."""
_TONES: Mapping[Change, Tone] = {"broken": "fail", "error_after": "error", "fixed": "pass", "error_before": "pass"}
_MAX_REASON, _MAX_GAPS = 200, 200
"""Characters of a reason, and of the gaps of an image."""
_INTERNAL = ("metric", "interval", "lowest_p", "variance", "within", "samples", "noise")
"""Fields of a difference that JSON does not have."""
_PAIR = ("rules_broken", "rules_fixed", "tags", "must_pass", "flaky", "same_output")
_CELL = (
    *("model_label", "verdict", "failed_rules", "failure_tags", "scores", "reasons", "error"),
    *("artifact_path", "artifact_sha256"),
)
_MUST_PASS_CASE = ("test_id", "model_label", "state", "a", "b", "missing", "new")
"""Fields of pairs, cells and cases that JSON has."""


def comparison_report(
    comparison: Comparison,
    gates: Sequence[GateResult],
    *,
    interrupted: bool = False,
    outputs: Callable[[CellPair], Value] | None = None,
) -> Report:
    """The report: the first pairs of each kind of change, the numbers, the gates, and how to look at a broken cell.

    ``outputs`` shows the outputs of a pair that broke.
    """
    lines = (*compared_lines(comparison), *notes(comparison))
    commands = []
    if comparison.counts["broken"] and comparison.b.folder is not None:
        cell = next(iter(comparison.changed("broken"))).b
        run = f"{name_of_run(comparison.b.folder)}@{cell.model_label}"
        commands = [f"next: {shlex.join(['visioneval', 'show', run, cell.test_id])}"]
    return Report(
        "visioneval compare",
        comparison_outcome(comparison, gates, interrupted=interrupted),
        lines=[*_drift_line(comparison), Value(counts_text(comparison), "strong"), *map(quoted, lines)],
        sections=list(_sections(comparison, gates, outputs)),
        commands=commands,
        more="--json",
    )


def _drift_line(comparison: Comparison) -> Iterator[Value]:
    """The verdict on the last runs."""
    if comparison.drift is not None:
        words = {"failed": "DRIFT: ", "unmeasured": "drift was not measured: ", "cannot_tell": "drift: cannot tell: "}
        tones: Mapping[str, Tone] = {"failed": "fail", "passed": "strong"}
        text = words.get(comparison.drift.state, "") + comparison.drift.message
        yield quoted(text, tones.get(comparison.drift.state, "error"))


def _sections(
    comparison: Comparison, gates: Sequence[GateResult], outputs: Callable[[CellPair], Value] | None
) -> Iterator[Section]:
    if unlike := [Value(line, "error", quoted=True) for line in grading_lines(comparison)]:
        title = "Graded differently: the differences below may come from that, not from the outputs"
        yield Section(title, notes=unlike, name="unlike")
    if comparison.drift is not None:
        yield drift_section(comparison.drift, comparison.a)
    for change in CHANGE_WORDS:
        if change != "still_passing" and comparison.counts[change]:
            yield _changes(change, comparison, outputs if change == "broken" else None)
    if comparison.alignments:
        yield _alignments(comparison)
    yield from difference_sections(comparison)
    yield from _cost_and_time(comparison)
    if unpaired := [
        quoted(f"only in {name}: {count_of(len(cells), 'cell')}: {_cell_names(cells)}")
        for name, cells in (("A", comparison.only_a), ("B", comparison.only_b))
        if cells
    ]:
        yield Section("Not compared: only in one run", notes=unpaired)
    columns = Column("state"), Column("gate", min_width=12), Column("result", min_width=20)
    rows = [(STATES[gate.state], quoted(gate.fail_on.text), quoted(gate.message)) for gate in gates]
    yield Section("Gates (--fail-on)", columns, rows, name="gates")


def _changes(change: Change, comparison: Comparison, outputs: Callable[[CellPair], Value] | None) -> Section:
    pairs = comparison.changed(change)
    rows = [
        (
            *_pair_cells(pair, comparison, _TONES.get(change, "plain")),
            quoted("\n".join(change_lines(pair, comparison))),
            *([outputs(pair)] if outputs else []),
        )
        for pair in pairs[:MAX_ROWS]
    ]
    shown = [Column("rules and reasons", min_width=24), *([Column("outputs of A and B")] if outputs else [])]
    return Section(
        f"{CHANGE_WORDS[change][0]}: {len(pairs):,}",
        (*_pair_columns(comparison), *shown),
        rows,
        _more(len(pairs)),
        is_closed=change in ("still_failing", "still_error"),
        name=change,
    )


def _alignments(comparison: Comparison) -> Section:
    """Both sides of each pair, with what each image misses; passing ones are included."""
    rows: list[list[Cell]] = [
        [
            *_pair_cells(pair, comparison),
            *("-" if score is None else f"{score:.1f}" for score in (item.a, item.b)),
            *(quoted(one_line(cell.reasons.get(item.grader, ""), _MAX_GAPS)) for cell in (pair.a, pair.b)),
        ]
        for item, pair in comparison.aligned_pairs(MAX_ROWS)
    ]
    gaps = [Column(name, min_width=16) for name in ("gaps in A", "gaps in B")]
    columns = (*_pair_columns(comparison), *numbers("A", "B"), *gaps)
    title = "Alignment side by side, largest loss first"
    return Section(title, columns, rows, _more(len(comparison.alignments)), is_cut=True)


def _more(number: int) -> list[Value]:
    return [dim(f"... and {number - MAX_ROWS:,} more: --json lists all")] if number > MAX_ROWS else []


def _pair_columns(comparison: Comparison) -> Iterator[Column]:
    yield Column("case [sample]" if comparison.has_samples else "case", min_width=12)
    if len(comparison.labels) > 1:
        yield Column("model run", min_width=10)


def _pair_cells(pair: CellPair, comparison: Comparison, tone: Tone = "plain") -> Iterator[Value]:
    """The case, with what is special about the pair below it, and the model run if there are several."""
    name = f"{pair.b.test_id} [{pair.b.sample_index}]" if comparison.has_samples else pair.b.test_id
    remarks = pair_remarks(pair)
    below = f"\n({', '.join(remarks)})" if remarks else ""
    yield quoted(name + below, tone, f"#pairs?{urlencode({'change': pair.change, 'q': pair.b.test_id})}")
    if len(comparison.labels) > 1:
        yield quoted(pair.b.model_label)


def pair_remarks(pair: CellPair) -> list[str]:
    """What is special about a pair."""
    remarks = {
        "must_pass": pair.must_pass,
        "flaky": pair.flaky,
        "same output": pair.same_output,
        "changed rules only": pair.is_moved_by_rules,
    }
    return [remark for remark, applies in remarks.items() if applies]


def change_lines(pair: CellPair, comparison: Comparison) -> list[str]:
    """Failed rules that changed, with reasons for those of B; then errors."""
    lines = [failed_with_reason(rule, pair.b, comparison.b.writers) for rule in pair.rules_broken]
    lines += [f"now passing: {', '.join(pair.rules_fixed)}"] if pair.rules_fixed else []
    still_failing = [rule for rule in pair.b.failed_rules if rule in pair.a.failed_rules]
    lines += [f"still failing: {', '.join(still_failing)}"] if still_failing else []
    for name, cell in (("A", pair.a), ("B", pair.b)):
        if (error := cell.error) and (name == "B" or pair.change != "still_failing"):
            lines.append(f"{name}: {error.stage}, {error.kind}: {cut_middle(error.message, _MAX_REASON)}")
    refusal = pair.b.reasons.get("refused")
    lines += [f"refused: {cut_middle(refusal, _MAX_REASON)}"] if refusal and "refused" in pair.b.failure_tags else []
    return lines


def failed_with_reason(rule: str, cell: RunCell | Record, writers: Mapping[str, str]) -> str:
    """A failed rule, and the reason of its metric or of the grader that writes it."""
    try:
        metric, shown = parse_rule(rule).metric, failed_text(rule, cell.scores)
    except ValueError:
        metric = shown = rule
    reason = cell.reasons.get(metric) or cell.reasons.get(writers.get(metric, ""), "")
    return f"{shown}: {cut_middle(reason, _MAX_REASON)}" if reason else shown


def _cost_and_time(comparison: Comparison) -> Iterator[Section]:
    """Amounts known on both sides of at least one pair."""
    cost, seconds = comparison.cost_usd, comparison.seconds
    amounts = [("USD, generation and grading", cost, ".4f")] if cost.pairs else []
    if seconds.pairs and max(seconds.a or 0, seconds.b or 0) >= 0.005:
        amounts.append(("seconds per generation", seconds, ".2f"))
    rows = [
        (name, format(amount.a or 0, form), format(amount.b or 0, form), count_of(amount.pairs, "pair"))
        for name, amount, form in amounts
    ]
    if rows:
        yield Section("Cost and time", (Column("amount", min_width=8), *numbers("A", "B"), Column("pairs")), rows)


def _cell_names(cells: Cells) -> str:
    """The first cells of the first model runs."""
    first: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for test_id, label, sample in cells.names():
        counts[label] += 1
        if counts[label] <= MAX_LISTED:
            first.setdefault(label, []).append(f"{test_id} [{sample}]")
    parts = [f"{label}: {listed(names, counts[label])}" for label, names in list(first.items())[:MAX_LISTED]]
    more_runs = len(first) - MAX_LISTED
    return "; ".join(parts) + (f"; and {more_runs} more model runs" if more_runs > 0 else "")


def comparison_json(
    comparison: Comparison, gates: Sequence[GateResult], exit_code: int, confirmation_notes: Sequence[str] = ()
) -> Iterator[str]:
    """The comparison as one JSON object, in parts: pairs are read one at a time. Those that pass are only counted."""

    def differences(*names: str) -> dict[str, list[dict[str, Any]]]:
        return {name: list(map(_difference, getattr(comparison, name))) for name in names}

    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "a": _side_data(comparison.a),
        "b": _side_data(comparison.b),
        "notes": [*notes(comparison), *confirmation_notes],
        "labels": comparison.labels,
        "counts": comparison.counts,
        "changes": map(_pair_data, comparison.differing_pairs),
        "only_a": map(_cell_name, comparison.only_a.names()),
        "only_b": map(_cell_name, comparison.only_b.names()),
        "pass_rate": _difference(comparison.pass_rate),
        **differences("metrics", "by_word", "by_run", "by_tag", "by_type"),
        "alignments": starmap(_aligned, comparison.aligned_pairs()),
        **differences("by_failure_tag"),
        "not_graded_alike": list(map(asdict, comparison.grading_differences)),
        "changed_metrics": list(map(asdict, comparison.changed_metrics)),
        "excuses": list(map(asdict, comparison.excuses)),
        "drift": None if comparison.drift is None else _drift(comparison.drift),
        "suite_text_differs": comparison.has_other_source,
        "cost_usd": asdict(comparison.cost_usd),
        "seconds": asdict(comparison.seconds),
        "gates": list(map(_gate, gates)),
        "exit_code": exit_code,
    }
    for at, (name, value) in enumerate(fields.items()):
        yield f"{', ' if at else '{'}{json.dumps(name)}: "
        if isinstance(value, Iterator):
            yield "["
            yield from (f"{', ' * bool(place)}{json.dumps(item)}" for place, item in enumerate(value))
            yield "]"
        else:
            yield json.dumps(value)
    yield "}"


def _side_data(side: Side) -> dict[str, Any]:
    return {"name": side.name, "suite": side.suite, "state": side.state, "cells": len(side.cells), "runs": side.runs}


def _cell_name(cell: CellKey) -> dict[str, Any]:
    return dict(zip(("test_id", "model_label", "sample_index"), cell, strict=True))


def _pair_data(pair: CellPair) -> dict[str, Any]:
    return {
        "change": pair.change,
        **_cell_name(pair.b.key),
        **{name: getattr(pair, name) for name in _PAIR},
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


def _cell_data(cell: RunCell) -> dict[str, Any]:
    return {**{name: getattr(cell, name) for name in _CELL}, "error": cell.error and cell.error.model_dump()}


def _gate(gate: GateResult) -> dict[str, Any]:
    """Of must_pass with its cases: ``b`` counts B's own samples, ``new`` those that confirm."""
    data: dict[str, Any] = {"fail_on": gate.fail_on.text, "state": gate.state, "message": gate.message}
    if gate.fail_on.text == MUST_PASS:
        cases = [{"state": case.state, **asdict(case)} for case in gate.cases]
        data["cases"] = [{name: fields[name] for name in _MUST_PASS_CASE} for fields in cases]
    return data


def _drift(drift: Drift) -> dict[str, Any]:
    names = "experiment", "last", "limit", "state", "message", "missing_days", "other_suites"
    return {**{name: getattr(drift, name) for name in names}, "runs": [_night(drift, night) for night in drift.nights]}


def _night(drift: Drift, night: Night) -> dict[str, Any]:
    """A run with its own difference, and the evidence of the runs up to it."""
    rate, evidence = night.difference, night.evidence
    return {
        **{name: getattr(night, name) for name in ("run_id", "started_at", "left_out", "remarks")},
        "difference": None if rate is None else rate.difference,
        "interval": None if rate is None or rate.interval is None else [rate.interval.low, rate.interval.high],
        "evidence": None if evidence is None else asdict(evidence),
        "is_drift": drift.is_beyond(night),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    metric, interval = difference.metric, difference.interval
    return {
        **{name: value for name, value in asdict(difference).items() if name not in _INTERNAL},
        "type": metric.type,
        "better": metric.better,
        "interval": None if interval is None else [interval.low, interval.high],
        "significant": difference.significant,
    }
