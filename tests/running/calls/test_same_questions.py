"""Pairs that ask the same of the same images at the same time share one paid answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_runs import ApiRun
from fake_api import FakeAPI, JudgeRequest

pytestmark = pytest.mark.slow
SCORE = {"type": "score", "scale": [0, 5], "description": "How good it is."}


def answer(asked: JudgeRequest) -> dict[str, Any]:
    if "quality" in (asked.schema or {}).get("properties", {}):
        return {"quality": 3, "reason": "fine", "verdict": "PASS"}
    return {"answer": "tie", "reason": "alike"}


@pytest.mark.parametrize("prompts", [("a tall tree", "a tall tree"), ("a tall tree", "a red boat")])
def test_the_same_pair_in_two_cases_is_paid_once(tmp_path: Path, local_api: FakeAPI, prompts: tuple[str, str]) -> None:
    run = ApiRun(
        tmp_path,
        local_api,
        0,
        samples=2,
        cases=[{"id": f"case{at}", "prompt": prompt} for at, prompt in enumerate(prompts)],
        models=[
            {"provider": "mock", "label": "a", "params": {"size": "64x64"}},
            {"provider": "mock", "label": "b", "params": {"size": "64x64", "flaw": "blank"}},
        ],
        graders=[
            {"key": "look", "type": "rubric", "judge": "eye", "metrics": {"quality": SCORE}},
            {"key": "better", "type": "pairwise", "judge": "eye"},
        ],
    )
    local_api.script.judge(answer)
    result = run.run()
    assert result.exit_code == 0, result.output
    assert "asked 8 questions" in result.output
    assert run.repeated_calls == 0
    pairs = sum(isinstance(entry.asked, JudgeRequest) and len(entry.asked.images) == 2 for entry in local_api.requests)
    assert pairs == 4 * len(set(prompts))
