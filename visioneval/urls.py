"""Files behind URLs (``gs://``, ``s3://``, ``https://``): which of them a suite may name, and reading them, bounded.

Read through fsspec. A bucket is read with whatever credentials the machine has; a web page with none.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from visioneval.errors import UsageError
from visioneval.inflate import ACCEPTED, Inflater

if TYPE_CHECKING:
    import aiohttp

TRUSTED_HOSTS = "VISIONEVAL_TRUSTED_HOSTS"
TRUSTED_PROJECTS = "VISIONEVAL_TRUSTED_PROJECTS"
BUCKETS = {"gs": "gcs", "s3": "s3"}
"""Schemes of buckets, and the extra that reads each."""

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SQUEEZED = re.compile(r"(?:s3a?|gs|gcs|az|abfss?|adl|https?|ftp|file|hf|hdfs):/", re.IGNORECASE)


def is_url(name: str) -> bool:
    """Whether a name is a URL, and so no path."""
    return _URL.match(name) is not None


def is_url_like(name: str) -> bool:
    """Whether a name is a URL, or was one before something made one slash of its two."""
    return is_url(name) or _SQUEEZED.match(name) is not None


def trusted_hosts() -> list[str]:
    """The hosts that the environment says may be spoken to."""
    return [name.strip().strip("[]").lower() for name in os.environ.get(TRUSTED_HOSTS, "").split(",") if name.strip()]


def trusted_projects() -> frozenset[str]:
    """The Google Cloud projects that the environment says may be used with this machine's own credentials."""
    return frozenset(filter(None, (name.strip() for name in os.environ.get(TRUSTED_PROJECTS, "").split(","))))


def url_path(url: str) -> str:
    """The path of a URL, without a query: what says a file's name and kind."""
    return urlsplit(url).path if is_url(url) else url


def beside(url: str, name: str) -> str:
    """``name``, a path written in the file at ``url``, as a URL."""
    return name if is_url(name) else f"{url.split('?')[0].rsplit('/', 1)[0]}/{name}"


def url_problem(url: str) -> str | None:
    """Why a URL must not be read for a suite that nobody vouched for; ``None`` where anyone may read it."""
    if problem := unreadable(url):
        return problem
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme in BUCKETS:
        return f"{url!r} is read with this machine's credentials: pass --trust-suite if you trust this suite"
    if host in trusted_hosts() or (parts.scheme == "https" and _is_public(host)):
        return None
    return f"{url!r} is not public: pass --trust-suite if you trust this suite, or list its host in {TRUSTED_HOSTS}"


def unreadable(url: str) -> str | None:
    """Why a URL can be read for nobody."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{url!r} is no URL"
    if parts.scheme not in (*BUCKETS, "http", "https"):
        return f"{url!r}: we read gs://, s3:// and https://"
    if not parts.hostname or "@" in parts.netloc:
        return f"{url!r}: a URL holds a host or bucket, and no user"
    return None


def _is_public(host: str) -> bool:
    """Whether a host looks public as it is written; what a name leads to is seen when it is spoken to."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        private = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
        # a name ends in letters; 0x7f.1 and 127.1 are ways to write an address
        return re.search(r"\.[a-z][a-z0-9-]*$", host) is not None and not host.endswith(private)


def fetch(url: str, limit: int) -> bytes:
    """The whole of a file behind a URL, of at most ``limit`` bytes. Raises ``UsageError`` in one line."""
    if problem := unreadable(url):
        raise UsageError(problem)
    scheme = urlsplit(url).scheme
    try:
        return _from_bucket(url, scheme, limit) if scheme in BUCKETS else _from_web(url, limit)
    except UsageError:
        raise
    except ImportError:
        raise UsageError(
            f"{scheme}:// needs a library: pip install '.[{BUCKETS[scheme]}]' in a checkout of visioneval"
        ) from None
    except FileNotFoundError:
        raise UsageError("there is no such file") from None
    except Exception as error:  # every library behind fsspec has errors of its own
        raise UsageError(_told(error)) from error


def _told(error: Exception) -> str:
    codes = (vars(error).get("status"), vars(error).get("code"))
    refused = isinstance(error, PermissionError) or any(str(code) in ("401", "403") for code in codes)
    refused = refused or str(error).startswith("Forbidden:")  # gcsfs says it in words alone
    words = " ".join(str(error).split())[:300] or type(error).__name__
    return f"it refuses to be read: {words}" if refused else f"it cannot be read: {words}"


def _from_bucket(url: str, scheme: str, limit: int) -> bytes:
    import fsspec

    store = fsspec.filesystem(scheme)
    size = store.info(url)["size"]
    if size > limit:
        raise _too_large(limit)
    data: bytes = store.cat_file(url)
    if len(data) > limit:  # an object that is stored compressed is larger than its size
        raise _too_large(limit)
    return data


def _from_web(url: str, limit: int) -> bytes:
    """A page, through a few redirects, which published files need. Each must lead where anyone may read."""
    at = url
    for _ in range(_MOST_REDIRECTS + 1):
        data, location = _page(at, limit)
        if location is None:
            return data
        target = urljoin(at, location)
        if _origin(target) != _origin(at) and url_problem(target):
            raise UsageError(
                f"it redirects to {_origin(target)!r}, which is not public over https: list its host in {TRUSTED_HOSTS}"
                " to read it"
            )
        at = target
    raise UsageError(f"it redirects more than {_MOST_REDIRECTS} times")


def _origin(url: str) -> str:
    """A URL without its path and query, which may hold secrets."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "what is no URL"
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname or ''}{'' if port in (None, default) else f':{port}'}"[:200]


def _page(url: str, limit: int) -> tuple[bytes, str | None]:
    """What is at a URL, or where a redirect leads. Streamed, as a server need not tell a size, or the right one."""
    import fsspec

    options: dict[str, Any] = {"client_kwargs": {"auto_decompress": False}}
    if url_problem(url) is None and urlsplit(url).hostname not in trusted_hosts():
        options["get_client"] = _public_client
    asked = {"headers": {"Accept-Encoding": ACCEPTED}, "allow_redirects": False}
    kept, compressed = bytearray(), 0
    with fsspec.filesystem("https", **options).open(url, "rb", block_size=0, size=1, **asked) as file:
        file.r.raise_for_status()
        if file.r.status in _REDIRECTS and (location := file.r.headers.get("location")):
            return b"", location
        inflater = Inflater(file.r.headers.get("content-encoding", ""))
        while data := file.read(1 << 20):
            compressed += len(data)
            for piece in inflater.feed(data):
                kept += piece
                if len(kept) > limit:
                    raise _too_large(limit)
            if compressed > limit:
                raise _too_large(limit)
        inflater.finish()
    return bytes(kept), None


def _too_large(limit: int) -> UsageError:
    return UsageError(f"over the limit of {limit:,} bytes")


async def _public_client(**options: Any) -> aiohttp.ClientSession:
    import aiohttp

    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=_public_socket), **options)


def _public_socket(address: Any) -> socket.socket:
    """A socket to a public address alone: a public name, or a redirect, may lead to the inside of a network."""
    family, kind, protocol, _, target = address
    ip = ipaddress.ip_address(str(target[0]).split("%")[0])
    inner = getattr(ip, "ipv4_mapped", None) or ip
    if not inner.is_global:
        raise OSError(
            errno.EADDRNOTAVAIL, f"its address {ip} is not public: list the host in {TRUSTED_HOSTS} to read it"
        )
    return socket.socket(family, kind, protocol)
