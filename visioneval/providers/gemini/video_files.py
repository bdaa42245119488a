"""Videos that an answer names by address: files of the Developer API, and objects in Google's buckets."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from google import genai
from google.genai import types

from visioneval.errors import OperationError, ProviderError, UsageError
from visioneval.media.images import MAX_BYTES
from visioneval.media.urls import fetch, is_denied
from visioneval.providers.base import Generation, OutputFile
from visioneval.providers.gemini.connection import operation_errors

_FILE = re.compile(r"(^|/)(?P<name>files/[a-z0-9-]+)(:download)?(\?|$)")


async def bucket_video(name: str, uri: str, folder: object) -> bytes:
    """The bytes of an object in ``folder``, of at most ``MAX_BYTES``, with this machine's credentials.

    Raises ``OperationError`` if there is no such object, or if the answer names one elsewhere.
    """
    if not isinstance(folder, str) or not uri.startswith(f"{folder.rstrip('/')}/") or "/../" in uri:
        raise OperationError(
            f"the operation {name} names its video by an address that is not below output_gcs_uri", kind="invalid"
        )
    try:
        return await asyncio.to_thread(fetch, uri, MAX_BYTES)
    except UsageError as error:
        cause = error.__cause__
        message = f"the video of the operation {name} cannot be read from its bucket: {error}"
        if str(error) == "there is no such file":
            raise OperationError(message, kind="invalid") from None
        is_temporary = isinstance(cause, Exception) and not is_denied(cause)
        raise ProviderError(message, kind="transient" if is_temporary else "invalid", may_be_billed=True) from None


async def developer_video(client: genai.Client, name: str, uri: str, target: Path) -> Generation | None:
    """Downloads a file of the Developer API to ``target``; ``None`` while the service still prepares it.

    The key goes to the service's own host only. Raises ``OperationError`` for another address, and for a file that has
    expired.
    """
    match = _FILE.search(uri)
    if match is None:
        raise OperationError(f"the operation {name} names its video by an address that cannot be read", kind="invalid")
    with operation_errors(name):
        file = await client.aio.files.get(name=match["name"])
        if file.state is types.FileState.PROCESSING:
            return None
        if file.state is types.FileState.FAILED:
            raise OperationError(f"the video of the operation {name} could not be prepared", kind="transient")
        await client.aio.files.download(file=match["name"], destination=target)
    return Generation(outputs=(OutputFile(target),))
