"""What every tracker shows of a run: parameters, metrics with their intervals, gates and tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from visioneval.analysis.scores import Estimate
from visioneval.analysis.summary.counts import Counts, ModelFindings
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import ExitCode, count_of
from visioneval.export.details import as_text
from visioneval.records.model import RunInfo
from visioneval.report.text import clean, one_line
from visioneval.types import Frozen

RUN_ID = "visioneval.run_id"
STARTED_AT = "visioneval.started_at"
MODEL_RUN = "visioneval.model_run"
PREFIX, GATE = "visioneval.", "gate."
"""How the names of all tags begin."""
_RESULTS = {
    ExitCode.PASSED: "passed",
    ExitCode.GATE_FAILED: "gate failed",
    ExitCode.INCOMPLETE: "incomplete",
    ExitCode.INTERRUPTED: "interrupted",
}
_HIDDEN_PARAMS = ("label", "tasks", "api_key_env")
_MAX_LISTED = 200
_MAX_TEXT = 2_000
_MAX_GATES = 20


@dataclass(frozen=True, slots=True)
class TrackedEntry:
    """One entry of a tracker: a whole run, or one of its model runs (``label``).

    Names and texts are not limited to what a tracker accepts.
    """

    name: str
    label: str | None
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as a tracker shows it: an entry for all of it and one for each model run, in one experiment."""

    experiment: str
    info: RunInfo
    summary: Summary
    overall: TrackedEntry
    model_runs: tuple[TrackedEntry, ...]

    @property
    def entries(self) -> tuple[TrackedEntry, ...]:
        """All entries, the whole run first."""
        return self.overall, *self.model_runs

    @property
    def is_complete(self) -> bool:
        """Whether it has all planned cells."""
        return self.info.state == "complete" and self.summary.counts.cells >= self.info.planned_cells

    @property
    def started(self) -> datetime:
        """When it started."""
        return datetime.fromisoformat(self.info.started_at).astimezone()

    @property
    def ended(self) -> datetime | None:
        """When it ended, if it did."""
        return datetime.fromisoformat(self.info.ended_at).astimezone() if self.info.ended_at else None


def tracked_run(info: RunInfo, summary: Summary, experiment: str | None = None) -> TrackedRun:
    """Collects what is sent of a run. ``experiment`` replaces the one of the suite."""
    common = _common_tags(info, summary)
    entries = {str(entry.label): entry for entry in info.selected_suite.models}
    overall = TrackedEntry(
        info.run_id,
        None,
        _suite_params(info),
        dict(_run_metrics(summary)),
        {**common, "visioneval.kind": "run", **dict(_gate_tags(summary.gates))},
    )
    model_runs = tuple(
        TrackedEntry(
            model.label,
            model.label,
            dict(_entry_params(entries.get(model.label))),
            dict(_model_metrics(model)),
            {**common, "visioneval.kind": "model_run", MODEL_RUN: model.label},
        )
        for model in summary.models
    )
    return TrackedRun(experiment or info.experiment or info.suite.name, info, summary, overall, model_runs)


def _common_tags(info: RunInfo, summary: Summary) -> dict[str, str]:
    selection = info.selection.model_dump(mode="json", exclude_defaults=True)
    is_complete = info.state == "complete" and summary.counts.cells >= info.planned_cells
    tags = {
        RUN_ID: info.run_id,
        STARTED_AT: info.started_at,
        "visioneval.suite": info.suite.name,
        "visioneval.experiment": info.experiment,
        "visioneval.state": info.state,
        "visioneval.result": _RESULTS.get(ExitCode(summary.exit_code)),
        "visioneval.incomplete": None if is_complete else "true",
        "visioneval.stopped_by": info.stopped_by,
        "visioneval.selection": as_text(selection) if selection else None,
        "visioneval.note": info.note,
        "visioneval.graded_from": info.graded_from,
        "visioneval.merged_from": ", ".join(info.merged_from) or None,
        "visioneval.version": info.visioneval_version,
        "visioneval.git_commit": info.git_commit,
    }
    return {name: clean(value) for name, value in tags.items() if value}


def _gate_tags(gates: tuple[GateFinding, ...]) -> Iterator[tuple[str, str]]:
    """One for each gate: its state, rule, scope and value."""
    digits = len(str(len(gates)))
    for number, gate in enumerate(gates[:_MAX_LISTED], 1):
        yield f"{GATE}{number:0{digits}}", gate_text(gate)


def gate_text(gate: GateFinding) -> str:
    """A gate on one line: ``failed: pass_rate >= 0.9 (0.71 over 14 cells; tags: logo)``."""
    value = "not measured" if gate.value is None else f"{gate.value:.6g} over {count_of(gate.n, 'cell')}"
    scope = f"; {gate.scope}" if gate.scope else ""
    return one_line(f"{gate.state}: {gate.rule} ({value}{scope})")


def _suite_params(info: RunInfo) -> dict[str, str]:
    suite = info.selected_suite
    params = {
        "suite": suite.name,
        "suite_sha256": info.source_sha256,
        "cases": str(len(suite.cases)),
        "model_runs": str(len(suite.models)),
        "samples": str(suite.samples if info.selection.samples is None else info.selection.samples),
        **{f"judge.{name}": judge.title for name, judge in suite.judges.items()},
        **{f"rule.{number:02}": str(rule.rule) for number, rule in enumerate(suite.verdict[:_MAX_LISTED], 1)},
    }
    return {name: clean(value) for name, value in params.items()}


def _entry_params(entry: Frozen | None) -> Iterator[tuple[str, str]]:
    """The options of a model run, nested ones by dotted names. ``params.quality`` is ``quality``."""
    if entry is None:
        return
    options: dict[str, Any] = entry.model_dump(mode="json", exclude_defaults=True)
    for path, value in _flat(options, ()):
        if path[0] not in _HIDDEN_PARAMS:
            yield ".".join(path[1:] if path[0] == "params" and len(path) > 1 else path), clean(value)


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(item, (*path, str(key)))
    elif value not in (None, {}, [], ()):
        yield path, as_text(value) or ""


def _run_metrics(summary: Summary) -> Iterator[tuple[str, float]]:
    yield from _counts(summary.counts)
    states = [gate.state for gate in summary.gates]
    for state in ("passed", "failed", "cannot_tell", "skipped", "unmeasured", "deferred"):
        yield f"gates/{state}", states.count(state)
    yield from _costs(summary.cost_usd, summary.unpriced)
    yield from _failure_tags(summary.failure_tags)


def _model_metrics(model: ModelFindings) -> Iterator[tuple[str, float]]:
    for name, estimate in model.metrics.items():
        yield from _bounds(name, estimate)
    for name, estimate in model.metrics.items():  # a metric named look_low is more than the lower bound of another
        if estimate.value is not None:
            yield name, estimate.value
    yield from _counts(model.counts)
    yield from _costs(model.cost_usd, model.unpriced)
    yield "time/mean_seconds", model.seconds
    yield from _failure_tags(model.failure_tags)


def _counts(counts: Counts) -> Iterator[tuple[str, float]]:
    if counts.pass_rate.value is not None:
        yield "pass_rate", counts.pass_rate.value
    yield from _bounds("pass_rate", counts.pass_rate)
    yield "cells/all", counts.cells
    for name in ("passed", "failed", "errors", "refused", "unmeasured"):
        yield f"cells/{name}", getattr(counts, name)


def _bounds(name: str, estimate: Estimate) -> Iterator[tuple[str, float]]:
    """The 95 % interval of a mean. What was not measured is left out: it is no number."""
    if estimate.low is not None and estimate.high is not None:
        yield from ((f"{name}_low", estimate.low), (f"{name}_high", estimate.high))


def _costs(usd: float | None, unpriced: int) -> Iterator[tuple[str, float]]:
    if usd is not None:
        yield "cost/usd", usd
    yield "cost/unpriced", unpriced


def _failure_tags(tags: Mapping[str, int]) -> Iterator[tuple[str, float]]:
    """The number of cells with each tag, the most frequent ones."""
    for tag, cells in list(tags.items())[:_MAX_LISTED]:
        yield f"failure_tags/{tag.replace('/', '_')}", cells


def description(run: TrackedRun) -> str:
    """A run in Markdown: its note, result, counts and gates."""
    counts = run.summary.counts
    parts = (
        (counts.passed, "PASS"),
        (counts.failed, "FAIL"),
        (counts.errors, "ERROR"),
        (counts.unmeasured, "unmeasured"),
    )
    lines = [
        *([shortened(run.info.note)] if run.info.note else []),
        f"**{run.overall.tags.get('visioneval.result', run.info.state)}**: "
        + ", ".join(f"{count:,} {name}" for count, name in parts if count)
        + f" of {run.info.planned_cells:,} cells",
        "\n".join(f"- `{gate_text(gate).replace('`', chr(39))}`" for gate in run.summary.gates[:_MAX_GATES]),
    ]
    return "\n\n".join(lines)


class SafeNames:
    """Gives names that a tracker accepts; no two names become the same."""

    def __init__(self, refused: str, longest: int) -> None:
        """``refused`` is a pattern of characters that become ``_``; ``longest`` is in characters."""
        self._refused, self._longest = re.compile(refused), longest

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values by their safe names."""
        safe: dict[str, Any] = {}
        for name, value in values.items():
            base = self._refused.sub("_", name)[: self._longest].strip() or "_"
            key, number = base, 1
            while key in safe:
                number += 1
                suffix = f"-{number}"
                key = f"{base[: self._longest - len(suffix)]}{suffix}"
            safe[key] = value
        return safe


def shortened(text: str, longest: int = _MAX_TEXT) -> str:
    """Text without control characters, cut to ``longest`` characters."""
    safe = clean(text)
    return safe if len(safe) <= longest else f"{safe[: longest - 3]}..."
