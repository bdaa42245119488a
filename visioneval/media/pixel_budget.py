"""A budget of pixels in memory: threads that decode images wait until their image fits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from visioneval.bounds import max_pixels
from visioneval.stopwatch import waiting


class PixelBudget:
    """A weighted semaphore over pixels, first come, first served.

    A request larger than the whole budget is granted when no other is active. Nested requests of a thread reserve
    nothing, so that a thread never waits for itself.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[object] = deque()
        self._reserved = 0
        self._thread = threading.local()

    @contextmanager
    def reserve(self, pixels: int) -> Iterator[None]:
        """Waits until the budget has room for ``pixels``, and reserves them."""
        if getattr(self._thread, "has_share", False):
            yield
            return
        share = self._take(pixels)
        self._thread.has_share = True
        try:
            yield
        finally:
            self._thread.has_share = False
            with self._condition:
                self._reserved -= share
                self._condition.notify_all()

    def _take(self, pixels: int) -> int:
        most = max_pixels()
        share, turn = min(pixels, most), object()
        with self._condition:
            self._waiting.append(turn)
            try:
                with waiting():
                    self._condition.wait_for(lambda: self._waiting[0] is turn and self._reserved + share <= most)
                self._reserved += share
            finally:
                self._waiting.remove(turn)
                self._condition.notify_all()
        return share


IN_MEMORY = PixelBudget()
"""The pixel budget of this process."""
