"""All runs of a folder as static files, for a bucket or a web server: index, reports, comparisons."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from urllib.parse import quote

from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import decide, parse_criteria
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.redaction import NOTHING, Redaction, check_redact
from visioneval.analysis.run_lookup import read_sides
from visioneval.analysis.summary.counts import most_common
from visioneval.atomic import write_whole
from visioneval.errors import UsageError, VisionEvalError, count_of
from visioneval.records.model import RunInfo, read_info
from visioneval.records.runs import with_current_state
from visioneval.records.stores.lookup import copies_at, display_name, fetch_outputs
from visioneval.report.html.compare import comparison_page
from visioneval.report.html.images import FolderImages
from visioneval.report.html.pages import PageFrame
from visioneval.report.html.report import MARK, GalleryFilters, prepare_folder, read_slim, suite_folder, write_files
from visioneval.report.text import one_line
from visioneval.serve.baseline_line import references
from visioneval.serve.index import BACK, STYLE, RunListing, RunRow, index_page, read_asset, run_address, series
from visioneval.settings import MAX_GALLERY_CELLS
from visioneval.suite.model import Suite

SITE = "visioneval-site"
"""Marks a folder as a site that may be written again."""
_RUNS, _COMPARISONS = "run", "compare"
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """What a site has: the runs of one experiment or all, the last of each, and at most so many cells in a gallery."""

    experiment: str | None = None
    last: int | None = None
    metrics: tuple[str, ...] = ()
    max_cells: int = MAX_GALLERY_CELLS
    trust: bool = False
    redact: tuple[str, ...] = ()
    """Tags of cases of which no image and no text about one is in the site. One run tags a case for all."""


def write_site(root: Path, target: Path, options: SiteOptions, log: Log) -> Path:
    """Writes or updates the site and returns the path of its index.

    What is in the site of runs that are gone is deleted. Raises ``UsageError`` if the folder has other files, or if
    there are no runs.
    """
    if copies_at(root) is None and not root.is_dir():
        raise UsageError(f"{root}: there is no such folder of runs; name one with --runs")
    rows = _selected(RunListing(root).rows(), options)
    if not rows:
        raise UsageError(f"{display_name(root)}: no runs here" + (" of this experiment" if options.experiment else ""))
    try:
        redact = _redaction(root, rows, options)
        _prepare(target)
        rows = [row if row.problem else _write_report(root, row, target, options, redact, log) for row in rows]
        links = _write_comparisons(root, [row for row in rows if not row.problem], target, redact, log)
        _delete_others(target / _RUNS, {row.run_id for row in rows if not row.problem})
        _delete_others(target / _COMPARISONS, {f"{run_id}.html" for run_id in links})
        write_whole(target / STYLE, read_asset(STYLE))
        rows.sort(key=lambda row: bool(row.problem))
        baselines = references(rows, root)
        page = index_page(rows, one_line(display_name(root)), options.metrics, links=links, baselines=baselines)
        write_whole(target / "index.html", page)
    except OSError as error:
        raise UsageError(f"{target}: cannot write the site: {error.strerror or error}") from None
    return target / "index.html"


def _selected(rows: Sequence[RunRow], options: SiteOptions) -> list[RunRow]:
    """The runs of the experiment, or all, with those that cannot be read; of each experiment the last ones."""
    chosen: list[RunRow] = []
    counts: Counter[str] = Counter()
    for row in reversed(rows):
        if options.experiment not in (None, row.experiment):
            continue
        counts[row.experiment] += not row.problem
        if row.problem or options.last is None or counts[row.experiment] <= options.last:
            chosen.append(row)
    return chosen[::-1]


def _prepare(target: Path) -> None:
    """Creates the folder. Refuses one with other files and links."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target}: is a file: use a folder as --output")
    if target.is_dir() and any(target.iterdir()) and not (target / SITE).is_file():
        raise UsageError(f"{target}: contains files that are not part of a site: use another --output")
    for path in (target, target / _RUNS, target / _COMPARISONS):
        if path.is_symlink():
            raise UsageError(f"{path}: is a symbolic link: use an --output without symbolic links")
        path.mkdir(parents=True, exist_ok=True)
    write_whole(target / SITE, "The folder of a site that visioneval wrote.\n")


def _redaction(root: Path, rows: Sequence[RunRow], options: SiteOptions) -> Redaction:
    """The cases that are redacted in all runs. Raises ``UsageError`` for a tag that none of them has."""
    suites: list[Suite] = []
    for row in rows if options.redact else ():
        with suppress(VisionEvalError):  # said when its report is written
            suites.append(read_info(root / row.run_id).suite)
    check_redact(options.redact, *suites)
    return Redaction.by(options.redact).over(*suites)


def _write_report(root: Path, row: RunRow, target: Path, options: SiteOptions, redact: Redaction, log: Log) -> RunRow:
    """Writes the report of a run. Returns its row, with the reason if it cannot be read."""
    folder, report = root / row.run_id, target / _RUNS / row.run_id
    try:
        prepare_folder(report, is_redacted=bool(redact.tags))
        info = with_current_state(folder, read_info(folder))
        fetch_outputs(folder)
        run = read_slim(folder, info, None, GalleryFilters(max_cells=options.max_cells, redact=redact))
        images = FolderImages(folder, suite_folder(info), report, trust=options.trust)
        frame = PageFrame(((BACK, "../../index.html"),), live_notice(info, len(run.records)))
        write_files(run, report, images, frame)
    except VisionEvalError as error:
        text = one_line(display_name(str(error)))
        log(f"skipped: {text}")
        return RunRow(row.run_id, text, state="unreadable")
    if redact.tags and row.summary is not None:
        tags = Counter(tag for record in run.records for tag in record.failure_tags)
        row = replace(row, summary=row.summary.model_copy(update={"failure_tags": most_common(tags)}))
    return row


def _write_comparisons(root: Path, rows: Sequence[RunRow], target: Path, redact: Redaction, log: Log) -> dict[str, str]:
    """Compares each finished run of an experiment with the suite's one before. Returns the addresses, by run B."""
    links: dict[str, str] = {}
    for before, after in chain.from_iterable(map(pairwise, series(rows).values())):
        name = f"{after.run_id}.html"
        pages = ((row.run_id, f"../{run_address(row.run_id)}index.html") for row in (before, after))
        try:
            frame = PageFrame(((BACK, "../index.html"), *pages))
            page = render_comparison(root / before.run_id, root / after.run_id, frame, redact)
        except VisionEvalError as error:
            log(f"not compared: {one_line(display_name(str(error)))}")
            continue
        write_whole(target / _COMPARISONS / name, page)
        links[after.run_id] = f"{_COMPARISONS}/{quote(name)}"
    return links


def _delete_others(folder: Path, names: set[str]) -> None:
    """Deletes reports and comparisons of runs that are not in the site any more."""
    for path in folder.iterdir():
        if path.name in names or path.is_symlink():
            continue
        if path.is_dir() and (path / MARK).is_file():
            shutil.rmtree(path)
        elif path.is_file() and path.suffix == ".html":
            path.unlink()


def live_notice(info: RunInfo, cells: int) -> str:
    """What the page of an unfinished run says."""
    if info.state == "running":
        return f"Running: {cells:,} of {count_of(info.planned_cells, 'cell')} so far. This page follows the run."
    if info.state == "stopped":
        return f"The run was killed after {cells:,} of {count_of(info.planned_cells, 'cell')}. It can be resumed."
    return ""


def render_comparison(a: Path, b: Path, frame: PageFrame, redact: Redaction = NOTHING) -> str:
    """The page of ``visioneval compare A B`` with its default gates. Raises ``UsageError`` and ``RunFormatError``."""
    criteria = parse_criteria()
    sides = read_sides((str(a), str(b)), a.parent, metrics=criteria.metrics, redact=redact)
    comparison = compare(*sides, ComparisonFilters(redact=redact))
    # not by their paths
    comparison = replace(comparison, a=replace(comparison.a, name=a.name), b=replace(comparison.b, name=b.name))
    results = decide(comparison, criteria)
    for folder in (a, b):
        fetch_outputs(folder)
    return comparison_page(comparison, results, frame)
