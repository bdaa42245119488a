"""One TLS context for all clients of a process, because loading the certificates takes longer than a small call."""

from __future__ import annotations

import os
import ssl
from functools import cache

import httpx2


def tls_context() -> ssl.SSLContext:
    """The default context, with the certificates of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` if the user sets them."""
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()
