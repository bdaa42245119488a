"""A run whose cells stay on disk: all of them, and those that the gallery of a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visioneval.analysis.redaction import NOTHING, Redaction, redacted_run
from visioneval.errors import UsageError
from visioneval.records.model import Record, RunInfo
from visioneval.records.reader import Records, records_of
from visioneval.settings import MAX_GALLERY_CELLS
from visioneval.suite.filters import Scope, any_glob
from visioneval.types import Verdict


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
