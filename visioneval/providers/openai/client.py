"""The SDK's client for OpenAI or a compatible server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import aiohttp
import httpx2
import openai

from visioneval.errors import UsageError
from visioneval.media.network import proxy_for, tls_context
from visioneval.providers.replies import ACCEPT_ENCODING, check_reply
from visioneval.suite.remote import OpenAIOptions

BASE_URL = "https://api.openai.com/v1"
LIMITS = httpx2.Limits(max_connections=0)
"""``--max-concurrency`` limits calls. For aiohttp 0 is no limit, and ``None`` would be its own of 100 connections."""
TIMEOUT = httpx2.Timeout(None, connect=5.0)
"""``timeout_s`` of the suite limits a call. By default the SDK would end it after ten minutes without a byte."""
MAX_HEADER_BYTES, MAX_HEADERS = 1 << 20, 10_000
"""Of an answer: one header, and how many."""
_MACHINE = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")
"""The ``X-Stainless-`` headers in which the SDK describes this machine to every host."""


def client_for(options: OpenAIOptions) -> openai.AsyncOpenAI:
    """A client whose host, key and headers come only from the suite. Raises ``UsageError`` without a usable key."""
    key = os.environ.get(options.key_variable)
    if not key:
        raise UsageError(f"set {options.key_variable}: the API key for {options.base_url or 'OpenAI'}")
    if not (key.isascii() and key.isprintable()) or " " in key:  # the transport's error would show the whole key
        raise UsageError(
            f"{options.key_variable} contains a space, a line break or another character that is invalid in a key"
        )
    proxy_for(options.base_url or BASE_URL)  # raises for one that cannot be used
    left_out = {f"X-Stainless-{name}": openai.omit for name in _MACHINE}
    with without_openai_variables():
        return openai.AsyncOpenAI(
            api_key=key,
            base_url=options.base_url or BASE_URL,
            timeout=TIMEOUT,
            max_retries=0,
            default_headers=cast("Mapping[str, str]", left_out),  # the SDK takes omit, only not in this type
            http_client=_http_client(),
        )


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


def _http_client() -> httpx2.AsyncClient:
    client = _HTTPClient(
        verify=tls_context(),
        limits=LIMITS,
        follow_redirects=False,
        headers=ACCEPT_ENCODING,
        event_hooks={"response": [check_reply()]},
    )
    for name in ("accept", "connection", "user-agent"):  # the SDK's take their place; the second is HTTP's default
        client.headers.pop(name, None)
    return client
