"""The logo suite: its right answers against its own measures, and the complete suite through the real SDKs against a
local server.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeAPI, GenerationRequest, JudgeRequest
from make_logos import LOGOS
from typer.testing import CliRunner

from visioneval import Record, Verdict, read_info, read_records
from visioneval.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("reduced_readings", "session_measures")]

SOURCE = Path(__file__).parents[3] / "suites" / "logo_edits"
PROMPT_PATTERNS = {
    "word": r"change the word BAKERY",
    "longer_word": r"change the word TOURS",
    "trademark": r"Add a trademark sign",
    "year": r"change the year 1986",
    "letter": r"change the second letter",
    "mark": r"Add one small golden star",
    "two_steps": r"Make two changes",
}


@pytest.fixture
def run_data(tmp_path: Path) -> Any:
    """``run_data(data, *flags)`` runs a suite beside the logos: exit code, output, run, records."""

    def run_suite(data: dict[str, Any], *flags: str) -> tuple[int, str, Path, list[Record]]:
        if not (tmp_path / "assets").exists():
            shutil.copytree(SOURCE / "assets", tmp_path / "assets")
        path = tmp_path / "suite.yaml"
        path.write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False), encoding="utf-8")
        done = CliRunner().invoke(app, ["run", str(path), "--runs", str(tmp_path / "runs"), *flags])
        folder = max((tmp_path / "runs").iterdir(), key=lambda item: item.stat().st_mtime_ns)
        return done.exit_code, done.output, folder, list(read_records(folder))

    return run_suite


def suite() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((SOURCE / "suite.yaml").read_text(encoding="utf-8"))
    return data


def measured(pattern: str, *rules: str) -> dict[str, Any]:
    """The suite with finished images, and only with the graders of these rules."""
    data = suite()
    del data["judges"], data["labels"], data["same_question"]
    data["models"] = [{"provider": "files", "path": pattern}]
    data["graders"] = [grader for grader in data["graders"] if grader["key"] in rules]
    data["verdict"] = list(rules)
    data["gates"] = ["pass_rate == 1"]
    return data


def test_an_unedited_logo_fails(run_data: Any) -> None:
    _, _, _, records = run_data(measured("assets/{case}.png", "text_rendering_ocr", "locality"))
    failed = {record.test_id: set(record.failed_rules) for record in records}
    assert {case for case, rules in failed.items() if "locality" in rules} == set(PROMPT_PATTERNS)
    passed = {record.test_id: record.scores["text_rendering_ocr"] for record in records}
    assert {case for case, passes in passed.items() if passes is False} == set(PROMPT_PATTERNS) - {"mark", "trademark"}
    assert passed["trademark"] is None, "OCR seldom reads \u2122"


def test_one_step_of_two_is_not_enough(run_data: Any, tmp_path: Path) -> None:
    shutil.copytree(SOURCE / "assets", tmp_path / "assets")
    for number, created in enumerate(LOGOS["two_steps"].halfway):
        created().save(tmp_path / "assets" / f"half{number}.png")
        data = measured(f"assets/half{number}.png", "text_rendering_ocr")
        _, _, _, (record,) = run_data(data, "--case", "two_steps")
        assert record.failed_rules == ("text_rendering_ocr",)


@pytest.fixture
def run_with_api(run_data: Any, local_api: FakeAPI) -> Any:
    """``run_with_api(*flags, n=1)`` runs the suite through the SDKs; the models generate the right answers."""
    urls = {"openai": local_api.openai_base_url, "gemini": local_api.gemini_base_url}

    def generate(request: GenerationRequest) -> list[bytes]:
        (case,) = (name for name, words in PROMPT_PATTERNS.items() if re.search(words, request.prompt))
        return [(SOURCE / "assets" / f"{case}-expected.png").read_bytes()] * request.n

    def run(*flags: str, n: int = 1) -> tuple[int, str, Path, list[Record]]:
        local_api.script.generate(generate)
        data = suite()
        for entry in [*data["models"], *data["judges"].values()]:
            entry |= {"base_url": urls[entry["provider"]], "api_key_env": "LOCAL_KEY"}
        data["models"][0]["params"]["n"] = n
        outcome: tuple[int, str, Path, list[Record]] = run_data(data, *flags)
        return outcome

    return run


def judge_answer(request: JudgeRequest, **changes: Any) -> Any:
    known = {"verdict": "PASS", "failure_tags": [], "reason": "seen"}
    assert request.schema is not None
    answer = {name: known.get(name, 5) for name in request.schema["properties"]}
    return answer | changes


def test_the_right_answers_pass_every_measure_and_a_content_judge(api: FakeAPI, run_with_api: Any) -> None:
    api.script.judge(judge_answer)
    code, output, folder, records = run_with_api()
    assert code == 0, output
    assert len(records) == 21 == read_info(folder).planned_cells
    passed = {(record.test_id, record.verdict, record.warned_rules) for record in records}
    assert passed == {(case, Verdict.PASS, ()) for case in PROMPT_PATTERNS}
    assert {record.provider for record in records} == {"openai", "gemini"}


def test_the_rules_decide_and_a_judge_that_disagrees_is_counted(api: FakeAPI, run_with_api: Any) -> None:
    api.script.judge(lambda request: judge_answer(request, edit_intent_correctness=3))
    code, output, _, (record,) = run_with_api("--case", "two_steps", "--model", "gemini*")
    assert code == 1
    assert (record.verdict, record.failed_rules) == (Verdict.FAIL, ("edit_intent_correctness >= 4",))
    assert "judge and rules disagree in 1 of 1 cell (logo)" in output


def test_the_measure_decides_what_must_not_change_and_a_judge_that_differs_is_counted(
    api: FakeAPI, run_with_api: Any
) -> None:
    api.script.judge(lambda request: judge_answer(request, non_target_invariance=2))
    code, output, folder, (record,) = run_with_api("--case", "word", "--model", "gemini*")
    assert code == 0, output
    assert (record.verdict, record.warned_rules) == (Verdict.PASS, ("non_target_invariance >= 4",))
    (pair,) = json.loads((folder / "summary.json").read_text())["same_question"]
    assert (pair["cells"], pair["only_judge_passes"], pair["only_measure_passes"]) == (1, 0, 1)


def test_three_images_of_a_call_are_three_records_each_graded(api: FakeAPI, run_with_api: Any) -> None:
    api.script.judge(judge_answer)
    _, _, _, records = run_with_api("--case", "letter", "--model", "*quality=high*", n=3)
    assert [record.sample_index for record in sorted(records, key=lambda item: item.sample_index)] == [0, 1, 2]
    assert api.paid["images.edits"] == 1
    for record in records:
        assert record.scores["edit_intent_correctness"] == 5
        assert record.scores["text_rendering_ocr"] is True


def test_the_judge_gets_the_criteria_and_not_the_model_name(api: FakeAPI, run_with_api: Any) -> None:
    asked: list[JudgeRequest] = []
    api.script.judge(lambda request: asked.append(request) or judge_answer(request))
    run_with_api("--case", "year", "--model", "gemini*")
    (request,) = asked
    for words in ("0 and 6, O and D, R and B", "EST. 1968", "mask_editable", "Where the edit belongs: the year"):
        assert words in request.text
    assert "gemini-nano-banana-2.1" not in request.text
