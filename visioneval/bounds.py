"""Limits that keep a file, suite or template from exhausting the machine.

A command-line flag or an environment variable changes a limit. A suite cannot, since it may come from a stranger.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from visioneval.errors import ImageLimitError, UsageError
from visioneval.settings import BOUNDS, Setting

HIGHEST = 10**12
MAX_FRAMES = 36_000
"""Of a video that is measured: ten minutes at 60 frames per second."""


@dataclass(slots=True)
class Bound:
    """A limit, in whole numbers of at least 1. ``override`` is the value of the flag."""

    setting: Setting
    override: int | None = None

    @property
    def limit(self) -> int:
        """The effective limit. Raises ``UsageError`` if the environment variable is not a whole number."""
        if self.override is not None:
            return self.override
        text = os.environ.get(str(self.setting.environment))
        if not text:
            return int(self.setting.default)
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(HIGHEST)) and 1 <= int(text) <= HIGHEST):
            raise UsageError(f"{self.setting.environment}={text!r:.60}: must be a whole number from 1 to {HIGHEST:,}")
        return int(text)

    @property
    def hint(self) -> str:
        """How to raise the limit, for the end of an error message."""
        return f"to raise it: {self.setting.flag} N or {self.setting.environment}=N"


def _bound(name: str, default: int, text: str) -> Bound:
    variable = f"VISIONEVAL_{name.upper()}"
    flag = f"--{name.replace('_', '-')}"
    setting = Setting(flag, "N", text, BOUNDS, default, 1, environment=variable, resumed="always", name=name, type=int)
    return Bound(setting)


MEGAPIXELS = _bound("max_megapixels", 50, "Maximum megapixels of one image, and of all images in memory at once.")
CELLS = _bound("max_cells", 1_000_000, "Maximum cells in one suite, and rows of a dataset.")
MODEL_RUNS = _bound("max_model_runs", 10_000, "Maximum model runs in one suite, with grids expanded.")
TEMPLATE_STEPS = _bound(
    "max_template_steps", 1_000_000, "Maximum steps to render one template; 50 times as many for all of a suite."
)
REPLY_MB = _bound("max_reply_mb", 64, "Maximum megabytes of one provider reply, decompressed.")
VIDEO_GIGAPIXELS = _bound(
    "max_video_gigapixels",
    20,
    "Maximum gigapixels of all frames of one video that is measured: 20 are 5 minutes of 1080p.",
)
ALL = (MEGAPIXELS, CELLS, MODEL_RUNS, TEMPLATE_STEPS, REPLY_MB, VIDEO_GIGAPIXELS)


def check_environment() -> None:
    """Raises ``UsageError`` if the environment variable of a limit is not a whole number."""
    for bound in ALL:
        _ = bound.limit


def max_pixels() -> int:
    """The maximum number of pixels of one image, and of all images in memory at once."""
    return MEGAPIXELS.limit * 1_000_000


def check_frames(frames: int, pixels: int) -> None:
    """Raises ``ImageLimitError`` if the frames of a video, or the pixels of all of them, exceed the limit."""
    if frames > MAX_FRAMES:
        raise ImageLimitError(f"the video has more than {MAX_FRAMES:,} frames")
    if pixels > VIDEO_GIGAPIXELS.limit * 1_000_000_000:
        raise ImageLimitError(
            f"the video has more than {VIDEO_GIGAPIXELS.limit:,} gigapixels in all its frames ({VIDEO_GIGAPIXELS.hint})"
        )
