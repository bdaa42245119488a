"""A budget of pixels: threads that decode and measure images wait until there is room for theirs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from visioneval.bounds import max_pixels


class PixelBudget:
    """A weighted semaphore over pixels, first come, first served.

    What is larger than the whole budget is reserved alone. A thread that holds pixels takes no more of them for what it
    does meanwhile, so that it never waits for itself.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[object] = deque()
        self._reserved = 0
        self._thread = threading.local()

    @contextmanager
    def reserve(self, pixels: int) -> Iterator[None]:
        """Waits until there is room for so many pixels, and holds them."""
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
                self._condition.wait_for(lambda: self._waiting[0] is turn and self._reserved + share <= most)
                self._reserved += share
            finally:
                self._waiting.remove(turn)
                self._condition.notify_all()
        return share


IN_MEMORY = PixelBudget()
"""The pixels that all threads of this process hold."""
