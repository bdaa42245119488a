"""A program of the user's own draws. It is started once per picture, without a shell.

It reads one JSON object from standard input (``version``, ``task_type``, ``prompt``, ``images``, ``masks``,
``params``, ``sample_index``, ``output``), writes the picture to the path ``output``, and may say
``{"refused": "why"}`` on standard output. Its working directory is the suite's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

from visioneval.errors import ProviderError
from visioneval.images import MAX_BYTES
from visioneval.providers.base import Drawing, DrawRequest
from visioneval.suite.providers import CommandProvider

PROTOCOL_VERSION = 1
_TOLD = 2000


class Command:
    """Runs ``argv`` of a ``command`` entry."""

    def __init__(self, config: CommandProvider) -> None:
        self.config = config

    async def generate(self, request: DrawRequest) -> Drawing:
        """The picture that the program wrote, or its refusal. Raises ``ProviderError`` with its standard error."""
        with tempfile.TemporaryDirectory(prefix="visioneval-") as scratch:
            return await self._draw(request, Path(scratch) / "output")

    edit = generate

    async def _draw(self, request: DrawRequest, output: Path) -> Drawing:
        asked = {
            "version": PROTOCOL_VERSION,
            "task_type": request.task_type,
            "prompt": request.prompt,
            "images": [{"role": role, "path": str(path)} for role, path in request.files.images],
            "masks": {name: str(path) for name, path in request.files.masks.items()},
            "params": dict(request.params),
            "sample_index": request.samples[0],
            "output": str(output),
        }
        said, errors = await self._run(json.dumps(asked).encode(), request)
        if refused := _refusal(said):
            return Drawing(refused=refused, run_params=request.params)
        picture = await asyncio.to_thread(_written, output, errors)
        return Drawing(pictures=(picture,), run_params=request.params)

    async def _run(self, asked: bytes, request: DrawRequest) -> tuple[bytes, bytes]:
        argv = self.config.argv
        program = str(request.folder / argv[0]) if "/" in argv[0] else argv[0]
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *argv[1:],
                cwd=request.folder,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ProviderError(f"cannot start {argv[0]!r}: {error.strerror or error}", kind="invalid") from None
        try:
            async with asyncio.timeout(self.config.timeout_s):
                said, errors = await process.communicate(asked)
        except TimeoutError:
            raise ProviderError(f"the command took over {self.config.timeout_s:g} s", kind="transient") from None
        finally:
            _end(process)
        if process.returncode:
            raise ProviderError(f"the command ended with {_status(process.returncode)}{_told(errors)}", kind="invalid")
        return said, errors


def _written(output: Path, errors: bytes) -> bytes:
    try:
        size = output.stat().st_size
        if size > MAX_BYTES:
            raise ProviderError(f"the command wrote {size:,} bytes, over the limit of {MAX_BYTES:,}", kind="bad_image")
        return output.read_bytes()
    except OSError:
        raise ProviderError(f"the command wrote no picture to 'output'{_told(errors)}", kind="invalid") from None


def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the program and whatever it started, where a time limit or an interrupt cut it short."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _status(code: int) -> str:
    return f"exit status {code}" if code > 0 else f"signal {signal.Signals(-code).name}"


def _told(errors: bytes) -> str:
    text = errors.decode("utf-8", "replace").strip()
    return f"; its standard error: {text[-_TOLD:]}" if text else "; its standard error is empty"


def _refusal(said: bytes) -> str | None:
    """The refusal on the last line of standard output, if any; other output is the program's own business."""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    try:
        reply: Any = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return str(reply["refused"]) if isinstance(reply, dict) and reply.get("refused") else None
