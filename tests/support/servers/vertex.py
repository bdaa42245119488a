"""Vertex AI on this machine: a service account, and a proxy that hands calls to any host over to a local server.

The client is the real one and speaks TLS to the real name; only the proxy's certificate is trusted by a variable.
"""

from __future__ import annotations

import datetime as dt
import json
import select
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit

import pytest
from canned_api import canned
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID


@dataclass
class ProxyLog:
    """The requested hosts, and the token requests."""

    hosts: list[str] = field(default_factory=list)
    tokens: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def vertex(server: str, token: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProxyLog]:
    """Machine credentials whose ``token`` the server at ``server`` accepts for any host name."""
    context, chain = server_context(folder, ("*.googleapis.com", "*.us.rep.googleapis.com", "evil.example"))
    seen = ProxyLog()
    answer = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
    with canned(answer) as accounts, _proxy(server, context, seen) as proxy:
        seen.tokens = accounts.headers
        (folder / "account.json").write_text(json.dumps(_account(accounts.url)))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "account.json"))
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        yield seen


def server_context(folder: Path, hosts: Iterable[str]) -> tuple[ssl.SSLContext, Path]:
    """The TLS context of a server for some host names, and the file with its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain = folder / "chain.pem"
    chain.write_bytes(_certificate(key, hosts) + _pem(key))
    context.load_cert_chain(chain)
    return context, chain


def _account(token_uri: str) -> dict[str, str]:
    account = {"type": "service_account", "client_email": "a@example.com", "project_id": "other"}
    return account | {"private_key": _account_key(), "private_key_id": "1", "token_uri": token_uri}


@cache
def _account_key() -> str:
    """A key in PEM; to generate one takes longer than most tests."""
    return _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)).decode()


def _pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(key: ec.EllipticCurvePrivateKey, names: Iterable[str]) -> bytes:
    """A self-signed certificate for some hosts."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    hosts = [x509.DNSName(host) for host in names]
    now = dt.datetime.now(dt.UTC)
    created = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    created = created.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
    created = created.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    created = created.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return created.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@contextmanager
def _proxy(server: str, context: ssl.SSLContext, seen: ProxyLog) -> Iterator[str]:
    inner = urlsplit(server)

    class Handler(StreamRequestHandler):
        rbufsize = 0

        def handle(self) -> None:
            method, target, _ = self.rfile.readline().decode().split(" ", 2)
            assert method == "CONNECT", method
            while self.rfile.readline().strip():
                pass
            seen.hosts.append(target.rpartition(":")[0])
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            where = (inner.hostname, inner.port)
            with (
                suppress(OSError),
                context.wrap_socket(self.connection, server_side=True) as outer,
                socket.create_connection(where) as sent,
            ):
                relay(outer, sent)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


def relay(outer: ssl.SSLSocket, inner: socket.socket) -> None:
    """Passes on what each of two connections sends, until one ends."""
    while True:
        ready = [outer] if outer.pending() else select.select([outer, inner], [], [], 30)[0]
        for single in ready:
            data = single.recv(65536)
            if not data:
                return
            (inner if single is outer else outer).sendall(data)
        if not ready:
            return
