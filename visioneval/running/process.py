"""Prepares a process for a run: enough open files for its calls, and memory that large images give back."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress

OPEN_FILES = 10_000
"""Enough for the highest ``--max-concurrency`` for a generator and a judge, and within the most that macOS allows."""
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 8 * 1024 * 1024
"""Below the 16 MB blocks that Pillow allocates for pixels."""


def prepare_process() -> None:
    """Allows ``OPEN_FILES``, or as many as the system does, and makes glibc return the pixels of each image.

    Shells often set a limit of 1,024 open files, or 256 on macOS. A call beyond it would fail as if its server could
    not be reached. By default glibc retains the pixels of the last image in every thread: with 16 processors, four
    images of 25 megapixels took 940 MB, one at a time, not 440.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with suppress(OSError, ValueError):  # a sandbox may refuse it
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    with suppress(OSError, AttributeError, TypeError):  # no glibc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
