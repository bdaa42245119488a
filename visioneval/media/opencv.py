"""Runs OpenCV without processor-specific code, so that scores do not depend on the machine.

OpenCV has several versions of most functions (AVX2, AVX-512, Intel IPP) and selects one at run time. They round
differently: a resized image can differ by whole levels, and comparisons with thresholds can flip. The portable code
is fast enough for graders.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import cv2


class _Setting:
    """Reference-counted access to OpenCV's process-wide switch: the last user restores it."""

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
    """Disables processor-specific OpenCV code in this thread; also a decorator: ``@portable_opencv()``.

    Part of the setting is per process and part (IPP) per thread, so work in another thread must enter it there. The
    previous setting is restored when the last thread leaves.
    """
    ipp_before = cv2.ipp.useIPP()
    _setting.enter()
    try:
        yield
    finally:
        _setting.leave()
        cv2.ipp.setUseIPP(ipp_before)
