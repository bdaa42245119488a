"""On resume, a judge that never gave a valid reply is asked again instead of read from the cache."""

from __future__ import annotations

from typing import Any

import pytest
from fake_api import FakeAPI, Fault, JudgeRequest
from toys import Toy

from visioneval import Verdict

RUBRIC: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "judge": "eye",
    "metrics": {"right": {"type": "pass_fail", "description": "Is it a tree?", "pass_if": ["It is a tree."]}},
}


def test_unusable_answer_is_requested_again(toy: Toy, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", api.key)
    eye = {"provider": "openai", "model": "gpt-5.4", "base_url": api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    api.faults.when(lambda asked: isinstance(asked, JudgeRequest), Fault("prose"))
    api.script.judge("A tree, I should say.")
    toy.run({}, judges={"eye": eye}, graders=[RUBRIC], verdict=["right"], arguments=("--run-id", "r"))
    assert toy.record.verdict is Verdict.ERROR
    asked = len(api.requests_to("responses"))
    api.faults.clear()
    api.script.judge({"right": True, "reason": "a tree", "verdict": "PASS"})
    done = toy("run", "--resume", "r", "--trust-suite", "--runs", toy.folder / "runs")
    assert done.exit_code == 0, done.output
    assert toy.record.verdict is Verdict.PASS
    assert len(api.requests_to("responses")) == asked + 1
