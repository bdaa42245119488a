"""The report files that ``run`` and ``grade`` write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visioneval.api.runs import Run


def check_reports(*paths: Path | None) -> None:
    """Raises ``UsageError`` if a report cannot be written, before any paid call."""
    from visioneval.report.files import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def write_reports(runs: Sequence[Run], junit: Path | None, markdown: Path | None) -> None:
    """Writes all runs into one file of each kind. Raises ``UsageError`` if a file cannot be written."""
    from visioneval.report.files import write_report

    if junit is not None:
        from visioneval.report.junit import junit_xml

        write_report(junit, junit_xml([(run.folder, run.info, run.records, run.summary) for run in runs]))
    if markdown is not None:
        from visioneval.report.markdown import summary_markdown

        write_report(markdown, "\n".join(summary_markdown(run.summary) for run in runs))
