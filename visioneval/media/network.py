"""How this machine reaches the network: certificates, the proxy for a URL, buckets, and compressed content.

Calls, downloads and buckets follow the same variables by the same rules, those of httpx2, which the SDKs use. File
systems of buckets (fsspec) are quiet, and have a bounded wait for the first answer.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from visioneval.errors import ProviderError, UsageError, VisionEvalError

if TYPE_CHECKING:
    import httpx2


class ProxyError(UsageError):
    """A proxy that cannot be used, or does not do its work. The message names it without its password."""


def tls_context() -> ssl.SSLContext:
    """One context for all clients of a process, because loading the certificates takes longer than a small call.

    It has the certificates of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` if the user sets them.
    """
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def proxy_for(url: str, *, socks: bool = False) -> httpx2.Proxy | None:
    """The proxy that the environment sets for a URL; ``None`` for a direct connection. Its ``url`` has no password.

    ``socks`` says whether the client can use SOCKS. Raises ``ProxyError`` for a proxy that the client cannot use, and
    if any variable is not the URL of one.
    """
    import httpx2
    from httpx2._utils import URLPattern, get_environment_proxies  # there is no public function for them

    proxies: dict[URLPattern, tuple[str, httpx2.Proxy | None]] = {}
    for pattern, address in get_environment_proxies().items():
        variable = f"{pattern.partition(':')[0].upper()}_PROXY"
        try:
            proxies[URLPattern(pattern)] = variable, None if address is None else httpx2.Proxy(address)
        except (ValueError, httpx2.InvalidURL):
            raise ProxyError(f"{variable} is not the URL of a proxy: write http://HOST:PORT") from None
    if not proxies:
        return None
    target = httpx2.URL(url)
    variable, proxy = next((proxies[key] for key in sorted(proxies) if key.matches(target)), ("", None))
    if proxy is not None and not socks and proxy.url.scheme not in ("http", "https"):
        raise ProxyError(
            f"{variable}: a {proxy.url.scheme} proxy is not supported here: set one of http:// or https://"
        )
    return proxy


def refused_by_proxy(answer: str) -> ProviderError:
    """The error of a call that a proxy did not connect, so that it costs nothing. ``answer`` begins with its status."""
    status = answer.partition(" ")[0]
    is_final = status.isdigit() and int(status) < 500
    message = f"the proxy of this machine (HTTPS_PROXY or similar) answers {answer}"
    return ProviderError(message, kind="invalid" if is_final else "transient")


def proxy_url(proxy: httpx2.Proxy) -> str:
    """The URL of a proxy with its user name and password, which no message may show."""
    user, password = proxy.auth or (None, None)
    return str(proxy.url.copy_with(username=user, password=password))


ACCEPTED = "gzip, deflate"
"""The value of ``Accept-Encoding`` for the supported encodings."""
_PIECE = 1 << 20
_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class CodingError(VisionEvalError):
    """Content that cannot be decompressed: damaged, truncated, or in an encoding that was not requested."""


class Inflater:
    """Decompresses content with a ``Content-Encoding``, in chunks of at most 1 MiB.

    ``problem`` is set for unsupported encodings and for several nested ones, which would multiply the data to read.
    """

    def __init__(self, coding: str) -> None:
        codings = [name for part in coding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
        is_supported = len(codings) <= 1 and _CODINGS.issuperset(codings)
        self.problem = None if is_supported else f"it is encoded as {coding[:80]!r}, which was not requested"
        self._packed = zlib.decompressobj(zlib.MAX_WBITS | 32) if codings else None  # 32: zlib or gzip, by its head

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompresses a chunk of the content. Ignores data after the end of the compressed content.

        Raises ``CodingError``.
        """
        if self.problem:
            raise CodingError(self.problem)
        packed = self._packed
        if packed is None:
            yield data
            return
        try:
            while not packed.eof and (piece := packed.decompress(data, _PIECE)):
                yield piece
                data = packed.unconsumed_tail
        except zlib.error as error:
            raise CodingError(f"it cannot be decompressed: {error}") from None

    def finish(self) -> None:
        """Raises ``CodingError`` if the content ended too early."""
        if self._packed is not None and not self._packed.eof:
            raise CodingError("its compressed content is truncated")


ANSWER_S = 10.0
"""Seconds to wait for a bucket's first answer. Its client repeats a call for almost a minute."""
_METADATA_HOST = "metadata.google.internal"
_METADATA_VARIABLES = ("NO_GCE_CHECK", "GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP")


def bucket_files(scheme: str, **options: Any) -> Any:
    """The ``fsspec`` file system for ``gs`` or ``s3``. Raises ``ImportError`` without its extra."""
    import fsspec

    if scheme == "gs":
        # Otherwise gcsfs asks for each bucket's kind first, and prints a traceback if it gets no answer.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        _skip_missing_metadata_server()
        logging.getLogger("gcsfs").addHandler(logging.NullHandler())  # its errors are raised too
        # gcsfs reads no proxy from the environment. Its sessions must not read it themselves: they would add
        # passwords of ~/.netrc to requests that have a token.
        is_configured = any("session_kwargs" in fsspec.config.conf.get(name, {}) for name in ("gs", "gcs"))
        url = os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
        if not is_configured and (proxy := proxy_for(url if "://" in url else f"http://{url}")):
            options["session_kwargs"] = {"proxy": proxy_url(proxy)}
    return fsspec.filesystem(scheme, **options)


@cache
def _skip_missing_metadata_server() -> None:
    """Outside Google's cloud, its client waits for a token of this server for up to 16 seconds before it gives up."""
    if any(name in os.environ for name in _METADATA_VARIABLES):
        return
    try:
        socket.getaddrinfo(_METADATA_HOST, 80)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            os.environ["NO_GCE_CHECK"] = "true"


def size_in_bucket(files: Any, url: str) -> int:
    """The size of an object in bytes. Raises ``UsageError`` without an answer in time, and the file system's errors."""
    return int(first_answer(files, files._info, url)["size"])  # noqa: SLF001 - info() has no timeout


def first_answer(files: Any, operation: Callable[..., Awaitable[Any]], path: str) -> Any:
    """The answer to an operation of a file system. Raises ``UsageError`` if there is none in time, and its errors."""
    from fsspec.asyn import sync
    from fsspec.exceptions import FSTimeoutError

    try:
        return sync(files.loop, operation, path, timeout=ANSWER_S)
    except FSTimeoutError:
        message = f"no answer in {ANSWER_S:g} seconds: check the network, its proxy, and the machine's credentials"
        raise UsageError(message) from None
