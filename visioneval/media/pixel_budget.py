"""A budget of pixels: threads that decode and measure images wait until there is room for theirs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from visioneval.bounds import max_pixels


class PixelBudget:
    """A weighted semaphore over pixels, first come, first served.

    What is larger than the whole budget is held alone. A thread that holds pixels takes no more of them for what it
    does meanwhile, so that it never waits for itself.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._held = 0
        self._own = threading.local()

    @contextmanager
    def hold(self, pixels: int) -> Iterator[None]:
        """Waits until there is room for so many pixels, and holds them."""
        if getattr(self._own, "holds", False):
            yield
            return
        share = self._take(pixels)
        self._own.holds = True
        try:
            yield
        finally:
            self._own.holds = False
            with self._changed:
                self._held -= share
                self._changed.notify_all()

    def _take(self, pixels: int) -> int:
        most = max_pixels()
        share, turn = min(pixels, most), object()
        with self._changed:
            self._waiting.append(turn)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is turn and self._held + share <= most)
                self._held += share
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
        return share


IN_MEMORY = PixelBudget()
"""The pixels that all threads of this process hold."""
