"""File systems of buckets (fsspec): quiet, and with a bounded wait for the first answer."""

from __future__ import annotations

import logging
import os
from typing import Any

from visioneval.errors import UsageError

ANSWER_S = 20.0
"""Seconds to wait for a bucket's first answer. Its client repeats a call for almost a minute."""


def bucket_files(scheme: str, **options: Any) -> Any:
    """The ``fsspec`` file system for ``gs`` or ``s3``. Raises ``ImportError`` without its extra."""
    import fsspec

    if scheme == "gs":
        # Otherwise gcsfs asks for each bucket's kind first, and prints a traceback if it gets no answer.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        logging.getLogger("gcsfs").addHandler(logging.NullHandler())  # its errors are raised too
    return fsspec.filesystem(scheme, **options)


def size_in_bucket(files: Any, url: str) -> int:
    """The size of an object in bytes. Raises ``UsageError`` without an answer in time, and the file system's errors."""
    from fsspec.asyn import sync
    from fsspec.exceptions import FSTimeoutError

    try:
        details = sync(files.loop, files._info, url, timeout=ANSWER_S)  # noqa: SLF001 - info() has no timeout
    except FSTimeoutError:
        message = f"no answer in {ANSWER_S:g} seconds: check the network and the machine's credentials"
        raise UsageError(message) from None
    return int(details["size"])
