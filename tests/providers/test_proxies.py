"""Behind a proxy: calls, judgments and downloads go through it by one rule, and hosts are checked as before."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from canned_api import Canned, canned
from fake_api import FakeAPI
from forward_proxy import ForwardProxy, forward_proxy
from PIL import Image
from suite_runner import SuiteRunner
from tables import rows_of
from web_pages import Page, Web, web

from visioneval import CaseFiles, GenerationRequest, ProviderError, TaskType, TestCase, UsageError
from visioneval.media import urls
from visioneval.media.network import ProxyError, proxy_for
from visioneval.media.urls import fetch
from visioneval.providers import image_replies
from visioneval.providers.gemini import GeminiProvider
from visioneval.providers.gemini.generator import GeminiGenerator
from visioneval.providers.openai import OpenAIProvider
from visioneval.providers.openai.generator import OpenAIGenerator
from visioneval.running.calls import throttle

rows = rows_of(__file__)

pytestmark = pytest.mark.slow

_FILE = io.BytesIO()
Image.linear_gradient("L").save(_FILE, "PNG")
IMAGE = _FILE.getvalue()
ROWS = b"id,prompt\none,a tree\n"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
GRADERS = [
    {"key": "image", "type": "properties"},
    {"key": "look", "type": "rubric", "metrics": {"nice": {"type": "pass_fail", "description": "it is nice"}}},
]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, api: FakeAPI) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("LOCAL_KEY", api.key)
    monkeypatch.setattr(image_replies, "WAITS_S", (0.0, 0.0))


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The addresses of the names that this machine knows; every other name below ``example`` is the proxy's."""
    addresses: dict[str, str] = {}
    real = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name.endswith(".example") and name not in addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(addresses.get(name, host), *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    urls._private_address.cache_clear()
    yield addresses
    urls._private_address.cache_clear()


@pytest.fixture
def files() -> Iterator[Web]:
    with web(rows=Page(ROWS), image=Page(IMAGE)) as server:
        yield server


@pytest.fixture
def images() -> Iterator[Canned]:
    with canned({"data": [{"url": "https://files.example/image.png?sig=s3cr3t"}]}) as server:
        yield server


@pytest.fixture
def proxy(
    api: FakeAPI, files: Web, images: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ForwardProxy]:
    routes = {
        "api.example": images.url,
        "judge.example": api.url,
        "files.example": files.url,
        "data.example": files.url,
    }
    with forward_proxy(tmp_path, routes, login="ann:pa55word") as started:
        monkeypatch.setenv("SSL_CERT_FILE", str(started.chain))
        monkeypatch.setenv("HTTPS_PROXY", started.url)
        yield started


Start = Callable[..., Any]


@pytest.fixture
def start(runner: SuiteRunner, api: FakeAPI) -> Start:
    """Runs a suite whose dataset, model, output and judge are on four hosts that only the proxy knows."""

    def start(*arguments: str, scheme: str = "https", **changes: Any) -> Any:
        path = api.openai_base_url.removeprefix(api.url)
        key = {"api_key_env": "LOCAL_KEY"}
        model = {
            "provider": "openai",
            "label": "m",
            "params": {"model": "gpt-image-2"},
            "output_hosts": ["files.example"],
        }
        judge = {"provider": "openai", "model": "gpt-5.4", "base_url": f"{scheme}://judge.example{path}"}
        data = {"path": f"{scheme}://data.example/rows.csv", "fields": {"id": "id", "prompt": "prompt"}}
        suite = {
            "cases": [{"dataset": data}],
            "models": [{**model, **key, "base_url": f"{scheme}://api.example/v1"}],
            "judges": {"default": {**judge, **key}},
            "graders": GRADERS,
            "verdict": ["nice"],
            "prices": {},
        }
        runner.write(**{**suite, **changes})
        return runner.run("--trust-suite", *arguments)

    return start


@pytest.mark.filterwarnings("ignore:.*(BasicAuth|proxy_auth):DeprecationWarning")  # in OpenAI's SDK
class TestRun:
    def test_dataset_generation_output_and_judgment_go_through_the_proxy(
        self, start: Start, proxy: ForwardProxy, runner: SuiteRunner
    ) -> None:
        result = start()
        assert result.exit_code == 0, result.output
        assert proxy.hosts == {"data.example", "api.example", "files.example", "judge.example"}
        assert {method for method, _ in proxy.asked} == {"CONNECT"}
        written = [path for path in runner.folder.rglob("*") if path.is_file() and path != proxy.chain]
        assert [path for path in written if b"pa55word" in path.read_bytes() or b"s3cr3t" in path.read_bytes()] == []

    def test_http_addresses_use_their_own_variable(
        self, start: Start, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        result = start(scheme="http")
        assert result.exit_code == 0, result.output
        assert ("POST", "api.example") in proxy.asked
        assert ("GET", "data.example") in proxy.asked
        assert ("CONNECT", "files.example") in proxy.asked

    def test_a_host_of_no_proxy_is_connected_directly(
        self, start: Start, proxy: ForwardProxy, runner: SuiteRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("no_proxy", ".corp, files.example")
        assert start().exit_code == 3
        assert "api.example" in proxy.hosts
        assert "files.example" not in proxy.hosts
        (record,) = runner.records().values()
        assert record.error is not None
        assert "https://files.example: no answer (ClientConnectorDNSError);" in record.error.message

    @pytest.mark.parametrize(("entry", "model"), [("openai", "gpt-image-2"), ("gemini", "gemini-nano-banana-2.1")])
    @pytest.mark.parametrize(
        ("fault", "message", "attempts"),
        [
            (
                "login",
                "the proxy of this machine (HTTPS_PROXY or similar) answers 407 Proxy Authentication Required",
                1,
            ),
            ("host", "the proxy of this machine (HTTPS_PROXY or similar) answers 502 Bad Gateway", 6),
            ("down", "no answer: ", 0),
        ],
    )
    def test_a_proxy_that_refuses_a_call_is_named(
        self, start: Start, proxy: ForwardProxy, runner: SuiteRunner, monkeypatch: pytest.MonkeyPatch,
        entry: str, model: str, fault: str, message: str, attempts: int,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(throttle, "BACKOFF_S", 0.0)
        if fault == "login":
            monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("pa55word", "wr0ng"))
        if fault == "down":
            monkeypatch.setenv("HTTPS_PROXY", "http://ann:wr0ng@127.0.0.1:1")
        host = {"base_url": "https://nobody.example/v1", "api_key_env": "LOCAL_KEY"}
        models = [{"provider": entry, "label": "m", "params": {"model": model}, **host}]
        assert start(cases=[{"id": "one", "prompt": "a tree"}], models=models).exit_code == 3
        (record,) = runner.records().values()
        assert record.error is not None
        assert record.error.message.startswith(message)
        assert len(proxy.asked) == attempts
        assert "wr0ng" not in record.model_dump_json()


@pytest.mark.filterwarnings("ignore:.*(BasicAuth|proxy_auth):DeprecationWarning")
@pytest.mark.parametrize("host", ["https://api.example/v1", "https://nobody.example/v1"])
@pytest.mark.parametrize(
    ("config", "generator", "model"),
    [
        (OpenAIProvider, OpenAIGenerator, "gpt-image-2"),
        (GeminiProvider, GeminiGenerator, "gemini-nano-banana-2.1"),
    ],
)
def test_a_call_that_the_proxy_did_not_connect_costs_nothing(
    proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch, config: Any, generator: Any, model: str, host: str
) -> None:
    if "api" in host:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("pa55word", "wr0ng"))
    provider = config.__name__.removesuffix("Provider").lower()
    entry = config(provider=provider, base_url=host, api_key_env="LOCAL_KEY", params={"model": model})
    request = GenerationRequest(
        case=TestCase(id="one", prompt="a tree"),
        task_type=TaskType.IMAGE_GENERATION,
        prompt="a tree",
        model_label="m",
        params={"model": model},
        files=CaseFiles(),
        samples=(0,),
        folder=Path(),
    )

    async def once() -> Any:
        return await generator(entry).generate(request)

    with pytest.raises(ProviderError) as raised:
        asyncio.run(once())
    assert (raised.value.may_be_billed, raised.value.kind) == (False, "invalid" if "api" in host else "transient")


@pytest.mark.parametrize(("entry", "model"), [("openai", "gpt-image-2"), ("gemini", "gemini-nano-banana-2.1")])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("http://ann:pa55word@proxy:port", "HTTPS_PROXY is not the URL of a proxy: write http://HOST:PORT"),
        ("ftp://ann:pa55word@proxy:1", "HTTPS_PROXY is not the URL of a proxy: write http://HOST:PORT"),
    ],
)
def test_a_variable_that_is_no_proxy_is_one_clear_line(
    start: Start, monkeypatch: pytest.MonkeyPatch, entry: str, model: str, value: str, message: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    host = {"base_url": "https://nobody.example/v1", "api_key_env": "LOCAL_KEY"}
    models = [{"provider": entry, "label": "m", "params": {"model": model}, **host}]
    result = start(cases=[{"id": "one", "prompt": "a tree"}], models=models)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output
    assert "pa55word" not in result.output


class TestDownload:
    """``fetch``, which reads datasets, their images, existing outputs, and outputs that an answer names by URL."""

    @pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
    def test_every_variable_counts(self, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.delenv("HTTPS_PROXY")
        monkeypatch.setenv(name, proxy.url)
        assert fetch("https://files.example/image.png", 10_000) == IMAGE

    def test_a_password_of_the_users_netrc_is_never_sent(
        self, proxy: ForwardProxy, files: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "netrc").write_text("default login ann password pa55word\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        assert fetch("https://files.example/image.png", 10_000) == IMAGE
        assert not {"authorization", "proxy-authorization", "cookie"} & files.seen[0].keys()

    @pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "100.64.0.1", "fd00::1", "::ffff:192.168.0.1"])
    def test_a_name_that_is_private_here_is_not_asked_for(
        self, proxy: ForwardProxy, known: dict[str, str], monkeypatch: pytest.MonkeyPatch, address: str
    ) -> None:
        known["files.example"] = address
        assert problem("https://files.example/image.png") == (
            f"its address {address} is not public: to read it, add the host to VISIONEVAL_TRUSTED_HOSTS"
        )
        assert proxy.asked == []
        monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "files.example")
        assert fetch("https://files.example/image.png", 10_000) == IMAGE

    def test_a_name_that_is_public_here_goes_to_the_proxy_by_name(
        self, proxy: ForwardProxy, known: dict[str, str]
    ) -> None:
        known["files.example"] = "8.8.8.8"
        assert fetch("https://files.example/image.png", 10_000) == IMAGE
        assert proxy.asked == [("CONNECT", "files.example")]

    @pytest.mark.parametrize(
        "target",
        [
            "http://169.254.169.254/latest/meta-data/",
            "https://localhost/x",
            "https://[::1]/x",
            "https://metadata.internal/x",
            "http://data.example/rows.csv",
            "https://inner.example/x",
        ],
    )
    def test_each_redirect_is_checked(
        self, proxy: ForwardProxy, files: Web, known: dict[str, str], target: str
    ) -> None:
        known["inner.example"] = "192.168.0.1"
        files.pages["/image"] = Page(status=302, headers={"location": target})
        assert "is not public" in problem("https://files.example/image.png")
        assert proxy.asked == [("CONNECT", "files.example")]

    def test_a_redirect_to_a_public_name_is_followed_through_the_proxy(self, proxy: ForwardProxy, files: Web) -> None:
        files.pages["/image"] = Page(status=302, headers={"location": "https://data.example/rows.csv"})
        assert fetch("https://files.example/image.png", 10_000) == ROWS
        assert proxy.asked == [("CONNECT", "files.example"), ("CONNECT", "data.example")]

    def test_the_limit_holds(self, proxy: ForwardProxy) -> None:
        assert fetch("https://files.example/image.png", len(IMAGE)) == IMAGE
        limit = len(IMAGE) - 1
        assert problem("https://files.example/image.png", limit) == f"over the limit of {limit:,} bytes"

    def test_a_wrong_password(self, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "files.example")
        for name in ("HTTPS_PROXY", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url.replace("pa55word", "wr0ng"))
        where = proxy.url.replace("ann:pa55word@", "")
        for scheme in ("https", "http"):
            assert problem(f"{scheme}://files.example/image.png?sig=s3cr3t") == (
                f"the proxy {where} answers 407: its URL needs a user name and a password that it accepts"
            )

    @pytest.mark.parametrize(
        ("status", "message"),
        [(403, "access denied: 403"), (404, "there is no such file"), (500, "cannot be read: 500")],
    )
    def test_an_error_of_the_server_is_not_the_proxys(
        self, proxy: ForwardProxy, files: Web, status: int, message: str
    ) -> None:
        files.pages["/image"] = Page(status=status)
        assert message in problem("https://files.example/image.png")

    def test_a_host_that_the_proxy_does_not_reach(self, proxy: ForwardProxy) -> None:
        where = proxy.url.replace("ann:pa55word@", "")
        assert problem("https://nobody.example/x") == f"the proxy {where} answers 502"

    @pytest.mark.parametrize("url", ["http://ann:pa55word@127.0.0.1:1", "http://ann:pa55word@proxy.example:3128"])
    def test_a_proxy_that_is_down(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        monkeypatch.setenv("HTTPS_PROXY", url)
        where = url.replace("ann:pa55word@", "")
        assert problem("https://files.example/x") == f"the proxy {where} cannot be reached"

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "the proxy {} does not answer as one"),
            (b"\x00\x01", "the proxy {} does not answer as one"),
            (b"HTTP/1.1 200 OK\r\n\r\nno TLS", "through the proxy {}: no answer (ClientConnectorError)"),
        ],
    )
    def test_something_that_is_no_proxy(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, message: str
    ) -> None:
        with forward_proxy(tmp_path, {}, login="ann:pa55word", answer=answer) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            where = proxy.url.replace("ann:pa55word@", "")
            assert problem("https://files.example/x") == message.format(where)

    def test_a_certificate_of_the_proxy_needs_a_variable(
        self, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SSL_CERT_FILE")
        where = proxy.url.replace("ann:pa55word@", "")
        assert problem("https://files.example/image.png") == (
            f"through the proxy {where}: the certificate is not trusted: if it is the proxy's, set SSL_CERT_FILE"
        )

    def test_a_socks_proxy_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", "socks5://ann:pa55word@127.0.0.1:1")
        assert problem("https://files.example/x") == (
            "ALL_PROXY: a socks5 proxy is not supported here: set one of http:// or https://"
        )


def problem(url: str, limit: int = 10_000) -> str:
    with pytest.raises(UsageError) as raised:
        fetch(url, limit)
    message = str(raised.value)
    assert not [secret for secret in ("pa55word", "wr0ng", "s3cr3t") if secret in message]
    return message


@pytest.mark.parametrize(("no_proxy", "direct", "by_proxy"), rows("no_proxy"))
def test_no_proxy(monkeypatch: pytest.MonkeyPatch, no_proxy: str, direct: list[str], by_proxy: list[str]) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert [url for url in direct if proxy_for(url) is not None] == []
    assert {str(proxy and proxy.url) for proxy in map(proxy_for, by_proxy)} <= {"http://proxy.example:3128"}


def test_the_variable_of_the_scheme_comes_before_the_general_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://all.example:1")
    monkeypatch.setenv("HTTPS_PROXY", "https://secure.example")
    proxy = proxy_for("https://a.example")
    assert proxy is not None
    assert str(proxy.url) == "https://secure.example"
    with pytest.raises(ProxyError):
        proxy_for("http://a.example")
