"""Replies of judges over HTTP: contents in chunks, values of another type, and ends that are refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from form_runs import judged
from refusal_forms import Form

SCORED = {
    "key": "look",
    "type": "rubric",
    "metrics": {
        "nice": {"type": "pass_fail", "description": "it is nice"},
        "style": {"type": "score", "scale": [0, 5], "step": 0.5, "description": "its style"},
    },
}
ALIGNED = {"key": "fit", "type": "alignment"}
GOOD = {"reason": "as it is", "nice": True, "style": 4, "verdict": "PASS"}


def chat(content: Any, finish_reason: str = "stop", **message: Any) -> Form:
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, **message},
    }
    return 200, {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


CHUNKS: dict[str, Any] = {
    "one text": [{"type": "text", "text": json.dumps(GOOD)}],
    "split": [{"type": "text", "text": json.dumps(GOOD)[:20]}, {"type": "text", "text": json.dumps(GOOD)[20:]}],
    "mistral thinks": [
        {"type": "thinking", "thinking": [{"type": "text", "text": '{"nice": false'}]},
        {"type": "text", "text": json.dumps(GOOD)},
    ],
    "reasoning": [{"type": "reasoning", "text": "{nice: false"}, {"type": "text", "text": json.dumps(GOOD)}],
    "plain texts": [json.dumps(GOOD)],
    "one object": {"type": "text", "text": json.dumps(GOOD)},
}


def test_a_reply_in_chunks_is_read(tmp_path: Path, save_image: Callable[..., Path]) -> None:
    forms = {name: chat(content) for name, content in CHUNKS.items()}
    records = judged(tmp_path, forms, "chat", save_image, graders=[SCORED])
    assert {name: record.scores for name, record in records.items()} == {
        name: {"nice": True, "style": 4} for name in CHUNKS
    }


VALUES: dict[str, tuple[Any, Any]] = {
    "number as text": ({"style": "4"}, (True, 4)),
    "with spaces": ({"style": " 4 "}, (True, 4)),
    "with a point": ({"style": "4.0"}, (True, 4)),
    "half": ({"style": "3.5"}, (True, 3.5)),
    "yes": ({"nice": "Yes"}, (True, 4)),
    "no": ({"nice": "no"}, (False, 4)),
    "true as text": ({"nice": "true"}, (True, 4)),
    "PASS": ({"nice": "PASS"}, (True, 4)),
    "fail": ({"nice": " fail "}, (False, 4)),
    "one": ({"nice": 1}, (True, 4)),
    "zero": ({"nice": 0.0}, (False, 4)),
    "a fraction": ({"style": "4/5"}, (True, None)),
    "percent": ({"style": "80%"}, (True, None)),
    "a comma": ({"style": "3,5"}, (True, None)),
    "words": ({"style": "four"}, (True, None)),
    "true for a number": ({"style": True}, (True, None)),
    "off the scale": ({"style": "9"}, (True, None)),
    "between steps": ({"style": "4.2"}, (True, None)),
    "two": ({"nice": 2}, (None, 4)),
    "perhaps": ({"nice": "perhaps"}, (None, 4)),
    "a list": ({"nice": [True]}, (None, 4)),
    "null": ({"nice": None}, (None, 4)),
}


def test_a_value_is_read_where_it_is_unambiguous_and_else_null_alone(
    tmp_path: Path, save_image: Callable[..., Path]
) -> None:
    forms = {name: chat(json.dumps({**GOOD, **value})) for name, (value, _) in VALUES.items()}
    records = judged(tmp_path, forms, "chat", save_image, graders=[SCORED], verdict=["style >= 1"])
    assert {name: (record.scores["nice"], record.scores["style"]) for name, record in records.items()} == {
        name: scores for name, (_, scores) in VALUES.items()
    }
    for name, record in records.items():
        is_read = None not in record.scores.values()
        assert (record.verdict, record.graders[0].error is None) == ("PASS" if is_read else "ERROR", is_read), name
        assert record.graders[0].details.get("asked_again", 0) == int(not is_read), name


def test_the_judges_own_verdict_and_score_never_make_a_grade_null(
    tmp_path: Path, save_image: Callable[..., Path]
) -> None:
    item = {"requirement": "a sign", "question": "Is there a sign?", "analysis": "Yes.", "answer": "yes", "gap": ""}
    answer = {**GOOD, "requirements": [item]}
    verdicts: dict[str, Any] = {
        "missing": {},
        "unknown": {"verdict": "GOOD", "score": "high"},
        "lower case": {"verdict": "pass", "score": "90"},
        "null": {"verdict": None, "score": None},
    }
    known = {name: value for name, value in answer.items() if name != "verdict"}
    forms = {name: chat(json.dumps({**known, **verdict})) for name, verdict in verdicts.items()}
    records = judged(tmp_path, forms, "chat", save_image, graders=[SCORED, ALIGNED])
    for name, record in records.items():
        assert (record.scores, record.verdict) == ({"nice": True, "style": 4, "fit": 100}, "PASS"), name
    details = {name: [grader.details for grader in record.graders] for name, record in records.items()}
    read = {name: (look.get("judge_verdict"), fit.get("judge_score")) for name, (look, fit) in details.items()}
    assert read == {"lower case": ("PASS", 90), **dict.fromkeys(("missing", "unknown", "null"), (None, None))}


def test_ends_of_a_reply_that_are_refusals(tmp_path: Path, save_image: Callable[..., Path]) -> None:
    without = {"id": "1", "model": "m", "choices": [{"index": 0, "finish_reason": "content_filter: RECITATION"}]}
    native = chat("I cannot.")[1]
    native["choices"][0]["native_finish_reason"] = "PROHIBITED_CONTENT"
    forms: dict[str, Form] = {
        "content_filter": chat(None, "content_filter"),
        "no message": (200, without),
        "refusal": chat("I cannot judge that.", "refusal"),
        "of the host": (200, native),
        "in a chunk": chat([{"type": "refusal", "refusal": "No."}]),
        "in words": chat("I can't help with that."),
    }
    records = judged(tmp_path, forms, "chat", save_image, graders=[SCORED])
    assert {name: record.graders[0].refused for name, record in records.items()} == {
        name: int(name != "in words") for name in forms
    }
    assert {record.verdict for record in records.values()} == {"ERROR"}
    assert records["refusal"].graders[0].error == (
        "the judge's answer was blocked: refusal; it says 'I cannot judge that.'"
    )
