"""Images, edits, videos and judgments by LiteLLM, and the process in which it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
import weakref
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import orjson
from pybase64 import b64decode

from visioneval.bounds import REPLY_MB
from visioneval.errors import ProviderError, UsageError
from visioneval.providers.base import GenerationRequest
from visioneval.providers.inputs import Upload
from visioneval.providers.litellm import (
    LiteLLMJudge,
    LiteLLMOptions,
    LiteLLMProvider,
    is_installed,
    missing_text,
)
from visioneval.providers.openai.connection import Connection, check_key, data_url, encoded, without_openai_variables
from visioneval.providers.openai.generator import OpenAIGenerator, OpenAIVideos
from visioneval.providers.openai.judge import ChatJudge

FAILURE = 599
"""The status of an answer of the process that describes an error of its own, with the fields of a ``ProviderError``."""

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
        folder = Path(__file__).parents[3]
        if folder.name not in ("site-packages", "dist-packages"):  # such as the folder of a cluster's worker
            passed["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), passed.get("PYTHONPATH"))))
        named = {name: os.environ.get(source, "") for name, source in self.variables}
        return {**passed, **machine, **settings, **named}


class LiteLLMProcess:
    """The process for one environment in one event loop. It starts with the first call, and ends with the loop."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._start: asyncio.Task[ProviderError | None] | None = None
        self._closing: AsyncGenerator[None, None] | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self.process: asyncio.subprocess.Process | None = None

    async def socket(self) -> str:
        """The path of the socket on which it listens; starts it if it is not alive. Raises ``ProviderError``."""
        start = self._start
        is_alive = self.process is not None and self.process.returncode is None
        if start is None or (start.done() and not is_alive):
            start = self._start = asyncio.create_task(self._started())
        await asyncio.wait((start,))  # a call that is cancelled leaves the start to the other ones
        if (failure := start.result()) is not None:
            raise failure
        assert self._home is not None
        return str(Path(self._home.name) / "socket")

    async def ended(self, *, may_be_billed: bool) -> ProviderError:
        """The error of a call that the process did not answer, with the last line that it printed."""
        printed = ""
        if self.process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), 1)  # that it has ended is known a moment later
        if self._home is not None:
            with contextlib.suppress(OSError):
                data = (Path(self._home.name) / "stderr").read_bytes()
                printed = data[-_STDERR_CHARS:].decode("utf-8", "replace").strip().rpartition("\n")[2]
        message = f"LiteLLM's process ended{f': {printed}' if printed else ''}"
        return ProviderError(message, kind="transient", may_be_billed=may_be_billed)

    async def _started(self) -> ProviderError | None:
        """Starts it, and returns why it is not ready: nobody may be left to whom this is raised."""
        if self._closing is None:
            self._closing = self._close_at_end()
            await anext(self._closing)  # a loop closes its async generators when it ends
        await self._end()
        try:
            self._home = tempfile.TemporaryDirectory(prefix="visioneval-litellm-")
            with open(Path(self._home.name) / "stderr", "wb") as stderr:  # noqa: PTH123, ASYNC230 - an empty file
                self.process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "visioneval.providers.litellm.worker"),
                    str(Path(self._home.name) / "socket"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    cwd=self._home.name,
                    env=self._environment.values(self._home.name),
                    start_new_session=True,  # an interrupt is this process's to handle
                )
        except OSError as error:
            await self._end()
            reason = error.strerror or error
            return ProviderError(f"cannot start LiteLLM's process: {reason}", kind="transient")
        assert self.process.stdout is not None
        if await self.process.stdout.readline():
            return None
        failure = await self.ended(may_be_billed=False)
        await self._end()
        return failure

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _PROCESSES.pop(asyncio.get_running_loop(), None)  # its values refer to the loop
            await self._end()

    async def _end(self) -> None:
        """Ends the process by the end of its input; kills it if it does not follow."""
        process, self.process = self.process, None
        if process is not None:
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
        if self._home is not None:
            self._home.cleanup()


_PROCESSES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Environment, LiteLLMProcess]]
_PROCESSES = weakref.WeakKeyDictionary()


def process_for(environment: Environment) -> LiteLLMProcess:
    """The process that all entries with this environment share in the running event loop."""
    processes = _PROCESSES.setdefault(asyncio.get_running_loop(), {})
    return processes.setdefault(environment, LiteLLMProcess(environment))


class LiteLLMConnection(Connection):
    """Calls of one entry: its server and its key."""

    def __init__(self, options: LiteLLMOptions) -> None:
        """Raises ``UsageError`` if LiteLLM is not installed, a variable is not set, or the key cannot be sent."""
        if not is_installed():
            raise UsageError(missing_text())
        for name in options.needed_variables:
            if not os.environ.get(name):
                raise UsageError(f"set the environment variable {name}: LiteLLM needs it")
        self._environment = Environment.of(options)
        self._key = os.environ.get(options.key_variable, "") if options.key_variable else ""
        check_key(options.key_variable, self._key)
        self._base_url = options.base_url or ""
        self._of_process: tuple[tuple[str, int], openai.AsyncOpenAI] | None = None

    async def client(self) -> openai.AsyncOpenAI:
        """The client of the process, which is started if it is not alive."""
        process = process_for(self._environment)
        state = (await process.socket(), REPLY_MB.limit)
        if self._of_process is None or self._of_process[0] != state:
            transport = _ProcessTransport(process, state[0])
            http = httpx2.AsyncClient(transport=transport, timeout=None, event_hooks={"response": [_raise_failure]})
            with without_openai_variables():
                client = openai.AsyncOpenAI(
                    api_key=self._key or "none",  # it is hidden in messages
                    base_url="http://litellm",
                    max_retries=0,
                    default_headers={"x-key": self._key, "x-base-url": self._base_url, "x-reply-mb": str(state[1])},
                    http_client=http,
                )
            self._of_process = (state, client)
        return self._of_process[1]


class _ProcessTransport(httpx2.AsyncHTTPTransport):
    """Connections to the socket of a process, one for each call."""

    def __init__(self, process: LiteLLMProcess, socket: str) -> None:
        super().__init__(uds=socket, limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0))
        self._process = process

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises ``ProviderError`` if the process ends before it answers."""
        try:
            return await super().handle_async_request(request)
        except httpx2.ConnectError:
            raise await self._process.ended(may_be_billed=False) from None
        except httpx2.TransportError:
            raise await self._process.ended(may_be_billed=True) from None


async def _raise_failure(response: httpx2.Response) -> None:
    """Raises the error that the process describes."""
    if response.status_code == FAILURE:
        fields = orjson.loads(await response.aread())
        reply = fields.pop("reply")
        raise ProviderError(fields.pop("message"), **fields, reply=None if reply is None else b64decode(reply))


_NO_HOST = "https://litellm.invalid"
"""Stands for the provider's API, whose address only LiteLLM knows: outputs come from other hosts."""


class LiteLLMGenerator(OpenAIGenerator):
    """One output per call; parameters are passed to LiteLLM as the suite wrote them."""

    def __init__(self, config: LiteLLMProvider) -> None:
        """Raises ``UsageError`` without LiteLLM or a variable."""
        connection = LiteLLMConnection(config)
        super().__init__(config, connection, LiteLLMVideos(connection), _NO_HOST)


class LiteLLMVideos(OpenAIVideos):
    """Videos of any provider: parameters keep their types, which a form would not."""

    async def _create(
        self, client: openai.AsyncOpenAI, request: GenerationRequest, frame: Upload | None
    ) -> httpx2.Response:
        body: Mapping[str, Any] = {**request.params, "prompt": request.prompt}
        if frame is not None:
            body = {**body, "input_reference": await asyncio.to_thread(data_url, frame[1], frame[2])}
        return await client.post("/videos", content=encoded(body), cast_to=httpx2.Response)


def open_judge(config: LiteLLMJudge) -> ChatJudge:
    """Creates the judge of an entry. Raises ``UsageError`` without LiteLLM or a variable."""
    return ChatJudge(config, LiteLLMConnection(config))
