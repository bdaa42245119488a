"""Refusals by what they mean, over HTTP: each form of a provider, and errors that only look like one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from refusal_forms import OTHER_ERRORS, REFUSALS, Form, answering
from typer.testing import CliRunner, Result

from visioneval.cli import app
from visioneval.records.model import Record, read_records

KEY = "sk-secret-0123456789"
LOOK = {"key": "look", "type": "rubric", "metrics": {"nice": {"type": "pass_fail", "description": "it is nice"}}}
HOSTS = {"openai": "/v1", "gemini": ""}
MODELS = {"openai": "gpt-image-2", "gemini": "gemini-nano-banana-2.1"}


def run_forms(
    folder: Path, forms: Mapping[str, Form], *flags: str, provider: str = "openai", **changes: Any
) -> tuple[Result, dict[str, Record]]:
    """One run with a case for each form, whose record is under the form's name."""
    with answering(forms) as url:
        host = {"provider": provider, "base_url": url + HOSTS[provider], "api_key_env": "LOCAL_KEY"}
        names = list(forms)
        suite = {
            "name": "forms",
            "cases": [{"id": f"case{at}", "prompt": f"a sign [{name}]"} for at, name in enumerate(names)],
            "models": [{**host, "label": "m", "params": {"model": MODELS[provider]}}],
            "graders": [{"key": "image", "type": "properties"}],
            "verdict": ["not image.blank"],
            "limits": {provider: {"max_attempts": 1}},
            **changes,
        }
        (folder / "suite.yaml").write_text(json.dumps(suite))
        arguments = ["run", "suite.yaml", "--run-id", "r", "--trust-suite", "--quiet", *flags]
        result = CliRunner().invoke(app, arguments, env={"LOCAL_KEY": KEY}, catch_exceptions=False)
    records = {names[int(record.test_id[4:])]: record for record in read_records(folder / "runs" / "r")}
    assert KEY not in (folder / "runs" / "r" / "results.jsonl").read_text()
    return result, records


def judged(folder: Path, forms: Mapping[str, Form], api: str, save_image: Callable[..., Path]) -> dict[str, Record]:
    """A run in which a judge answers with each form about an existing image."""
    outputs = folder / "outputs"
    outputs.mkdir()
    for at in range(len(forms)):
        save_image(outputs / f"case{at}.png")
    with answering(forms) as url:
        provider = "gemini" if api == "gemini" else "openai"
        judge = {
            "provider": provider,
            "base_url": url + HOSTS[provider],
            "api_key_env": "LOCAL_KEY",
            "model": "gpt-5.4",
        }
        names = list(forms)
        suite = {
            "name": "forms",
            "judges": {"default": judge | ({} if api == "gemini" else {"api": api})},
            "cases": [{"id": f"case{at}", "prompt": f"a sign [{name}]"} for at, name in enumerate(names)],
            "models": [{"provider": "files", "label": "m", "path": "outputs/{case}.png"}],
            "graders": [LOOK],
            "verdict": ["nice"],
            "limits": {provider: {"max_attempts": 1}},
        }
        (folder / "suite.yaml").write_text(json.dumps(suite))
        arguments = ["run", "suite.yaml", "--run-id", "r", "--trust-suite", "--quiet"]
        CliRunner().invoke(app, arguments, env={"LOCAL_KEY": KEY}, catch_exceptions=False)
    return {names[int(record.test_id[4:])]: record for record in read_records(folder / "runs" / "r")}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_form_of_a_refusal_is_refused(tmp_path: Path) -> None:
    result, records = run_forms(tmp_path, REFUSALS)
    assert {name: record.status for name, record in records.items()} == dict.fromkeys(REFUSALS, "refused")
    assert {record.verdict for record in records.values()} == {"FAIL"}
    assert result.exit_code == 1
    assert not [name for name, record in records.items() if "\n" in record.reasons["refused"]]


def test_other_errors_are_no_refusals(tmp_path: Path) -> None:
    _, records = run_forms(tmp_path, OTHER_ERRORS)
    assert {name: record.status for name, record in records.items()} == dict.fromkeys(OTHER_ERRORS, "error")
    kinds = {name: record.error.kind for name, record in records.items() if record.error is not None}
    transient = ("overloaded filter", "web page")
    assert kinds == {name: "transient" if name in transient else "invalid" for name in OTHER_ERRORS}


def test_a_refusal_that_a_case_expects_passes_by_any_form(tmp_path: Path) -> None:
    cases = [
        {"id": f"case{at}", "prompt": f"a sign [{name}]", "expect": {"refusal": True}}
        for at, name in enumerate(REFUSALS)
    ]
    result, records = run_forms(tmp_path, REFUSALS, cases=cases)
    assert ({record.verdict for record in records.values()}, result.exit_code) == ({"PASS"}, 0)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_judge_refuses_by_the_same_forms(tmp_path: Path, save_image: Callable[..., Path], api: str) -> None:
    forms = {**REFUSALS, **OTHER_ERRORS}
    records = judged(tmp_path, forms, api, save_image)
    assert {name: record.graders[0].refused for name, record in records.items()} == {
        name: int(name in REFUSALS) for name in forms
    }
    assert {record.verdict for record in records.values()} == {"ERROR"}
