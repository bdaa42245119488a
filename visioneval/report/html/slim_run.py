"""Reads a run several times to save memory: the cells of the gallery without large fields, then in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visioneval.analysis.redaction import NOTHING, Redaction, redacted_run
from visioneval.errors import UsageError
from visioneval.records.model import Record, RunInfo, suite_order
from visioneval.records.reader import Records, records_of
from visioneval.settings import MAX_GALLERY_CELLS
from visioneval.suite.filters import Scope, any_glob
from visioneval.types import Verdict

_MIN_RANKED = 1000
_DETAIL_FIELDS = ("judge_verdict", "prompt_sha256", "source", "coverage", "dropped", "votes", "read", "gaps")
_QUESTION_FIELDS = ("question", "type", "score")


@dataclass(frozen=True, slots=True)
class GalleryFilters:
    """Which cells the gallery has: of these cases (globs) and tags, an empty one being all, and at most how many.

    Of the cases of ``redact``, no image and nothing that was said of one is shown.
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
    """A run whose ``cells``, those in the gallery in the order of the suite, lack large fields.

    ``records`` are all cells, which stay on disk, and ``gallery`` those in the gallery, in full and in the order of the
    file. ``positions[i]`` is the index of cell i in it.
    """

    folder: Path
    info: RunInfo
    records: Records[Record]
    cells: list[Record]
    positions: list[int]
    gallery: Records[Record]
    label: str | None = None
    """The model run, if it is only one of the run."""
    is_redacted: bool = False

    def full_records(self) -> Iterator[Record]:
        """Reads the cells of the gallery in full from the file. Raises ``RunFormatError``."""
        return iter(self.gallery)

    @property
    def left_out(self) -> str | None:
        """Which cells the gallery does not have, and how to choose others; ``None`` if it has all."""
        if len(self.cells) == len(self.records):
            return None
        return (
            f"The gallery has {len(self.cells):,} of {len(self.records):,} cells, those that did not pass first; the"
            " overview counts all. To choose others: --case, --tag, RUN@LABEL or --max-cells."
        )


def read_slim(folder: Path, info: RunInfo, label: str | None = None, filters: GalleryFilters | None = None) -> SlimRun:
    """Reads a run, or its model runs whose label matches. Raises ``UsageError`` and ``RunFormatError``."""
    filters = filters or GalleryFilters()
    info, stored = redacted_run(info, records_of(folder), filters.redact)
    if label is not None:
        scope = Scope(models=(label,))
        stored = stored.within(scope)
        info = info.within(scope, len(stored))
    position = suite_order(info)
    chosen = _chosen(stored, filters, position)
    if not chosen and len(stored):
        raise UsageError("--case, --tag: no cell of the run is of these cases and tags")
    gallery = stored.take(chosen)
    slim = [_slim_record(record) for record in gallery]
    order = sorted(range(len(slim)), key=lambda at: position(*slim[at].cell))
    return SlimRun(folder, info, stored, [slim[at] for at in order], order, gallery, label, bool(filters.redact.tags))


def _chosen(
    records: Records[Record], filters: GalleryFilters, position: Callable[[str, str, int], tuple[int, int, int]]
) -> list[int]:
    """The positions of the cells in the gallery, sorted: those that did not pass first, then in suite order."""
    ranked: list[tuple[bool, tuple[int, int, int], int]] = []
    for at, record in enumerate(records):
        if filters.covers(record):
            ranked.append((record.verdict in (Verdict.PASS, Verdict.NONE), position(*record.cell), at))
            if len(ranked) >= 2 * filters.max_cells + _MIN_RANKED:
                ranked = sorted(ranked)[: filters.max_cells]
    return sorted(at for _, _, at in sorted(ranked)[: filters.max_cells])


def _slim_details(details: Mapping[str, Any]) -> dict[str, Any]:
    """The details that the summary needs: judge verdicts, and text and scores of a gecko grader's questions."""
    slim: dict[str, Any] = {name: details[name] for name in _DETAIL_FIELDS if name in details}
    if isinstance(details.get("questions"), list):
        questions = (question for question in details["questions"] if isinstance(question, dict))
        slim["questions"] = [{name: question.get(name) for name in _QUESTION_FIELDS} for question in questions]
    return slim


def _slim_record(record: Record) -> Record:
    emptied: dict[str, Any] = {"reasons": {}, "failure_tags": (), "usage": None}
    graders = []
    for grader in record.graders:
        judges = tuple(
            answer.model_copy(update={**emptied, "details": _slim_details(answer.details)}) for answer in grader.judges
        )
        graders.append(grader.model_copy(update={"details": _slim_details(grader.details), "judges": judges}))
    emptied = {"metadata": {}, "run_params": {}, "usage": None, "generation_key": "", "grade_key": ""}
    return record.model_copy(update={**emptied, "graders": tuple(graders)})
