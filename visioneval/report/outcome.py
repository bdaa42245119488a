"""The outcome of a run in one sentence, the same in a terminal, in Markdown and in a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from visioneval.analysis.left_out import NeverAsked
from visioneval.analysis.summary.summary import Summary, unmeasured_groups
from visioneval.errors import count_of
from visioneval.rules import parse_gate

Tone = Literal["pass", "fail", "error"]
_STOPPED = {
    "budget": "Stopped by its budget",
    "refused_key": "Stopped by a refused API key",
    "quota": "Stopped by a spent quota",
}
_UNFINISHED = {"running": "Still running", "stopped": "Stopped before completion", "interrupted": "Interrupted"}


def outcome(summary: Summary) -> tuple[Tone, str]:
    """How good the outcome is, and what it is."""
    if summary.stopped_by is not None:
        return "error", _STOPPED[summary.stopped_by]
    if summary.state in _UNFINISHED:
        return "error", _UNFINISHED[summary.state]
    for text in not_compared(summary):
        return "error", f"Incomplete: {text}"
    if summary.never_asked:
        return "error", f"Incomplete: some judges or models were never asked{_failed_too(summary)}"
    if summary.shard is not None and summary.exit_code == 0:
        return "error", f"Shard {summary.shard}: gates are evaluated after merging"
    return _by_exit_code(summary)


def _by_exit_code(summary: Summary) -> tuple[Tone, str]:
    """The outcome of a complete run."""
    failed = sum(gate.state == "failed" for gate in summary.gates)
    undecided = sum(gate.state == "cannot_tell" for gate in summary.gates)
    match summary.exit_code:
        case 0:
            return "pass", f"All gates passed{_left_out(summary)}{_expected(summary)}"
        case 1:
            return "fail", f"{failed} of {count_of(len(summary.gates), 'gate')} failed"
        case 3 if summary.counts.errors or summary.counts.unmeasured:
            return "error", f"Incomplete: {_unmeasured_cells(summary)}{_failed_too(summary)}"
        case 3 if summary.counts.cells != summary.planned_cells:
            return "error", f"Incomplete: {summary.counts.cells:,} of {count_of(summary.planned_cells, 'cell')}"
        case 3 if undecided and all(gate.state != "unmeasured" for gate in summary.gates):
            return "error", f"{undecided} of {count_of(len(summary.gates), 'gate')} cannot tell{_failed_too(summary)}"
        case 3 if all(gate.state != "unmeasured" for gate in summary.gates) and not failed:
            return "error", "Incomplete: the selection left nothing for the gates of the suite"
        case 3:
            return "error", f"Incomplete: some values were not measured{_failed_too(summary)}"
        case code:
            return "error", f"Exit code {code}"


def _expected(summary: Summary) -> str:
    """Why all gates passed although most cells failed."""
    failed = summary.counts.failed
    return f": {failed:,} failed, as the gates expect" if failed > summary.counts.passed else ""


def _left_out(summary: Summary) -> str:
    """What the flags of a run have left out of its gates. Without rules, there is no pass rate that could be."""
    skipped = sum(gate.state == "skipped" for gate in summary.gates)
    without = ", ".join(summary.left_out_graders)
    parts = (
        f", {skipped} skipped" if skipped and not summary.counts.without_verdict else "",
        f", without the graders left out: {without}" if without else "",
    )
    return "".join(parts)


def _unmeasured_cells(summary: Summary) -> str:
    """How many cells are errors, and on how many outputs a grader failed; one number where these are the same cells."""
    errors, unmeasured = summary.counts.errors, summary.counts.unmeasured
    if errors == unmeasured:
        return f"{count_of(errors, 'cell')} could not be measured"
    parts = [
        f"{count_of(errors, 'cell')} ended in an error" * bool(errors),
        f"a grader failed on {count_of(unmeasured, 'output')}" * bool(unmeasured),
    ]
    return ", ".join(filter(None, parts))


def _failed_too(summary: Summary) -> str:
    """How many gates failed, if one of them is about outputs and not about errors; else empty."""
    failed = [parse_gate(gate.rule) for gate in summary.gates if gate.state == "failed"]
    if all(gate.is_about_errors for gate in failed):
        return ""
    return f"; {len(failed)} of {count_of(len(summary.gates), 'gate')} failed"


def error_note(summary: Summary) -> str:
    """What ``error_rate`` and ``unmeasured_rate`` count, where cells are in one and not in the other; else empty."""
    if summary.counts.errors == summary.counts.unmeasured:
        return ""
    return (
        "error_rate counts cells without a verdict, such as those without an output;"
        " unmeasured_rate counts outputs that a grader failed on, whatever their verdict."
    )


def not_compared(summary: Summary) -> Iterator[str]:
    """How many pairs have no answer from a judge, and how many sets of samples a grader failed to measure."""
    if summary.unjudged_pairs:
        yield f"{count_of(summary.unjudged_pairs, 'pair')} could not be judged"
    if failed := unmeasured_groups(summary.diversity):
        yield f"{count_of(failed, 'set')} of samples could not be compared"


def never_asked_text(never_asked: Sequence[NeverAsked]) -> str:
    """Which judges and models were not asked about how many cells, pairs or outputs; empty if all were."""
    counted = (
        f"{entry.name} {'of' if entry.what == 'output' else 'about'} {count_of(entry.number, entry.what)}"
        for entry in never_asked
    )
    return f"never asked: {', '.join(counted)}" if never_asked else ""
