"""Cells that send the same call, such as the same model on two servers: each has an output of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from api_runs import KEY, ApiRun, image_for
from fake_api import FakeAPI, Fault

pytestmark = pytest.mark.slow

FIRST, SECOND = image_for("first"), image_for("second")


@pytest.fixture(autouse=True)
def answers(local_api: FakeAPI) -> list[bytes | Fault]:
    """What the server answers to one generation after the other."""
    left: list[bytes | Fault] = [FIRST, Fault("server_error"), SECOND]
    local_api.script.generate(lambda _: left.pop(0))
    return left


def same_calls(folder: Path, api: FakeAPI, *, labels: tuple[str, ...], cases: tuple[str, ...]) -> ApiRun:
    model: dict[str, Any] = {"provider": "openai", "base_url": api.openai_base_url, "api_key_env": KEY}
    model["params"] = {"model": "gpt-image-2"}
    return ApiRun(
        folder,
        api,
        len(labels) * len(cases),
        models=[{**model, "label": label} for label in labels],
        cases=[{"id": case, "prompt": "a red tree"} for case in cases],
        limits={"openai": {"max_attempts": 1}},
    )


@pytest.mark.parametrize(
    ("labels", "cases"), [(("a", "b"), ("tree",)), (("a",), ("tree", "again"))], ids=["two models", "two cases"]
)
def test_a_resumed_cell_does_not_take_the_image_of_another_one(
    tmp_path: Path, api: FakeAPI, labels: tuple[str, ...], cases: tuple[str, ...]
) -> None:
    api_run = same_calls(tmp_path, api, labels=labels, cases=cases)
    api_run.run("--max-concurrency", "1")
    assert sorted(record.status for record in api_run.records) == ["completed", "error"]
    result = api_run.run("--max-concurrency", "1", resume=True)
    assert result.exit_code == 0, result.output
    stored = {(tmp_path / "runs/r" / str(record.artifact_path)).read_bytes() for record in api_run.records}
    assert (stored, api_run.generated) == ({FIRST, SECOND}, 2)


def test_a_model_run_with_a_new_label_takes_what_the_run_has_paid_for(tmp_path: Path, api: FakeAPI) -> None:
    api_run = same_calls(tmp_path, api, labels=("old",), cases=("tree",))
    assert api_run.run().exit_code == 0
    suite = json.loads((tmp_path / "suite.yaml").read_text())
    suite["models"][0]["label"] = "new"
    (tmp_path / "suite.yaml").write_text(json.dumps(suite))
    result = api_run.run("suite.yaml", resume=True)
    assert result.exit_code == 0, result.output
    assert ([record.model_label for record in api_run.records], api_run.generated) == (["new"], 1)
