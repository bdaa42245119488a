"""The connection to OpenAI or a compatible server: its client, requests as bytes, replies as data, and errors."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Protocol, cast

import aiohttp
import httpx2
import openai
import orjson
from aiohttp.http import HttpProcessingError
from pybase64 import b64encode

from visioneval.errors import OperationError, ProviderError, ProviderErrorKind, UsageError
from visioneval.media.network import proxy_for, refused_by_proxy, tls_context
from visioneval.providers.error_replies import CLOSED, ErrorReply, beginning, is_quota_spent, read_error, retry_after
from visioneval.providers.image_replies import PaidAnswer, answer_of, begins_like_json, unusable
from visioneval.providers.refusals import is_refusal
from visioneval.providers.replies import ACCEPT_ENCODING, check_reply
from visioneval.providers.reply_json import read_answer

_STATUS_BY_NAME = {
    401: {"invalid_api_key", "authentication_error"},
    429: {"rate_limit_exceeded", "rate_limit_error", "requests", "tokens"},
    400: {"invalid_request_error", "model_not_found"},
}
"""The status for the code or type of an error without one."""
_OF_SERVER = re.compile("server|internal")
"""In the code of an error that is the server's."""
_ANSWERS = ("choices", "output")
"""Where a judge's answer is."""
_MAX_MESSAGE = 1000
"""The most characters of a provider's error message: gateways may send whole web pages."""
_SHORTEST_SECRET = 8
"""Shorter keys are not redacted: local servers accept any key, such as ``ollama``, which is also a normal word."""


@contextmanager
def provider_errors(client: openai.AsyncOpenAI) -> Iterator[None]:
    """Converts exceptions of the SDK and its transport to ``ProviderError``; removes the key from messages."""
    try:
        yield
    except OperationError:
        raise
    except ProviderError as error:
        shown = _provider_error(client, str(error), error.kind, error.retry_after, may_be_billed=error.may_be_billed)
        shown.reply = error.reply
        raise shown from None
    except openai.APIStatusError as error:
        reply = read_error(error.response.text)
        kind = kind_of_error(error.status_code, reply)
        message = f"{error.status_code}: {reply.message or 'no message'}"
        if kind == "quota" and reply.code not in message:
            message += f" ({reply.code})"
        wait = retry_after(error.status_code, error.response.headers, reply)
        raise _provider_error(client, message, kind, wait) from None
    except openai.APIConnectionError as error:  # includes timeouts
        raise _no_answer(client, error.__cause__ or error) from None  # the SDK reports all of them as timeouts
    except aiohttp.ClientResponseError as error:  # invalid HTTP, which the SDK does not catch
        message = f"the answer is not HTTP: {' '.join(error.message.split())}"
        raise _provider_error(client, message, "transient", may_be_billed=True) from None
    except (aiohttp.ClientError, HttpProcessingError, httpx2.HTTPError, OSError) as error:  # also while streaming
        raise _no_answer(client, error) from None
    except (openai.OpenAIError, ValueError, RecursionError) as error:
        message = f"the answer could not be read: {error}"
        raise _provider_error(client, message, "transient", may_be_billed=True) from None


def _no_answer(client: openai.AsyncOpenAI, error: BaseException) -> ProviderError:
    """The error of a call whose connection failed, or was lost, and so may be billed.

    The transport above aiohttp also reports a connection reset during an answer as a connect error.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, aiohttp.ClientHttpProxyError):
            return refused_by_proxy(f"{cause.status} {cause.message}")
        if isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            who = "the proxy cannot be reached: " if isinstance(cause, aiohttp.ClientProxyConnectionError) else ""
            return _provider_error(client, f"no answer: {who}{_cause_text(error)}", "transient")
        cause = cause.__cause__
    return _provider_error(client, f"no answer: {_cause_text(error)}", "transient", may_be_billed=True)


def _cause_text(error: BaseException) -> str:
    """What went wrong, on one line. aiohttp names its TLS settings even for an http URL; they are left out."""
    if "payload is not completed" in str(error):
        received = re.search(r"received \d+ of \d+ bytes", str(error))
        return f"{CLOSED}{f' ({received[0]})' if received else ''}"
    return " ".join(str(error).split()).replace(" ssl:default", "") or type(error).__name__


def _provider_error(
    client: openai.AsyncOpenAI,
    message: str,
    kind: ProviderErrorKind,
    wait: float | None = None,
    *,
    may_be_billed: bool = False,
) -> ProviderError:
    if len(client.api_key) >= _SHORTEST_SECRET:
        message = message.replace(client.api_key, "***")
    return ProviderError(message[:_MAX_MESSAGE], kind=kind, retry_after=wait, may_be_billed=may_be_billed)


def read_json(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object of an answer.

    Raises ``ProviderError`` for a web page and for an error, which some servers send with status 200, and
    ``ValueError`` for incomplete JSON. An error beside a judge's answer is read with it.
    """
    data = None
    try:
        data = read_answer(response.content)
    except ValueError as error:
        if "json" in response.headers.get("content-type", "") or begins_like_json(response.content):
            raise ValueError(f"{error}; it {beginning(response.text)}") from None
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    if isinstance(data, dict):
        is_judges = data.get("status") == "failed" or any(data.get(name) for name in _ANSWERS)
        if data.get("error") and not is_judges:
            raise error_in_reply(data["error"], response.headers)
        return data
    message = f"the answer is not from this API; check base_url. It {beginning(response.text)}"
    raise ProviderError(message, kind="invalid")


def paid_answer(response: httpx2.Response) -> PaidAnswer:
    """The JSON of an answer to a generation, which may be paid.

    Raises ``ProviderError`` of the kind ``unusable`` if it is none, and that of an error, which some servers send with
    status 200.
    """
    answer = answer_of(response.content)
    data = answer.data
    if isinstance(data, dict) and data.get("error") and not data.get("data"):
        raise error_in_reply(data["error"], response.headers)
    return answer


def error_in_reply(error: object, headers: Mapping[str, str] = MappingProxyType({})) -> ProviderError:
    """The error in a reply with status 200 and these headers. Unknown codes count as transient."""
    reply = read_error({"error": error})
    status = status_of_error(reply, 500)
    message = f"the reply is an error: {reply.message}"[:_MAX_MESSAGE]
    return ProviderError(message, kind=kind_of_error(status, reply), retry_after=retry_after(status, headers, reply))


def status_of_error(error: ErrorReply, default: int) -> int:
    """The HTTP status for an error in an answer, by its code."""
    if re.fullmatch("[45][0-9][0-9]", error.code):
        return int(error.code)
    if _OF_SERVER.search(error.code):
        return 500
    return next((status for status, names in _STATUS_BY_NAME.items() if names.intersection(error.codes)), default)


@contextmanager
def parse_errors() -> Iterator[None]:
    """Converts exceptions from parsing an unexpected answer to ``ProviderError``."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        message = f"the answer could not be read: {type(error).__name__}: {error}"
        raise ProviderError(message[:_MAX_MESSAGE], kind="unusable", may_be_billed=True) from None


def kind_of_error(status: int, error: ErrorReply) -> ProviderErrorKind:
    """The kind of an error by its HTTP status, and what the reply says."""
    if is_refusal(status, error):
        return "refused"
    if is_quota_spent(status, error):
        return "quota"
    if status == 401:
        return "auth"
    if status == 429:
        return "rate_limit"
    return "transient" if status in (408, 409) or status >= 500 else "invalid"


def encoded(body: Mapping[str, Any]) -> bytes:
    """Encodes a body as JSON. Raises ``ProviderError`` for a parameter that is not JSON."""
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise ProviderError(f"invalid parameter: {error}", kind="invalid") from None


def data_url(data: bytes, mime: str) -> str:
    """An image for a body."""
    return f"data:{mime};base64,{b64encode(data).decode()}"


class Server(Protocol):
    """Where the calls of an entry go, and the environment variable with the key."""

    @property
    def base_url(self) -> str | None: ...

    @property
    def key_variable(self) -> str: ...


class Connection:
    """The client of one entry. It is closed with the event loop of its first use."""

    def __init__(self, options: Server) -> None:
        self._client = client_for(options)
        self._closing: AsyncGenerator[None, None] | None = None

    async def client(self) -> openai.AsyncOpenAI:
        """The client. Use it within ``provider_errors``."""
        if self._closing is None:
            self._closing = self._close_at_end()
            await anext(self._closing)  # a loop closes its async generators when it ends
        return self._client

    async def post(self, path: str, body: bytes) -> dict[str, Any]:
        """Sends a JSON body and returns the answer's. Raises ``ProviderError``: ``unusable`` if it cannot be read."""
        answer = await self.send(path, body)
        with provider_errors(await self.client()):
            try:
                return read_json(answer)
            except ValueError as error:
                raise unusable(f"the answer could not be read: {error}", answer.content) from None

    async def send(self, path: str, body: bytes) -> httpx2.Response:
        """Sends a JSON body as it is, past the SDK's models, which would copy its images."""
        client = await self.client()
        with provider_errors(client):
            return await client.post(path, content=body, cast_to=httpx2.Response)

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._client.close()


def flat_usage(usage: object) -> dict[str, Any]:
    """Token counts by name: ``input_tokens``, and details such as ``input_image_tokens``. Nothing is checked."""
    flat: dict[str, Any] = {}
    for name, value in usage.items() if isinstance(usage, (dict, Mapping)) else ():
        if isinstance(value, (dict, Mapping)):  # the first of the two is fast
            prefix = name.removesuffix("tokens_details")
            flat |= {f"{prefix}{part}": tokens for part, tokens in flat_usage(value).items()}
        elif value is not None:
            flat[name] = value
    return flat


BASE_URL = "https://api.openai.com/v1"
LIMITS = httpx2.Limits(max_connections=0)
"""``--max-concurrency`` limits calls. For aiohttp 0 is no limit, and ``None`` would be its own of 100 connections."""
TIMEOUT = httpx2.Timeout(None, connect=5.0)
"""``timeout_s`` of the suite limits a call. By default the SDK would end it after ten minutes without a byte."""
MAX_HEADER_BYTES, MAX_HEADERS = 1 << 20, 10_000
"""Of an answer: one header, and how many."""
_MACHINE = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")
"""The ``X-Stainless-`` headers in which the SDK describes this machine to every host."""


def client_for(options: Server) -> openai.AsyncOpenAI:
    """A client whose host, key and headers come only from the suite. Raises ``UsageError`` without a usable key."""
    key = os.environ.get(options.key_variable)
    if not key:
        raise UsageError(f"set {options.key_variable}: the API key for {options.base_url or 'OpenAI'}")
    check_key(options.key_variable, key)
    proxy_for(options.base_url or BASE_URL)  # raises for one that cannot be used
    http = _HTTPClient(
        verify=tls_context(),
        limits=LIMITS,
        follow_redirects=False,
        headers=ACCEPT_ENCODING,
        event_hooks={"response": [check_reply]},
    )
    for name in ("accept", "connection", "user-agent"):  # the SDK's take their place; the second is HTTP's default
        http.headers.pop(name, None)
    left_out = {f"X-Stainless-{name}": openai.omit for name in _MACHINE}
    with without_openai_variables():
        return openai.AsyncOpenAI(
            api_key=key,
            base_url=options.base_url or BASE_URL,
            timeout=TIMEOUT,
            max_retries=0,
            default_headers=cast("Mapping[str, str]", left_out),  # the SDK takes omit, only not in this type
            http_client=http,
        )


def check_key(variable: str, key: str) -> None:
    """Raises ``UsageError`` for a key that no header can have: the error of a transport would show it whole."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(f"{variable} contains a space, a line break or another character that is invalid in a key")


@contextmanager
def without_openai_variables() -> Iterator[None]:
    """Hides ``OPENAI_*`` variables, such as organization and headers: the SDK would send them to any host."""
    removed = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("OPENAI_")}
    try:
        yield
    finally:
        os.environ.update(removed)


class _HTTPClient(openai.DefaultAioHttpClient):
    """The SDK's client on aiohttp, which takes half the time of its default one."""

    def _init_transport(self, *args: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _with_large_headers(super()._init_transport(*args, **options))

    def _init_proxy_transport(self, *args: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _with_large_headers(super()._init_proxy_transport(*args, **options))


def _with_large_headers(transport: Any) -> httpx2.AsyncBaseTransport:
    """The transport, whose sessions accept the headers of any gateway: an answer is paid for, whatever is above it."""
    new_session = transport.get_client

    def session() -> aiohttp.ClientSession:
        made: aiohttp.ClientSession = new_session()
        made._max_line_size = made._max_field_size = MAX_HEADER_BYTES  # noqa: SLF001 - only its constructor has them
        made._max_headers = MAX_HEADERS  # noqa: SLF001
        return made

    transport.get_client = session
    return cast("httpx2.AsyncBaseTransport", transport)
