"""The process in which LiteLLM runs, and its environment.

LiteLLM reads keys, addresses and settings from its environment at any time, so the process gets nothing that an entry
does not name, and a home folder that is empty. Requests and answers are frames of JSON through its standard input and
output. The process ends when its input does, and so with this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
import weakref
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pybase64 import b64decode

from visioneval.bounds import REPLY_MB
from visioneval.errors import ProviderError, UsageError
from visioneval.providers.litellm import catalog
from visioneval.providers.litellm.config import LiteLLMOptions
from visioneval.providers.litellm.frames import LENGTH_BYTES, framed

_PASSED = re.compile(
    "PATH|PYTHONPATH|PYTHONHOME|(DY)?LD_LIBRARY_PATH|LANG|LC_ALL|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|SSL_CERT_(FILE|DIR)"
    "|(HTTP|HTTPS|ALL|NO)_PROXY|(http|https|all|no)_proxy"
)
_SETTINGS = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_GCE_CHECK": "true",
    "HF_HUB_OFFLINE": "1",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "true",
    "LITELLM_LOCAL_BLOG_POSTS": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "true",
    "LITELLM_LOG": "CRITICAL",
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env file
}
"""No lookups of credentials in a cloud, no downloads, no logs."""
_CREDENTIALS = ("AWS_", "CLOUDSDK_", "GOOGLE_", "GCLOUD_", "GCE_")
"""Beginnings of the variables that lead to machine credentials, besides files in the home folder."""
_END_S = 5.0
_STDERR_CHARS = 1000


def is_setting(name: str) -> bool:
    """Whether every process gets a variable, so that its value is no secret of an entry."""
    return name in _SETTINGS or name in ("HOME", "USERPROFILE") or _PASSED.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Environment:
    """Which variables a process gets: LiteLLM's name of each, with the name of the variable that contains its value."""

    variables: tuple[tuple[str, str], ...] = ()
    machine_credentials: bool = False

    @classmethod
    def of(cls, options: LiteLLMOptions) -> Environment:
        return cls(tuple(sorted(options.passed_variables.items())), options.machine_credentials)

    def values(self, home: str) -> dict[str, str]:
        """The environment of a process whose home folder is ``home``, unless it uses machine credentials."""
        passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
        machine = {"HOME": home, "USERPROFILE": home}
        settings = dict(_SETTINGS)
        if self.machine_credentials:
            machine = {name: os.environ[name] for name in machine if name in os.environ}
            settings = {name: value for name, value in settings.items() if not name.startswith(("AWS_", "NO_GCE"))}
            machine |= {name: value for name, value in os.environ.items() if name.startswith(_CREDENTIALS)}
        named = {name: os.environ.get(source, "") for name, source in self.variables}
        return {**passed, **_source_path(passed.get("PYTHONPATH")), **machine, **settings, **named}


def _source_path(existing: str | None) -> dict[str, str]:
    """Makes this package importable where it is not installed, such as in the folder of a cluster's worker."""
    folder = Path(__file__).parents[3]
    if folder.name in ("site-packages", "dist-packages"):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), existing)))}


@dataclass(slots=True)
class _Running:
    """A running process, and the calls that wait for its answers."""

    process: asyncio.subprocess.Process
    home: tempfile.TemporaryDirectory[str]
    waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    reader: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None and self.reader is not None and not self.reader.done()


class LiteLLMProcess:
    """The process for one environment in one event loop. It starts with the first call, and ends with the loop."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._count = 0
        self._closing: AsyncGenerator[None, None] | None = None

    async def call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request (see ``worker``). A cancelled call is cancelled in the process too.

        Raises ``ProviderError``.
        """
        running = await self._process()
        self._count += 1
        number = self._count
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        running.waiting[number] = answer
        try:
            await _send(running, {**request, "id": number})
            return _result(await answer)
        except BaseException:
            if running.is_alive and not answer.done():
                with contextlib.suppress(Exception):
                    await _send(running, {"cancel": number})
            raise
        finally:
            running.waiting.pop(number, None)

    async def _process(self) -> _Running:
        async with self._starting:
            if self._running is None or not self._running.is_alive:
                self._running = await self._start()
        return self._running

    async def _start(self) -> _Running:
        if self._closing is None:
            self._closing = self._close_at_end()
            await anext(self._closing)  # a loop closes its async generators when it ends
        try:
            home = tempfile.TemporaryDirectory(prefix="visioneval-litellm-")
            process = await _started(home, self._environment)
        except OSError as error:
            reason = error.strerror or error
            raise ProviderError(f"cannot start LiteLLM's process: {reason}", kind="transient") from None
        running = _Running(process, home)
        running.reader = asyncio.create_task(_read(running))
        return running

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _PROCESSES.pop(asyncio.get_running_loop(), None)  # its values refer to the loop
            if self._running is not None:
                await _end(self._running)


_PROCESSES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Environment, LiteLLMProcess]]
_PROCESSES = weakref.WeakKeyDictionary()


class LiteLLMConnection:
    """Calls for one entry: its server and its key. Entries with the same environment share a process."""

    def __init__(self, options: LiteLLMOptions) -> None:
        """Raises ``UsageError`` if LiteLLM is not installed or a variable is not set."""
        if not catalog.is_installed():
            raise UsageError(catalog.missing_text())
        for name in options.needed_variables:
            if not os.environ.get(name):
                raise UsageError(f"set the environment variable {name}: LiteLLM needs it")
        self._environment = Environment.of(options)
        self._key = os.environ.get(options.key_variable) if options.key_variable else None
        self._base_url = options.base_url

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The answer of LiteLLM's function for ``name`` (see ``worker``). Raises ``ProviderError``."""
        processes = _PROCESSES.setdefault(asyncio.get_running_loop(), {})
        process = processes.setdefault(self._environment, LiteLLMProcess(self._environment))
        return await process.call(
            {"call": name, **arguments, "api_key": self._key, "api_base": self._base_url, "reply_mb": REPLY_MB.limit}
        )

    async def post(self, path: str, body: bytes) -> dict[str, Any]:  # noqa: ARG002 - there is one path
        """Sends the body of a chat completion, as ``ChatJudge`` does."""
        return await self.call("chat", body=orjson.loads(body))


async def _started(home: tempfile.TemporaryDirectory[str], environment: Environment) -> asyncio.subprocess.Process:
    """Starts a process whose working directory and home are ``home``. Raises ``OSError``."""
    with open(_stderr(home), "wb") as stderr:  # noqa: PTH123, ASYNC230 - an empty file
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # no module from the working directory
            "-m",
            "visioneval.providers.litellm.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            cwd=home.name,
            env=environment.values(home.name),
            start_new_session=True,  # an interrupt is this process's to handle
        )


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    error = answer.get("error")
    if error is not None:
        raise ProviderError(
            str(error["message"]),
            kind=error["kind"],
            retry_after=error["retry_after"],
            may_be_billed=error["may_be_billed"],
            reply=b64decode(error["reply"]) if error.get("reply") is not None else None,
        )
    result: dict[str, Any] = answer["result"]
    return result


async def _send(running: _Running, message: Mapping[str, Any]) -> None:
    try:
        data = framed(message)
    except TypeError as error:
        raise ProviderError(f"invalid parameter: {error}", kind="invalid") from None
    assert running.process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the reader reports the end of the process
        running.process.stdin.write(data)
        await running.process.stdin.drain()


async def _read(running: _Running) -> None:
    """Gives each answer to the call that waits for it, until the process ends."""
    stream = running.process.stdout
    assert stream is not None
    try:
        while True:
            length = int.from_bytes(await stream.readexactly(LENGTH_BYTES))
            answer = orjson.loads(await stream.readexactly(length))
            waiting = running.waiting.get(answer["id"])
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
    except (asyncio.IncompleteReadError, ValueError):  # it ended, or something else wrote there
        pass
    finally:
        error = ProviderError(_ended(running), kind="transient", may_be_billed=True)
        for waiting in running.waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        with contextlib.suppress(ProcessLookupError):
            running.process.kill()  # it may be alive if something else wrote there
        running.home.cleanup()


def _ended(running: _Running) -> str:
    """The message for a process that ended, with the last line that it printed."""
    try:
        printed = _stderr(running.home).read_bytes()[-_STDERR_CHARS:].decode("utf-8", "replace").strip()
    except OSError:
        printed = ""
    last_line = printed.rpartition("\n")[2]
    return f"LiteLLM's process ended{f': {last_line}' if last_line else ''}"


def _stderr(home: tempfile.TemporaryDirectory[str]) -> Path:
    return Path(home.name) / "stderr"


async def _end(running: _Running) -> None:
    """Ends a process by the end of its input; kills it if it does not follow."""
    process = running.process
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    getattr(process, "_transport").close()  # noqa: B009 - asyncio has no public function for it
    running.home.cleanup()
