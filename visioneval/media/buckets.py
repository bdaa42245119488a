"""File systems of buckets (fsspec): quiet, and with a bounded wait for the first answer."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from visioneval.errors import UsageError
from visioneval.media.network import proxy_for, proxy_url

ANSWER_S = 10.0
"""Seconds to wait for a bucket's first answer. Its client repeats a call for almost a minute."""
_METADATA_HOST = "metadata.google.internal"
_METADATA_VARIABLES = ("NO_GCE_CHECK", "GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP")


def bucket_files(scheme: str, **options: Any) -> Any:
    """The ``fsspec`` file system for ``gs`` or ``s3``. Raises ``ImportError`` without its extra."""
    import fsspec

    if scheme == "gs":
        # Otherwise gcsfs asks for each bucket's kind first, and prints a traceback if it gets no answer.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        _skip_missing_metadata_server()
        logging.getLogger("gcsfs").addHandler(logging.NullHandler())  # its errors are raised too
        # gcsfs reads no proxy from the environment. Its sessions must not read it themselves: they would add
        # passwords of ~/.netrc to requests that have a token.
        is_configured = any("session_kwargs" in fsspec.config.conf.get(name, {}) for name in ("gs", "gcs"))
        if not is_configured and (proxy := proxy_for(_gcs_url())):
            options["session_kwargs"] = {"proxy": proxy_url(proxy)}
    return fsspec.filesystem(scheme, **options)


def _gcs_url() -> str:
    url = os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
    return url if "://" in url else f"http://{url}"


@cache
def _skip_missing_metadata_server() -> None:
    """Outside Google's cloud, its client waits for a token of this server for up to 16 seconds before it gives up."""
    if any(name in os.environ for name in _METADATA_VARIABLES):
        return
    try:
        socket.getaddrinfo(_METADATA_HOST, 80)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            os.environ["NO_GCE_CHECK"] = "true"


def size_in_bucket(files: Any, url: str) -> int:
    """The size of an object in bytes. Raises ``UsageError`` without an answer in time, and the file system's errors."""
    return int(first_answer(files, files._info, url)["size"])  # noqa: SLF001 - info() has no timeout


def first_answer(files: Any, operation: Callable[..., Awaitable[Any]], path: str) -> Any:
    """The answer to an operation of a file system. Raises ``UsageError`` if there is none in time, and its errors."""
    from fsspec.asyn import sync
    from fsspec.exceptions import FSTimeoutError

    try:
        return sync(files.loop, operation, path, timeout=ANSWER_S)
    except FSTimeoutError:
        message = f"no answer in {ANSWER_S:g} seconds: check the network, its proxy, and the machine's credentials"
        raise UsageError(message) from None
