"""A run as a page to look at: a folder of static files, or one file. No network, no server, no build.

The overview is written here; the page's own script renders the gallery and each cell from data files beside it,
which are loaded as scripts, since a page opened from disk may fetch nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from visioneval.analysis.compare.preferences import preferred_within
from visioneval.analysis.findings import Summary
from visioneval.analysis.summary import summarize
from visioneval.atomic import write_whole
from visioneval.errors import UsageError
from visioneval.records.model import Record, RunInfo
from visioneval.report.html.images import EmbeddedShelf, FolderShelf, ReportImages
from visioneval.report.html.overview import overview
from visioneval.report.html.page_data import as_block, as_json, as_script, details_of, index_of, words_of
from visioneval.report.html.pages import policy, render, script, style
from visioneval.report.html.slim_run import SlimRun

_PARTS = ("data", "thumbs", "images")
MARK = "report.js"
"""The file by which a folder is known as a report that may be written again."""


def write_report(run: SlimRun, target: Path, *, single_file: bool, trust: bool) -> Path:
    """Writes the report of a run, and returns the page to open.

    ``target`` is a folder, or with ``single_file`` a file. Raises ``UsageError`` where it cannot be written or holds
    something else.
    """
    write = _one_file if single_file else _files
    try:
        return write(run, target, trust)
    except OSError as error:
        raise UsageError(f"{target}: cannot write the report: {error.strerror or error}") from None


def target_of(folder: Path, out: Path | None, *, single_file: bool) -> Path:
    """Where the report of a run goes: ``report`` or ``report.html`` in the run's folder, unless ``out`` says else."""
    if not single_file:
        return folder / "report" if out is None else out
    if out is None:
        return folder / "report.html"
    return out if out.suffix.lower() in (".html", ".htm") else out / "report.html"


def _files(run: SlimRun, target: Path, trust: bool) -> Path:
    _claim(target)
    _save(target / MARK, script("report"))
    _save(target / "report.css", style())
    shelf = FolderShelf(run.folder, _suite_folder(run.info), target, trust=trust)
    data = target / "data"
    data.mkdir(exist_ok=True)
    for old in data.glob("details-*.js"):
        old.unlink()
    _save(data / "index.js", as_script("index", as_json(index_of(run, _thumbs(run.cells, shelf)))))
    _save(data / "words.js", as_script("words", as_json(words_of(run.cells))))
    for number, part in enumerate(details_of(run, shelf)):
        _save(data / f"details-{number}.js", as_script(f"details-{number}", part))
    page = render(
        "report.html.j2",
        **overview(run.info, run.cells, _summary(run)),
        policy=policy(),
        style="",
        script="",
        blocks=[],
    )
    return _save(target / "index.html", page)


def _one_file(run: SlimRun, target: Path, trust: bool) -> Path:
    shelf = EmbeddedShelf(run.folder, _suite_folder(run.info), trust=trust)
    blocks = [as_block("words", as_json(words_of(run.cells)))]
    blocks += [as_block(f"details-{number}", part) for number, part in enumerate(details_of(run, shelf))]
    blocks.append(as_block("index", as_json(index_of(run, _thumbs(run.cells, shelf)))))
    page = render(
        "report.html.j2",
        **overview(run.info, run.cells, _summary(run)),
        policy=policy(script("report"), style()),
        style=style(),
        script=script("report"),
        blocks=blocks,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    return _save(target, page)


def _summary(run: SlimRun) -> Summary:
    return summarize(run.info, run.cells, preferred_within(run.folder, run.info.run_id))


def _claim(target: Path) -> None:
    """Makes the folder; one that holds something else is not written into."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target}: is a file; --output names a folder")
    if target.is_dir() and any(target.iterdir()) and not (target / MARK).is_file():
        raise UsageError(f"{target}: holds something that is no report; give another --output")
    if linked := next((each for each in (target, *(target / name for name in _PARTS)) if each.is_symlink()), None):
        raise UsageError(f"{linked}: is a link, and a run may come from a stranger; give another --output")
    target.mkdir(parents=True, exist_ok=True)


def _suite_folder(info: RunInfo) -> Path:
    """Where the suite lay when the run was made; a relative path counts from the working directory."""
    return Path(info.suite_path).parent


def _thumbs(cells: Sequence[Record], shelf: ReportImages) -> list[str]:
    """One address a cell; empty where there is no image. Decoding does not hold the interpreter: threads help."""

    generated = [(at, cell.artifact_path) for at, cell in enumerate(cells) if cell.artifact_path]
    addresses = [""] * len(cells)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for (at, _), address in zip(generated, pool.map(shelf.thumb, [path for _, path in generated]), strict=True):
            addresses[at] = address
    return addresses


def _save(path: Path, text: str) -> Path:
    write_whole(path, text)
    return path
