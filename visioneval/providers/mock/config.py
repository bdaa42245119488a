"""The parameters of the sketch provider, and what its flaws are good for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from visioneval.suite.case import Size
from visioneval.types import Frozen, TaskType

Flaw = Literal["none", "typo", "missing_line", "extra_text", "spill", "drift", "blank", "wrong_size"]

_NONE: frozenset[str] = frozenset()
_TEXT = frozenset({"text"})
_IMAGE = frozenset({"image"})
_LOCALITY = frozenset({"locality"})

SEEN_BY: Mapping[TaskType, Mapping[Flaw, frozenset[str]]] = {
    TaskType.IMAGE_GENERATION: {
        "none": _NONE,
        "typo": _TEXT,
        "missing_line": _TEXT,
        "extra_text": _TEXT,
        "spill": _NONE,
        "drift": _NONE,
        "blank": _TEXT | _IMAGE,
        "wrong_size": _IMAGE,
    },
    TaskType.IMAGE_EDITING: {
        "none": _NONE,
        "typo": _TEXT,
        "missing_line": _TEXT,
        "extra_text": _TEXT | _LOCALITY,
        "spill": _LOCALITY,
        "drift": _LOCALITY,
        "blank": _TEXT | _IMAGE | _LOCALITY,
        "wrong_size": _IMAGE | _LOCALITY,
    },
}
"""The types of the measuring graders that can see a flaw, where the case gives them something to measure.

``text`` needs the line in ``expect.text.required``, and for ``extra_text`` either a forbidden line or
``extra: forbid``. ``image`` needs ``expect.size`` or ``expect.aspect_ratio`` to see ``wrong_size``. ``locality``
needs an editable mask. A flaw with nothing to act on, such as a typo where the case has no copy, draws as ``none``.
"""


class SketchParams(Frozen):
    """What a sketch may be asked for."""

    model: Literal["sketch"] = "sketch"
    flaw: Flaw = "none"
    size: Size = "1024x1024"
    """Of a generation; an edit keeps the size of its base image."""
    seed: int = 0
