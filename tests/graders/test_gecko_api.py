"""Gecko whole, through the real SDKs of both providers, against a local server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeAPI, Fault, JudgeRequest
from gecko_script import asked_questions, generated_questions, judge
from typer.testing import CliRunner

from visioneval import Record, Verdict, read_info, read_records
from visioneval.analysis.summary.summary import summarize
from visioneval.cli import app
from visioneval.records.questions import read_questions

pytestmark = pytest.mark.slow

PROVIDERS = ("openai", "chat", "gemini")


@pytest.fixture
def suite(api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``suite(provider, cases, **grader)`` writes a suite with the mock provider and the server as judge."""
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)

    def write(provider: str, cases: list[dict[str, Any]], **grader: Any) -> Path:
        url = api.gemini_base_url if provider == "gemini" else api.openai_base_url
        model = "gemini-3.5-flash" if provider == "gemini" else "gpt-5.4"
        entry: dict[str, Any] = {"provider": provider if provider == "gemini" else "openai", "model": model}
        entry |= {"base_url": url, "api_key_env": "LOCAL_KEY", **({"api": "chat"} if provider == "chat" else {})}
        data = {
            "name": "claims",
            "judges": {"default": entry},
            "cases": cases,
            "models": [{"provider": "mock", "params": {"size": "64x64"}, "grid": {"seed": [1, 2]}}],
            "graders": [{"key": "gecko", "type": "gecko", **grader}],
            "verdict": ["gecko >= 0.8", "gecko.color >= 0.5"],
        }
        path = tmp_path / "suite.yaml"
        path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        return path

    return write


def run(path: Path, *flags: str) -> tuple[int, Path, list[Record]]:
    done = CliRunner().invoke(
        app, ["run", str(path), "--runs", str(path.parent / "runs"), "--quiet", "--reuse", "none", *flags]
    )
    assert (path.parent / "runs").is_dir(), done.output
    (folder,) = (path.parent / "runs").iterdir()
    return done.exit_code, folder, list(read_records(folder))


CASES = [{"id": "boat", "prompt": "red boat"}, {"id": "same", "prompt": "red boat"}, {"id": "plain", "prompt": "boat"}]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("mode", ["batch", "single"])
def test_a_run_generates_the_questions_of_a_prompt_once(provider: str, mode: str, api: FakeAPI, suite: Any) -> None:
    requests: list[JudgeRequest] = []
    inner = judge(lambda name, request: "yes")

    def answer(request: JudgeRequest) -> Any:
        requests.append(request)
        return inner(request)

    api.script.judge(answer)
    code, folder, records = run(suite(provider, CASES, mode=mode))
    assert code == 0
    assert {record.verdict for record in records} == {Verdict.PASS}
    making = [request for request in requests if not request.images]
    assert len(making) == 2, "two prompts, and six cells that share their questions"
    assert len(requests) - len(making) == (6 if mode == "batch" else 4 * 2 + 2)
    assert [entry.source for entry in read_questions(folder)] == ["generated"] * 2
    scores = {record.test_id: record.scores for record in records}
    assert scores["boat"] == {"gecko": 1.0, "gecko.object": 1.0, "gecko.color": 1.0}
    assert scores["plain"] == {"gecko": 1.0, "gecko.object": 1.0}
    plain = next(record for record in records if record.test_id == "plain")
    assert plain.skipped_rules == ("gecko.color >= 0.5",)
    info = read_info(folder)
    assert info.metrics["gecko.shape"].range == (0, 1)
    result = summarize(info, records).questions["gecko"]
    assert (result.prompts, result.generated, result.coverage, result.dropped) == (2, 2, 1.0, 0)


def test_a_wrong_answer_fails_and_names_the_claim(api: FakeAPI, suite: Any) -> None:
    api.script.judge(judge(lambda name, request: "b" if name == "q1" else "a) yes"))
    code, _, records = run(suite("openai", [{"id": "boat", "prompt": "red boat"}]))
    assert code == 1
    assert records[0].failed_rules == ("gecko >= 0.8", "gecko.color >= 0.5")
    assert records[0].reasons["gecko"].startswith("2 of 2 wrong: Is there red? no, not yes; Is there boat? yes, but")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_outage_during_question_generation_is_an_error_and_not_a_score(
    provider: str, api: FakeAPI, suite: Any
) -> None:
    api.script.judge(lambda request: Fault("bad_request"))
    code, folder, records = run(suite(provider, CASES[:1]))
    assert code == 3
    assert {record.verdict for record in records} == {Verdict.ERROR}
    assert all(set(record.scores.values()) == {None} for record in records)
    assert read_questions(folder) == ()


def test_a_resumed_run_reuses_its_questions(api: FakeAPI, suite: Any) -> None:
    api.script.judge(lambda request: Fault("bad_request") if request.images else generated_questions(request))
    path = suite("openai", CASES[:1])
    code, folder, _ = run(path)
    assert code == 3
    before = read_questions(folder)
    assert len(before) == 1
    requests: list[JudgeRequest] = []
    inner = judge(lambda name, request: "yes")

    def answer(request: JudgeRequest) -> Any:
        requests.append(request)
        return inner(request)

    api.script.judge(answer)
    out = str(path.parent / "runs")
    done = CliRunner().invoke(app, ["run", "--resume", folder.name, "--runs", out, "--quiet", "--reuse", "none"])
    assert done.exit_code == 0, done.output
    assert len(requests) == 2
    assert all(request.images for request in requests), "no question is made anew"
    assert read_questions(folder) == before


def test_malformed_questions_are_repaired(api: FakeAPI, suite: Any) -> None:
    def answer(request: JudgeRequest) -> Any:
        if asked_questions(request):
            return judge(lambda name, request: "YES")(request)
        text = json.dumps(generated_questions(request), indent=1)
        return f"Gladly!\n```json\n{text.replace(']', ',]')}\n```"

    api.script.judge(answer)
    code, _, records = run(suite("openai", CASES[:1]))
    assert code == 0
    assert records[0].graders[0].details["source"] == "generated"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("media", ["image", "video"])
def test_questions_are_written_for_review_and_pinning(
    provider: str, media: str, api: FakeAPI, suite: Any, tmp_path: Path
) -> None:
    api.script.judge(judge(lambda name, request: "b"))
    cases = [{"id": "boat", "prompt": "red grapes"}, {"id": "again", "prompt": "red grapes"}]
    path = suite(provider, cases, media=media)
    if media == "video":
        data = yaml.safe_load(path.read_text())
        data |= {"task": "video_generation", "models": [{"provider": "files", "path": "{case}.mp4"}]}
        path.write_text(yaml.safe_dump(data))
    made_file = tmp_path / "questions.yaml"
    done = CliRunner().invoke(app, ["questions", str(path), "-o", str(made_file)])
    if media == "video" and "no model of this suite does video_generation" in done.output:
        pytest.skip("nothing takes videos yet")
    assert done.exit_code == 0, done.output
    text = made_file.read_text()
    assert "# cases: boat, again\n# 100% of the prompt's items have a question\n- prompt: red grapes\n" in text
    types = [question["type"] for question in yaml.safe_load(text)[0]["questions"]]
    assert types == ["color", "object"]
    again = CliRunner().invoke(app, ["questions", str(path), "-o", str(made_file)])
    assert (again.exit_code, again.output) == (
        2,
        f"{made_file}: already exists and may contain edits; choose another file\n",
    )


def test_edited_questions_are_pinned(api: FakeAPI, suite: Any, tmp_path: Path) -> None:
    api.script.judge(judge(lambda name, request: "yes"))
    CliRunner().invoke(app, ["questions", str(suite("gemini", CASES)), "-o", str(tmp_path / "q.yaml")])
    text = (tmp_path / "q.yaml").read_text().replace("Is there red?", "Is the hull red?")
    (tmp_path / "q.yaml").write_text(text)
    code, folder, records = run(suite("gemini", CASES, questions="q.yaml"))
    assert code == 0
    assert {entry.source for entry in read_questions(folder)} == {"pinned"}
    details: Any = next(record for record in records if record.test_id == "boat").graders[0].details
    assert details["questions"][0]["question"] == "Is the hull red?"


def test_failed_question_generation_writes_the_others_and_sets_the_exit_code(
    api: FakeAPI, suite: Any, tmp_path: Path
) -> None:
    api.script.judge(lambda request: "no" if "## Your prompt\nboat" in request.text else generated_questions(request))
    done = CliRunner().invoke(app, ["questions", str(suite("openai", CASES))])
    assert done.exit_code == 3
    assert "- prompt: red boat\n" in done.stdout
    assert "plain: no questions: the judge generated no usable questions" in done.stderr


def test_a_suite_without_a_gecko_grader(toy: Any) -> None:
    done = toy("questions", toy.write(), "--trust-suite")
    assert (done.exit_code, done.output) == (2, "toy: no gecko grader applies to these cases\n")
