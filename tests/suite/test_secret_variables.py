"""The value of a secret variable (--var) is sent in prompts, but appears in no file, log, report or cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, Script
from fake_api import JudgeRequest as Judged
from toys import Toy

pytestmark = pytest.mark.slow

VALUE = "hunter-2-of-the-team"
FROM_ENVIRONMENT = "a-key-of-the-environment"
RESUME_HINT = "a run does not store the values of secret variables: add --var api_token=VALUE"


@pytest.fixture(autouse=True)
def _around(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    monkeypatch.setenv("TEAM_SECRET", FROM_ENVIRONMENT)


def suite(toy: Toy, api: FakeAPI, **changes: Any) -> Path:
    """A suite whose prompts and criteria show secrets, generated and judged over HTTP."""
    entry = {"provider": "openai", "base_url": api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    text = {
        "name": "s",
        "vars": {"api_token": "none", "who": "nobody", "pin_password": "none"},
        "judges": {"default": {**entry, "model": "gpt-5.4-mini"}},
        "cases": [
            {"id": "one", "prompt": "A bun for {{ api_token }} and {{ who }}.", "criteria": "It says {{ api_token }}"},
            {"id": "two", "prompt": "A loaf.", "criteria": "{{ pin_password }}"},
        ],
        "models": [{**entry, "params": {"model": "gpt-image-2"}}],
        "graders": [
            {"key": "look", "type": "rubric", "metrics": {"good": {"type": "pass_fail", "description": "All of it."}}}
        ],
        "verdict": ["good"],
        "gates": ["error_rate <= 1", "pass_rate >= 0"],
    }
    path = toy.folder / "s.yaml"
    path.write_text(json.dumps({**text, **changes}))
    return path


VARS = ("--var", f"api_token={VALUE}", "--var", f"who={FROM_ENVIRONMENT}", "--var=pin_password=s3cr")


def run(toy: Toy, api: FakeAPI, *arguments: str) -> Any:
    return toy("run", suite(toy, api), "--run-id", "r", "--log-file", "calls.jsonl", *VARS, *arguments)


def holders(folder: Path, *secrets: str) -> list[Path]:
    """The files that contain a secret."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]


def test_secret_values_appear_in_no_file_or_output(toy: Toy, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["visioneval", "run", "s.yaml", *VARS])
    result = run(toy, api, "--debug", "--cache", "kept", "--junit", "j.xml", "--markdown", "m.md", "--note", VALUE)
    assert result.exit_code == 0, result.output
    sent = json.dumps([request.body for request in api.requests], default=str)
    assert f"A bun for {VALUE} and {FROM_ENVIRONMENT}." in sent
    output = result.output
    for arguments in (["show", "r"], ["show", "r", "one"], ["report", "r"], ["report", "r", "--single-file"],
                  ["export", "r"], ["compare", "r", "r", "--html", "c.html"], ["runs"],
                  ["baseline", "set", "r"]):  # fmt: skip
        message = toy(*arguments)
        assert message.exit_code == 0, message.output
        output += message.output
    assert holders(toy.folder, VALUE, FROM_ENVIRONMENT, "pin_password=s3cr", '"s3cr"') == []
    assert VALUE not in output
    assert FROM_ENVIRONMENT not in output
    info = toy.info
    assert info.hidden_vars == ("api_token", "who", "pin_password")
    assert info.suite.vars == {"api_token": "***", "who": "***", "pin_password": "***"}
    assert {"api_token=***", "who=***", "--var=pin_password=***"} < set(info.command_line)
    assert toy.records["one"].prompt == "A bun for *** and ***."


def test_answer_with_secret_is_neither_cached_nor_recorded(toy: Toy, api: FakeAPI, script: Script) -> None:
    questions = {
        "keywords": f"A {{1}}[bun] for {VALUE}",
        "questions": [{"id": "q1", "question": f"Does it say {VALUE}?", "choices": ["yes", "no"], "answer": "yes"}],
    }
    script.judge(lambda request: json.dumps(questions) if isinstance(request, Judged) else None)
    path = suite(toy, api, graders=[{"key": "gecko", "type": "gecko"}], verdict=["gecko >= 0"])
    toy("run", path, "--run-id", "r", "--cache", "kept", *VARS)
    assert VALUE in json.dumps([request.body for request in api.requests], default=str)
    assert holders(toy.folder, VALUE) == []


def test_resume_requests_secret_values_and_generates_nothing(toy: Toy, api: FakeAPI) -> None:
    assert run(toy, api).exit_code == 0
    paid = len(api.requests)
    missing = toy("run", "--resume", "r", "--var", f"who={FROM_ENVIRONMENT}", "--var", "pin_password=s3cr")
    assert (missing.exit_code, RESUME_HINT in missing.stderr) == (2, True), missing.output
    named = toy("run", "s.yaml", "--resume", "r", "--var", f"who={FROM_ENVIRONMENT}", "--var", "pin_password=s3cr")
    assert (named.exit_code, RESUME_HINT in named.stderr) == (2, True), named.output
    starred = toy("run", "--resume", "r", *VARS[:2], "--var", "who=***", "--var", "pin_password=s3cr")
    assert starred.exit_code == 2
    assert "--var who: *** is a placeholder for a secret" in starred.stderr
    for arguments in ([], ["s.yaml"]):
        again = toy("run", *arguments, "--resume", "r", *VARS)
        assert (again.exit_code, "to generate: 0; to grade again: 0; unchanged: 2" in again.stderr) == (0, True), (
            again.output
        )
    assert len(api.requests) == paid
    other = toy("run", "--resume", "r", *VARS[2:], "--var", "api_token=another-value")
    assert "to generate: 1 (1 prompt changed)" in other.stderr, other.output
    assert holders(toy.folder, VALUE, FROM_ENVIRONMENT, "another-value") == []
    judge = toy("run", "--resume", "r", *VARS, "--judge", "default=gemini:m")
    assert (judge.exit_code, "name the suite as well as --resume" in judge.stderr) == (2, True)


def test_grade_and_pairwise_ask_for_secret_values(toy: Toy, api: FakeAPI) -> None:
    assert run(toy, api).exit_code == 0
    for arguments in (["grade", "r"], ["grade", "r", "--suite", "s.yaml"], ["pairwise", "r", "r"]):
        missing = toy(*arguments)
        assert missing.exit_code == 2, missing.output
        assert "add --var api_token=VALUE --var who=VALUE --var pin_password=VALUE" in missing.stderr
    before = len(api.requests)
    graded = toy("grade", "r", "--run-id", "g", "--reuse", "none", *VARS)
    assert graded.exit_code == 0, graded.output
    assert "another prompt" not in graded.stderr
    sent = json.dumps([request.body for request in api.requests[before:]], default=str)
    assert f"A bun for {VALUE} and {FROM_ENVIRONMENT}." in sent
    assert holders(toy.folder, VALUE, FROM_ENVIRONMENT) == []
    single = toy("pairwise", "r", "r", *VARS)
    assert "the same run" in single.stderr, single.output


def test_resume_command_names_secrets_without_values(toy: Toy, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["visioneval", "run", "s.yaml", *VARS])
    prices = {"gpt-image-2": {"per_image": 1}, "gpt-5.4-mini": {"per_call": 1}}
    path = suite(toy, api, prices=prices)
    result = toy("run", path, "--run-id", "r", *VARS, "--budget", "1", "--max-concurrency", "1")
    assert "to resume: visioneval run --resume runs/r" in result.stderr, result.output
    for name in ("api_token", "who", "pin_password"):
        assert f"--var '{name}=***'" in result.stderr
        assert f"--var '{name}=***'" in toy("show", "r").stderr
    assert VALUE not in result.output


def test_ordinary_variable_is_recorded(toy: Toy, api: FakeAPI) -> None:
    result = toy("run", suite(toy, api), "--run-id", "r", "--var", "who=Ann")
    assert result.exit_code == 0, result.output
    assert toy.info.hidden_vars == ()
    assert toy.info.suite.vars == {"api_token": "none", "who": "Ann", "pin_password": "none"}
    assert toy("run", "--resume", "r").exit_code == 0
    refused = toy("run", "--resume", "r", "--var", "who=Bob")
    assert (refused.exit_code, "name the suite as well as --resume" in refused.stderr) == (2, True)


def test_var_and_judge_flags_combine_on_stored_suite(toy: Toy, api: FakeAPI) -> None:
    assert toy("run", suite(toy, api), "--run-id", "r").exit_code == 0
    assert toy("grade", "r", "--run-id", "g", "--var", "who=Ann").exit_code == 0
    assert toy.info.suite.judges.keys() == {"default"}
    toy("grade", "r", "--run-id", "h", "--judge", "default=openai:m", "--offline")
    assert toy.info.suite.vars == {"api_token": "none", "who": "nobody", "pin_password": "none"}


def test_a_secret_that_is_too_short_to_hide_is_refused(toy: Toy, api: FakeAPI) -> None:
    result = toy("run", suite(toy, api), "--var", "api_token=abc")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "--var api_token: a secret value needs at least 4 characters to be hidden\n"
    assert api.requests == []
