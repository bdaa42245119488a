"""Whole runs from the command line with OpenAI models, against a local server that is trusted by the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI
from PIL import Image
from typer.testing import CliRunner, Result

from visioneval import Record, read_records
from visioneval.cli import app

SUITE = """\
name: posters
cases:
  - {{id: tree, prompt: a tree}}
  - {{id: boat, prompt: a boat}}
models:
  - provider: openai
    base_url: {url}
    api_key_env: LOCAL_KEY
    params: {{model: gpt-image-2, n: 2}}
    grid: {{quality: [low, high], size: [1024x1024, 1536x1024]}}
graders:
  - {{key: image, type: properties}}
verdict: [not image.blank]
"""
TWO_MODELS = """\
name: two
cases:
  - {{id: tree, prompt: a tree}}
models:
  - {{provider: openai, base_url: "{url}", api_key_env: LOCAL_KEY, params: {{model: gpt-image-99}}}}
  - {{provider: openai, base_url: "{url}", api_key_env: LOCAL_KEY, params: {{model: gpt-image-2, colour: red}}}}
  - {{provider: openai, base_url: "{url}", api_key_env: LOCAL_KEY, label: good, params: {{model: gpt-image-2}}}}
graders:
  - {{key: image, type: properties}}
verdict: [not image.blank]
"""


@pytest.fixture(autouse=True)
def _around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: FakeAPI) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)


def run(api: FakeAPI, text: str = SUITE, *options: str) -> Result:
    Path("suite.yaml").write_text(text.format(url=api.openai_base_url))
    return CliRunner().invoke(app, ["run", "suite.yaml", "--run-id", "r", *options], catch_exceptions=False)


def records() -> list[Record]:
    return list(read_records(Path("runs/r")))


def test_a_sweep_generates_and_grades_every_image(api: FakeAPI) -> None:
    result = run(api)
    assert (result.exit_code, len(api.requests)) == (0, 8), result.output
    actual = records()
    assert sorted({(record.test_id, record.sample_index) for record in actual}) == [
        ("boat", 0), ("boat", 1), ("tree", 0), ("tree", 1)
    ]  # fmt: skip
    for case in ("tree", "boat"):
        assert len([record for record in actual if record.test_id == case]) == 8
    for record in actual:
        params: dict[str, Any] = dict(record.run_params)
        assert (params["model"], params["n"]) == ("gpt-image-2", 2)
        width, height = map(int, params["size"].split("x"))
        with Image.open(Path("runs/r") / str(record.artifact_path)) as image:
            assert image.size == (record.width, record.height) == (width, height)
        assert record.verdict == "PASS"
        assert record.usage is not None
        assert record.usage["output_image_tokens"] > 0
    sweep = {(record.run_params["quality"], record.run_params["size"]) for record in actual}
    assert len(sweep) == len({record.model_label for record in actual}) == 4


def test_a_missing_key_is_reported_before_any_call(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_KEY")
    result = run(api)
    assert (result.exit_code, api.requests, Path("runs").exists()) == (2, [], False)
    (line,) = result.stderr.splitlines()
    assert line.startswith("set the environment variable LOCAL_KEY, or put it into a file")
    assert ": required by gpt-image-2" in line
    assert line.count("gpt-image-2") == 4


def test_a_wrong_key_stops_at_the_first_401(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", "sk-wrong-key-567890")
    result = run(api, SUITE, "--max-concurrency", "1", "--quiet")
    assert (result.exit_code, len(api.requests), records()) == (3, 1, [])
    (line,) = [line for line in result.stderr.splitlines() if "stopped" not in line]
    assert "the provider refused the API key: 401: Incorrect API key provided: sk-wron********7890." in line
    assert "sk-wrong-key-567890" not in result.output


def test_a_rejected_key_is_reported_once_for_all_calls(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", "sk-wrong-key-567890")
    result = run(api)
    assert (result.exit_code, records()) == (3, [])
    assert result.stderr.count("refused the API key") == 1


def test_an_untrusted_host_is_a_suite_error(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISIONEVAL_TRUSTED_HOSTS")
    result = run(api)
    assert (result.exit_code, api.requests) == (2, [])
    assert result.stderr.startswith("suite.yaml:")
    assert "base_url '127.0.0.1' is not the provider's own host" in result.stderr
    assert run(api, SUITE, "--trust-suite").exit_code == 0


def test_errors_of_one_model_do_not_affect_the_others(api: FakeAPI) -> None:
    result = run(api, TWO_MODELS)
    assert result.exit_code == 3, result.output
    expected_message = {record.model_label: record for record in records()}
    text = {
        label: record.error and (record.error.kind, record.error.message) for label, record in expected_message.items()
    }
    assert text == {
        "gpt-image-99": (
            "invalid",
            "404: The model `gpt-image-99` does not exist or you do not have access to it.",
        ),
        "gpt-image-2": ("invalid", "400: Unknown parameter: 'colour'."),
        "good": None,
    }
    assert {label: str(record.verdict) for label, record in expected_message.items()} == {
        "gpt-image-99": "ERROR",
        "gpt-image-2": "ERROR",
        "good": "PASS",
    }
