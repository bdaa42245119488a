"""The cells of a run as a table for a tracker: those that did not pass first, at most so many, with small images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from visioneval.analysis.alignments import alignment_keys, gaps_in
from visioneval.export.details import as_flag, as_number
from visioneval.export.trackers.content import shortened
from visioneval.records.model import Record, RunInfo, suite_order
from visioneval.report.html.images import small_webp
from visioneval.report.html.slim_run import GalleryFilters, SlimRun, read_slim
from visioneval.rules import parse_rule
from visioneval.types import Verdict

IMAGE_SIDE = 512
"""Pixels on the longer side of an image in a table."""
_TEXTS = ("model run", "verdict", "reasons", "gaps", "failed rules", "failure tags", "error", "prompt")
_OPTIONAL = ("gaps", "failed rules", "failure tags", "error")
"""The columns that a table has only if a cell has a value there: trackers show the first columns only."""


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell in a table. ``output`` is the path of its image or video in the run; ``values`` are by column."""

    label: str
    output: str | None
    values: dict[str, Any]


@dataclass(frozen=True)
class CellTable:
    """The cells in a table: those that did not pass, then the others, each in the order of the suite."""

    slim: SlimRun

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of all rows; the first identifies the cell within its model run."""
        filled = {name for row in self.rows for name in _OPTIONAL if row.values[name]}
        return tuple(name for name in _names(self.slim.info) if name not in _OPTIONAL or name in filled)

    @cached_property
    def rows(self) -> list[CellRow]:
        """Reads the cells from the run. Raises ``RunFormatError``."""
        info = self.slim.info
        position = suite_order(info)
        cells = sorted(self.slim.full_records(), key=lambda cell: (_has_passed(cell), position(*cell.cell)))
        return [CellRow(cell.model_label, cell.artifact_path, _values(cell, info)) for cell in cells]

    def rows_of(self, label: str) -> Iterator[CellRow]:
        """The rows of a model run."""
        return (row for row in self.rows if row.label == label)

    def image(self, row: CellRow) -> bytes | None:
        """A small WebP of the output of a cell; ``None`` if there is none that can be read."""
        return None if row.output is None else small_webp(self.slim.folder, row.output, IMAGE_SIDE)

    @property
    def left_out(self) -> str | None:
        """How many cells are not in the table; ``None`` if it has all."""
        cells, listed = len(self.slim.records), len(self.slim.cells)
        if cells == listed:
            return None
        return f"the table has {listed:,} of {cells:,} cells, those that did not pass first (option rows)"


def cell_table(folder: Path, info: RunInfo, rows: int) -> CellTable:
    """The table of a run with at most ``rows`` cells. Raises ``RunFormatError``."""
    return CellTable(read_slim(folder, info, filters=GalleryFilters(max_cells=rows)))


def _has_passed(cell: Record) -> bool:
    return cell.verdict in (Verdict.PASS, Verdict.NONE)


def _names(info: RunInfo) -> tuple[str, ...]:
    return ("case", *_TEXTS, "sample", "cost_usd", "seconds", *(f"score {metric}" for metric in info.metrics))


def _values(cell: Record, info: RunInfo) -> dict[str, Any]:
    gaps = [gap for key in alignment_keys(info) for gap in gaps_in(cell, key)]
    texts = {
        "model run": cell.model_label,
        "verdict": cell.verdict.value,
        "reasons": "\n".join(_reasons(cell)),
        "gaps": "\n".join(gaps),
        "failed rules": "; ".join(cell.failed_rules),
        "failure tags": "; ".join(cell.failure_tags),
        "error": f"{cell.error.stage}/{cell.error.kind}: {cell.error.message}" if cell.error else "",
        "prompt": cell.shown_prompt,
    }
    return {
        "case": cell.test_id if info.suite.samples == 1 else f"{cell.test_id} #{cell.sample_index}",
        **{name: shortened(text) for name, text in texts.items()},
        "sample": cell.sample_index,
        "cost_usd": cell.total_cost_usd,
        "seconds": cell.seconds,
        **{f"score {name}": _score(cell, name, info) for name in info.metrics},
    }


def _score(cell: Record, name: str, info: RunInfo) -> bool | float | None:
    """A score in the type of its metric: some trackers refuse columns of mixed types."""
    score = cell.scores.get(name)
    return as_flag(score) if info.metrics[name].type == "bool" else as_number(score)


def _reasons(cell: Record) -> list[str]:
    """The reasons of a cell, those of failed rules first."""
    failed = [parse_rule(rule).metric for rule in cell.failed_rules]

    def is_other(name: str) -> bool:
        """Whether it is neither the reason of a failed metric, nor of its grader or a part of it."""
        return not any(f"{metric}.".startswith(f"{name}.") or name.startswith(f"{metric}.") for metric in failed)

    return [f"{name}: {cell.reasons[name]}" for name in sorted(cell.reasons, key=is_other) if cell.reasons[name]]
