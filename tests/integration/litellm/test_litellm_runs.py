"""Whole runs whose images and judgements come from LiteLLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import KEY
from fake_api import FakeAPI
from suite_runner import SuiteRunner
from toys import Toy

MODEL = "openai/gpt-image-2"
JUDGE = "openai/gpt-5.4"
PRICES = {f"litellm:{MODEL}": {"per_image": 0.5}, f"litellm:{JUDGE}": {"per_call": 0.25}}


def changes(api: FakeAPI, **more: Any) -> dict[str, Any]:
    host = {"provider": "litellm", "base_url": api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    models = [{**host, "label": "m", "params": {"model": MODEL}}]
    return {"models": models, "judges": {"default": {**host, "model": JUDGE}}, "prices": PRICES, **more}


def test_a_run_is_replayed_resumed_graded_and_keyless(runner: SuiteRunner, api: FakeAPI) -> None:
    runner.write("tree", **changes(api, samples=2))
    result = runner.run()
    assert result.exit_code == 0, result.output
    assert runner.called == (2, 1)  # both images are the same, so one answer serves both
    records = runner.records()
    assert [record.cost_usd for record in records.values()] == [0.5, 0.5]
    assert {record.run_params["model"] for record in records.values()} == {MODEL}
    assert runner.run("--offline", run_id="again").exit_code == 0
    assert runner("run", "--resume", "r", "--runs", runner.out).exit_code == 0
    runner.write("tree", **changes(api, samples=2, verdict=["not nice"]))
    graded = runner("grade", "r", "--suite", runner.folder / "suite.yaml", "--runs", runner.out)
    assert graded.exit_code == 1, graded.output
    assert runner.called == (2, 1)
    written = [path for path in runner.folder.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []


def test_a_budget_stops_before_it_is_passed(runner: SuiteRunner, api: FakeAPI) -> None:
    files_only = {"graders": [{"key": "file", "type": "properties"}], "verdict": ["not file.blank"], "judges": {}}
    prices = {f"litellm:{MODEL}": {"per_image": 0.5}}
    runner.write("tree", "boat", "house", **changes(api, budget_usd=1.0, **files_only) | {"prices": prices})
    result = runner.run()
    assert result.exit_code == 3, result.output
    assert runner.called == (2, 0)


def test_shards_make_one_run(runner: SuiteRunner, api: FakeAPI) -> None:
    path = runner.write("tree", "boat", **changes(api))
    for part in (1, 2):
        assert runner("run", path, "--runs", runner.out, "--run-id", f"p{part}", "--shard", f"{part}/2").exit_code == 0
    merged = runner("merge", "p1", "p2", "--run-id", "whole", "--runs", runner.out)
    assert merged.exit_code == 0, merged.output
    assert {test for test, _ in runner.records("whole")} == {"tree", "boat"}


def suite(toy: Toy, model: str, **entry: Any) -> Path:
    models = [{"provider": "litellm", "api_key_env": "FAL_AI_API_KEY", "params": {"model": model}, **entry}]
    cases = [{"id": "one", "prompt": "a tree"}, {"id": "two", "prompt": "a boat"}]
    graders = [{"key": "file", "type": "properties"}]
    text = {"name": "s", "cases": cases, "models": models, "graders": graders, "verdict": ["not file.blank"]}
    path = toy.folder / "suite.yaml"
    path.write_text(json.dumps(text))
    return path


def test_a_plan_uses_the_price_list(toy: Toy) -> None:
    path = suite(toy, "fal_ai/fal-ai/flux-pro/v1.1")
    result = toy("plan", path)
    assert result.exit_code == 0, result.output
    assert "2 calls, 0.0800 USD, from LiteLLM's list of prices" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("model", "exit_code", "message"),
    [
        ("fal_ai/fal-ai/flux-pro/v1.1", 0, ""),
        ("fal_ai/fal-ai/flux-pro/v1.l", 0, "has no 'fal_ai/fal-ai/flux-pro/v1.l' (did you mean 'fal_ai/fal-ai/flux-pro/v1.1'?)"),
        ("fal/flux", 2, "LiteLLM has no provider 'fal' (did you mean 'fal_ai'?)"),
    ],
)  # fmt: skip
def test_a_model_is_looked_up(toy: Toy, model: str, exit_code: int, message: str) -> None:
    result = toy("validate", suite(toy, model), *(("--trust-suite",) if exit_code else ()))
    assert result.exit_code == exit_code, result.output
    assert message in " ".join(result.output.split())
