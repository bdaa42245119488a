"""The alignment autorater: its arithmetic, unusual answers, and two datasets side by side."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeAPI, JudgeRequest
from record_factory import generated_png
from scripted_judge import ScriptedJudge, context
from typer.testing import CliRunner

from visioneval import Grade, read_records
from visioneval.cli import app
from visioneval.graders.alignment import AlignmentGrader
from visioneval.graders.alignment.grader import Alignment, reply_problems

SUITES = Path(__file__).parents[3] / "suites"


def item(answer: Any, requirement: str = "a bun", **changes: Any) -> dict[str, Any]:
    output = {"requirement": requirement, "question": f"Is there {requirement}?", "analysis": "I looked."}
    return {**output, "answer": answer, "gap": "", **changes}


def reply(*answers: bool, score: Any = 50) -> dict[str, Any]:
    return {"requirements": [item(answer, f"thing {at}") for at, answer in enumerate(answers)], "score": score}


def grade(tmp_path: Path, judge: ScriptedJudge, case: dict[str, Any] | None = None, **options: Any) -> Grade:
    config = AlignmentGrader(key="fit", type="alignment", **options)
    return asyncio.run(Alignment(config).grade(context(tmp_path, judge, case)))


def test_the_judge_sees_the_prompt_and_the_image_and_no_model(tmp_path: Path) -> None:
    judge = ScriptedJudge(reply(True))
    grade(tmp_path, judge, {"prompt": "two buns on a plate"})
    (question,) = judge.questions
    assert "two buns on a plate" in judge.words()[0]
    assert "output: the image to judge" in judge.words()
    assert len(judge.images()) == 1
    assert question.schema is not None
    assert list(question.schema["properties"]) == ["requirements", "score"]


def test_a_reply_has_at_most_60_requirements() -> None:
    assert reply_problems(reply(*[True] * 60)) == []
    assert reply_problems(reply(*[True] * 61)) == ["there are 61 requirements, not 1 to 60"]


def aligned(request: JudgeRequest) -> dict[str, Any]:
    """Red images meet all requirements, others one of two."""
    red = request.images[0].data == generated_png("red")
    return reply(True, red, score=100 if red else 40)


def test_two_datasets_of_images_are_compared_on_the_same_prompts(
    api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.script.judge(aligned)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    prompts = ["A bun on a plate", "Two loaves"]
    for name, colour in (("baseline", "blue"), ("candidate", "red")):
        (tmp_path / f"{name}.png").write_bytes(generated_png(colour))
        rows = [{"image_uri": f"{name}.png", "prompt": prompt} for prompt in prompts]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"prompt": "prompt", "output": "image_uri"}
    judge = {"provider": "gemini", "model": "gemini-3.5-flash", "base_url": api.gemini_base_url}
    suite = {
        "name": "two",
        "judges": {"default": {**judge, "api_key_env": "LOCAL_KEY"}},
        "cases": [{"dataset": {"path": "baseline.jsonl", "fields": {"prompt": "prompt"}}}],
        "models": [
            {"provider": "files", "dataset": {"path": f"{name}.jsonl", "fields": fields}}
            for name in ("baseline", "candidate")
        ],
        "graders": [{"key": "alignment", "type": "alignment"}],
        "verdict": ["alignment >= 80"],
        "gates": [{"rule": "mean(alignment) >= 90", "models": ["candidate"]}],
    }
    (tmp_path / "suite.yaml").write_text(json.dumps(suite))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "suite.yaml"), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    records = list(read_records(folder))
    assert {(record.prompt, record.model_label) for record in records} == {
        (prompt, label) for prompt in prompts for label in ("baseline", "candidate")
    }
    summary = json.loads((folder / "summary.json").read_text())
    means = {model["label"]: model["metrics"]["alignment"]["value"] for model in summary["models"]}
    assert means == {"baseline": 50.0, "candidate": 100.0}
    (low,) = (r for r in records if (r.prompt, r.model_label) == (prompts[0], "baseline"))
    assert low.reasons == {"alignment": "Not shown: thing 1."}
    assert low.graders[0].details["judge_score"] == 40


@pytest.mark.parametrize(("strict", "code"), [(True, 0), (False, 1)])
def test_the_suite_detects_a_judge_that_approves_everything(
    strict: bool, code: int, api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = yaml.safe_load((SUITES / "alignment" / "suite.yaml").read_text(encoding="utf-8"))
    counter = [case["prompt"][:40] for case in data["cases"] if "output_of" in case]

    def judged(request: JudgeRequest) -> dict[str, Any]:
        fits = not strict or not any(prompt in request.text for prompt in counter)
        return reply(True, fits, fits)

    api.script.judge(judged)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    urls = {"openai": api.openai_base_url, "gemini": api.gemini_base_url}
    for entry in [*data["models"], *data["judges"].values()]:
        entry |= {"base_url": urls[entry["provider"]], "api_key_env": "LOCAL_KEY"}
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(data))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "suite.yaml"), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == code, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert (
        summary["counts"]["cells"],
        len([path for path in (folder / "artifacts").rglob("*") if path.is_file()]),
    ) == (24, 12)
    for single in summary["separations"]["alignment"].values():
        assert single["auroc"] == (1.0 if strict else 0.5)
        assert (single["aligned_n"], single["counter_n"]) == (6, 6)
