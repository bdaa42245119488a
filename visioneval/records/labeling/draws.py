"""Random draws of cells to label: ``labeling_draws.jsonl``, read and written only here.

A draw is one line about it, and then one line per drawn cell in the order in which the cells are to be labeled. Only
labels of a recorded draw say something about the cells that nobody labeled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, TypeAdapter

from visioneval.errors import RunFormatError
from visioneval.records.fields import CellCount, ModelLabel, Moment, SampleIndex
from visioneval.records.files.lines import SCHEMA_VERSION, read_lines
from visioneval.records.labeling.labels import Digest, Line
from visioneval.records.model import CellKey, Record
from visioneval.records.stores.lookup import append_shared
from visioneval.types import Frozen, Status

DRAWS = "labeling_draws.jsonl"
DrawId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{12}$")]


class FrameRun(Frozen):
    """A model run that was drawn from: the number of its cells with an output, and a hash of their names."""

    model_label: ModelLabel
    cells: CellCount
    cells_sha256: Digest


class CellDraw(Frozen):
    """A draw. ``draw`` identifies it, ``which`` is the request, and ``frame`` the cells that it was drawn from."""

    draw: DrawId
    which: Annotated[str, StringConstraints(pattern="^(random|stratified):[1-9][0-9]{0,8}$")]
    seed: Annotated[int, Field(ge=0)]
    frame: tuple[FrameRun, ...]


class DrawnCell(Frozen):
    """A drawn cell. ``probability`` is that of being drawn, above 0 and equal for all cells of its ``stratum``."""

    draw: DrawId
    test_id: Line
    model_label: ModelLabel
    sample_index: SampleIndex
    stratum: Line
    probability: Annotated[float, Field(gt=0, le=1)]

    @property
    def cell(self) -> CellKey:
        """Identifies the cell."""
        return self.test_id, self.model_label, self.sample_index


class DrawEntry(Frozen):
    """One line of the file: a draw or a drawn cell."""

    schema_version: int = SCHEMA_VERSION
    at: Moment
    draw: CellDraw | None = None
    cell: DrawnCell | None = None


@dataclass(frozen=True, slots=True)
class RecordedDraw:
    """A draw with its cells, in order. ``at`` is when it was drawn."""

    at: str
    about: CellDraw
    cells: tuple[DrawnCell, ...]


_ENTRY: TypeAdapter[DrawEntry] = TypeAdapter(DrawEntry)


def frame_of(records: Iterable[Record]) -> tuple[FrameRun, ...]:
    """The cells with an output by model run, in the order of their labels."""
    cells: dict[str, list[str]] = {}
    for record in records:
        if record.status is Status.COMPLETED:
            cells.setdefault(record.model_label, []).append(repr((record.test_id, record.sample_index)))
    return tuple(
        FrameRun(
            model_label=label, cells=len(names), cells_sha256=sha256("\n".join(sorted(names)).encode()).hexdigest()
        )
        for label, names in sorted(cells.items())
    )


def draw_id(which: str, seed: int, frame: Sequence[FrameRun], cells: Sequence[DrawnCell]) -> str:
    """The id of a draw: a hash of its contents, so that a changed or incomplete draw is found."""
    drawn = [cell.model_dump(exclude={"draw"}) for cell in cells]
    contents = [which, seed, [part.model_dump() for part in frame], drawn]
    return sha256(json.dumps(contents).encode()).hexdigest()[:12]


def append_draw(folder: Path, draw: RecordedDraw) -> None:
    """Adds a draw to a run, unless the run has it. Raises ``StorageError`` and ``RunFormatError``."""
    if any(draw.about.draw == known.about.draw for known in read_draws(folder)):
        return
    entries = [DrawEntry(at=draw.at, draw=draw.about), *(DrawEntry(at=draw.at, cell=cell) for cell in draw.cells)]
    append_shared(folder / DRAWS, [entry.model_dump_json(exclude_none=True).encode() for entry in entries])


def read_draws(folder: Path) -> list[RecordedDraw]:
    """All draws of a run, oldest first; empty if there are none. Raises ``RunFormatError`` with file and line."""
    path = folder / DRAWS
    headers: dict[str, DrawEntry] = {}
    cells: dict[str, list[DrawnCell]] = {}
    for entry in read_lines(path, _ENTRY, "draw") if path.exists() else ():
        if entry.draw is not None:
            headers[entry.draw.draw] = entry
        if entry.cell is not None:
            if entry.cell.draw not in headers:
                raise RunFormatError(
                    f"{path}: a cell of the unknown draw {entry.cell.draw}: restore or delete the file"
                )
            cells.setdefault(entry.cell.draw, []).append(entry.cell)
    for draw, drawn in cells.items():
        if len({cell.cell for cell in drawn}) < len(drawn):
            raise RunFormatError(f"{path}: the draw {draw} has a cell twice: restore or delete the file")
    draws = [
        RecordedDraw(entry.at, entry.draw, tuple(cells.get(key, ())))
        for key, entry in headers.items()
        if entry.draw is not None
    ]
    for recorded in draws:
        about = recorded.about
        if about.draw != draw_id(about.which, about.seed, about.frame, recorded.cells):
            raise RunFormatError(
                f"{path}: the draw {about.draw} was changed or is incomplete: restore the file, or delete it"
            )
    return draws
