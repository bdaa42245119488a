"""OpenCV on the code that every processor has, so that a score does not depend on the machine.

OpenCV holds most functions several times, for AVX2, AVX-512 and so on, and Intel's IPP beside them, and takes what
the processor can do. They round differently: a resized image differs in whole levels of 255, a blur in its last
digits, and what is compared with a threshold flips. The plain code is as fast for what graders do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import cv2


class _Setting:
    """OpenCV's switch is one for the process, so its users are counted: the last to leave puts it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = True

    def enter(self) -> None:
        with self._lock:
            if not self._users:
                self._before = cv2.useOptimized()
            self._users += 1
            cv2.setUseOptimized(False)

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                cv2.setUseOptimized(self._before)


_setting = _Setting()


@contextmanager
def portable_opencv() -> Iterator[None]:
    """OpenCV without code for particular processors, in this thread; also a decorator: ``@portable_opencv()``.

    OpenCV holds one half of the setting for the process and the other (IPP) for each thread, so work that is
    handed to another thread enters it there. What was set before comes back when the last thread has left.
    """
    ipp_before = cv2.ipp.useIPP()
    _setting.enter()
    try:
        yield
    finally:
        _setting.leave()
        cv2.ipp.setUseIPP(ipp_before)
