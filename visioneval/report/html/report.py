"""A run as a static HTML report: a folder of files, or one file. No network, no server, no build.

Python renders the overview. The page's script renders the gallery and the cells from data files, which it loads as
scripts because a page opened from disk cannot use fetch.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from visioneval.analysis.redaction import NOTHING, Redaction, redacted_run
from visioneval.analysis.summary.summary import Compared, summarize
from visioneval.atomic import write_whole
from visioneval.errors import UsageError
from visioneval.records.model import Record, RunInfo
from visioneval.records.reader import Records, records_of
from visioneval.records.stores.lookup import copies_of, display_name
from visioneval.report.html.images import EmbeddedImages, FolderImages, ReportImages
from visioneval.report.html.overview import CellNumbers, overview
from visioneval.report.html.page_data import PageData, as_block, as_json, as_script
from visioneval.report.html.pages import PageFrame, policy, render, script, style
from visioneval.settings import MAX_GALLERY_CELLS
from visioneval.suite.filters import Scope, any_glob
from visioneval.suite.metrics import left_out
from visioneval.types import Verdict

_SUBFOLDERS = ("data", "thumbs", "images")
MARK = "report.js"
"""Marks a folder as a report that may be overwritten."""


def write_report(run: SlimRun, target: Path, *, single_file: bool, trust: bool) -> Path:
    """Writes the report of a run and returns the path of its page.

    ``target`` is a folder, or with ``single_file`` a file. Raises ``UsageError`` if it cannot be written or contains
    other files.
    """
    suite = suite_folder(run.info)
    try:
        if single_file:
            return _write_single_file(run, target, EmbeddedImages(run.folder, suite, trust=trust), trust=trust)
        prepare_folder(target, is_redacted=run.is_redacted)
        return write_files(run, target, FolderImages(run.folder, suite, target, trust=trust), trust=trust)
    except OSError as error:
        raise UsageError(f"{target}: cannot write the report: {error.strerror or error}") from None


def target_of(folder: Path, out: Path | None, *, single_file: bool) -> Path:
    """The path of a report: ``out``, or ``report`` or ``report.html`` in the run folder.

    Raises ``UsageError`` without ``out`` for a run in a store.
    """
    if out is None and copies_of(folder) is not None:
        problem = "is in an object store: name where to write the report: --output PATH"
        raise UsageError(f"{display_name(folder)}: {problem}")
    if not single_file:
        return out or folder / "report"
    is_page = out is not None and out.suffix.lower() in (".html", ".htm")
    return out if out is not None and is_page else (out or folder) / "report.html"


def write_files(
    run: SlimRun, target: Path, images: ReportImages, frame: PageFrame | None = None, *, trust: bool = False
) -> Path:
    """Writes the files of a report into an existing folder, and returns the path of its page. Raises ``OSError``.

    Only with ``trust`` do commands have flags that trust the suite.
    """
    _save(target / MARK, script("report"))
    _save(target / "report.css", style())
    folder = target / "data"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("details-*.js"):
        old.unlink()
    data = PageData(run.info, images, trust=trust)
    for number, part in enumerate(data.parts(run.gallery)):
        _save(folder / f"details-{number}.js", as_script(f"details-{number}", part))
    thumbs = _thumbs(data.outputs, images)
    _save(folder / "index.js", as_script("index", as_json(data.index(thumbs))))
    _save(folder / "texts.js", as_script("texts", as_json(data.texts())))
    return _save(target / "index.html", _page(run, thumbs, frame))


def _write_single_file(run: SlimRun, target: Path, images: ReportImages, *, trust: bool) -> Path:
    data = PageData(run.info, images, trust=trust)
    blocks = [as_block(f"details-{number}", part) for number, part in enumerate(data.parts(run.gallery))]
    thumbs = _thumbs(data.outputs, images)
    blocks += [as_block("texts", as_json(data.texts())), as_block("index", as_json(data.index(thumbs)))]
    page = _page(run, thumbs, None, blocks)
    target.parent.mkdir(parents=True, exist_ok=True)
    return _save(target, page)


def _page(run: SlimRun, thumbs: Sequence[str], frame: PageFrame | None, blocks: Sequence[str] = ()) -> str:
    """The page, whose overview is over all cells. With ``blocks``, its data, it needs no other file."""
    own_script, own_style = (script("report"), style()) if blocks else ("", "")
    numbers = CellNumbers(left_out(run.info.selected_suite, run.info.metrics))
    compared = Compared.read(run.folder, run.info, has_costs=run.label is None)
    cells = numbers.counted(run.records)
    summary = summarize(run.info, cells, compared)
    return render(
        "report.html.j2",
        **overview(run.info, numbers, summary, dict(zip(run.gallery.names(), thumbs, strict=True))),
        left_out=run.left_out or "",
        is_redacted=run.is_redacted,
        gallery_cells=len(run.gallery),
        policy=policy(own_script, own_style, is_live=frame is not None and bool(frame.script)),
        frame=frame,
        style=own_style,
        script=own_script,
        blocks=blocks,
    )


def prepare_folder(target: Path, *, is_redacted: bool) -> None:
    """Creates the folder of a report. Refuses one with other files and links. Raises ``UsageError``.

    If the report is redacted, deletes the pages and images of an earlier one, which may not have been.
    """
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target}: is a file: use a folder as --output")
    if target.is_dir() and any(target.iterdir()) and not (target / MARK).is_file():
        raise UsageError(f"{target}: contains files that are not part of a report: use another --output")
    if linked := next((path for path in (target, *(target / name for name in _SUBFOLDERS)) if path.is_symlink()), None):
        raise UsageError(f"{linked}: is a symbolic link: use an --output without symbolic links")
    target.mkdir(parents=True, exist_ok=True)
    if is_redacted:
        (target / "index.html").unlink(missing_ok=True)
        for name in _SUBFOLDERS:
            if (target / name).exists():
                shutil.rmtree(target / name)


def suite_folder(info: RunInfo) -> Path:
    """The folder of the suite when the run started; a relative path is relative to the working directory."""
    return Path(info.suite_path).parent


def _thumbs(outputs: Sequence[str | None], images: ReportImages) -> list[str]:
    """One URL per cell, empty without an image. Uses threads, since decoding releases the GIL."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda path: images.thumb(path) if path else "", outputs))


def _save(path: Path, text: str) -> Path:
    write_whole(path, text)
    return path


@dataclass(frozen=True, slots=True)
class GalleryFilters:
    """Which cells the gallery has: of these cases (globs) and tags, an empty one being all, and at most how many.

    Of the cases of ``redact``, no image and no text about one is shown.
    """

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    max_cells: int = MAX_GALLERY_CELLS
    redact: Redaction = NOTHING

    def covers(self, record: Record) -> bool:
        """Whether a cell is of these cases and tags."""
        of_case = not self.cases or any_glob(self.cases, record.test_id)
        return of_case and (not self.tags or not set(self.tags).isdisjoint(record.tags))


@dataclass(frozen=True, slots=True)
class SlimRun:
    """A run whose cells are read when they are needed, so that it takes little memory.

    ``records`` are all cells, and ``gallery`` those in the gallery, in the order of the suite.
    """

    folder: Path
    info: RunInfo
    records: Records[Record]
    gallery: Records[Record]
    label: str | None = None
    """The model run, if it is only one of the run."""
    chosen: int = 0
    """How many cells ``--case`` and ``--tag`` chose for the gallery, which has at most ``--max-cells`` of them."""
    is_redacted: bool = False

    @property
    def left_out(self) -> str | None:
        """Which cells the gallery does not have, and how to choose others; ``None`` if it has all."""
        if len(self.gallery) == len(self.records):
            return None
        which = ", those that did not pass first" if len(self.gallery) < self.chosen else ""
        of = " that --case and --tag choose" if self.chosen < len(self.records) and which else ""
        return (
            f"The gallery has {len(self.gallery):,} of {self.chosen if of else len(self.records):,} cells{of}{which};"
            " the overview counts all. To choose others: --case, --tag, RUN@LABEL or --max-cells."
        )


def read_slim(folder: Path, info: RunInfo, label: str | None = None, filters: GalleryFilters | None = None) -> SlimRun:
    """Opens a run, or its model runs whose label matches. Raises ``UsageError`` and ``RunFormatError``."""
    filters = filters or GalleryFilters()
    info, stored = redacted_run(info, records_of(folder), filters.redact)
    if label is not None:
        scope = Scope(models=(label,))
        stored = stored.within(scope)
        info = info.within(scope, len(stored))
    gallery = stored.in_order(info)
    if filters.cases or filters.tags:
        gallery = gallery.take([at for at, record in enumerate(gallery) if filters.covers(record)])
        if not gallery and stored:
            raise UsageError("--case, --tag: no cell of the run is of these cases and tags")
    chosen = len(gallery)
    if chosen > filters.max_cells:
        passed = [record.verdict in (Verdict.PASS, Verdict.NONE) for record in gallery]
        first = sorted(range(len(gallery)), key=passed.__getitem__)[: filters.max_cells]
        gallery = gallery.take(sorted(first))
    return SlimRun(folder, info, stored, gallery, label, chosen, bool(filters.redact.tags))
