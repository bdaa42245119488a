"""Files at URLs (``gs://``, ``s3://``, ``hf://``, ``https://``): which ones a suite may use, and reading within limits.

Uses fsspec. Buckets and the Hub are read with the machine's credentials, web pages without any.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from visioneval.errors import UsageError
from visioneval.installation import install_command
from visioneval.media.network import (
    ACCEPTED,
    Inflater,
    ProxyError,
    bucket_files,
    proxy_for,
    proxy_url,
    size_in_bucket,
    tls_context,
)

if TYPE_CHECKING:
    import aiohttp


HUB = "huggingface.co"
"""The host whose name in ``VISIONEVAL_TRUSTED_HOSTS`` lets an untrusted suite read datasets."""


def is_hub_file(url: str) -> bool:
    """Whether a URL names a file of a dataset on the Hub."""
    parts = urlsplit(url)
    return parts.netloc == "datasets" and parts.path.count("/") >= 2 and not parts.query


def fetch_from_hub(url: str, limit: int) -> bytes:
    """Reads a file of at most ``limit`` bytes. Raises ``ImportError`` without the extra, and ``UsageError``."""
    from huggingface_hub import HfFileSystem, get_hf_file_metadata, get_token, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        resolved = HfFileSystem().resolve_path(url)
        options = {"repo_type": resolved.repo_type, "revision": resolved.revision}
        size = get_hf_file_metadata(hf_hub_url(resolved.repo_id, resolved.path_in_repo, **options)).size
        if size is not None and size > limit:
            raise UsageError(f"over the limit of {limit:,} bytes")
        file = hf_hub_download(resolved.repo_id, resolved.path_in_repo, **options)
    except GatedRepoError:
        raise UsageError(_denied("the dataset is gated", has_token=bool(get_token()))) from None
    except LocalEntryNotFoundError:
        raise UsageError("the Hub cannot be reached, and its cache does not have the file") from None
    except EntryNotFoundError:
        raise UsageError("there is no such file") from None
    except (RepositoryNotFoundError, FileNotFoundError):
        message = "there is no such dataset or revision, or it is private"
        raise UsageError(_denied(message, has_token=bool(get_token()))) from None
    data = Path(file).read_bytes()
    if len(data) > limit:
        raise UsageError(f"over the limit of {limit:,} bytes")
    return data


def _denied(reason: str, *, has_token: bool) -> str:
    if has_token:
        return f"{reason}: the Hub's token on this machine has no access to it"
    return f"{reason}: to read it with a token, set HF_TOKEN"


TRUSTED_HOSTS = "VISIONEVAL_TRUSTED_HOSTS"
TRUSTED_PROJECTS = "VISIONEVAL_TRUSTED_PROJECTS"
BUCKETS = {"gs": "gcs", "s3": "s3", "hf": "hf"}
"""Schemes of buckets and of the Hugging Face Hub, each with the extra that it needs."""


def needs_extra(scheme: str) -> str:
    """The message about the missing extra of a scheme, and what to do."""
    return f"{scheme}:// needs an extra: {install_command(BUCKETS[scheme])}"


_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_PROXY_LOGIN = 407
"""The status with which a proxy asks for a user name and a password."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_QUERY = re.compile(r"""(://[^\s?#'"]*)[?#][^\s'")]*""")
_ADDRESS = re.compile(r"""https?:[/\\]*|[a-z0-9+.-]{2}:[/\\]+|^[\s'"<(]*[/\\]{2,}""", re.IGNORECASE)
"""What comes before the host of an address, of which a slash or the scheme may be missing."""
_NO_PORT = re.compile(r"^[^\[].*:(?!\d*$)")
"""A colon in front of something else than a port."""
_SQUEEZED = re.compile(r"(?:s3a?|gs|gcs|az|abfss?|adl|https?|ftp|file|hf|hdfs):/", re.IGNORECASE)


_OBJECT = re.compile(r" ?\b[a-z_]+:(?:<[^<>]* object at 0x[0-9a-f]+>|default\b)")
"""What aiohttp says about its settings for TLS."""
_USER = re.compile(r"://[^/\s'\"@]+@")
"""A user name and a password in the URL of a proxy."""


def is_url(name: str) -> bool:
    """Whether a name is a URL instead of a path."""
    return _URL.match(name) is not None


def is_url_like(name: str) -> bool:
    """Whether a name is a URL, or was one before something made one slash of its two."""
    return is_url(name) or _SQUEEZED.match(name) is not None


def trusted_hosts() -> list[str]:
    """The hosts that the environment allows."""
    return [name.strip().strip("[]").lower() for name in os.environ.get(TRUSTED_HOSTS, "").split(",") if name.strip()]


def trusted_projects() -> frozenset[str]:
    """The Google Cloud projects that the environment allows for this machine's credentials."""
    return frozenset(filter(None, (name.strip() for name in os.environ.get(TRUSTED_PROJECTS, "").split(","))))


def url_path(url: str) -> str:
    """The path of a URL without its query, which determines the file's name and type."""
    return urlsplit(url).path if is_url(url) else url


def beside(url: str, name: str) -> str:
    """Resolves ``name``, a relative path in the file at ``url``, to a URL."""
    return name if is_url(name) else f"{url.split('?')[0].rsplit('/', 1)[0]}/{name}"


def url_problem(url: str) -> str | None:
    """Why an untrusted suite must not read a URL; ``None`` if it may."""
    if problem := unreadable(url):
        return problem
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme == "hf" and HUB in trusted_hosts():
        return None
    if parts.scheme in BUCKETS:
        return f"{public_address(url)!r} needs this machine's credentials: pass --trust-suite if you trust this suite"
    if host in trusted_hosts() or (parts.scheme == "https" and _is_public(host)):
        return None
    allow = f"pass --trust-suite if you trust this suite, or add its host to {TRUSTED_HOSTS}"
    return f"{public_address(url)!r} is not public: {allow}"


def public_address(name: str) -> str:
    """How everything that may be an address is shown: without user, query and fragment, which may be secrets.

    What only looks like a URL (``http:/host``, ``//host``, text before it) counts as one; other paths stay as they are.
    """
    if (start := _ADDRESS.search(name)) is None:
        return name
    rest = name[start.end() :]
    shown = re.split(r"[?#]", rest, maxsplit=1)[0]
    host = re.split(r"[/\\]", shown, maxsplit=1)[0]
    if "@" in host or _NO_PORT.search(host):  # a password may contain any of the signs
        is_clear = "@" in shown and rest.count("@") == shown.count("@")
        shown = f"***@{shown.rpartition('@')[2]}" if is_clear else "***"
    return name[: start.end()] + shown


def unreadable(url: str) -> str | None:
    """Why a URL cannot be read, even for a trusted suite."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{public_address(url)!r} is not a valid URL"
    if parts.scheme not in (*BUCKETS, "http", "https"):
        return f"{public_address(url)!r}: unsupported scheme: use gs://, s3://, hf:// or https://"
    if parts.scheme == "hf" and not is_hub_file(url):
        return f"{public_address(url)!r}: write hf://datasets/OWNER/NAME/FILE, without a query"
    if not parts.hostname or "@" in parts.netloc:
        return f"{public_address(url)!r}: a URL needs a host or bucket and must not contain a user name"
    return None


def _is_public(host: str) -> bool:
    """Whether a host name looks public. The address behind the name is checked when connecting."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        private = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
        # a name ends in letters; 0x7f.1 and 127.1 are ways to write an address
        return re.search(r"\.[a-z][a-z0-9-]*$", host) is not None and not host.endswith(private)


class TooLargeError(UsageError):
    """A file over the limit of its reader."""


def fetch(url: str, limit: int, redirect_problem: Callable[[str], str | None] | None = None) -> bytes:
    """Reads a file at a URL, of at most ``limit`` bytes. Raises ``UsageError``.

    ``redirect_problem`` says why a redirect to a URL of another origin is not followed. By default, a redirect may lead
    to every public URL.
    """
    if problem := unreadable(url):
        raise UsageError(problem)
    scheme = urlsplit(url).scheme
    try:
        if scheme in BUCKETS:
            return _from_bucket(url, scheme, limit)
        return _from_web(url, limit, redirect_problem or _not_public)
    except UsageError:
        raise
    except ImportError:
        raise UsageError(needs_extra(scheme)) from None
    except FileNotFoundError:
        raise UsageError("there is no such file") from None
    except Exception as error:  # each library behind fsspec has its own errors
        reason = client_message(error)
        raise UsageError(reason if is_denied(error) else f"it cannot be read: {reason}") from error


def is_denied(error: Exception) -> bool:
    """Whether an error of a client means that it has no access."""
    codes = (vars(error).get("status"), vars(error).get("code"))
    is_refused = isinstance(error, PermissionError) or any(str(code) in ("401", "403") for code in codes)
    return is_refused or str(error).startswith("Forbidden:")  # gcsfs has only this text


def client_message(error: Exception) -> str:
    """The message of an error of a client, on one line, without the users and queries of addresses."""
    message = _OBJECT.sub("", " ".join(_USER.sub("://***@", str(error)).split()))
    text = _QUERY.sub(r"\1", message)[:300] or type(error).__name__
    return f"access denied: {text}" if is_denied(error) else text


def _from_bucket(url: str, scheme: str, limit: int) -> bytes:
    if scheme == "hf":
        return fetch_from_hub(url, limit)
    files = bucket_files(scheme)
    if size_in_bucket(files, url) > limit:
        raise _too_large(limit)
    data: bytes = files.cat_file(url)
    if len(data) > limit:  # a compressed object is larger than its declared size
        raise _too_large(limit)
    return data


def _not_public(url: str) -> str | None:
    if url_problem(url) is None:
        return None
    return f"{origin_of(url)!r}, which is not public over https: to read it, add its host to {TRUSTED_HOSTS}"


def _from_web(url: str, limit: int, redirect_problem: Callable[[str], str | None]) -> bytes:
    """Reads a page and follows a few redirects."""
    current = url
    for _ in range(_MOST_REDIRECTS + 1):
        data, location = _page(current, limit)
        if location is None:
            return data
        target = urljoin(current, location)
        if origin_of(target) != origin_of(current) and (problem := redirect_problem(target)):
            raise UsageError(f"it redirects to {problem}")
        current = target
    raise UsageError(f"it redirects more than {_MOST_REDIRECTS} times")


def origin_of(url: str) -> str:
    """A URL without its path and query, which may contain secrets."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "an invalid URL"
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname or ''}{'' if port in (None, default) else f':{port}'}"[:200]


def _page(url: str, limit: int) -> tuple[bytes, str | None]:
    """The content of a URL, or the target of a redirect. Streamed, since a server may declare no or a wrong size."""
    content, compressed = bytearray(), 0
    with _opened(url) as file:
        file.r.raise_for_status()
        if file.r.status in _REDIRECTS and (location := file.r.headers.get("location")):
            return b"", location
        inflater = Inflater(file.r.headers.get("content-encoding", ""))
        while data := file.read(1 << 20):
            compressed += len(data)
            for piece in inflater.feed(data):
                content += piece
                if len(content) > limit:
                    raise _too_large(limit)
            if compressed > limit:
                raise _too_large(limit)
        inflater.finish()
    return bytes(content), None


def _opened(url: str) -> Any:
    """The answer to a request. A suite without trust reaches public addresses only.

    Behind a proxy, it is the proxy that looks names up; a name that this machine knows as private is not asked for.
    """
    import aiohttp
    import fsspec

    options: dict[str, Any] = {"client_kwargs": {"auto_decompress": False}}
    request = {"headers": {"Accept-Encoding": ACCEPTED}, "allow_redirects": False, "ssl": tls_context()}
    host = urlsplit(url).hostname or ""
    proxy = proxy_for(url)
    is_checked = url_problem(url) is None and host not in trusted_hosts()
    if proxy is None:
        options |= {"get_client": _public_client} if is_checked else {}
        return fsspec.filesystem("https", **options).open(url, "rb", block_size=0, size=1, **request)
    if is_checked and (address := _private_address(host)):
        raise UsageError(_not_public_address(address))
    request["proxy"] = proxy_url(proxy)
    try:
        return fsspec.filesystem("https", **options).open(url, "rb", block_size=0, size=1, **request)
    except aiohttp.ClientResponseError as error:
        if isinstance(error, aiohttp.ClientHttpProxyError) or error.status == _PROXY_LOGIN:
            login = ": its URL needs a user name and a password that it accepts" if error.status == _PROXY_LOGIN else ""
            raise ProxyError(f"the proxy {proxy.url} answers {error.status}{login}") from error
        if error.request_info.method == "CONNECT":
            raise ProxyError(f"the proxy {proxy.url} does not answer as one") from error
        raise
    except (aiohttp.ClientProxyConnectionError, aiohttp.ClientConnectorDNSError) as error:
        raise ProxyError(f"the proxy {proxy.url} cannot be reached") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise ProxyError(
            f"through the proxy {proxy.url}: the certificate is not trusted: if it is the proxy's, set SSL_CERT_FILE"
        ) from error
    except aiohttp.ClientError as error:
        raise ProxyError(f"through the proxy {proxy.url}: no answer ({type(error).__name__})") from error


@lru_cache(maxsize=1000)
def _private_address(host: str) -> str | None:
    """An address of a host that is not public, if this machine knows one. Behind a proxy it may know none."""
    try:
        found = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    addresses = (str(target[0]).split("%")[0] for *_, target in found)
    return next((address for address in addresses if not _is_global(address)), None)


def _is_global(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_global


def _not_public_address(address: str) -> str:
    return f"its address {address} is not public: to read it, add the host to {TRUSTED_HOSTS}"


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"over the limit of {limit:,} bytes")


async def _public_client(**options: Any) -> aiohttp.ClientSession:
    import aiohttp

    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=_public_socket), **options)


def _public_socket(address: Any) -> socket.socket:
    """A socket to a public address only: a public name or a redirect may lead to an internal network."""
    family, kind, protocol, _, target = address
    ip = str(target[0]).split("%")[0]
    if not _is_global(ip):
        raise OSError(errno.EADDRNOTAVAIL, _not_public_address(ip))
    return socket.socket(family, kind, protocol)
