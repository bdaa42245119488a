"""LiteLLM's proxy as a server for ``provider: openai``: generation, edits, answers by address, and judging."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from canned_api import canned
from conftest import KEY
from fake_api import FakeAPI
from suite_runner import SuiteRunner
from test_image_forms import answer_of
from web_pages import Page, web

from visioneval import read_records

ROOT = Path(__file__).parents[3]
PROXY = ROOT / ".integration" / "litellm_proxy" / "bin" / "litellm"
MASTER_KEY = "sk-master-0123456789"
STARTING_S = 120.0


@contextmanager
def proxy(folder: Path, models: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The proxy with a list of models by name, at its base URL."""
    listed = [{"model_name": name, "litellm_params": params} for name, params in models.items()]
    settings = {"drop_params": False, "num_retries": 0, "telemetry": False}
    config = {"model_list": listed, "litellm_settings": settings, "general_settings": {"master_key": MASTER_KEY}}
    (folder / "proxy.yaml").write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    words = [PROXY, "--config", "proxy.yaml", "--host", "127.0.0.1", "--port", port]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
    with (
        (folder / "proxy.log").open("wb") as log,
        subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "proxy.log")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTING_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the proxy did not start:\n{log.read_text()[-3000:]}")


def test_a_suite_on_the_proxy(
    runner: SuiteRunner, api: FakeAPI, image: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", MASTER_KEY)
    upstream = {"api_base": api.openai_base_url, "api_key": KEY}
    runner.folder.mkdir(exist_ok=True)
    (runner.folder / "base.png").write_bytes(image)
    with (
        web(image=Page(image)) as files,
        canned(answer_of("fal", image, f"{files.url}/image.png")) as fal,
        proxy(
            tmp_path,
            {
                "artist": {"model": "openai/gpt-image-2", **upstream},
                "by-address": {"model": "fal_ai/fal-ai/flux-pro/v1.1", **upstream, "api_base": fal.url[:-3]},
                "eye": {"model": "openai/gpt-5.4", **upstream},
            },
        ) as url,
    ):
        host = {"provider": "openai", "base_url": url, "api_key_env": "LOCAL_KEY"}
        runner.write(
            judges={"default": {**host, "model": "eye", "api": "chat"}},
            cases=[
                {"id": "tree", "prompt": "a tree"},
                {"id": "edit", "prompt": "make it red", "task": "image_editing", "images": ["base.png"]},
            ],
            models=[
                {**host, "label": "inline", "params": {"model": "artist"}},
                {**host, "label": "address", "params": {"model": "by-address"}, "tasks": ["image_generation"],
                 "output_hosts": ["127.0.0.1"]},
            ],
            prices={"openai:artist": {"per_image": 0.1}, "openai:by-address": {"per_image": 0.1}, "openai:eye": {"per_call": 0.1}},
        )  # fmt: skip
        result = runner.run()
    assert result.exit_code == 0, result.output
    assert (len(api.requests_to("images.generations")), len(api.requests_to("images.edits"))) == (1, 1)
    assert len(api.requests_to("chat")) == 3
    assert (len(fal.bodies), len(files.seen)) == (1, 1)
    details = [record.graders[0].details for record in read_records(runner.out / "r")]
    assert [detail["reply_shape"] for detail in details] == ["schema"] * 3
