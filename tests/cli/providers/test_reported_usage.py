"""Numbers that a server reports: an impossible one is unknown, costs what was reserved, and passes no gate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI
from paid_answers import OPENAI_IMAGE, TEXT, Answers, PaidRun, answering, gemini, openai, part
from typer.testing import CliRunner, Result

from visioneval import Record, read_records
from visioneval.cli import app
from visioneval.running.calls.cache_files import decoded

SUITE = """\
name: posters
samples: {samples}
cases: [{{id: tree, prompt: a tree}}]
models:
  - {{provider: openai, base_url: "{url}", api_key_env: LOCAL_KEY, params: {{model: gpt-image-2, quality: low}}}}
prices: {{gpt-image-2: {{input_per_million: 5, output_per_million: 40}}}}
graders: [{{key: image, type: properties}}]
verdict: [not image.blank]
gates: [mean(cost_usd) <= 0.1]
"""
VALID = {"input_tokens": 100, "output_tokens": 500}
IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "negative": {**VALID, "output_tokens": -1_000_000},
    "negative detail": {**VALID, "input_tokens_details": {"cached_tokens": -90}},
    "not finite": {**VALID, "output_tokens": 1e308},
    "more than any model has": {**VALID, "output_tokens": 10_000_001},
    "boolean": {**VALID, "output_tokens": True},
    "text": {**VALID, "output_tokens": "500"},
    "fraction": {**VALID, "output_tokens": 500.5},
    "detail above its total": {**VALID, "output_tokens_details": {"image_tokens": 501}},
    "details above their total": {**VALID, "input_tokens_details": {"image_tokens": 60, "text_tokens": 60}},
    "list": {**VALID, "output_tokens": [500]},
    "null": {**VALID, "output_tokens": None},
    "zero": {**VALID, "output_tokens": 0},
    "left out": {"input_tokens": 100},
}


@pytest.fixture(autouse=True)
def _around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: FakeAPI) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)


def run(api: FakeAPI, text: str, *options: str, samples: int = 1) -> Result:
    url = api.gemini_base_url if "gemini" in text else api.openai_base_url
    Path("suite.yaml").write_text(text.format(url=url, samples=samples))
    return CliRunner().invoke(app, ["run", "suite.yaml", "--run-id", "r", *options], catch_exceptions=False)


def records() -> list[Record]:
    return list(read_records(Path("runs/r")))


def report(monkeypatch: pytest.MonkeyPatch, module: str, usage: dict[str, Any]) -> None:
    """Makes the fake server report ``usage`` with every answer of an endpoint."""
    monkeypatch.setattr(f"fake_api.{module}._usage", lambda *_: usage)


def test_a_possible_usage_is_priced(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    report(monkeypatch, "openai_images", {**VALID, "output_tokens": 1000, "total_time": 0.5, "is_free": False})
    done = run(api, SUITE)
    assert done.exit_code == 0, done.output
    (record,) = records()
    assert (record.usage, record.cost_usd) == ({**VALID, "output_tokens": 1000}, pytest.approx(0.0405))


@pytest.fixture
def answers() -> Iterator[Answers]:
    with answering() as server:
        yield server


def forms(answers: Answers) -> list[dict[str, str]]:
    """A case for each impossible usage, which is that of its image."""
    return answers.send_each({name: openai(OPENAI_IMAGE, usage=usage) for name, usage in IMPOSSIBLE.items()})


def test_an_impossible_usage_of_an_image_is_an_unknown_cost_that_passes_no_gate(answers: Answers) -> None:
    run = PaidRun(answers, cases=forms(answers), gates=["mean(cost_usd) <= 0.1"])
    done = run()
    assert done.exit_code == 3, done.output
    costs = dict(zip(IMPOSSIBLE, (record.cost_usd for record in run.records()), strict=True))
    assert costs == dict.fromkeys(IMPOSSIBLE)
    assert {str(record.verdict) for record in run.records()} == {"PASS"}


def test_calls_with_an_impossible_usage_count_what_was_reserved(answers: Answers) -> None:
    """One image of low quality reserves between 0.0255 and 0.026 USD, of which 512 output tokens are 0.02."""
    run = PaidRun(answers, params={"quality": "low"}, cases=forms(answers), samples=2)
    done = run("--budget", "0.345", "--max-concurrency", "1")
    assert done.exit_code == 3, done.output
    assert run.calls == len(IMPOSSIBLE), "one of each"
    assert "the budget of 0.345 USD is used up" in done.output


@pytest.mark.parametrize(
    ("changes", "usage", "cost"),
    [
        ({}, VALID, 0.0205),
        ({"usage": {**VALID, "output_tokens": -500}, "cost_usd": -5.0}, None, None),
        ({"usage": "many", "cost_usd": "nothing"}, None, None),
    ],
)
def test_a_resumed_run_believes_no_impossible_cost_of_the_cache(
    api: FakeAPI,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    usage: dict[str, int] | None,
    cost: float | None,
) -> None:
    """Such as one of a version that believed its server, or of a stranger."""
    report(monkeypatch, "openai_images", VALID)
    assert run(api, SUITE, "--cache", "cache").exit_code == 0
    Path("runs/r/results.jsonl").write_text("")
    (path,) = (path for path in Path("cache/answers").rglob("*.json") if b'"generate"' in path.read_bytes())
    entry = decoded(path.relative_to("cache").as_posix(), path.read_bytes())
    name, data = entry.model_copy(update={"answer": {**entry.answer, **changes}}).encoded()
    path.unlink()
    Path("cache", name).write_bytes(data)
    calls = len(api.requests)
    done = CliRunner().invoke(app, ["run", "--resume", "r", "--cache", "cache"], catch_exceptions=False)
    assert (done.exit_code, len(api.requests)) == (3 if cost is None else 0, calls), done.output
    (record,) = records()
    assert (record.usage, record.cost_usd) == (usage, cost)


def test_an_impossible_usage_of_a_gemini_image_passes_no_gate(answers: Answers) -> None:
    """The SDK would read no reply with a count that is no whole number of 64 bits, and take true for 1."""
    is_unknown = {500: False, -500: True, 1_000_001: False, 10_000_001: True, 1e308: True, True: True}
    usages = ({"promptTokenCount": 9, "candidatesTokenCount": count} for count in is_unknown)
    bodies = {
        f"count {count}": gemini(part(TEXT), usageMetadata=usage)
        for count, usage in zip(is_unknown, usages, strict=True)
    }
    run = PaidRun(answers, "gemini", cases=answers.send_each(bodies), gates=["mean(cost_usd) <= 50"])
    assert run().exit_code == 3
    assert {str(record.verdict) for record in run.records()} == {"PASS"}
    assert [record.cost_usd is None for record in run.records()] == list(is_unknown.values())


JUDGED = """\
name: posters
cases: [{{id: tree, prompt: a tree}}]
models: [{{provider: mock, params: {{size: 64x64}}}}]
judges: {{default: {{{judge}, base_url: "{url}", api_key_env: LOCAL_KEY}}}}
prices: {{{name}: {{input_per_million: 5, output_per_million: 40}}}}
graders: [{{key: look, type: rubric, metrics: {{good: {{type: pass_fail, description: good?}}}}}}]
verdict: [good]
"""
RESPONSES = JUDGED.replace("{judge}", "provider: openai, model: gpt-5.4").replace("{name}", "gpt-5.4")
CHAT = RESPONSES.replace("model: gpt-5.4", "model: gpt-5.4, api: chat")
GEMINI = JUDGED.replace("{judge}", "provider: gemini, model: gemini-3.5-flash").replace("{name}", "gemini-3.5-flash")
JUDGES = {
    "responses": (RESPONSES, "openai_responses._usage", lambda count: {"input_tokens": 9, "output_tokens": count}),
    "chat": (CHAT, "openai_chat.judge_usage", lambda count: (9, count, 0)),
    "gemini": (GEMINI, "gemini_wire._usage", lambda count: {"promptTokenCount": 9, "candidatesTokenCount": count}),
}


@pytest.mark.parametrize("way", JUDGES)
@pytest.mark.parametrize(("count", "cost"), [(50, 9 * 5e-6 + 50 * 40e-6), (-50, None)])
def test_an_impossible_usage_of_a_judge_is_an_unknown_cost(
    api: FakeAPI, monkeypatch: pytest.MonkeyPatch, way: str, count: int, cost: float | None
) -> None:
    suite, function, usage = JUDGES[way]
    monkeypatch.setattr(f"fake_api.{function}", lambda *_, **__: usage(count))
    done = run(api, suite)
    assert done.exit_code == 0, done.output
    (record,) = records()
    (grader,) = record.graders
    assert record.verdict == "PASS"
    assert grader.cost_usd == (None if cost is None else pytest.approx(cost))
    assert (grader.usage is None) == (cost is None)
    assert json.loads(Path("runs/r/summary.json").read_text())["unpriced"] == (cost is None)


@pytest.mark.parametrize(("count", "code"), [(50, 0), (-50, 3)])
def test_a_judge_with_an_impossible_usage_spends_what_was_reserved(
    api: FakeAPI, monkeypatch: pytest.MonkeyPatch, count: int, code: int
) -> None:
    """With at most 1,000 output tokens, one answer reserves 0.04 USD and its question."""
    report(monkeypatch, "openai_responses", {"input_tokens": 9, "output_tokens": count})
    suite = RESPONSES.replace("model: gpt-5.4,", "model: gpt-5.4, params: {{max_output_tokens: 1000}},")
    many = suite.replace("type: rubric,", "type: rubric, votes: 15,")
    done = run(api, many, "--budget", "0.5")
    assert done.exit_code == code, done.output
    assert ("the budget of 0.5 USD is used up" in done.output) == (code == 3)
