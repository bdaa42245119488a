"""Paid outputs that an answer named by URL and that could not be read: another attempt is free.

The cache has all of the answer but the URL, which may be signed; that is in the folder of the run that paid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from visioneval.engine.calls.checked_media import CheckedMedia, check_media
from visioneval.engine.sanitize import Sanitizer
from visioneval.providers.base import Download, Downloader, Generation
from visioneval.records.cells.operations import DownloadFiles
from visioneval.threads import finish_in_thread
from visioneval.types import TaskType


@dataclass(frozen=True, slots=True)
class Downloads:
    """The downloads of a case on a model run."""

    provider: Any
    files: DownloadFiles
    task: TaskType
    sanitizer: Sanitizer

    async def write(self, generation: Generation) -> None:
        """Writes down what could not be read. Not a URL with a key: no file has one."""
        for output in generation.outputs:
            if isinstance(output, Download) and not self.sanitizer.hides(output.url):
                await finish_in_thread(self.files.write, output.url)

    async def read(self, outputs: Sequence[CheckedMedia]) -> tuple[CheckedMedia, ...]:
        """The outputs after another attempt to read those that could not be read."""
        return tuple(await asyncio.gather(*map(self._read, outputs)))

    async def _read(self, output: CheckedMedia) -> CheckedMedia:
        """An output that can be read, or never can, is no download any more."""
        if output.download is None or not isinstance(self.provider, Downloader):
            return output
        url = await asyncio.to_thread(self.files.read, output.download)
        if url is None:
            fault = f"{output.fault}; its URL is only in the run that paid for it: resume that one"
            return replace(output, fault=fault, fault_kind="bad_image")
        data = await self.provider.download(url)
        if isinstance(data, str):
            return CheckedMedia(fault=data)
        return await asyncio.to_thread(check_media, data, self.task)
