"""Comparisons and agreement of runs, rendered when they are asked for."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.agreement.answers import read_labeled
from visioneval.analysis.compare.decision import decide, parse_criteria
from visioneval.analysis.compare.filters import ComparisonFilters
from visioneval.analysis.compare.reading import compare_stored
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.report.compare.page import comparison_page
from visioneval.report.html.pages import PageFrame
from visioneval.report.terminal.agreement.agreement import print_agreement

_WIDTH = 110


def render_comparison(a: Path, b: Path, frame: PageFrame) -> str:
    """The page of ``visioneval compare A B`` with its default gates. Raises ``UsageError`` and ``RunFormatError``."""
    notes: list[str] = []
    criteria = parse_criteria()
    comparison = compare_stored(
        str(a), str(b), a.parent, criteria.gates, filters=ComparisonFilters(), warn=notes.append
    )
    comparison = replace(
        comparison, a=replace(comparison.a, name=a.name), b=replace(comparison.b, name=b.name)
    )  # not by their paths
    results = decide(comparison, criteria)
    for folder in (a, b):
        fetch_outputs(folder)
    return comparison_page(comparison, results, frame)


def agreement_text(run: Path) -> str:
    """What ``visioneval agreement`` prints. Raises ``UsageError``, also for a run without labels."""
    notes: list[str] = []
    result = agree([read_labeled(str(run), run.parent, notes.append)], [])
    stream = io.StringIO()
    print_agreement(result, Console(file=stream, width=_WIDTH, color_system=None, force_terminal=False))
    return "\n".join([*notes, stream.getvalue()])
