"""Memory that does not creep up over thousands of images, nor with the number of processors."""

from __future__ import annotations

import ctypes
from contextlib import suppress

TRIMMED_EVERY_S = 5.0
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 8 * 1024 * 1024
"""Below the 16 MB in which Pillow allocates the pixels of an image."""


def unmap_large_blocks() -> bool:
    """Has glibc return every large block to the system as soon as it is freed; ``False`` where it is not in use.

    By itself it raises its threshold to the largest block that was freed, and then keeps the pixels of the last image
    of every thread: with 16 processors, four images of 25 million pixels took 940 MB, one after the other, not 440.
    """
    with suppress(OSError, AttributeError, TypeError):
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES))
    return False


def give_back() -> bool:
    """Has glibc give free memory back to the system; ``False`` where it is not in use.

    By itself it keeps what lies between small objects that live on, as much as there ever was of it at once: a run of
    20,000 cells grew by a fifth. What is needed again soon is taken again, for a few milliseconds each time.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
        return True
    return False
