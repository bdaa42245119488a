"""How this machine reaches the network: the certificates that it trusts, and the proxy for a URL.

Calls, downloads and buckets follow the same variables by the same rules, those of httpx2, which the SDKs use.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import TYPE_CHECKING

from visioneval.errors import ProviderError, UsageError

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
