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

from visioneval import Grade, ProviderError, read_records
from visioneval.cli import app
from visioneval.graders.alignment import AlignmentGrader
from visioneval.graders.alignment.grader import Alignment, gaps_of, reply_problems, score_of

SUITES = Path(__file__).parents[3] / "suites"


def item(answer: Any, requirement: str = "a bun", **changes: Any) -> dict[str, Any]:
    output = {"requirement": requirement, "question": f"Is there {requirement}?", "analysis": "I looked."}
    return {**output, "answer": answer, "gap": "", **changes}


def reply(*answers: bool, score: Any = 50) -> dict[str, Any]:
    return {"requirements": [item(answer, f"thing {at}") for at, answer in enumerate(answers)], "score": score}


def grade(tmp_path: Path, judge: ScriptedJudge, case: dict[str, Any] | None = None, **options: Any) -> Grade:
    config = AlignmentGrader(key="fit", type="alignment", **options)
    return asyncio.run(Alignment(config).grade(context(tmp_path, judge, case)))


def test_score_is_computed_and_the_judge_score_is_recorded(tmp_path: Path) -> None:
    output = reply(True, True, False, score=90)
    output["requirements"].append(item(False, "snow", gap="No snow is to be seen."))
    result = grade(tmp_path, ScriptedJudge(output))
    assert result.scores == {"fit": 50.0}
    assert result.reasons == {"fit": "Not shown: thing 2. No snow is to be seen."}
    assert result.details["judge_score"] == 90
    assert result.details["gaps"] == ["Not shown: thing 2.", "No snow is to be seen."]
    assert [entry["answer"] for entry in result.details["requirements"]] == [True, True, False, False]
    assert (result.error, result.judge_model) == (None, "judge-1")


def test_requirements_have_equal_weight() -> None:
    assert score_of([item(True)]) == 100
    assert score_of([item(False), item(False)]) == 0
    assert score_of([item(True), item(True), item(False)]) == pytest.approx(66.6667, abs=1e-4)
    assert gaps_of([item(True, gap="but it is small")]) == []


def test_the_judge_sees_the_prompt_and_the_image_and_no_model(tmp_path: Path) -> None:
    judge = ScriptedJudge(reply(True))
    grade(tmp_path, judge, {"prompt": "two buns on a plate"})
    (question,) = judge.questions
    assert "two buns on a plate" in judge.words()[0]
    assert "output: the image to judge" in judge.words()
    assert len(judge.images()) == 1
    assert question.schema is not None
    assert list(question.schema["properties"]) == ["requirements", "score"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([], "the answer is not a JSON object"),
        ({"score": 1}, "the key 'requirements' is missing"),
        (reply(), "there are 0 requirements, not 1 to 60"),
        (reply(*[True] * 61), "there are 61 requirements, not 1 to 60"),
        ({"requirements": "all", "score": 1}, "requirements is not a list of objects"),
        ({"requirements": [1], "score": 1}, "requirements is not a list of objects"),
        ({"requirements": [item("true")], "score": 1}, "the answer of requirement 1 is not true or false"),
        ({"requirements": [item(True, question=" ")], "score": 1}, "requirement 1 has no question"),
        ({"requirements": [item(True), {"answer": True}], "score": 1}, "requirement 2 has no requirement"),
        ({"requirements": [item(True, gap=None)], "score": 1}, "the gap of requirement 1 is not text"),
    ],
)
def test_reports_an_invalid_answer(output: Any, message: str) -> None:
    assert message in reply_problems(output)


def test_invalid_answer_is_retried_once_then_null(tmp_path: Path) -> None:
    judge = ScriptedJudge("I like it", reply(True, False))
    result = grade(tmp_path, judge)
    assert result.scores == {"fit": 50.0}
    assert result.details["asked_again"] == 1
    assert "Your last answer could not be used" in judge.words(1)[-1]
    lost = grade(tmp_path, ScriptedJudge(reply()))
    assert lost.scores == {"fit": None}
    assert "there are 0 requirements" in str(lost.error)
    assert len(lost.details["replies"]) == 2


def test_judge_outage_gives_no_score(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="out"):
        grade(tmp_path, ScriptedJudge(ProviderError("out", kind="transient")))


def aligned(request: JudgeRequest) -> dict[str, Any]:
    """Red images meet all requirements, others one of two."""
    red = request.images[0].data == generated_png("red")
    return reply(True, red, score=100 if red else 40)


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_two_datasets_of_images_are_compared_on_the_same_prompts(
    provider: str, api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    url = api.openai_base_url if provider == "openai" else api.gemini_base_url
    judge = {
        "provider": provider,
        "model": {"openai": "gpt-5.4", "gemini": "gemini-3.5-flash"}[provider],
        "base_url": url,
        "api_key_env": "LOCAL_KEY",
    }
    suite = {
        "name": "two",
        "judges": {"default": judge},
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
