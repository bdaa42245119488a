"""A changed rule needs neither a judge nor a measurement: the judge never sees it, and the scores stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, JudgeRequest
from suite_runner import SuiteRunner

pytest_plugins = ("fake_api.fixtures",)

SCORED: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "metrics": {"layout": {"type": "score", "scale": [0, 5], "description": "The layout."}},
}
ANSWER = {"layout": 3, "reason": "so it is", "verdict": "PASS"}


@pytest.fixture
def suite(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> SuiteRunner:
    monkeypatch.setenv("LOCAL_KEY", api.key)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    runner = SuiteRunner(tmp_path, api)
    api.script.judge(ANSWER)
    return runner


def rules(rule: str, **changes: Any) -> dict[str, Any]:
    return {"graders": [SCORED], "verdict": [rule], **changes}


def test_a_changed_rule_replays_offline_without_a_miss(suite: SuiteRunner) -> None:
    suite.write(**rules("layout >= 3"))
    assert suite.run().exit_code == 0
    calls = suite.called
    suite.write(**rules("layout >= 4"))
    result = suite.run("--offline", run_id="again")
    assert result.exit_code == 1, result.output
    assert suite.called == calls
    records = suite.records("again").values()
    assert [(record.verdict, record.scores, record.graders[0].cached) for record in records] == [
        ("FAIL", {"layout": 3}, True)
    ] * 2


def test_a_judge_sees_no_rule(suite: SuiteRunner) -> None:
    suite.write(**rules("layout >= 3"), gates=["pass_rate >= 0.123"])
    suite.run()
    asked = [str(entry.asked) for entry in suite.api.requests if isinstance(entry.asked, JudgeRequest)]
    assert len(asked) == 2
    for text in asked:
        assert "The layout." in text
        assert ">= 3" not in text
        assert "0.123" not in text
