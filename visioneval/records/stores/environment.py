"""The environment variables of stores."""

from __future__ import annotations

import os
from dataclasses import dataclass

from visioneval.errors import UsageError


@dataclass(frozen=True, slots=True)
class NumberVariable:
    """A variable with a whole number."""

    name: str
    default: int
    minimum: int
    maximum: int

    @property
    def value(self) -> int:
        """Its value, or the default. Raises ``UsageError``."""
        text = os.environ.get(self.name)
        if not text:
            return self.default
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(self.maximum))
        if not is_number or not self.minimum <= int(text) <= self.maximum:
            raise UsageError(
                f"{self.name}={text!r:.40}: must be a whole number from {self.minimum} to {self.maximum:,}"
            )
        return int(text)


CLAIM_EXPIRY_S = NumberVariable("VISIONEVAL_CLAIM_EXPIRY_S", 120, 2, 86_400)
"""After how many seconds without a sign of life the claim of a writer expires."""
SEGMENT_CELLS = NumberVariable("VISIONEVAL_SEGMENT_CELLS", 200, 1, 1_000_000)
"""After how many cells a writer sends a segment."""
SEGMENT_S = NumberVariable("VISIONEVAL_SEGMENT_S", 30, 1, 86_400)
"""After how many seconds a writer sends what is new."""
HOME = "VISIONEVAL_STORES"
"""The folder for copies of stores."""
ALL = (CLAIM_EXPIRY_S, SEGMENT_CELLS, SEGMENT_S)


def check_environment() -> None:
    """Raises ``UsageError`` for a variable that is not a whole number in its range."""
    for variable in ALL:
        _ = variable.value
