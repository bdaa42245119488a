"""Template values for the overview of a report: facts, rates, distributions, costs and gates. Pure functions."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from visioneval.analysis.scores import Estimate
from visioneval.analysis.summary.counts import CostFinding, Counts, ModelFindings
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.graders import QuestionFindings
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import count_of
from visioneval.records.model import RunInfo
from visioneval.report.html import plots
from visioneval.report.html.distributions import CellNumbers, generation_rows, grading_rows, metric_rows
from visioneval.report.html.plots import PlotInterval
from visioneval.report.numbers import REPEAT_FAILS, bound_note, gate_repeat, gate_value, show_interval
from visioneval.report.outcome import error_note, never_asked_text, outcome
from visioneval.report.terminal.agreement.judge_card import judge_tables
from visioneval.report.terminal.noise import noise_lines, noise_rows
from visioneval.report.terminal.run.diversity import HEADINGS, TITLE, diversity_rows
from visioneval.report.terminal.run.separation import left_out_text
from visioneval.report.terminal.run.summary import reused, show_rate, unmeasured_text
from visioneval.report.text import panel_lines, rerouting_text

GATE_LABELS = {
    "passed": "passed",
    "failed": "failed",
    "cannot_tell": "cannot tell",
    "unmeasured": "not measured",
    "skipped": "skipped",
    "deferred": "after merging",
}


@dataclass(frozen=True, slots=True)
class RateRow:
    """The pass rate of a group of cells, as text and as a plot, with a link to its gallery."""

    name: str
    link: str
    counts: Counts
    text: str
    interval: PlotInterval
    note: str = ""


@dataclass(frozen=True, slots=True)
class CountRow:
    """A count of cells."""

    name: str
    link: str
    number: int
    width: float


def overview(info: RunInfo, numbers: CellNumbers, summary: Summary) -> dict[str, Any]:
    """All values of ``report.html.j2`` except styles, scripts and data blocks."""
    return {
        "title": f"{summary.suite} \u2013 {summary.run_id}",
        "summary": summary,
        "facts": _facts(info),
        "outcome": outcome(summary),
        "error_note": error_note(summary),
        "bar": plots.verdict_bar(summary.counts, _bar_width(summary)),
        "plot": {"width": plots.WIDTH, "height": plots.HEIGHT, "ends": plots.interval_ends()},
        "small": {"width": plots.SMALL_WIDTH, "height": plots.SMALL_HEIGHT},
        "models": [_model_row(model, summary) for model in summary.models],
        "stand_in": any(model.stand_in for model in summary.models),
        "tags": [_rate_row(tag, counts, "tag") for tag, counts in summary.tags.items()],
        "failure_tags": _count_rows(summary.failure_tags, "failure"),
        "warned_rules": _count_rows(summary.warned_rules, ""),
        "unmeasured": unmeasured_text(summary.counts.unmeasured) if summary.counts.unmeasured else "",
        "never_asked": never_asked_text(summary.never_asked),
        "reroutings": [rerouting_text(rerouting) for rerouting in summary.reroutings],
        "optional_unmeasured": _count_rows(summary.optional_unmeasured, ""),
        "disagreements": {
            key: disagreement for key, disagreement in summary.judge_disagreements.items() if disagreement.judged
        },
        "panels": [line for key, panel in summary.panels.items() for line in panel_lines(key, panel)],
        "diversity": {"title": TITLE, "headings": HEADINGS, "rows": diversity_rows(summary)},
        "metrics": metric_rows(summary, numbers),
        "reused": reused(summary) if summary.reused_outputs else "",
        "costs": _costs(summary),
        "questions": {key: _question_rows(disagreement) for key, disagreement in summary.questions.items()},
        "separations": summary.separations,
        "left_out_text": left_out_text(summary),
        "judge_tables": judge_tables(summary),
        "noise": dict(zip(("columns", "rows"), noise_rows(summary.noise), strict=True)),
        "noise_lines": list(noise_lines(summary.noise)),
        "show_interval": show_interval,
        "generation": generation_rows(summary, numbers),
        "grading": grading_rows(numbers),
        "repeat_fails": REPEAT_FAILS,
        "gates": [(gate, _gate_text(gate, is_final=summary.state != "running")) for gate in summary.gates],
    }


def link(**state: str) -> str:
    """The link to the gallery with these filters."""
    return f"#gallery?{urlencode(state)}"


def _costs(summary: Summary) -> list[CostFinding]:
    """Costs with any paid, cached or unknown cell: generations first, then judgments."""
    relevant = (cost for cost in summary.costs if cost.paid or cost.cached or cost.unknown)
    return sorted(relevant, key=lambda cost: cost.what)


def _facts(info: RunInfo) -> list[tuple[str, str]]:
    chosen = info.selection.model_dump(exclude_defaults=True)
    rows = {
        "run": info.run_id,
        "experiment": info.experiment,
        "note": info.note,
        "description": info.suite.description,
        "started": f"{info.started_at[:19].replace('T', ' ')} UTC",
        "took": _took(info),
        "resumed": ", ".join(info.resumed_at),
        "state": info.state if info.state != "complete" else None,
        "suite": info.suite_path,
        "judges": ", ".join(f"{name}: {_judge(judge)}" for name, judge in info.suite.judges.items()),
        "selected": "; ".join(f"{name}: {_listed(value)}" for name, value in chosen.items()),
        "command": shlex.join(info.command_line),
        "commit": info.git_commit and info.git_commit[:12],
        "created by": f"visioneval {info.visioneval_version}, Python {info.python_version}",
    }
    return [(name, value) for name, value in rows.items() if value]


def _judge(judge: Any) -> str:
    parts = (getattr(judge, "provider", ""), getattr(judge, "model", "") or getattr(judge, "path", ""))
    return " ".join(str(part) for part in parts if part)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _took(info: RunInfo) -> str | None:
    """The duration of the run, or ``None`` if start or end is unknown or invalid."""
    try:
        start, end = datetime.fromisoformat(info.started_at), datetime.fromisoformat(info.ended_at or "")
        seconds = int((end - start).total_seconds())
    except (ValueError, TypeError):
        return None
    if seconds < 0:  # the clock was set back during the run
        return None
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "under 1 s"


def _model_row(model: ModelFindings, summary: Summary) -> RateRow:
    """Marks mock model runs, unless all are: then the page says so once."""
    mixed = not all(other.stand_in for other in summary.models)
    note = "not a model" if model.stand_in and mixed else ""
    return _rate_row(model.label, model.counts, "model", note)


def _rate_row(name: str, counts: Counts, kind: str, note: str = "") -> RateRow:
    rate = counts.pass_rate
    return RateRow(name, link(**{kind: name}), counts, show_rate(rate), plots.interval(rate), note)


def _count_rows(counts: dict[str, int], kind: str) -> list[CountRow]:
    top = max(counts.values(), default=1)
    return [
        CountRow(name, link(**{kind: name}) if kind else "", number, round(number / top * plots.WIDTH, 1))
        for name, number in counts.items()
    ]


def _question_rows(questions: QuestionFindings) -> list[tuple[str, list[Estimate | None]]]:
    """Scores by question type and over all, per model run; ``None`` without such questions."""
    kinds = dict.fromkeys(kind for model in questions.models.values() for kind in model.types)
    rows = [(kind, [model.types.get(kind) for model in questions.models.values()]) for kind in kinds]
    return [*rows, ("all", [model.all for model in questions.models.values()])]


def _bar_width(summary: Summary) -> float:
    """Of the verdicts, in which the cells that a run still lacks have their part."""
    if summary.state != "running" or not summary.planned_cells:
        return 600.0
    return 600.0 * min(1.0, summary.counts.cells / summary.planned_cells)


def _gate_text(gate: GateFinding, *, is_final: bool) -> tuple[str, str, str]:
    """The gate's state, its value and how often a repeated run fails it, as text."""
    missing = gate.note or (count_of(gate.errors, "error") if gate.errors else "")
    missing = "; ".join(filter(None, (missing, bound_note(gate))))
    label = GATE_LABELS[gate.state] if is_final else f"{GATE_LABELS[gate.state]} so far"
    return label, f"{gate_value(gate)} (n={gate.n}{f', {missing}' if missing else ''})", gate_repeat(gate)
