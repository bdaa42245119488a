"""URLs that a suite may read without trust, and addresses that a public name must not resolve to."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from buckets import web_server
from typer.testing import CliRunner

from visioneval import UsageError
from visioneval.cli import app
from visioneval.media.network import CodingError, Inflater
from visioneval.media.urls import _public_client, _public_socket, beside, fetch, is_url, origin_of, url_problem


@pytest.mark.parametrize("url", ["https://example.org/a.jsonl", "https://8.8.8.8/a", "HTTPS://Example.org:8443/a?b=c"])
def test_public_pages_are_for_everyone(url: str) -> None:
    assert url_problem(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a",
        "https://localhost/a",
        "https://intranet/a",
        "https://data.internal./a",
        "https://10.0.0.1/a",
        "https://169.254.169.254/latest",
        "https://[::1]/a",
        "https://[::ffff:127.0.0.1]/a",
        "https://127.1/a",
        "https://0x7f000001/a",
        "https://2130706433/a",
    ],
)
def test_private_addresses_need_trust(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not public: pass --trust-suite" in str(url_problem(url))


def test_a_listed_host_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "data.corp, 10.0.0.1")
    assert url_problem("http://data.corp/a") is None
    assert url_problem("https://10.0.0.1/a") is None
    assert url_problem("https://10.0.0.2/a") is not None
    assert url_problem("s3://data.corp/a") is not None


def test_a_bucket_is_read_with_credentials_and_so_needs_trust() -> None:
    for url in ("gs://b/a", "s3://b/a"):
        assert "this machine's credentials: pass --trust-suite" in str(url_problem(url))


@pytest.mark.parametrize(
    "url", ["ftp://x.org/a", "file:///etc/passwd", "memory://a", "https:///a", "https://u:p@x.org/a", "https://[x/a"]
)
def test_unsafe_urls_are_refused(url: str) -> None:
    message = str(url_problem(url))
    assert (
        "unsupported scheme" in message or "must not contain a user name" in message or "is not a valid URL" in message
    )
    with pytest.raises(UsageError):
        fetch(url, 10)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://[x/a.csv?sig=s3cr3t", "https://[x/a.csv"),
        ("ftp://x.org/a.csv?sig=s3cr3t", "ftp://x.org/a.csv"),
        ("https://u:s3cr3t@x.org/a.csv?sig=s3cr3t", "https://***@x.org/a.csv"),
        ("hf://datasets/a/b/c.csv?sig=s3cr3t", "hf://datasets/a/b/c.csv"),
    ],
)
def test_a_message_about_an_invalid_url_has_no_user_and_no_query(url: str, shown: str, tmp_path: Path) -> None:
    assert str(url_problem(url)).startswith(repr(shown))
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        f"name: far\ncases: [{{dataset: {{path: '{url}', fields: {{id: id}}}}}}]\nmodels: [{{provider: mock}}]\n"
    )
    result = CliRunner().invoke(app, ["validate", str(suite)])
    assert result.exit_code == 2
    assert shown in result.output.replace("\n", "")
    assert "s3cr3t" not in result.output


def test_an_address_inside_the_network_gets_no_socket() -> None:
    for host, family in (("127.0.0.1", socket.AF_INET), ("10.1.2.3", socket.AF_INET), ("::1", socket.AF_INET6)):
        with pytest.raises(OSError, match="is not public"):
            _public_socket((family, socket.SOCK_STREAM, 0, "", (host, 80)))
    with pytest.raises(OSError, match="is not public"):
        _public_socket((socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::ffff:127.0.0.1", 80, 0, 0)))
    _public_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 80))).close()


def test_a_public_client_cannot_reach_private_addresses() -> None:
    """An untrusted name, or a redirect, may resolve to this machine: the address is checked."""

    async def get(url: str) -> None:
        async with await _public_client() as client, client.get(url):
            pass

    with web_server({"a": b"secret"}) as url:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(aiohttp.ClientError, match="is not public"):
                asyncio.run(get(url.replace("127.0.0.1", host) + "/a"))


def test_where_a_relative_name_is() -> None:
    assert beside("s3://b/x/d.jsonl", "p/a.png") == "s3://b/x/p/a.png"
    assert beside("https://h/x/d.jsonl?sig=1/2", "a.png") == "https://h/x/a.png"
    assert beside("s3://b/d.jsonl", "gs://c/a.png") == "gs://c/a.png"
    assert not is_url("c:/a.png")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://images.example.com/a.png?token=secret#part", "https://images.example.com"),
        ("https://ann:secret@images.example.com:443/a", "https://images.example.com"),
        ("http://localhost:8080/a", "http://localhost:8080"),
        ("https://[::1", "an invalid URL"),
    ],
)
def test_an_origin_shows_no_secret(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("", bytes)])
def test_content_that_ended_too_early_is_an_error(coding: str, pack: Callable[[bytes], bytes]) -> None:
    data = pack(b"rows\n" * 1000)
    whole, part = Inflater(coding), Inflater(coding)
    assert b"".join(whole.feed(data)) == b"rows\n" * 1000
    whole.finish()
    assert b"".join((*part.feed(data[:-1]), b"" if coding else b"\n")) == b"rows\n" * 1000
    if coding:  # all of the content was there, but not its checksum
        with pytest.raises(CodingError, match="its compressed content is truncated"):
            part.finish()
