"""A probe in a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType

from visioneval.analysis.probe import ProbeFindings, ProbeGate, ProbeRate
from visioneval.report import probe_texts as texts
from visioneval.report.terminal.table import Column, table
from visioneval.report.text import plain

_COLORS = {"passed": "green", "failed": "red", "unmeasured": "yellow"}


def print_probe(findings: ProbeFindings, console: Console) -> None:
    """Prints the rates, the weakest strengths that are caught, what was skipped, and the gates."""
    console.print(plain(texts.title(findings), "bold"))
    if findings.detections:
        console.print()
        console.print(_rates("damage", findings.detections, findings, console.width))
        console.print(plain(texts.ABOUT, "dim"))
    if findings.false_alarms:
        console.print()
        console.print(_rates("harmless change", findings.false_alarms, findings, console.width))
        console.print(plain(texts.ABOUT_FALSE_ALARMS, "dim"))
    if findings.weakest:
        console.print()
        console.print(plain(texts.ABOUT_WEAKEST))
        columns = [Column("damage"), *(Column(name) for name in texts.metrics_of(findings))]
        console.print(table(columns, list(texts.weakest_rows(findings)), console.width))
    console.print()
    for note in findings.notes:
        console.print(plain(note, "dim"))
    for gate in findings.gates:
        console.print(_gate(gate))
    if (stopped := texts.stopped_text(findings)) is not None:
        console.print(plain(stopped, "yellow"))


def _rates(what: str, rates: Sequence[ProbeRate], findings: ProbeFindings, width: int) -> RenderableType:
    rows = list(texts.rate_rows(rates, findings, brief=True))
    first, *others = texts.rate_columns(what, findings)
    shown = [at for at, name in enumerate((first, *others)) if name != "not measured" or any(row[at] for row in rows)]
    columns = [Column(first), *(Column(name, right=True) for name in others)]
    return table([columns[at] for at in shown], [[row[at] for at in shown] for row in rows], width)


def _gate(gate: ProbeGate) -> RenderableType:
    return plain(f"{gate.state:10} {gate.gate}: {gate.message}", _COLORS[gate.state])
