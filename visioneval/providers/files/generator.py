"""Images that exist already: nothing is generated, and nothing is called."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from visioneval.errors import ProviderError, UsageError
from visioneval.media.images import MAX_BYTES
from visioneval.media.urls import fetch, is_url
from visioneval.providers.base import Address, Generation, GenerationRequest
from visioneval.providers.files.config import FilesProvider

_FETCHING = ThreadPoolExecutor(16, thread_name_prefix="fetch")
"""Waiting for a bucket takes no core: it must not fill up the run's own pool, which is as large as the machine."""


class Files:
    """Reads the image that the plan found for a cell; ``params["path"]`` names it."""

    def __init__(self, config: FilesProvider) -> None:
        self.config = config

    async def generate(self, request: GenerationRequest) -> Generation:
        """The finished image; nothing for cells without one. Raises ``ProviderError`` where one is missing."""
        if not self.config.has_outputs:
            return Generation()
        path = str(request.params["path"])
        if problem := request.params.get("problem"):
            raise ProviderError(_with_source(request.params, str(problem)), kind="invalid")
        if not path:
            raise ProviderError(
                f"there is no finished image of {request.case.id!r} by {request.model_label!r}",
                kind="invalid",
            )
        if request.params.get("by_address"):
            return Generation(outputs=(Address(path, str(request.params["mime"])),), run_params=request.params)
        work = asyncio.get_running_loop().run_in_executor(_FETCHING if is_url(path) else None, _read, request, path)
        data = await work
        return Generation(outputs=(data,), run_params=request.params)

    edit = generate


def _with_source(params: Mapping[str, Any], message: str) -> str:
    """A message about an image, with the file and line that name it where a dataset does."""
    return f"{params['row']}: {message}" if "row" in params else message


def _read(request: GenerationRequest, name: str) -> bytes:
    source = _with_source(request.params, name)
    if is_url(name):
        try:
            return fetch(name, MAX_BYTES)
        except UsageError as error:
            raise ProviderError(f"{source}: {error}", kind="invalid") from None
    path = request.folder / name
    try:
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a pipe would be waited for for ever
            raise ProviderError(f"{source}: not a file", kind="invalid")
        if status.st_size > MAX_BYTES:
            raise ProviderError(f"{source}: over the limit of {MAX_BYTES:,} bytes", kind="bad_image")
        return path.read_bytes()
    except OSError as error:
        raise ProviderError(f"{source}: {error.strerror or error}", kind="invalid") from None
