"""A probe as Markdown, for a job summary or a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from visioneval.analysis.probe import ProbeFindings
from visioneval.report import probe_texts as texts
from visioneval.report.markdown import code

MAX_MISSED = 20
_STATES = {"passed": "passed", "failed": "**FAILED**", "unmeasured": "**NOT MEASURED**"}


def probe_markdown(findings: ProbeFindings) -> str:
    """The whole text."""
    return "\n".join(_lines(findings)) + "\n"


def _lines(findings: ProbeFindings) -> Iterator[str]:
    yield f"## Probe of {code(texts.title(findings))}"
    if (stopped := texts.stopped_text(findings)) is not None:
        yield from ("", code(stopped))
    for gate in findings.gates:
        yield from ("", f"{_STATES[gate.state]} {code(gate.gate)}: {gate.message}")
    names = [name if name == texts.ANY else code(name) for name in texts.metrics_of(findings)]
    if findings.weakest:
        yield from ("", texts.ABOUT_WEAKEST, "")
        yield from _table(["damage", *names], texts.weakest_rows(findings))
    for what, rates, about in (
        ("damage", findings.detections, texts.ABOUT),
        ("harmless change", findings.false_alarms, texts.ABOUT_FALSE_ALARMS),
    ):
        if rates:
            yield from ("", about, "")
            yield from _table([*texts.rate_columns(what, findings)[:3], *names], texts.rate_rows(rates, findings))
    if findings.missed:
        yield from ("", f"Missed: {len(findings.missed):,}", "")
        yield from (f"- {code(texts.missed_text(missed))}" for missed in findings.missed[:MAX_MISSED])
        if len(findings.missed) > MAX_MISSED:
            yield f"- and {len(findings.missed) - MAX_MISSED:,} more: see `--json` or `--html`"
    if findings.notes:
        yield ""
        yield from (f"- {code(note)}" for note in findings.notes)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(columns)
    yield _row(["---"] * len(columns))
    yield from (_row([f"`{row[0]}`", *row[1:]]) for row in rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
