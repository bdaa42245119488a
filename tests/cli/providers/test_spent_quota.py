"""Spent quotas, which stop a command before its next call, and limits that a wait ends, of every provider's form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_runs import KEY, ApiRun, image_for, prompt
from fake_api import FakeAPI, Fault, GenerationRequest, JudgeRequest
from form_runs import judged
from panel_runs import ABC, CACHE
from suite_runner import LOOK, SuiteRunner
from typer.testing import CliRunner

from visioneval import read_info
from visioneval.cli import app

pytest_plugins = ("panel_fixtures",)

CELLS = 12
FIRST_SPENT = 6
"""From this cell on there is no quota."""
DAY, MINUTE = "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "GenerateRequestsPerMinutePerProjectPerModel"


def fault(status: int, body: Any, **headers: str) -> Fault:
    text = body if isinstance(body, str) else json.dumps(body)
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Fault("bad_request" if status < 429 else "rate_limit", status=status, body=text, headers=named)


def openai(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


def gemini(quota: str, delay: str) -> dict[str, Any]:
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    return {
        "error": {
            "code": 429,
            "message": "You exceeded your current quota.",
            "status": "RESOURCE_EXHAUSTED",
            "details": details,
        }
    }


SPENT = {  # of the forms of tests/providers/test_quota.py, one for each way in which an error reaches the engine
    "OpenAI's hard limit": ("openai", fault(400, openai("Billing hard limit has been reached", "billing_hard_limit_reached")),
                            "400: Billing hard limit has been reached (billing_hard_limit_reached)"),
    "status 200": ("openai", Fault("error_in_200", reason="quota"), "the reply is an error: You exceeded"),
    "Gemini's day": ("gemini", fault(429, gemini(DAY, "0.01s")), "429: You exceeded your current quota."),
    "Gemini without billing": (
        "gemini",
        fault(403, {"error": {"code": 403, "message": "No billing", "details": [{"reason": "BILLING_DISABLED"}]}}),
        "403: No billing",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")


def is_late(kind: type) -> Callable[[Any], bool]:
    late = [prompt(at) for at in range(FIRST_SPENT, CELLS)]
    return lambda asked: isinstance(asked, kind) and any(text in getattr(asked, "prompt", "") for text in late)


def check_stopped(result: Any, who: str, provider: str, words: str) -> None:
    """Checks for exit 3, one line about the quota, and one about how to resume."""
    assert result.exit_code == 3, result.output
    (line,) = [line for line in result.stderr.splitlines() if " is spent: " in line]
    assert line.startswith(f"{who}: the quota at {provider} is spent: {words}")
    assert line.endswith("; add credit or raise the limit there, then resume")
    assert "API key" not in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("form", SPENT)
def test_a_spent_quota_stops_the_run(form: str, tmp_path: Path, api: FakeAPI) -> None:
    provider, spent, words = SPENT[form]
    api_run = ApiRun(tmp_path, api, CELLS, provider)  # type: ignore[arg-type]
    api.faults.when(is_late(GenerationRequest), spent)
    result = api_run.run("--max-concurrency", "2", "--quiet")
    check_stopped(result, "m", provider, words)
    assert sum(entry.fault is not None for entry in api.requests) <= 2, "those in flight"
    assert 0 < len(api_run.records) <= FIRST_SPENT
    for record in api_run.records:
        api_run.check(record)
    info = read_info(api_run.run_folder)
    assert (info.state, info.stopped_by) == ("interrupted", "quota")
    assert "to resume: visioneval run --resume runs/r" in result.stderr
    assert "runs/r was stopped by a spent quota; to resume: " in CliRunner().invoke(app, ["show", "r"]).stderr
    api.faults.clear()
    assert api_run.run(resume=True).exit_code == 0
    api_run.check_complete()


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_a_judges_quota_stops_the_run_and_its_grading(provider: Any, tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, CELLS, provider)
    api.faults.when(lambda asked: isinstance(asked, JudgeRequest), Fault("quota"))
    check_stopped(api_run.run("--max-concurrency", "1", "--quiet"), "the judge 'eye'", provider, "429: You exceeded")
    assert api_run.records == []
    assert sum(isinstance(entry.asked, JudgeRequest) for entry in api.requests) == 1
    api.faults.clear()
    assert api_run.run(resume=True).exit_code == 0
    api.faults.when(lambda asked: isinstance(asked, JudgeRequest), Fault("quota"))
    asked = len(api.requests)
    grade = ["grade", "r", "--run-id", "g", "--cache", str(tmp_path / "c"), "--trust-suite", "--max-concurrency", "1"]
    result = CliRunner().invoke(app, grade, env={KEY: api.key})
    check_stopped(result, "the judge 'eye'", provider, "429: You exceeded")
    assert len(api.requests) == asked + 1
    assert read_info(tmp_path / "runs/g").stopped_by == "quota"


Panel = Callable[..., SuiteRunner]


@pytest.mark.parametrize("grader", [{**ABC, "quorum": 1}, {**ABC, "quorum": 2, "optional": True}])
def test_no_quorum_excuses_a_judge_whose_quota_is_spent(panel: Panel, grader: dict[str, Any]) -> None:
    runner = panel({"a": True, "b": Fault("quota"), "c": True}, "tree", "boat", "lamp", graders=[grader])
    result = runner.run("--max-concurrency", "1", *CACHE)
    check_stopped(result, "the judge 'b'", "openai", "429: You exceeded your current quota")
    assert (runner.records(), runner.info().stopped_by) == ({}, "quota")
    panel({"a": True, "b": True, "c": True}, "tree", "boat", "lamp", graders=[grader])
    assert runner("run", "--resume", runner.out / "r", *CACHE).exit_code == 0


def test_a_probe_stops(panel: Panel) -> None:
    runner = panel({"a": True}, "tree", "boat", graders=[{**LOOK, "judge": "a"}])
    assert runner.run().exit_code == 0
    panel({"a": Fault("quota")}, "tree", "boat", graders=[{**LOOK, "judge": "a"}])
    probe = ("probe", "r", "--runs", runner.out, "--judges", "--kinds", "pixels.blank", "--max-concurrency", "1")
    check_stopped(runner(*probe), "the judge 'a'", "openai", "429: You exceeded your current quota")
    assert len([entry for entry in runner.api.requests if entry.fault == "quota"]) == 1


def test_pairs_are_not_asked_about(panel: Panel) -> None:
    better = {"key": "better", "type": "pairwise", "judge": "a"}
    host = {"provider": "openai", "base_url": "", "api_key_env": "LOCAL_KEY", "params": {"model": "gpt-image-2"}}
    runner = panel({"a": Fault("quota")}, "tree", "boat")
    models = [{**host, "base_url": runner.api.openai_base_url, "label": label} for label in ("x", "y")]
    file = {"key": "file", "type": "properties"}
    numbers = iter(range(9))
    runner.api.script.generate(lambda asked: [image_for(f"image {next(numbers)}")])
    panel({"a": Fault("quota")}, "tree", "boat", graders=[file, better], models=models, verdict=["not file.blank"])
    result = runner.run("--max-concurrency", "1")
    check_stopped(result, "the judge 'a'", "openai", "429: You exceeded your current quota")
    assert len([entry for entry in runner.api.requests if entry.fault == "quota"]) == 1


@pytest.mark.parametrize(
    ("provider", "limit"),
    [
        ("gemini", fault(429, gemini(MINUTE, "0.02s"))),
        ("openai", fault(429, openai("Tokens per minute", "token_quota_exceeded"), x_ratelimit_reset_tokens="20ms")),
    ],
)  # fmt: skip
def test_a_limit_per_minute_is_no_quota(provider: Any, limit: Fault, tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, 3, provider)
    api.faults.queue(limit, limit)
    result = api_run.run("--max-concurrency", "1")
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert len(api.requests) == 3 + 3 + 2


ECHO = {"detail": [{"type": "string_too_long", "loc": ["body", "prompt"], "msg": "too long",
                    "input": "A shop sign that says: payment required. Available in 3 days"}]}  # fmt: skip


@pytest.mark.parametrize("provider", ["openai", "gemini"])
@pytest.mark.parametrize("status", [422, 503])
def test_a_prompt_that_an_error_repeats_ends_no_run_and_delays_no_call(
    provider: Any, status: int, tmp_path: Path, api: FakeAPI
) -> None:
    api_run = ApiRun(tmp_path, api, 3, provider)
    api.faults.queue(fault(status, ECHO))
    result = api_run.run("--max-concurrency", "1")
    assert result.exit_code == (3 if status == 422 else 0), result.output
    assert "is spent" not in result.output
    errors = [record.error.kind for record in api_run.records if record.error]
    assert (len(api_run.records), errors) == (3, ["invalid"] if status == 422 else [])


def test_a_failed_response_of_a_judge_stops_the_run_by_its_quota(
    tmp_path: Path, save_image: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"code": "insufficient_quota", "message": "You exceeded your current quota."}
    forms: dict[str, Any] = {
        "spent": (200, {"status": "failed", "error": failed, "output": []}),
        "image": (200, {"status": "failed", "error": {"code": "invalid_image", "message": "no"}, "output": []}),
    }
    for name, stopped_by in (("spent", "quota"), ("image", None)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        judged(folder, {name: forms[name]}, "responses", save_image)
        assert read_info(folder / "runs" / "r").stopped_by == stopped_by


LONG = {  # of the forms of tests/providers/test_retry_after.py
    "words": ("openai", fault(429, openai("Please try again in 11m40s."))),
    "status 200": ("openai", Fault("error_in_200", reason="rate_limit", headers=(("retry-after", "700"),))),
    "RetryInfo": ("gemini", fault(429, gemini(MINUTE, "700s"))),
}


@pytest.mark.parametrize("form", LONG)
@pytest.mark.parametrize("asked", [GenerationRequest, JudgeRequest])
def test_a_wait_reaches_the_limit_of_its_model_in_every_form(
    form: str, asked: type, tmp_path: Path, api: FakeAPI
) -> None:
    """A wait above 600 s ends the call at once, and no other call of the model is sent."""
    provider, limit = LONG[form]
    api_run = ApiRun(tmp_path, api, 3, provider)  # type: ignore[arg-type]
    api.faults.when(lambda request: isinstance(request, asked), limit)
    assert api_run.run("--max-concurrency", "1").exit_code == 3
    calls = [entry for entry in api.requests if isinstance(entry.asked, asked)]
    assert len(calls) == 1
    assert {record.verdict for record in api_run.records} == {"ERROR"}
    errors = [str(record.error and record.error.message) + str(record.graders) for record in api_run.records]
    assert sum("the provider asks for a wait of 700 s: resume the run after that" in text for text in errors) >= 1
