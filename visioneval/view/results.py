"""Comparisons and agreement of runs, rendered when they are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.agreement.answers import read_labeled
from visioneval.analysis.compare.decision import compare_stored, decide, parse_criteria
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.report.agreement import agreement_report
from visioneval.report.html.compare import comparison_page
from visioneval.report.html.pages import PageFrame, sections_page
from visioneval.report.sections import quoted


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


def render_agreement(run: Path, frame: PageFrame) -> str:
    """The page of ``visioneval agreement RUN``. Raises ``UsageError``, also for a run without labels."""
    notes: list[str] = []
    report = agreement_report(agree([read_labeled(str(run), run.parent, notes.append)]))
    return sections_page(replace(report, lines=[*map(quoted, notes), *report.lines]), frame)
