"""The parameters of the sketch provider."""

from __future__ import annotations

from typing import Literal

from visioneval.suite.case import Size
from visioneval.types import Frozen

Flaw = Literal["none", "typo", "missing_line", "extra_text", "spill", "drift", "blank", "wrong_size"]


class SketchParams(Frozen):
    """What a sketch may be asked for."""

    model: Literal["sketch"] = "sketch"
    flaw: Flaw = "none"
    size: Size = "1024x1024"
    seed: int = 0
