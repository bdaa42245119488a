"""Runs whose generations or judgements are answered with given forms, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from refusal_forms import Form, answering
from typer.testing import CliRunner, Result

from visioneval import Record, read_records
from visioneval.cli import app

KEY = "sk-secret-0123456789"
LOOK = {"key": "look", "type": "rubric", "metrics": {"nice": {"type": "pass_fail", "description": "it is nice"}}}
HOSTS = {"openai": "/v1", "gemini": ""}
JUDGES = {"openai": "gpt-5.4", "gemini": "gemini-3.5-flash"}
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
        arguments = ["run", "suite.yaml", "--run-id", "r", "--trust-suite", "--quiet", "--max-concurrency", "4", *flags]
        result = CliRunner().invoke(app, arguments, env={"LOCAL_KEY": KEY}, catch_exceptions=False)
    records = {names[int(record.test_id[4:])]: record for record in read_records(folder / "runs" / "r")}
    assert KEY not in (folder / "runs" / "r" / "results.jsonl").read_text()
    return result, records


def judged(
    folder: Path, forms: Mapping[str, Form], api: str, save_image: Callable[..., Path], **changes: Any
) -> dict[str, Record]:
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
            **changes,
        }
        (folder / "suite.yaml").write_text(json.dumps(suite))
        arguments = ["run", "suite.yaml", "--run-id", "r", "--trust-suite", "--quiet", "--max-concurrency", "4"]
        CliRunner().invoke(app, arguments, env={"LOCAL_KEY": KEY}, catch_exceptions=False)
    return {names[int(record.test_id[4:])]: record for record in read_records(folder / "runs" / "r")}
