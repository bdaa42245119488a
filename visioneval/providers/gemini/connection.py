"""The connection to the Gemini Developer API or Vertex AI: its client, the hosts that it may call, and errors."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import urlsplit

import google.auth
import httpx2
from google import genai
from google.auth.exceptions import GoogleAuthError, TransportError
from google.genai import errors, types
from pydantic import ValidationError

from visioneval.errors import OperationError, ProviderError, ProviderErrorKind, UsageError
from visioneval.media.network import proxy_for, refused_by_proxy, tls_context
from visioneval.providers.error_replies import CLOSED, ErrorReply, beginning, is_quota_spent, read_error, retry_after
from visioneval.providers.image_replies import unusable
from visioneval.providers.refusals import is_refusal
from visioneval.providers.replies import ACCEPT_ENCODING, MAX_ERROR_BYTES, check_reply
from visioneval.providers.reply_json import read_answer
from visioneval.suite.remote import GeminiOptions, is_vertex_host

# A reason of a newer API is kept by its name; the SDK would warn on standard error.
warnings.filterwarnings("ignore", r".* is not a valid \w+$", UserWarning, r"google\.genai\.")
DEVELOPER_URL = "https://generativelanguage.googleapis.com"
API_VERSION = "v1beta"
VERTEX_API_VERSION = "v1beta1"
TIMEOUT_S = 600
NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Errors of calls that never reached the server and cost nothing."""
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_KEY_REASONS = re.compile(r"API_KEY_\w+|CONSUMER_(INVALID|SUSPENDED)|SERVICE_DISABLED")
_MAX_MESSAGE = 500
_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}
"""The HTTP status of Google's status names; of any other it is 500."""


def client_for(options: GeminiOptions) -> genai.Client:
    """A client for the Developer API, or for Vertex AI if the suite sets a project. No variable changes that.

    Raises ``UsageError`` without a key, or without credentials for Vertex AI.
    """
    try:
        if options.google is not None:
            cloud = options.google
            try:
                credentials, _ = google.auth.default(scopes=_SCOPES)
            except GoogleAuthError as error:
                message = f"Vertex AI: no credentials for the project {cloud.project!r}: {error}"
                raise UsageError(message) from None
            http = _http(options.base_url or cloud.url, VERTEX_API_VERSION)
            return genai.Client(
                vertexai=True,
                project=cloud.project,
                location=cloud.location,
                credentials=credentials,
                http_options=http,
            )
        key = os.environ.get(options.key_variable)
        if not key:
            raise UsageError(f"set {options.key_variable}: the API key for {options.base_url or 'the Gemini API'}")
        http = _http(options.base_url or DEVELOPER_URL, API_VERSION)
        return genai.Client(vertexai=False, api_key=key, http_options=http)
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise UsageError(f"gemini: cannot create a client: {error}") from None


def _http(base_url: str, api_version: str) -> types.HttpOptions:
    """Options with a custom HTTP client, with which the SDK does not retry.

    It opens one connection per call and keeps none: an idle connection may be dead and fail the next call. It
    follows no redirects, which would send the key along.
    """
    client = httpx2.AsyncClient(
        proxy=proxy_for(base_url, socks=True),
        trust_env=False,  # it calls one host only
        verify=tls_context(),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        timeout=TIMEOUT_S,
        follow_redirects=False,
        headers=ACCEPT_ENCODING,
        event_hooks={
            "request": [_restrict_host(urlsplit(base_url).hostname or "")],
            "response": [check_reply, _raise_error, _note_reply],
        },
    )
    return types.HttpOptions(
        base_url=base_url,
        api_version=api_version,
        timeout=TIMEOUT_S * 1000,
        # The SDK's synchronous client and its websockets are not used, and would each load the certificates again.
        client_args={"verify": tls_context()},
        async_client_args={"ssl": tls_context()},
        httpx_async_client=client,
        retry_options=types.HttpRetryOptions(attempts=1),  # of interactions, which retry by default
    )


_REPLIES: ContextVar[list[bytes] | None] = ContextVar("replies", default=None)


@contextmanager
def raw_replies() -> Iterator[list[bytes]]:
    """The answers to the calls in this context, as they came: the SDK may fail to read them."""
    replies: list[bytes] = []
    token = _REPLIES.set(replies)
    try:
        yield replies
    finally:
        _REPLIES.reset(token)


async def _note_reply(response: httpx2.Response) -> None:
    """Notes an answer, once it is known to be no error."""
    replies = _REPLIES.get()
    if replies is not None and response.is_success:
        replies.append(await response.aread())


async def _raise_error(response: httpx2.Response) -> None:
    """Raises the ``APIError`` in a reply with status 200, which the SDK would treat as an empty answer.

    Also raises that of a failed interaction, whose own errors the SDK keeps private.
    """
    if response.is_error and "/interactions" in response.url.path:
        await errors.APIError.raise_for_async_response(response)
    if response.status_code != 200 or not response.headers.get("content-type", "").startswith("application/json"):
        return
    body = await response.aread()
    if len(body) > MAX_ERROR_BYTES or b'"error"' not in body:
        return
    try:
        data = read_answer(body)
    except ValueError:
        return  # it is reported where the answer is read
    data = data[0] if isinstance(data, list) and len(data) == 1 else data
    is_result = isinstance(data, dict) and any(data.get(key) for key in ("candidates", "done", "steps"))
    error = None if is_result or not isinstance(data, dict) else data.get("error")
    if error:
        fields = error if isinstance(error, dict) else {}
        code = fields.get("code")
        if not isinstance(code, int) or not 400 <= code < 600:
            code = _CODES.get(str(fields.get("status")), 500)
        raise errors.APIError(code, data, response)


def _restrict_host(host: str) -> Callable[[httpx2.Request], Awaitable[None]]:
    """Blocks requests to any host except the checked one, however the URL was built."""

    async def check(request: httpx2.Request) -> None:
        is_allowed = request.url.host == host or (is_vertex_host(host) and is_vertex_host(request.url.host))
        if not is_allowed:
            message = f"blocked a request to {request.url.host!r}: calls may only go to {host!r}"
            raise ProviderError(message, kind="invalid")

    return check


@contextmanager
def provider_errors() -> Iterator[None]:
    """Converts exceptions of the SDK to ``ProviderError`` with the provider's message."""
    try:
        yield
    except errors.APIError as error:
        wait = retry_after(error.code, getattr(error.response, "headers", None) or {}, _reply(error))
        raise ProviderError(_message(error), kind=_kind(error), retry_after=wait) from None
    except GoogleAuthError as error:
        kind: ProviderErrorKind = "transient" if isinstance(error, TransportError) or error.retryable else "auth"
        raise ProviderError(f"Vertex AI: {error}"[:_MAX_MESSAGE], kind=kind) from None
    except httpx2.ProxyError as error:  # "407 Proxy Authentication Required"
        raise refused_by_proxy(str(error)) from None
    except (httpx2.HTTPError, OSError) as error:
        message = f"no answer: {type(error).__name__}{f': {error}' if str(error) else ''}"
        if isinstance(error, httpx2.ReadTimeout):
            message = f"no answer within {TIMEOUT_S} s, after which Gemini's client gives up whatever timeout_s says"
        elif isinstance(error, httpx2.RemoteProtocolError) and "complete message body" in str(error):
            message = f"no answer: {CLOSED}"
        is_sent = not isinstance(error, NEVER_SENT)
        raise ProviderError(message, kind="transient", may_be_billed=is_sent) from None
    except json.JSONDecodeError as error:
        message = f"the answer is not JSON: it {beginning(error.doc)}"
        raise ProviderError(message, kind="transient", may_be_billed=True) from None
    except (errors.UnknownApiResponseError, ValidationError, RecursionError, UnicodeDecodeError) as error:
        message = f"the answer could not be read: {' '.join(str(error).split())}"
        raise ProviderError(message[:_MAX_MESSAGE], kind="transient", may_be_billed=True) from None
    except ValueError as error:
        raise ProviderError(f"invalid parameter: {error}"[:_MAX_MESSAGE], kind="invalid") from None


@contextmanager
def paid_errors() -> Iterator[list[bytes]]:
    """Like ``provider_errors``, for a call that may be paid: an answer that the SDK cannot read is no outage.

    Yields the ``raw_replies``.
    """
    with raw_replies() as replies:
        try:
            with provider_errors():
                yield replies
        except Exception as error:  # its errors for answers that it cannot read are not all public
            if not replies or (isinstance(error, ProviderError) and error.kind not in ("transient", "invalid")):
                raise
            what = str(error) if isinstance(error, ProviderError) else f"the answer could not be read: {error}"
            raise unusable(" ".join(what.split()), replies[-1]) from None


@contextmanager
def operation_errors(name: str) -> Iterator[None]:
    """Like ``provider_errors``, while the operation ``name`` is asked for: a provider may have forgotten it."""
    with provider_errors():
        try:
            yield
        except errors.APIError as error:
            if error.code not in (404, 410):
                raise
            message = f"the operation {name} has expired or is unknown: {_message(error)}"
            raise OperationError(message, kind="invalid") from None


def _reply(error: errors.APIError) -> ErrorReply:
    """What its body says: JSON, or the text of another server, which the SDK wraps in an object of its own."""
    return read_error(error.response.text if isinstance(error.response, httpx2.Response) else error.details)


def _message(error: errors.APIError) -> str:
    words = _reply(error).message or str(error.status or "no message")
    return f"{error.code}: {words[:_MAX_MESSAGE]}"


def _kind(error: errors.APIError) -> ProviderErrorKind:
    """A 403 means a bad key only if Google says so; otherwise it may concern a single model."""
    reply = _reply(error)
    if is_refusal(error.code, reply):
        return "refused"
    if is_quota_spent(error.code, reply):
        return "quota"
    body = error.details if isinstance(error.details, Mapping) else {}
    inner = body.get("error")
    details = inner.get("details") if isinstance(inner, Mapping) else None
    reasons = (str(detail.get("reason", "")) for detail in details or () if isinstance(detail, Mapping))
    if error.code == 401 or (error.code in (400, 403) and any(map(_KEY_REASONS.fullmatch, reasons))):
        return "auth"
    if error.code == 429:
        return "rate_limit"
    return "transient" if error.code in (408, 409) or error.code >= 500 else "invalid"
