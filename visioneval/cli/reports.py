"""The reports that ``run`` writes beside its run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def check_reports(*paths: Path | None) -> None:
    """Raises ``UsageError`` where a report that is asked for could not be written."""
    from visioneval.report.files import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def write_reports(folders: Sequence[Path], junit: Path | None, markdown: Path | None) -> None:
    """Writes what was asked for, of all the runs in one file. Raises ``UsageError`` where that cannot be."""
    if junit is None and markdown is None:
        return
    from visioneval.analysis.summary import summarize
    from visioneval.records.model import read_info, read_records
    from visioneval.report.files import write_report
    from visioneval.report.junit import junit_xml
    from visioneval.report.markdown import summary_markdown

    runs = [(folder, read_info(folder), list(read_records(folder))) for folder in folders]
    if junit is not None:
        write_report(junit, junit_xml(runs))
    if markdown is not None:
        write_report(markdown, "\n".join(summary_markdown(summarize(info, records)) for _, info, records in runs))
