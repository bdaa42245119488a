"""The outcome of a run in one sentence, the same in a terminal, in Markdown and in a report."""

from __future__ import annotations

from typing import Literal

from visioneval.analysis.summary.diversity import unmeasured_groups
from visioneval.analysis.summary.findings import Summary
from visioneval.counted import count_of

Tone = Literal["pass", "fail", "error"]
_UNFINISHED = {"running": "Still running", "stopped": "Stopped before completion", "interrupted": "Interrupted"}


def outcome(summary: Summary) -> tuple[Tone, str]:
    """How good the outcome is, and what it is."""
    if summary.stopped_by == "budget":
        return "error", "Stopped by its budget"
    if summary.state in _UNFINISHED:
        return "error", _UNFINISHED[summary.state]
    if summary.unjudged_pairs:
        return "error", f"Incomplete: {unjudged_pairs_text(summary.unjudged_pairs)}"
    if text := diversity_text(summary):
        return "error", f"Incomplete: {text}"
    if summary.shard is not None and summary.exit_code == 0:
        return "error", f"Shard {summary.shard}: gates are evaluated after merging"
    return _by_exit_code(summary)


def _by_exit_code(summary: Summary) -> tuple[Tone, str]:
    """The outcome of a complete run."""
    failed = sum(gate.state == "failed" for gate in summary.gates)
    match summary.exit_code:
        case 0:
            without = ", ".join(summary.left_out_graders)
            return (
                "pass",
                f"All gates passed, without the graders left out: {without}" if without else "All gates passed",
            )
        case 1:
            return "fail", f"{failed} of {count_of(len(summary.gates), 'gate')} failed"
        case 3 if summary.counts.errors or summary.counts.unmeasured:
            cells = count_of(max(summary.counts.errors, summary.counts.unmeasured), "cell")
            return "error", f"Incomplete: {cells} could not be measured"
        case 3 if summary.counts.cells != summary.planned_cells:
            return "error", f"Incomplete: {summary.counts.cells:,} of {count_of(summary.planned_cells, 'cell')}"
        case 3 if all(gate.state != "unmeasured" for gate in summary.gates) and not failed:
            return "error", "Incomplete: the selection left nothing for the gates of the suite"
        case 3:
            return "error", "Incomplete: some values were not measured"
        case code:
            return "error", f"Exit code {code}"


def unjudged_pairs_text(unjudged: int) -> str:
    """How many pairs of outputs have no answer from a judge."""
    return f"{count_of(unjudged, 'pair')} could not be judged"


def diversity_text(summary: Summary) -> str:
    """How many sets of samples a grader failed to measure; empty if none."""
    failed = unmeasured_groups(summary.diversity)
    return f"{failed:,} set{'s' * (failed != 1)} of samples could not be compared" if failed else ""
