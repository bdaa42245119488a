"""Answers that name their images by URL: which hosts they are read from, and what reaches records and messages."""

from __future__ import annotations

import asyncio
import base64
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from canned_api import canned
from PIL import Image
from suite_runner import SuiteRunner
from tables import rows_of
from web_pages import Page, web

from visioneval import CaseFiles, Generation, GenerationRequest, TaskType, TestCase
from visioneval.providers import image_replies
from visioneval.providers.base import Download
from visioneval.providers.image_replies import AllowedHosts
from visioneval.providers.openai import OpenAIProvider
from visioneval.providers.openai.generator import OpenAIGenerator

rows = rows_of(__file__)

pytestmark = pytest.mark.slow

_FILE = io.BytesIO()
Image.linear_gradient("L").save(_FILE, "PNG")
IMAGE = _FILE.getvalue()
SIGNED = "?sig=s3cr3t"
ASKED = GenerationRequest(
    case=TestCase(id="one", prompt="a tree"),
    task_type=TaskType.IMAGE_GENERATION,
    prompt="a tree",
    model_label="m",
    params={"model": "flux"},
    files=CaseFiles(),
    samples=(0,),
    folder=Path(),
)


@pytest.fixture(autouse=True)
def _trust_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", "sk-fake-0123456789abcdef")
    monkeypatch.setattr(image_replies, "WAITS_S", (0.0, 0.0))


def generated(
    *urls: str, hosts: tuple[str, ...] = ("127.0.0.1",), extra: tuple[dict[str, Any], ...] = ()
) -> Generation:
    with canned({"data": [*({"url": url} for url in urls), *extra]}) as server:
        config = OpenAIProvider(provider="openai", base_url=server.url, api_key_env="LOCAL_KEY", output_hosts=hosts)

        async def once() -> Any:
            return await OpenAIGenerator(config).generate(replace(ASKED, samples=tuple(range(len(urls) + len(extra)))))

        result: Generation = asyncio.run(once())
        assert len(server.bodies) == 1
        return result


def outputs(*urls: str, **options: Any) -> Any:
    return generated(*urls, **options).outputs


def error(*urls: str, **options: Any) -> str:
    result = generated(*urls, **options)
    (download,) = result.outputs or (None,)
    assert (result.refused, isinstance(download, Download)) == (None, result.unusable is None)
    message = download.problem if isinstance(download, Download) else str(result.unusable)
    assert "s3cr3t" not in message
    return message.removeprefix("the answer names its image by URL, which cannot be read: ")


def test_an_image_behind_a_url_is_read_without_the_key() -> None:
    with web(image=Page(IMAGE)) as files:
        encoded = {"b64_json": base64.b64encode(b"x").decode()}
        assert outputs(f"{files.url}/image.png{SIGNED}", extra=(encoded,)) == (IMAGE, b"x")
    assert len(files.seen) == 1
    assert not {"authorization", "cookie", "x-api-key"} & files.seen[0].keys()


def test_a_data_url_holds_its_image() -> None:
    content = base64.b64encode(IMAGE).decode()
    assert outputs(f"data:image/png;base64,{content}", hosts=()) == (IMAGE,)
    assert outputs("data:image/png;base64,???", "data:,x", hosts=()) == (b"x",)


def test_a_download_is_repeated_and_not_the_call() -> None:
    with web(image=[Page(status=503), Page(status=500), Page(IMAGE)]) as files:
        assert outputs(f"{files.url}/image.png") == (IMAGE,)
    assert len(files.seen) == 3


@pytest.mark.parametrize(
    ("page", "requests", "message"),
    [
        (Page(status=403), 1, "it answers 403: the URL may have expired"),
        (Page(status=404), 1, "it answers 404: the URL may have expired"),
        (Page(status=410), 1, "it answers 410: the URL may have expired"),
        (Page(status=503), 3, "it answers 503"),
        (Page(b"x" * 2000), 1, "over the limit of 1,000 bytes"),
        (
            Page(headers={"location": "http://169.254.169.254/latest"}, status=302),
            1,
            "it redirects to another host: http://169.254.169.254 is not the server that answered: if it may be read, add its host to"
            " output_hosts",
        ),
    ],
)
def test_a_url_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, page: Page, requests: int, message: str) -> None:
    monkeypatch.setattr(image_replies, "MAX_BYTES", 1000)
    with web(image=page) as files:
        assert error(f"{files.url}/image.png{SIGNED}") == f"{files.url}: {message}"
    assert len(files.seen) == requests


def test_an_unreachable_server_is_no_answer() -> None:
    with web() as files:
        url = files.url
    assert error(f"{url}/image.png{SIGNED}") == f"{url}: no answer (ClientConnectorError)"


def test_only_the_cell_of_an_unreadable_url_fails() -> None:
    with web(image=Page(IMAGE), gone=Page(status=404)) as files:
        assert outputs(f"{files.url}/gone.png", f"{files.url}/image.png") == (IMAGE,)


@pytest.mark.parametrize(("url", "hosts", "problem"), rows("which_hosts_are_read"))
def test_which_hosts_are_read(url: str, hosts: tuple[str, ...], problem: str | None) -> None:
    said = AllowedHosts("https://api.example.com/v1", hosts).problem(url)
    assert said is None if problem is None else said is not None and said.startswith(problem)


def model(url: str, **more: Any) -> dict[str, Any]:
    host = {"base_url": url, "api_key_env": "LOCAL_KEY"}
    return {"provider": "openai", "label": "m", "params": {"model": "flux"}, **host, **more}


GRADER = {"key": "image", "type": "properties"}


def test_no_url_is_in_any_file_of_a_run_and_a_replay_reads_none(runner: SuiteRunner) -> None:
    with web(image=Page(IMAGE)) as files, canned({"data": [{"url": f"{files.url}/image.png{SIGNED}"}]}) as server:
        models = [model(server.url, output_hosts=["127.0.0.1"])]
        runner.write("tree", models=models, graders=[GRADER], verdict=["not image.blank"], prices={})
        result = runner.run("--trust-suite")
        assert result.exit_code == 0, result.output
        assert runner.run("--trust-suite", "--offline", run_id="again").exit_code == 0
        assert (len(server.bodies), len(files.seen)) == (1, 1)
        runner.write("tree", models=[model(server.url)], graders=[GRADER], verdict=["not image.blank"], prices={})
        assert runner.run("--trust-suite", "--offline", run_id="moved").exit_code == 0  # the hosts do not change a key
    written = [path for path in runner.folder.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert [path for path in written if b"s3cr3t" in path.read_bytes()] == []


def test_a_page_instead_of_an_image_is_an_error_of_its_cell(runner: SuiteRunner) -> None:
    page = Page(b"<!doctype html><title>Sign in</title>", headers={"content-type": "text/html"})
    with web(image=page) as files, canned({"data": [{"url": f"{files.url}/image.png"}]}) as server:
        models = [model(server.url, output_hosts=["127.0.0.1"])]
        runner.write("tree", models=models, graders=[GRADER], verdict=["not image.blank"], prices={})
        assert runner.run("--trust-suite").exit_code == 3
    (record,) = runner.records().values()
    assert record.verdict == "ERROR"


def test_every_host_needs_trust(runner: SuiteRunner) -> None:
    models = [model("http://127.0.0.1:1/v1", output_hosts=["*"])]
    runner.write("tree", models=models, graders=[GRADER], verdict=["not image.blank"], prices={})
    refused = runner("validate", runner.folder / "suite.yaml")
    assert refused.exit_code == 2
    assert "outputs of every public host: name the hosts, or pass --trust-suite if you trust" in refused.output
    assert runner("validate", runner.folder / "suite.yaml", "--trust-suite").exit_code == 0
