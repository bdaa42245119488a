"""Bounds that keep one file, suite or template from taking the whole machine.

A flag of the command raises or lowers one, else its environment variable does. No suite can: it may come from a
stranger.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from visioneval.errors import UsageError

HIGHEST = 10**12


@dataclass(slots=True)
class Bound:
    """A limit, in whole numbers of at least 1. ``override`` is the value of the flag."""

    flag: str
    variable: str
    default: int
    help: str
    override: int | None = None

    @property
    def limit(self) -> int:
        """The limit in force. Raises ``UsageError`` where the environment variable is no whole number."""
        if self.override is not None:
            return self.override
        text = os.environ.get(self.variable)
        if not text:
            return self.default
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(HIGHEST)) and 1 <= int(text) <= HIGHEST):
            raise UsageError(f"{self.variable}={text!r:.60}: write a whole number from 1 to {HIGHEST:,}")
        return int(text)

    @property
    def hint(self) -> str:
        """How to raise it, for the end of an error."""
        return f"to allow more: {self.flag} N or {self.variable}=N"


MEGAPIXELS = Bound(
    "--max-megapixels",
    "VISIONEVAL_MAX_MEGAPIXELS",
    50,
    "Millions of pixels of one image, and of all images in memory at once.",
)
CELLS = Bound("--max-cells", "VISIONEVAL_MAX_CELLS", 1_000_000, "Cells of one suite.")
MODEL_RUNS = Bound("--max-model-runs", "VISIONEVAL_MAX_MODEL_RUNS", 10_000, "Model runs of one suite, grids expanded.")
TEMPLATE_STEPS = Bound(
    "--max-template-steps", "VISIONEVAL_MAX_TEMPLATE_STEPS", 1_000_000, "Steps that rendering one template may take."
)
REPLY_MB = Bound("--max-reply-mb", "VISIONEVAL_MAX_REPLY_MB", 64, "Megabytes of one reply of a provider, decompressed.")
ALL = (MEGAPIXELS, CELLS, MODEL_RUNS, TEMPLATE_STEPS, REPLY_MB)


def check_environment() -> None:
    """Raises ``UsageError`` where the environment variable of a bound is no whole number."""
    for bound in ALL:
        _ = bound.limit


def max_pixels() -> int:
    """The most pixels of one image, and of all images in memory at once."""
    return MEGAPIXELS.limit * 1_000_000
