"""Pictures that exist already: nothing is drawn, and nothing is called."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from visioneval.errors import ProviderError
from visioneval.images import MAX_BYTES
from visioneval.providers.base import Drawing, DrawRequest
from visioneval.suite.providers import FilesProvider


class Files:
    """Reads the picture that the plan found for a cell; ``params["path"]`` names it."""

    def __init__(self, config: FilesProvider) -> None:
        self.config = config

    async def generate(self, request: DrawRequest) -> Drawing:
        """The finished picture; nothing for cells without one. Raises ``ProviderError`` where one is missing."""
        if not self.config.has_pictures:
            return Drawing()
        path = str(request.params["path"])
        if not path:
            raise ProviderError(
                f"there is no finished picture of {request.case.id!r} by {request.model_label!r}",
                kind="invalid",
            )
        data = await asyncio.to_thread(_read, request.folder / path, path)
        return Drawing(pictures=(data,), run_params={"path": path})

    edit = generate


def _read(path: Path, shown: str) -> bytes:
    try:
        found = path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):  # a pipe would be waited for for ever
            raise ProviderError(f"{shown}: not a file", kind="invalid")
        if found.st_size > MAX_BYTES:
            raise ProviderError(f"{shown}: over the limit of {MAX_BYTES:,} bytes", kind="bad_image")
        return path.read_bytes()
    except OSError as error:
        raise ProviderError(f"{shown}: {error.strerror or error}", kind="invalid") from None
