"""LiteLLM's process: a server of OpenAI's API on a socket of its own, which passes each call to LiteLLM once.

``python -m visioneval.providers.litellm.worker SOCKET`` prints a line when it is ready, and ends when its standard
input does. Headers of a call have its key, the address of its server and the limit of its reply. An answer with an
error of the provider is passed on as it came; any other failure has the status ``FAILURE``.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import litellm
import orjson
from aiohttp import web
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, HTTPHandler
from litellm.types.router import GenericLiteLLMParams
from litellm.types.utils import all_litellm_params
from pybase64 import b64decode, b64encode_as_string

from visioneval.bounds import REPLY_MB
from visioneval.errors import ProviderError, ProviderErrorKind
from visioneval.media.network import refused_by_proxy, tls_context
from visioneval.providers.error_replies import read_error
from visioneval.providers.litellm import CLOUD_NAMES
from visioneval.providers.litellm.generator import FAILURE, is_setting
from visioneval.providers.refusals import is_refusal
from visioneval.providers.replies import ACCEPT_ENCODING, ReplyContent
from visioneval.suite.remote import SHORTEST_ENVIRONMENT_SECRET, environment_secrets


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

    @contextmanager
    def call(self, request: httpx.Request) -> Iterator[None]:
        """Notes a request, and why it has no usable reply.

        Raises ``ProviderError`` for a request to another host, and ``RepeatedError`` for a call that was made.
        """
        if self.host is not None and request.url.host != self.host:
            message = f"blocked a request to {request.url.host!r}: calls may only go to {self.host!r}"
            self.problem = ProviderError(message, kind="invalid")
            raise self.problem
        url = str(request.url)
        if request.method == "POST":
            if url in self.posts:
                raise RepeatedError
            self.posts.add(url)
        self.status, self.failure, self.body = None, None, b""
        request.headers.update(ACCEPT_ENCODING)
        try:
            yield
        except ProviderError as error:
            self.problem = error
            raise
        except Exception as error:
            self.failure = error
            raise

    def answered(self, response: httpx.Response) -> None:
        """Notes the head of a reply. Raises ``ProviderError`` for a redirect, or a reply over the limit."""
        self.status, self.headers = response.status_code, httpx.Headers(response.headers)
        response.stream = _Stream(response.stream, ReplyContent(response))

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
        with trace.call(request):
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
        with trace.call(request):
            response = super().send(request, **{**options, "follow_redirects": False})
            if response.is_error:
                response.read()
        return trace.end(response)


def _options() -> dict[str, Any]:
    """Connections are not kept: an idle one may be dead and fail the next call."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return {"verify": tls_context(), "limits": limits, "timeout": None, "follow_redirects": False}


async def _check(response: httpx.Response) -> None:
    TRACE.get().answered(response)


def _check_in_thread(response: httpx.Response) -> None:
    TRACE.get().answered(response)


class _Stream(httpx.AsyncByteStream, httpx.SyncByteStream):
    def __init__(self, wire: Any, content: ReplyContent) -> None:
        self._wire = wire
        self._content = content

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._content.read(self._wire)

    def __iter__(self) -> Iterator[bytes]:
        return self._content.read_in_thread(self._wire)

    async def aclose(self) -> None:
        await self._wire.aclose()

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


_TIMEOUT_S = 86_400.0
"""The engine ends calls; this is above its longest timeout."""
_MOST_THREADS = 256
"""LiteLLM calls some providers in threads."""
_ONE_IMAGE = frozenset({"azure_ai", "bedrock", "black_forest_labs", "recraft", "stability"})
"""Providers of which LiteLLM sends only the first image of an edit, without a word."""
_IMAGE_BY_URL = frozenset({"fal_ai"})
"""Providers whose first frame of a video is the URL of an image."""
_OWN_PARAMETERS = frozenset({*all_litellm_params, *GenericLiteLLMParams.model_fields}) - CLOUD_NAMES
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_MISSING_KEY = re.compile(
    r"api[_ ]?key|credential|(?:is|are) not set|authenticat|unauthori[sz]ed|access token", re.IGNORECASE
)
_UNLISTED = "This model isn't mapped yet"
"""LiteLLM reads some answers only for models of its list: the next one would be paid in vain too."""
_PREFIX = re.compile(r"^(?:litellm\.)?\w+(?:Error|Exception|Violation): ")
_MAX_MESSAGE = 1000
Body = dict[str, Any]


async def _generate(body: Body) -> web.Response:
    return _images(await litellm.aimage_generation(**body))


async def _edit(body: Body) -> web.Response:
    images = body.pop("images", None) or [body.pop("image")]
    provider = body["model"].partition("/")[0]
    if len(images) > 1 and provider in _ONE_IMAGE:
        message = f"LiteLLM sends only the first image to {provider!r}, and this call has {len(images)}"
        raise ProviderError(message, kind="invalid")
    if "mask" in body:
        body["mask"] = _bytes_of(body["mask"]["url"])
    return _images(await litellm.aimage_edit(image=[_bytes_of(image["url"]) for image in images], **body))


async def _chat(body: Body) -> web.Response:
    """The answer as OpenAI's chat API gives it, with the refusal where that has it.

    Refuses a reply format that the model lacks as a server would, so that the judge asks for a weaker one.
    """
    form, model = (body.get("response_format") or {}).get("type"), body["model"]
    if form == "json_schema":
        is_supported = litellm.supports_response_schema(model=model)
    else:
        is_supported = "response_format" in (litellm.get_supported_openai_params(model=model) or ())
    if form is not None and not is_supported:
        raise ProviderError(f"response_format {form}: not supported by {model}", kind="invalid")
    answer = await litellm.acompletion(**body, max_retries=0, num_retries=0)
    data: Body = answer.model_dump(mode="json")
    for choice in data.get("choices") or ():
        message = choice.get("message") or {}
        if refusal := (message.get("provider_specific_fields") or {}).get("refusal"):
            message["refusal"] = refusal
    return _json(data)


async def _begin_video(body: Body) -> web.Response:
    if "seconds" in body:
        body["seconds"] = str(body["seconds"])  # as OpenAI's API has it, and so LiteLLM
    if frame := body.pop("input_reference", None):
        file = io.BytesIO(_bytes_of(frame))
        file.name = f"frame.{frame.partition(';')[0].partition('/')[2]}"
        by_url = body["model"].partition("/")[0] in _IMAGE_BY_URL
        body["input_reference"] = frame if by_url else file
    return _video(await litellm.avideo_generation(**body))


async def _poll_video(body: Body) -> web.Response:
    return _video(await litellm.avideo_status(**body))


async def _video_content(body: Body) -> web.Response:
    return web.Response(body=await litellm.avideo_content(**body), content_type="video/mp4")


def _video(answer: Any) -> web.Response:
    """A video under a name that may be a part of a path: LiteLLM's own says which provider it is of."""
    data: Body = answer.model_dump(mode="json")
    return _json({**data, "id": urlsafe_b64encode(data["id"].encode()).decode().rstrip("=")})


def _images(answer: Any) -> web.Response:
    data: Body = answer.model_dump(mode="json")
    return _json({"data": data.get("data") or [], "usage": _counted(data.get("usage") or {})})


def _counted(usage: Mapping[str, Any]) -> Body:
    """A usage without zeros, which are LiteLLM's."""
    return {name: _counted(count) if isinstance(count, dict) else count for name, count in usage.items() if count}


def _json(data: Body) -> web.Response:
    return web.Response(body=orjson.dumps(data), content_type="application/json")


def _bytes_of(data_url: str) -> bytes:
    return b64decode(data_url.partition(",")[2])


def _answering(call: Callable[[Body], Awaitable[web.Response]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        base, key = request.headers["x-base-url"], request.headers["x-key"]
        REPLY_MB.override = int(request.headers["x-reply-mb"])
        trace = Trace(host=urlsplit(base).hostname)
        TRACE.set(trace)
        body = orjson.loads(await request.read() or b"{}")
        if own := sorted(_OWN_PARAMETERS & body.keys()):
            trace.problem = ProviderError(f"{own[0]!r} controls LiteLLM, not the model: remove it", kind="invalid")
            return _failed(trace.problem, trace, [], is_chat=True)
        if name := request.match_info.get("name"):
            body["video_id"] = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        options = {"api_key": key, "api_base": base, "timeout": _TIMEOUT_S}
        try:
            return await call({**body, **{name: value for name, value in options.items() if value}})
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the engine has closed the connection
            error = ProviderError("LiteLLM cancelled its own call", kind="transient", may_be_billed=True)
            return _failed(error, trace, [], is_chat=True)
        except Exception as error:  # each provider in LiteLLM has its own
            named = environment_secrets([name for name in os.environ if not is_setting(name)])
            keys = [key] if len(key) >= SHORTEST_ENVIRONMENT_SECRET else []
            secrets = sorted({*named, *keys}, key=len, reverse=True)  # a long one may contain a short one
            return _failed(error, trace, secrets, is_chat=call is _chat)

    return answer


def _failed(error: Exception, trace: Trace, secrets: list[str], *, is_chat: bool) -> web.Response:
    """What the provider says of an error, or what went wrong, without keys."""
    if isinstance(error, ProviderError):
        failure = error
    elif trace.problem is not None:
        failure = trace.problem
    elif trace.status is not None and trace.status >= 400:
        body = _without(secrets, trace.body.decode("utf-8", "replace"))
        about = {name: text for name, text in trace.headers.items() if "retry" in name or "ratelimit" in name}
        return web.Response(status=trace.status, text=body, headers=about)
    elif isinstance(trace.failure, httpx.ProxyError):
        failure = refused_by_proxy(str(trace.failure))
    elif trace.failure is not None:
        cause = " ".join(str(trace.failure).split()) or type(trace.failure).__name__
        is_sent = not isinstance(trace.failure, _NEVER_SENT)
        failure = ProviderError(f"no answer: {cause}", kind="transient", may_be_billed=is_sent)
    else:
        failure = _of_answer(error, trace.body, is_chat=is_chat) if trace.status is not None else _unsent(error)
    fields: Body = {name: getattr(failure, name) for name in ("kind", "retry_after", "may_be_billed")}
    fields["reply"] = None if failure.reply is None else b64encode_as_string(failure.reply)
    data = orjson.dumps({"message": _without(secrets, str(failure))[:_MAX_MESSAGE], **fields})
    return web.Response(status=FAILURE, body=data, content_type="application/json")


def _of_answer(error: Exception, answer: bytes, *, is_chat: bool) -> ProviderError:
    """Of an answer with status 200 that LiteLLM could not use, and whose words it may quote."""
    message = _text(error)
    is_json = read_error(answer.decode("utf-8", "replace")).is_json
    if is_json and is_refusal(200, read_error({"message": message})):
        return ProviderError(message, kind="refused", may_be_billed=True)
    kind: ProviderErrorKind = "unusable"
    if is_chat:
        kind = "invalid" if _UNLISTED in message else "transient"
    reply = None if is_chat else answer
    return ProviderError(f"the answer could not be read: {message}", kind=kind, may_be_billed=True, reply=reply)


def _unsent(error: Exception) -> ProviderError:
    """Of a call that LiteLLM did not send: it needs another parameter, or a key."""
    message = f"LiteLLM did not send the call: {_text(error)}"
    if _MISSING_KEY.search(message):
        return ProviderError(f"{message}: set api_key_env, or env for several variables", kind="auth")
    return ProviderError(message, kind="invalid")


def _text(error: BaseException) -> str:
    """The message of an exception, without the names of LiteLLM's classes before it."""
    text = " ".join(str(error).partition("Traceback (most recent")[0].split()) or type(error).__name__
    while (shorter := _PREFIX.sub("", text)) != text:
        text = shorter
    return text


def _without(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


async def serve(socket: str, ready: int) -> None:
    """Serves until standard input ends."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_MOST_THREADS))
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/images/generations", _answering(_generate))
    app.router.add_post("/images/edits", _answering(_edit))
    app.router.add_post("/chat/completions", _answering(_chat))
    app.router.add_post("/videos", _answering(_begin_video))
    app.router.add_get("/videos/{name}", _answering(_poll_video))
    app.router.add_get("/videos/{name}/content", _answering(_video_content))
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, socket).start()
    os.write(ready, b"ready\n")
    await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(2, 1)  # LiteLLM and its libraries may print
    install()
    try:
        asyncio.run(serve(sys.argv[1], answers))
    finally:
        os._exit(0)  # LiteLLM's exit handlers wait for its threads
