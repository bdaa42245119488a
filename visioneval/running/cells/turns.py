"""The image that a later turn edits: the output of the turn before, of the same model run and sample."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from visioneval.errors import ImageError
from visioneval.media import images
from visioneval.records.model import CellError, CellKey, Record
from visioneval.records.untrusted import file_inside
from visioneval.running.plan import Call
from visioneval.types import Output, Status

NO_INPUT = "missing_input"
"""The kind of error of a turn that has no image to edit."""


def call_on_output(call: Call, previous: Record | None, folder: Path) -> Call | CellError:
    """The call with the output of ``previous``, a record of the run in ``folder``, as the image to edit.

    A call that needs none stays as it is. Without an output, the error names the turn that has none.
    """
    if not call.needs_base:
        return call
    name, sample = call.case.previous_turn, call.samples[0]
    if previous is None or previous.test_id != name:
        return _no_input(f"{name} has no output to edit: it has no sample {sample}")
    if previous.error is not None and previous.error.kind == NO_INPUT:
        return previous.error
    path = file_inside(folder.absolute(), previous.artifact_path)
    if previous.status is not Status.COMPLETED or path is None:
        causes = {Status.REFUSED: "its generation was refused", Status.ERROR: "it ended in an error"}
        return _no_input(f"{name} has no output to edit: {causes.get(previous.status, 'the run has no file of it')}")
    size = previous.width or 0, previous.height or 0
    return call.with_base(Output(path, previous.artifact_sha256 or "", previous.mime or "", *size))


def call_on_records(call: Call, sample: int, by_cell: Mapping[CellKey, Record], folder: Path) -> Call:
    """The call with what ``by_cell``, of the run in ``folder``, has of the turn before. Without it, as it is."""
    if call.previous is None:
        return call
    previous = by_cell.get(call.previous.cell(sample))
    edit = call_on_output(call, previous, folder)
    return call if isinstance(edit, CellError) else edit


def _no_input(message: str) -> CellError:
    return CellError(stage="generate", kind=NO_INPUT, message=message)


def mask_error(call: Call) -> CellError | None:
    """Why the masks of a turn do not fit the image that it edits, which is known only now."""
    if call.base is None:
        return None
    try:
        base = images.size_of(call.base.path)
        sizes = {path: images.size_of(path) for path in call.files.masks.values()}
    except ImageError as error:
        return CellError(stage="generate", kind="bad_image", message=str(error))
    for path, size in sizes.items():
        if size != base:
            pixels, base_pixels = (f"{width} x {height} pixels" for width, height in (size, base))
            message = f"the mask {path.name} is {pixels}, but the output of {call.case.previous_turn} is {base_pixels}"
            return CellError(stage="generate", kind="bad_image", message=message)
    return None


def is_edit_of(call: Call, record: Record) -> bool:
    """Whether the output of ``record`` is an edit of the image that the call has to edit."""
    return call.base is None or record.base_sha256 == call.base.sha256


def other_input(call: Call) -> CellError:
    """The error of a turn that was generated from another image than the one that the turn before has now."""
    message = f"it edits an earlier output of {call.case.previous_turn}: resume the run, which edits the current one"
    return CellError(stage="generate", kind="bad_image", message=message)
