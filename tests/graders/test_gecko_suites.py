"""The Gecko suites: the suite for real models against a local server, and the offline suite."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeAPI, JudgeRequest
from gecko_script import judge
from typer.testing import CliRunner

from visioneval import Record, Verdict, read_info, read_records
from visioneval.analysis.summary.summary import summarize
from visioneval.cli import app
from visioneval.records.questions import read_questions

pytestmark = pytest.mark.slow

SUITES = Path(__file__).parents[2] / "suites"

WORD = re.compile(r"[A-Za-z]{3,}")


def run(path: Path, out: Path, *flags: str) -> tuple[int, Path, list[Record]]:
    done = CliRunner().invoke(app, ["run", str(path), "--runs", str(out), "--quiet", "--reuse", "none", *flags])
    assert out.is_dir(), done.output
    (folder,) = out.iterdir()
    return done.exit_code, folder, list(read_records(folder))


@pytest.fixture(params=["openai", "gemini"])
def images(request: Any, api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``gecko_images`` with the local server behind its models, and behind a judge of either provider."""
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    urls = {"openai": api.openai_base_url, "gemini": api.gemini_base_url}
    data = yaml.safe_load((SUITES / "gecko_images" / "suite.yaml").read_text(encoding="utf-8"))
    names = {"openai": "gpt-5.4", "gemini": "gemini-3.5-flash"}
    data["judges"]["default"] = {"provider": request.param, "model": names[request.param]}
    for entry in [*data["models"], *data["judges"].values()]:
        entry |= {"base_url": urls[entry["provider"]], "api_key_env": "LOCAL_KEY"}
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path


def test_every_claim_of_every_image_is_asked(images: Path, api: FakeAPI, tmp_path: Path) -> None:
    calls = {"made": 0, "checked": 0, "answered": 0}
    data = yaml.safe_load(images.read_text(encoding="utf-8"))
    shown = {word for case in data["cases"] if "output_of" not in case for word in WORD.findall(case["prompt"])}

    def answer_for(name: str, request: JudgeRequest) -> str:
        """Yes to the words of the image prompts, and to questions about a prompt."""
        (word,) = re.findall(rf"^{name}: Is there (\w+)\?", request.text, re.MULTILINE)
        return "a" if word in shown or not request.images else "b"

    inner = judge(answer_for)

    def answer(request: JudgeRequest) -> Any:
        kind = "answered" if request.images else "checked" if "## Description" in request.text else "made"
        calls[kind] += 1
        return inner(request)

    api.script.judge(answer)
    code, folder, records = run(images, tmp_path / "runs")
    assert code == 0
    assert len(records) == 32
    assert {record.verdict for record in records} == {Verdict.PASS}
    assert calls == {"made": 16, "checked": 16, "answered": 32}
    assert len(read_questions(folder)) == 16
    result = summarize(read_info(folder), records).questions["gecko"]
    assert result.generated == 16
    assert result.dropped == 12, "the script asks twice about a word that stands twice"
    assert 0.94 < (result.coverage or 0) < 0.95
    assert set(result.models) == {"gpt-image-2.5-flare", "gemini-nano-banana-2.1"}


def test_a_image_that_misses_claims_fails(images: Path, api: FakeAPI, tmp_path: Path) -> None:
    api.script.judge(judge(lambda name, request: "no" if request.images and name in ("q2", "q3", "q4") else "yes"))
    code, _, records = run(images, tmp_path / "runs", "--case", "teapots")
    assert code == 1
    assert {record.failed_rules for record in records} == {("gecko >= 0.8",)}
    assert all(0 < (record.scores["gecko"] or 0) < 0.8 for record in records)


def test_the_offline_suite_has_full_and_partial_scores(tmp_path: Path) -> None:
    code, folder, records = run(SUITES / "gecko_offline" / "suite.yaml", tmp_path / "runs")
    assert code == 0
    assert {(record.test_id, record.model_label.split("=")[1]): record.scores["gecko"] for record in records} == {
        ("market_poster", "none"): 1.0,
        ("ferry_ticket", "none"): 1.0,
        ("market_poster", "missing_line"): pytest.approx(6 / 7),
        ("ferry_ticket", "missing_line"): pytest.approx(5 / 6),
        ("market_poster", "blank"): 0.0,
        ("ferry_ticket", "blank"): pytest.approx(1 / 6),
    }
    assert {entry.source for entry in read_questions(folder)} == {"pinned"}
    assert all(record.graders[0].details["reply_shape"] == "recorded" for record in records)
