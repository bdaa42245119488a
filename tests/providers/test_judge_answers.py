"""Whole answers of judges in every form: what is unambiguous is read, the rest is asked for once more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import paid_answers
import pytest
from paid_answers import Answers, PaidRun

pytestmark = pytest.mark.slow

GOOD = json.dumps({"reason": "caf?", "good": True, "verdict": "PASS"})
MODELS = {"openai": "gpt-5.4", "gemini": "gemini-3.5-flash"}
LONG = "7" * 5000


@pytest.fixture(autouse=True)
def _around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", "sk-judge-0123456789")


@pytest.fixture
def answers() -> Iterator[Answers]:
    with paid_answers.answering() as server:
        yield server


def judged(answers: Answers, forms: Mapping[str, Any], provider: str = "openai", **suite: Any) -> PaidRun:
    """A suite whose only calls are those of a judge, which answers the question about each case with a form."""
    run = PaidRun(answers, provider)
    (model,) = json.loads(Path("suite.yaml").read_text())["models"]
    host = {name: model[name] for name in ("provider", "base_url", "api_key_env")}
    judge = {**host, "model": MODELS[provider], **({"api": "chat"} if provider == "openai" else {})}
    metrics = {"good": {"type": "pass_fail", "description": "good?"}}
    run.write(
        models=[{"provider": "mock", "params": {"size": "64x64"}}],
        judges={"default": judge},
        cases=answers.send_each(forms),
        graders=[{"key": "look", "type": "rubric", "judge": "default", "metrics": metrics}],
        verdict=["good"],
        prices={},
        **suite,
    )
    return run


def check_read(answers: Answers, forms: Mapping[str, Any], provider: str = "openai") -> PaidRun:
    """Checks that each answer is read after one call, and that nothing is asked again."""
    run = judged(answers, forms, provider)
    done = run()
    assert (done.exit_code, run.calls) == (0, len(forms)), done.output
    read = {form: (record.verdict, record.graders[0].error) for form, record in zip(forms, run.records(), strict=True)}
    assert read == dict.fromkeys(forms, ("PASS", None))
    assert (run.resume().exit_code, run.calls) == (0, len(forms))
    return run


def chat(content: Any = GOOD, **more: Any) -> dict[str, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": content}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage, **more}


def gemini(**more: Any) -> dict[str, Any]:
    """An answer of ``generateContent``."""
    content = {"role": "model", "parts": [{"text": GOOD}]}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5}
    return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage, **more}


def candidate(**more: Any) -> dict[str, Any]:
    return gemini(candidates=[{**gemini()["candidates"][0], **more}])


def raw(answer: Any, more: bytes) -> bytes:
    """An answer with another field, as bytes."""
    return json.dumps(answer).encode()[:-1] + b', "x": ' + more + b"}"


OPENAI: dict[str, Any] = {
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(chat()).encode(),
    "NaN": raw(chat(), b"NaN"),
    "-Infinity": raw(chat(), b"-Infinity"),
    "long number": raw(chat(), LONG.encode()),
    "byte of Latin-1": json.dumps(chat()).encode().replace(b"caf?", b"caf\xe9"),
    "line break in a text": raw(chat(), b'"a\nb"'),
    "choice without a list": chat(choices=chat()["choices"][0]),
    "choice with a text": chat(choices=[{"text": GOOD, "finish_reason": "stop"}]),
    "error beside the answer": chat(error={"code": "server_error", "message": "late"}),
    "one answer in a list": [chat()],
    "part without a type": chat([{"text": GOOD}]),
    "part without a list": chat({"text": GOOD}),
    "type in capitals": chat([{"type": "Text", "text": GOOD}]),
    "part with content": chat([{"type": "text", "content": GOOD}]),
    "part with a value": chat([{"text": {"value": GOOD, "annotations": []}}]),
    "two parts": chat([{"text": GOOD[:9]}, {"text": GOOD[9:]}]),
    "thoughts before it": chat([{"type": "thinking", "text": '{"good": false}'}, {"type": "text", "text": GOOD}]),
    "answer that is no text": chat(json.loads(GOOD)),
    "JSON declared as text": (chat(), "text/plain"),
}
GEMINI: dict[str, Any] = {
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(gemini()).encode(),
    "one answer in a list": [gemini()],
    "half a token": gemini(usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 5.5}),
    "counts that are a list": gemini(usageMetadata=[1]),
    "text for a number": candidate(avgLogprobs="low"),
    "unknown field": candidate(mood={"good": 1}),
    "part that is null": candidate(content={"parts": [None, {"text": GOOD}]}),
    "long number": raw(gemini(), LONG.encode()),
    "long count": json.dumps(gemini()).replace('"promptTokenCount": 10', f'"promptTokenCount": {LONG}'),
    "byte of Latin-1": raw(gemini(), b'"caf\xe9"'),
    "error beside the answer": gemini(error={"code": 500, "message": "late"}),
}


@pytest.mark.parametrize(("provider", "forms"), [("openai", OPENAI), ("gemini", GEMINI)])
def test_a_whole_answer_is_read(answers: Answers, provider: str, forms: Mapping[str, Any]) -> None:
    check_read(answers, forms, provider)


@pytest.mark.parametrize(("provider", "name"), [("openai", "completion_tokens"), ("gemini", "candidatesTokenCount")])
def test_one_impossible_count_makes_the_usage_unknown(answers: Answers, provider: str, name: str) -> None:
    whole = json.dumps(chat() if provider == "openai" else gemini())
    values = {"NaN": "NaN", "huge": "1e999", "long": LONG, "half": "5.5", "negative": "-1"}
    forms = {form: whole.replace(f'"{name}": 5', f'"{name}": {value}') for form, value in values.items()}
    run = check_read(answers, forms, provider)
    assert [record.graders[0].usage or None for record in run.records()] == [None] * len(values)


UNREADABLE: list[tuple[str, Any, str]] = [
    ("openai", json.dumps(chat())[:-2], "the answer could not be read: Expecting"),
    ("openai", chat(choices=[]), "the answer has no choices"),
    ("openai", chat(choices=[7]), "the answer could not be read: AttributeError"),
    ("openai", chat(choices={"0": {}}), "the answer has no message"),
    ("openai", chat([{"type": "thinking", "text": GOOD}]), "the answer was empty"),
    ("openai", chat([{"text": {"value": None}}]), "the answer was empty"),
    ("openai", chat('{"good": true'), "the JSON is incomplete"),
    ("gemini", json.dumps(gemini())[:-2], "the answer is not JSON: Expecting"),
    ("gemini", gemini(candidates=[]), "the answer has no candidates"),
    ("gemini", [gemini(), gemini()], "the answer could not be read"),
    ("gemini", candidate(content="good"), "the answer was empty"),
    ("gemini", candidate(finishReason=99), "the answer could not be read"),
]


@pytest.mark.parametrize("provider", MODELS)
def test_a_whole_answer_that_cannot_be_read_is_asked_for_once_more(answers: Answers, provider: str) -> None:
    """Which leaves no score, and again as often when the run is resumed."""
    problems = {str(at): problem for at, (by, _, problem) in enumerate(UNREADABLE) if by == provider}
    run = judged(answers, {at: UNREADABLE[int(at)][1] for at in problems}, provider)
    done, count = run(), len(problems)
    assert (done.exit_code, run.calls) == (3, 2 * count), done.output
    for problem, record in zip(problems.values(), run.records(), strict=True):
        assert (record.verdict, record.scores.get("good")) == ("ERROR", None), problem
        assert problem in str(record.graders[0].error)
    assert (run.resume("--offline").exit_code, run.calls) == (3, 2 * count)
    assert (run.resume().exit_code, run.calls) == (3, 4 * count)


def test_an_error_without_an_answer_is_an_outage(answers: Answers) -> None:
    error = {"code": "server_error"}
    forms = {"alone": {"error": error}, "beside nothing": chat("", error=error)}
    run = judged(answers, forms, limits={"openai": {"max_attempts": 3}})
    assert (run().exit_code, run.calls) == (3, 6)
    assert ["the reply is an error" in str(record.graders[0].error) for record in run.records()] == [True, True]


def test_a_page_is_asked_for_once(answers: Answers) -> None:
    run = judged(answers, {"page": (paid_answers.PAGE, "text/html")})
    assert (run().exit_code, run.calls) == (3, 1)
    assert "check base_url" in str(run.records()[0].graders[0].error)


@pytest.mark.parametrize("headers", [(("x-trace", "a" * 20_000),), tuple((f"x-{at}", "a") for at in range(300))])
def test_large_headers_are_no_fault(answers: Answers, headers: tuple[tuple[str, str], ...]) -> None:
    answers.headers = headers
    check_read(answers, {"plain": chat()})
    answers.posts.clear()
    answers.send(paid_answers.with_image("openai", paid_answers.TEXT))
    run = PaidRun(answers)
    done = run(run_id="images")
    assert (done.exit_code, run.calls) == (0, 1), done.output
