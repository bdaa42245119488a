"""Existing outputs: nothing is generated, and no provider is called."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Mapping
from typing import Any

from visioneval.errors import ProviderError, UsageError
from visioneval.media.images import MAX_BYTES, sha256
from visioneval.media.urls import fetch, is_url, public_address
from visioneval.providers.base import Address, Generation, GenerationRequest
from visioneval.providers.files.config import FilesProvider
from visioneval.threads import Threads

_FETCHING = Threads(16, thread_name_prefix="fetch")
"""Downloads need no CPU, so they must not hold the threads of the run, which are as many as the machine needs."""


class Files:
    """Reads the output that the plan found for a cell; ``params["path"]`` is its path."""

    def __init__(self, config: FilesProvider) -> None:
        self.config = config

    async def generate(self, request: GenerationRequest) -> Generation:
        """The existing output; empty for cells without one. Raises ``ProviderError`` if it is missing."""
        if not self.config.has_outputs:
            return Generation()
        path = str(request.params["path"])
        if problem := request.params.get("problem"):
            raise ProviderError(_with_source(request.params, str(problem)), kind="invalid")
        if not path:
            raise ProviderError(
                f"no output of {request.model_label!r} for the case {request.case.id!r}",
                kind="invalid",
            )
        if request.params.get("by_address"):
            return Generation(outputs=(Address(path, str(request.params["mime"])),), run_params=request.params)
        work = asyncio.get_running_loop().run_in_executor(_FETCHING if is_url(path) else None, _read, request, path)
        data = await work
        return Generation(outputs=(data,), run_params=request.params)

    edit = generate


def _with_source(params: Mapping[str, Any], message: str) -> str:
    """Prefixes a message with the file and line of the dataset, if there is one."""
    return f"{params['row']}: {message}" if "row" in params else message


def _read(request: GenerationRequest, name: str) -> bytes:
    source = _with_source(request.params, public_address(name))
    if is_url(name):
        try:
            return fetch(name, MAX_BYTES)
        except UsageError as error:
            raise ProviderError(f"{source}: {error}", kind="invalid") from None
    path = request.folder / name
    try:
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # reading a pipe could block forever
            raise ProviderError(f"{source}: not a file", kind="invalid")
        if status.st_size > MAX_BYTES:
            raise ProviderError(f"{source}: over the limit of {MAX_BYTES:,} bytes", kind="bad_image")
        data = path.read_bytes()
    except OSError as error:
        raise ProviderError(f"{source}: {error.strerror or error}", kind="invalid") from None
    expected = request.params.get("sha256")
    if expected == "":
        raise ProviderError(f"{source}: its record has no hash, so that it cannot be checked", kind="bad_image")
    if expected is not None and sha256(data) != expected:
        raise ProviderError(f"{source}: was changed after it was generated", kind="bad_image")
    return data
