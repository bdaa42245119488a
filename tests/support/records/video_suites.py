"""Suites that generate videos with the local server: Veo on Vertex AI, Gemini Omni, and a server with /v1/videos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fake_api import FakeAPI
from PIL import Image
from suite_runner import SuiteRunner

from visioneval import Record

KINDS = ("veo", "omni", "videos")
MODELS = {"veo": "veo-3.1-lite-generate-001", "omni": "gemini-omni-1.2-flash", "videos": "wan2.2-t2v"}
JUDGE = "gemini-3.5-flash"
PRICE = {"per_second": 0.5}


def entry(api: FakeAPI, kind: str, **changes: Any) -> dict[str, Any]:
    model = {"provider": "gemini", "label": "m", "params": {"model": MODELS[kind]}}
    if kind == "veo":
        model["google"] = {"project": "shop", "location": "us-central1"}
    else:
        url = api.gemini_base_url if kind == "omni" else api.openai_base_url
        model |= {"base_url": url, "api_key_env": "LOCAL_KEY"}
    if kind == "videos":
        model |= {"provider": "openai", "api": "videos"}
    params = {**model["params"], **changes.pop("params", {})}
    return {**model, **changes, "params": params}


def write(runner: SuiteRunner, *models: dict[str, Any], **changes: Any) -> Path:
    """A suite of one video of a fox, which a free judge watches."""
    judge = {"provider": "gemini", "model": JUDGE, "base_url": runner.api.gemini_base_url, "api_key_env": "LOCAL_KEY"}
    suite = {
        "task": "video_generation",
        "cases": [{"id": "fox", "prompt": "A fox runs"}],
        "models": list(models),
        "judges": {"default": judge},
        **changes,
        "prices": {JUDGE: {"per_call": 0.0}, **changes.get("prices", {})},
    }
    return runner.write(**suite)


def run(runner: SuiteRunner, *arguments: str, code: int = 0, run_id: str = "r") -> dict[tuple[str, int], Record]:
    result = runner.run("--trust-suite", *arguments, run_id=run_id)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return runner.records(run_id)


def resume(runner: SuiteRunner, *arguments: str, code: int = 0) -> Record:
    result = runner(
        "run",
        runner.folder / "suite.yaml",
        "--resume",
        runner.out / "r",
        "--runs",
        runner.out,
        "--trust-suite",
        *arguments,
    )
    assert result.exit_code == code, result.output
    return runner.records()["fox", 0]


def failed(runner: SuiteRunner, *arguments: str, code: int = 3) -> str:
    """The error of the only cell, as ``kind: message``."""
    record = run(runner, *arguments, code=code)["fox", 0]
    assert record.error is not None
    assert "\n" not in record.error.message
    return f"{record.error.kind}: {record.error.message}"


def report_text(runner: SuiteRunner) -> str:
    return "".join(path.read_text() for path in (runner.folder / "report").rglob("*.html"))


def image(runner: SuiteRunner, role: str, color: str | None = None) -> Path:
    path = runner.folder / f"{role}.png"
    if color is not None or not path.exists():
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (16, 16), color or "red").save(path)
    return path


def case_with(runner: SuiteRunner, *roles: str) -> dict[str, Any]:
    images = [{"path": image(runner, role).name, "role": role} for role in roles]
    return {"id": "fox", "prompt": "A fox runs", "images": images}
