"""The video suite, with small generated videos, through the real SDKs against a local server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from clips import clip
from fake_api import FakeAPI, JudgeRequest
from gecko_script import judge
from typer.testing import CliRunner

from visioneval.cli import app

SUITES = Path(__file__).parents[3] / "suites"

NAMES = {"openai": "gpt-5.4", "gemini": "gemini-3.5-flash"}


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "strict", "code"), [("openai", True, 0), ("gemini", False, 1)])
def test_counter_examples_must_score_lower(
    provider: str, strict: bool, code: int, api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = yaml.safe_load((SUITES / "gecko_videos" / "suite.yaml").read_text(encoding="utf-8"))
    matches = [case for case in data["cases"] if "output_of" not in case]
    seen = {word for case in matches for word in re.findall(r"[A-Za-z]{3,}", case["prompt"])}
    shown: list[int] = []

    def answer_for(name: str, request: JudgeRequest) -> str:
        """The right choice, except for a word that is in no video prompt."""
        shown.append(len(request.images))
        (word,) = re.findall(rf"^{name}: What about (\w+)\?", request.text, re.MULTILINE)
        return "b" if word in seen or not strict else "e"

    api.script.judge(judge(answer_for))
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    for number, case in enumerate(matches):
        clip(tmp_path / "videos" / f"{case['id']}.mp4", ["red", "blue"][number % 2 :], seconds_each=1)
    url = {"openai": api.openai_base_url, "gemini": api.gemini_base_url}[provider]
    data["judges"]["default"] = {
        "provider": provider, "model": NAMES[provider], "base_url": url, "api_key_env": "LOCAL_KEY"
    }  # fmt: skip
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(data))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "suite.yaml"), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == code, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    result = summary["separations"]["gecko"]["mine"]
    assert (result["aligned"], result["aligned_n"], result["counter_n"]) == (1.0, 5, 5)
    assert result["auroc"] == (1.0 if strict else 0.5)
    assert set(shown) == {8 if provider == "openai" else 1}
