"""Random draws of cells to label, with the probability of each cell. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from visioneval.errors import UsageError
from visioneval.label.sampling import Candidate, SelectionSpec, select_candidates
from visioneval.records.labels import CellDraw, DrawnCell, RecordedDraw, draw_id, frame_of
from visioneval.records.model import Record
from visioneval.types import Status

RANDOM_KINDS = ("random", "stratified")
"""The kinds of ``--which`` that draw cells with known probabilities."""
_ALL = "all"
_NO_ID = "0" * 12


def draw_cells(records: Sequence[Record], which: SelectionSpec, seed: int, now: datetime) -> RecordedDraw:
    """Draws from the cells with an output: ``random`` from all, ``stratified`` from the cells of each verdict.

    The same seed draws the same cells from runs with the same cells and verdicts. Raises ``UsageError`` if no cell has
    an output.
    """
    candidates = [Candidate(record) for record in records if record.status is Status.COMPLETED]
    if not candidates:
        raise UsageError("no cell has an output to draw from")
    drawn = [subject.record for subject in select_candidates(candidates, which, seed, lambda _: 0.0)]

    def stratum_of(record: Record) -> str:
        return str(record.verdict) if which.kind == "stratified" else _ALL

    population = Counter(stratum_of(subject.record) for subject in candidates)
    sizes = Counter(map(stratum_of, drawn))
    if len(sizes) < len(population):
        raise UsageError(f"stratified:{which.count}: there are cells with {len(population)} verdicts: draw more cells")
    frame = frame_of(records)
    text = f"{which.kind}:{which.count}"
    cells = tuple(
        DrawnCell(
            draw=_NO_ID,
            test_id=record.test_id,
            model_label=record.model_label,
            sample_index=record.sample_index,
            stratum=stratum_of(record),
            probability=sizes[stratum_of(record)] / population[stratum_of(record)],
        )
        for record in drawn
    )
    draw = draw_id(text, seed, frame, cells)
    about = CellDraw(draw=draw, which=text, seed=seed, frame=frame)
    identified = tuple(cell.model_copy(update={"draw": draw}) for cell in cells)
    return RecordedDraw(now.isoformat(timespec="seconds"), about, identified)
