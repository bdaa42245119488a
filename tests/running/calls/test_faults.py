"""Failing calls: every cell ends correctly, and no call is paid for twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from api_runs import FIFTH, ApiRun, prompt
from fake_api import FakeAPI, Fault, JudgeRequest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("local_api")]

Service = Literal["openai", "gemini"]
CELLS = 60


def limits(provider: str, attempts: int) -> dict[str, Any]:
    return {provider: {"max_attempts": attempts, "timeout_s": 3}}


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_with_20_percent_failures_every_cell_completes_and_is_paid_once(
    tmp_path: Path, api: FakeAPI, provider: Service
) -> None:
    api.faults.random(FIFTH, seed=4)
    api_run = ApiRun(tmp_path, api, CELLS, provider, limits=limits(provider, 8))
    result = api_run.run("--max-concurrency", "16")
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert set(api.faults.generated) == {item if isinstance(item, str) else item.kind for item in FIFTH}
    assert 0.1 < len(api.faults.generated) / len(api.requests) < 0.3
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (CELLS, CELLS, 0)


def test_cell_is_an_error_only_if_attempts_ran_out(tmp_path: Path, api: FakeAPI) -> None:
    api.faults.random({kind: rate * 1.5 for kind, rate in FIFTH.items()}, seed=1)
    api_run = ApiRun(tmp_path, api, CELLS, limits=limits("openai", 2))
    assert api_run.run("--max-concurrency", "16").exit_code == 3
    errors = set()
    for record in api_run.records:
        calls = api_run.requests_for(record.test_id)
        lost = [tries for tries in calls.values() if not any(entry.paid for entry in tries)]
        assert [len(tries) for tries in lost] == ([2] if record.verdict == "ERROR" else []), record.test_id
        if record.verdict == "ERROR":
            errors.add(record.test_id)
        else:
            api_run.check(record)
    assert 0 < len(errors) < CELLS / 2
    assert api_run.repeated_calls == 0
    api.faults.clear()
    result = api_run.run(resume=True)
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (CELLS, CELLS, 0)


def test_judge_outage_generates_no_image_again(tmp_path: Path, api: FakeAPI) -> None:
    api.faults.when(lambda asked: isinstance(asked, JudgeRequest), Fault("unavailable"))
    api_run = ApiRun(tmp_path, api, 5, limits=limits("openai", 2))
    assert api_run.run().exit_code == 3
    assert (api_run.generated, api_run.judged) == (5, 0)
    assert {(record.status, record.verdict) for record in api_run.records} == {("completed", "ERROR")}
    api.faults.clear()
    result = api_run.run(resume=True)
    assert result.exit_code == 0, result.output
    assert "to generate: 0; to grade again: 5 (5 ended in an error); unchanged: 0" in result.stderr
    api_run.check_complete()
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (5, 5, 0)


def test_invalid_key_on_resume_stops_again_and_loses_nothing(tmp_path: Path, api: FakeAPI) -> None:
    api.faults.when(lambda asked: prompt(9) in getattr(asked, "prompt", ""), Fault("unauthorized"))
    api_run = ApiRun(tmp_path, api, 10)
    assert api_run.run("--max-concurrency", "1").exit_code == 3
    before = {record.test_id: record for record in api_run.records}
    api.faults.clear()
    result = api_run.run(resume=True, key="sk-wrong-key-567890")
    assert result.exit_code == 3
    assert "sk-wrong-key-567890" not in result.output
    assert {record.test_id: record for record in api_run.records} == before
    assert api_run.run(resume=True).exit_code == 0
    api_run.check_complete()
