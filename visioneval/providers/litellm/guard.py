"""The HTTP clients of LiteLLM's calls: no redirects, no repeated calls, bounded replies, and a trace of each call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx
import litellm
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, HTTPHandler

from visioneval.errors import ProviderError
from visioneval.media.network import tls_context
from visioneval.providers.replies import ACCEPT_ENCODING, ReplyContent, TruncatedError


@dataclass(slots=True)
class Trace:
    """What a call did: its requests, and the last reply. ``host`` is the only one that it may reach, if it is set."""

    host: str | None = None
    posts: set[str] = field(default_factory=set)
    status: int | None = None
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    body: bytes = b""
    """Of the last reply, if it was read."""
    failure: Exception | None = None
    """Why a request had no reply."""
    problem: ProviderError | None = None
    """Why a request was blocked, or its reply was."""

    def begin(self, request: httpx.Request) -> None:
        """Raises ``ProviderError`` for a request to another host, and ``RepeatedError`` for a call that was made."""
        if self.host is not None and request.url.host != self.host:
            self.problem = ProviderError(
                f"blocked a request to {request.url.host!r}: calls may only go to {self.host!r}", kind="invalid"
            )
            raise self.problem
        url = str(request.url)
        if request.method == "POST":
            if url in self.posts:
                raise RepeatedError
            self.posts.add(url)
        self.status, self.failure, self.body = None, None, b""
        request.headers.update(ACCEPT_ENCODING)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Notes why a request has no usable reply."""
        try:
            yield
        except ProviderError as error:
            self.problem = error
            raise
        except Exception as error:
            self.failure = error
            raise

    def answered(self, response: httpx.Response) -> ReplyContent:
        """Notes the head of a reply. Raises ``ProviderError`` for a redirect, or a reply over the limit."""
        self.status, self.headers = response.status_code, httpx.Headers(response.headers)
        return ReplyContent(response)

    def end(self, response: httpx.Response) -> httpx.Response:
        """Notes the body of a reply that has been read, as those of errors always are."""
        self.body = response.content if response.is_closed else b""
        if response.is_error:
            response.headers["x-should-retry"] = "false"  # to OpenAI's SDK
        return response


TRACE: ContextVar[Trace] = ContextVar("trace")


class RepeatedError(Exception):
    """LiteLLM or an SDK in it sends a call again: retries are the engine's."""


class GuardedClient(httpx.AsyncClient):
    """Sends each call once, to where it may go."""

    def __init__(self) -> None:
        super().__init__(**_options(), event_hooks={"response": [_check]})

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Raises ``RepeatedError`` and ``ProviderError`` besides the errors of httpx."""
        trace = TRACE.get()
        trace.begin(request)
        with trace.failures():
            response = await super().send(request, **{**options, "follow_redirects": False})
            if response.is_error:
                await response.aread()
        return trace.end(response)


class GuardedThreadClient(httpx.Client):
    """The same for providers that LiteLLM calls in a thread."""

    def __init__(self) -> None:
        super().__init__(**_options(), event_hooks={"response": [_check_in_thread]})

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Raises ``RepeatedError`` and ``ProviderError`` besides the errors of httpx."""
        trace = TRACE.get()
        trace.begin(request)
        with trace.failures():
            response = super().send(request, **{**options, "follow_redirects": False})
            if response.is_error:
                response.read()
        return trace.end(response)


def _options() -> dict[str, Any]:
    """Connections are not kept: an idle one may be dead and fail the next call."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return {"verify": tls_context(), "limits": limits, "timeout": None, "follow_redirects": False}


async def _check(response: httpx.Response) -> None:
    response.stream = _Stream(response.stream, TRACE.get().answered(response))


def _check_in_thread(response: httpx.Response) -> None:
    response.stream = _ThreadStream(response.stream, TRACE.get().answered(response))


class _Stream(httpx.AsyncByteStream):
    def __init__(self, wire: Any, content: ReplyContent) -> None:
        self._wire = wire
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._wire:
                for piece in self._content.feed(data):
                    yield piece
            self._content.finish()
        except TruncatedError:
            pass

    async def aclose(self) -> None:
        await self._wire.aclose()


class _ThreadStream(httpx.SyncByteStream):
    def __init__(self, wire: Any, content: ReplyContent) -> None:
        self._wire = wire
        self._content = content

    def __iter__(self) -> Iterator[bytes]:
        try:
            for data in self._wire:
                yield from self._content.feed(data)
            self._content.finish()
        except TruncatedError:
            pass

    def close(self) -> None:
        self._wire.close()


class GuardedHandler(AsyncHTTPHandler):
    """LiteLLM's own client, around a guarded one."""

    def create_client(self, *_: Any, **__: Any) -> httpx.AsyncClient:
        return GuardedClient()

    async def single_connection_post_request(self, *_: Any, **__: Any) -> Any:
        """LiteLLM calls it to repeat a call whose connection was lost, while it handles that error."""
        raise  # noqa: PLE0704


class GuardedClients:
    """Stands in for LiteLLM's cache of clients, so that it creates none of its own.

    The clients of OpenAI's SDK are cached, as they use ``litellm.aclient_session``.
    """

    def __init__(self, others: Any) -> None:
        self._handler = GuardedHandler()
        self._thread_handler = HTTPHandler(client=GuardedThreadClient())
        self._others = others

    def get_cache(self, key: str, **options: Any) -> Any:
        """The guarded client for the name of any."""
        if key.startswith("async_httpx_client"):
            return self._handler
        return self._thread_handler if key.startswith("httpx_client") else self._others.get_cache(key, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others, name)


def install() -> None:
    """Makes LiteLLM's calls use guarded clients, and turns off what is the engine's or nobody's."""
    litellm.disable_aiohttp_transport = True
    litellm.aclient_session = GuardedClient()
    litellm.client_session = GuardedThreadClient()
    litellm.in_memory_llm_clients_cache = GuardedClients(litellm.in_memory_llm_clients_cache)
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.telemetry = False
    litellm.cache = None
    litellm.num_retries = 0
    litellm.callbacks = []
    litellm.success_callback = []
    litellm.failure_callback = []
