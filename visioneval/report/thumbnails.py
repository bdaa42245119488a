"""Thumbnails of the cells that broke, as files for a comment on a pull request: the output of B beside that of A."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.pairing import CellPair
from visioneval.analysis.redaction import LEFT_OUT, NOTHING, Redaction
from visioneval.analysis.sides import Cell, Side
from visioneval.atomic import write_whole
from visioneval.errors import UsageError
from visioneval.report.html.compare import why_no_image
from visioneval.report.html.images import output_image, webp
from visioneval.report.sections import Value

if TYPE_CHECKING:
    from PIL import Image

SIDE, _GAP = 256, 8
"""Pixels of the longer side of an output, and between both."""
_MAX_NAME = 40


def thumbnails_of(
    comparison: Comparison,
    folder: Path,
    markdown: Path,
    *,
    cached: Callable[[str], Path | None] | None = None,
    redact: Redaction = NOTHING,
) -> Callable[[CellPair], Value]:
    """A function that writes the outputs of a pair into one file in ``folder``, and refers to it from ``markdown``.

    It names what is missing. The outputs of a baseline, which has none, are where ``cached`` finds their hash. The
    name of a file changes with its content, so that several comparisons can share the folder. It raises
    ``UsageError`` if the file cannot be written.
    """
    redact = redact.over(comparison.a, comparison.b)
    relative = Path(os.path.relpath(folder.resolve(), markdown.parent.resolve())).as_posix()

    def outputs(pair: CellPair) -> Value:
        if redact.covers(pair.b.test_id, (*pair.a.tags, *pair.b.tags)):
            return Value(LEFT_OUT)
        by_side = {"A": _output(pair.a, comparison.a, cached), "B": _output(pair.b, comparison.b, cached)}
        images = {name: output for name, output in by_side.items() if not isinstance(output, str)}
        text = "\n".join(f"{name}: {output}" for name, output in by_side.items() if isinstance(output, str))
        if not images:
            return Value(text)
        distinct = list(images.values())
        if pair.same_output:
            distinct, text = distinct[:1], "A and B have the same output"
        data = webp(_side_by_side(distinct), 80)
        name = re.sub("[^a-z0-9]+", "-", pair.b.test_id.lower())[:_MAX_NAME].strip("-") or "case"
        name = f"{name}-{hashlib.sha256(data).hexdigest()[:12]}.webp"
        try:
            write_whole(folder / name, data)
        except OSError as error:
            raise UsageError(f"{folder / name}: cannot write: {error.strerror or error}") from None
        return Value(text, image=(quote(f"{relative}/{name}"), f"{pair.b.test_id}: {', '.join(images)}"))

    return outputs


def _output(cell: Cell, side: Side, cached: Callable[[str], Path | None] | None) -> Image.Image | str:
    """The output of a cell, or why there is none."""
    if side.folder is None and cached is not None and cell.artifact_sha256 is not None:
        path = cached(cell.artifact_sha256)
        if path is not None:
            return output_image(path.parent, path.name, SIDE)
    if side.folder is None or cell.artifact_path is None:
        return why_no_image(cell, side)
    return output_image(side.folder, cell.artifact_path, SIDE)


def _side_by_side(outputs: Sequence[Image.Image]) -> Image.Image:
    from PIL import Image

    width = sum(output.width for output in outputs) + _GAP * (len(outputs) - 1)
    together, left = Image.new("RGB", (width, max(output.height for output in outputs)), "white"), 0
    for output in outputs:
        together.paste(output, (left, 0))
        left += output.width + _GAP
    return together
