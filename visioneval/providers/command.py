"""Generates with a custom program. It is started once per image, without a shell.

It reads one JSON object from standard input (``version``, ``task_type``, ``prompt``, ``images``, ``masks``,
``params``, ``sample_index``, ``output``), writes the image to the path ``output``, and may print
``{"refused": "why"}`` as the last line of standard output. Its working directory is the suite's folder. ``output``
ends in ``.png`` for libraries that choose a format by the suffix; only the contents determine the format.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from visioneval.errors import ProviderError
from visioneval.media.images import MAX_BYTES
from visioneval.providers.base import Generation, GenerationRequest
from visioneval.suite.case import PRINTABLE
from visioneval.suite.entries.providers import GeneratingProvider
from visioneval.suite.files import Trust
from visioneval.suite.messages import Loc

Argument = Annotated[str, StringConstraints(pattern=PRINTABLE)]


class CommandProvider(GeneratingProvider):
    """A custom program, called once per image. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: Literal["command"]
    argv: Annotated[list[Argument], Field(min_length=1)] = Field(
        description="The program and its arguments. No shell runs them."
    )
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=True)] = Field(
        default=600.0, description="Seconds after which the program is killed."
    )


def problems(entry: CommandProvider, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str]]:  # noqa: ARG001 - trust is checked elsewhere
    """Yields a missing program."""
    name = entry.argv[0]
    if shutil.which(name) is None and not ("/" in name and shutil.which(str(folder / name))):
        yield ("argv",), f"program {name!r} not found on this machine"


PROTOCOL_VERSION = 1
MAX_OUTPUT_BYTES = 64 * 1024
"""The most bytes of output that are kept, from its end."""
_MAX_STDERR_CHARS = 2000
_OUTPUT_GRACE_S = 1.0
_POLL_S = 0.5


class Command:
    """Runs ``argv`` of a ``command`` entry."""

    def __init__(self, config: CommandProvider) -> None:
        self.config = config

    async def generate(self, request: GenerationRequest) -> Generation:
        """The image that the program wrote, or its refusal. Raises ``ProviderError`` with its standard error."""
        with tempfile.TemporaryDirectory(prefix="visioneval-") as scratch:
            output = Path(scratch) / "output.png"
            payload = {
                "version": PROTOCOL_VERSION,
                "task_type": request.task_type,
                "prompt": request.prompt,
                "images": [{"role": role, "path": str(path)} for role, path in request.files.images],
                "masks": {name: str(path) for name, path in request.files.masks.items()},
                "params": dict(request.params),
                "sample_index": request.samples[0],
                "output": str(output),
            }
            stdout, stderr = await self._run(json.dumps(payload).encode(), request)
            if refusal := _refusal(stdout):
                return Generation(refused=refusal, run_params=request.params)
            image = await asyncio.to_thread(_read_output, output, stderr)
            return Generation(outputs=(image,), run_params=request.params)

    edit = generate

    async def _run(self, payload: bytes, request: GenerationRequest) -> tuple[bytes, bytes]:
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
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ProviderError(f"cannot start {argv[0]!r}: {reason}", kind="invalid") from None
        try:
            async with asyncio.timeout(self.config.timeout_s):
                stdout, stderr = await _converse(process, payload)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # and all that it started
            _close_pipes(process)
            await process.wait()
            if isinstance(error, TimeoutError):
                message = f"the command took more than {self.config.timeout_s:g} s (timeout_s)"
                raise ProviderError(message, kind="transient") from None
            raise
        finally:
            _close_pipes(process)
        if process.returncode:
            message = f"the command ended with {_status(process.returncode)}{_stderr_message(stderr)}"
            raise ProviderError(message, kind="invalid")
        return stdout, stderr


async def _converse(process: asyncio.subprocess.Process, payload: bytes) -> tuple[bytes, bytes]:
    """Sends the request and waits for the program to end; returns the ends of its standard output and error."""
    assert process.stdin is not None
    pipes = ((process.stdout, bytearray()), (process.stderr, bytearray()))
    async with asyncio.TaskGroup() as group:
        group.create_task(_send(process.stdin, payload))
        readers = {group.create_task(_collect_end(stream, buffer)) for stream, buffer in pipes if stream is not None}
        while readers and process.returncode is None:
            _, readers = await asyncio.wait(readers, timeout=_POLL_S)
        if readers:  # a surviving child may keep the pipes open, and process.wait() waits for them
            await asyncio.wait(readers, timeout=_OUTPUT_GRACE_S)
        else:
            await process.wait()
        for task in readers:
            task.cancel()
    return bytes(pipes[0][1]), bytes(pipes[1][1])


async def _send(stdin: asyncio.StreamWriter, payload: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a program need not read its input
        stdin.write(payload)
        await stdin.drain()
    stdin.close()


async def _collect_end(stream: asyncio.StreamReader, buffer: bytearray) -> None:
    while part := await stream.read(MAX_OUTPUT_BYTES):
        buffer += part
        del buffer[:-MAX_OUTPUT_BYTES]


def _read_output(output: Path, stderr: bytes) -> bytes:
    try:
        if not output.is_file():
            raise FileNotFoundError
        size = output.stat().st_size
        if size > MAX_BYTES:
            raise ProviderError(f"the command wrote {size:,} bytes, over the limit of {MAX_BYTES:,}", kind="bad_image")
        return output.read_bytes()
    except OSError:
        message = f"the command wrote no image to 'output'{_stderr_message(stderr)}"
        raise ProviderError(message, kind="invalid") from None


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Closes the pipes, which a child may still have open; asyncio has no public function for this."""
    getattr(process, "_transport").close()  # noqa: B009


def _status(code: int) -> str:
    if code > 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _stderr_message(stderr: bytes) -> str:
    text = stderr.decode("utf-8", "replace").strip()
    return f"; its standard error: {text[-_MAX_STDERR_CHARS:]}" if text else "; its standard error is empty"


def _refusal(stdout: bytes) -> str | None:
    """The refusal on the last line of standard output, if any; other output is ignored."""
    last_line = stdout.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
    try:
        reply: Any = json.loads(last_line) if last_line else None
    except (ValueError, RecursionError):
        return None
    return str(reply["refused"]) if isinstance(reply, dict) and reply.get("refused") else None
