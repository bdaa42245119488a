"""The try-on suite, run whole through the real SDKs against a local server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeAPI, JudgeRequest, ToolCall
from typer.testing import CliRunner

from visioneval import Record, Verdict, read_info, read_records
from visioneval.cli import app

SUITES = Path(__file__).parents[3] / "suites"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("session_measures")]


COMMERCE = {"rain_jacket_shop", "rugby_shirt_shop"}


def judge_answer(request: JudgeRequest, **changes: Any) -> Any:
    """The best answer under a schema, with changes; a judge with the crop tool calls it twice first."""
    assert request.schema is not None or request.tools
    if request.tools and request.turns < 2:
        name = ("ref_2", "output")[request.turns]
        return ToolCall("crop", {"image_id": name, "x1": 10, "y1": 20, "x2": 110, "y2": 140})
    if request.schema is None:
        return None
    answer: dict[str, Any] = {}
    for name, schema in request.schema["properties"].items():
        known = {"verdict": "PASS", "failure_tags": [], "reason": "seen"}
        best = max(schema["enum"]) if "enum" in schema else schema.get("maximum", 1)
        answer[name] = known.get(name, best)
    return answer | {name: value for name, value in changes.items() if name in answer}


@pytest.fixture
def run(local_api: FakeAPI, tmp_path: Path) -> Any:
    """``run(*flags)`` runs the suite, with its images beside it: exit code, output, run, records by cell."""
    urls = {"openai": local_api.openai_base_url, "gemini": local_api.gemini_base_url}
    source = SUITES / "try_on"
    shutil.copytree(source / "assets", tmp_path / "assets")
    data = yaml.safe_load((source / "suite.yaml").read_text(encoding="utf-8"))
    for entry in [*data["models"], *data["judges"].values()]:
        entry |= {"base_url": urls[entry["provider"]], "api_key_env": "LOCAL_KEY"}
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False), encoding="utf-8")

    def run_suite(*flags: str) -> tuple[int, str, Path, list[Record]]:
        done = CliRunner().invoke(app, ["run", str(tmp_path / "suite.yaml"), "--runs", str(tmp_path / "runs"), *flags])
        (folder,) = (tmp_path / "runs").iterdir()
        return done.exit_code, done.output, folder, list(read_records(folder))

    return run_suite


def test_every_image_passes_where_the_judge_is_content(api: FakeAPI, run: Any) -> None:
    api.script.judge(judge_answer)
    code, output, folder, records = run()
    assert code == 0, output
    assert len(records) == 18 == read_info(folder).planned_cells
    assert {record.verdict for record in records} == {Verdict.PASS}
    assert {record.provider for record in records} == {"openai", "gemini"}


def test_the_crops_of_the_judge_are_recorded(api: FakeAPI, run: Any) -> None:
    api.script.judge(judge_answer)
    _, _, folder, (record,) = run("--case", "rugby_shirt", "--model", "gemini*")
    close = next(grader for grader in record.graders if grader.key == "close_up")
    assert [(crop["image"], crop["rectangle"]) for crop in close.details["crops"]] == [
        ("ref_2", [10, 20, 110, 140]),
        ("output", [10, 20, 110, 140]),
    ]
    assert all((folder / crop["path"]).is_file() for crop in close.details["crops"])


def test_a_stricter_case_fails_a_middling_score(api: FakeAPI, run: Any) -> None:
    api.script.judge(lambda request: judge_answer(request, outfit_fidelity=3))
    _, _, _, records = run("--model", "gemini*", "--case", "*_shop", "--case", "cardigan")
    assert len(records) == 3
    assert {record.test_id for record in records if record.verdict is Verdict.FAIL} == COMMERCE
    assert {rule for record in records for rule in record.failed_rules} == {"outfit_fidelity >= 4"}


def test_the_rules_decide_and_a_judge_that_disagrees_is_counted(api: FakeAPI, run: Any) -> None:
    api.script.judge(lambda request: judge_answer(request, facial_similarity=2, verdict="PASS"))
    code, output, _, (record,) = run("--case", "cardigan", "--model", "gemini*")
    assert code == 1
    assert (record.verdict, record.failed_rules) == (Verdict.FAIL, ("facial_similarity >= 3",))
    assert "judge and rules disagree in 1 of 1 cell (try_on)" in output


def test_the_judge_sees_person_garment_and_masks_but_not_the_model_name(api: FakeAPI, run: Any) -> None:
    asked: list[JudgeRequest] = []
    api.script.judge(lambda request: asked.append(request) or judge_answer(request))
    run("--case", "rain_jacket", "--model", "gemini*")
    first = asked[0]
    for label in (
        "ref_1: input image, role: person",
        "ref_2: input image, role: garment",
        "mask_occluders",
        "output",
    ):
        assert label in first.text
    assert "Dress the person of the first image in the navy rain jacket" in first.text
    assert not any("gemini-nano-banana-2.1" in request.text for request in asked)
