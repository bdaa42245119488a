"""Keeps memory use flat over thousands of images, whatever the number of processors."""

from __future__ import annotations

import ctypes
from contextlib import suppress

TRIM_INTERVAL_S = 5.0
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 8 * 1024 * 1024
"""Below the 16 MB blocks that Pillow allocates for pixels."""


def unmap_large_blocks() -> bool:
    """Makes glibc return each large block to the system when it is freed, and retain smaller ones for reuse.

    By default glibc raises its threshold to the size of the largest freed block, and every thread then retains the
    pixels of its last image: with 16 processors, four images of 25 megapixels took 940 MB, one at a time, not 440.
    Setting one threshold stops glibc from adjusting the other, which is then 128 KiB: each reply with an image would
    get fresh pages from the system, a third of all system time of a run with images of 1.5 MB.

    Returns ``False`` without glibc.
    """
    with suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
        return bool(libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES))
    return False


def release_memory() -> bool:
    """Makes glibc return free memory to the system. Returns ``False`` on systems without glibc.

    Without this, glibc keeps free memory between small live objects, and a run of 20,000 cells grew by a fifth.
    Each call takes a few milliseconds.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
        return True
    return False
