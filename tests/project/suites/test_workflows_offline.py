"""The suites for real workflows without a key: their rules and criteria, and complete runs on the mock provider."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner
from workflow_images import SIZE, shipped_suite

from visioneval import Record, TestCase, Verdict, read_records
from visioneval.cli import app
from visioneval.graders.rubric import RubricGrader, ScaleScore
from visioneval.rules import parse_rule
from visioneval.suite.case import rendered

SUITES = Path(__file__).parents[3] / "suites"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("reduced_readings", "session_measures")]

WORKFLOWS = ("ui_mockups", "marketing", "try_on", "logo_edits")
CASES = [(name, case) for name in WORKFLOWS for case in shipped_suite(name).cases]
IDS = [f"{name}-{case.id}" for name, case in CASES]


def criteria(name: str, case: TestCase) -> str:
    return rendered(case, shipped_suite(name).vars)[1] or ""


@pytest.mark.parametrize(("name", "case"), CASES, ids=IDS)
def test_exact_copy_fails_a_case(name: str, case: TestCase) -> None:
    """Where a case has copy, a text grader measures it, and a rule without exceptions reads it."""
    suite = shipped_suite(name)
    measures = [grader for grader in suite.graders if grader.type_name == "text"]
    measures = [grader for grader in measures if grader.is_for(case) and grader.metrics(case)]
    assert bool(case.expect.text) == bool(measures)
    hard = [rule for rule in suite.verdict if rule.level == "fail" and not (rule.cases or rule.models or rule.tags)]
    assert {grader.key for grader in measures} <= {parse_rule(rule.rule).metric for rule in hard}


@pytest.mark.parametrize(("name", "case"), CASES, ids=IDS)
def test_criteria_say_what_to_look_for(name: str, case: TestCase) -> None:
    text = criteria(name, case)
    points = text.partition("What to look for:\n")[2].splitlines()
    assert len(points) >= 2, text
    assert all(re.fullmatch(r"- .{15,}", point) for point in points), points


@pytest.mark.parametrize("case", shipped_suite("ui_mockups").cases, ids=lambda case: case.id)
def test_a_screen_lists_regions_and_components(case: TestCase) -> None:
    text = criteria("ui_mockups", case)
    for component in (*case.metadata["required"], *case.metadata["forbidden"]):
        assert f"\n- {component}\n" in text
    for region, scope in case.metadata["regions"].items():
        assert f"\n- {region}: {scope}\n" in text
        assert len(scope) > 10
    assert text.count("is serious") == 2


def test_the_totals_of_the_checkout_add_up() -> None:
    case = next(case for case in shipped_suite("ui_mockups").cases if case.id == "full_checkout")
    assert case.expect.text is not None
    lines = case.expect.text.required
    amounts = {label: round(float(amount[1:]) * 100) for label, amount in pairwise(lines) if amount[0] == "$"}
    assert amounts["Canvas tote"] + amounts["Enamel mug set"] == amounts["Subtotal"]
    assert amounts["Subtotal"] + amounts["Shipping"] + amounts["Tax"] == amounts["Total"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_step_of_a_scale_is_described_in_words(name: str) -> None:
    rubrics = [grader for grader in shipped_suite(name).graders if isinstance(grader, RubricGrader)]
    scales = {key: item for rubric in rubrics for key, item in rubric.asked.items() if isinstance(item, ScaleScore)}
    scales = {key: item for key, item in scales.items() if item.scale == (0, 5)}
    assert len(scales) >= 2
    for key, item in scales.items():
        assert set(item.anchors) == set("012345"), key
        assert len(set(item.anchors.values())) == 6, key
        assert all(len(text.split()) >= 4 for text in item.anchors.values()), key


def run_offline(name: str, folder: Path, flaw: str) -> list[Record]:
    """Runs a workflow on the mock, with its local graders and the rules over them."""
    shutil.copytree(SUITES / name, folder / name)
    data: dict[str, Any] = yaml.safe_load((folder / name / "suite.yaml").read_text(encoding="utf-8"))
    data["graders"] = [grader for grader in data["graders"] if grader["type"] != "rubric"]
    for grader in data["graders"]:
        if grader["type"] == "text":
            grader["extract"] = "ocr"  # also where a judge reads signs that OCR does not distinguish
    keys = {grader["key"] for grader in data["graders"]}
    rules = [rule if isinstance(rule, str) else rule["rule"] for rule in data["verdict"]]
    data["verdict"] = [rule for rule in rules if parse_rule(rule).metric.partition(".")[0] in keys]
    data["models"] = [{"provider": "mock", "params": {"size": SIZE, "flaw": flaw}}]
    data["gates"] = ["pass_rate >= 0"]
    for key in ("judges", "labels", "same_question"):
        data.pop(key, None)
    path = folder / name / "suite.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(path), "--runs", str(folder / "runs")])
    assert done.exit_code in (0, 3), done.output  # 3: OCR cannot tell whether a ™ is there
    (run_folder,) = (folder / "runs").iterdir()
    return list(read_records(run_folder))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_offline_and_its_stand_ins_pass(name: str, tmp_path: Path) -> None:
    records = run_offline(name, tmp_path, "none")
    assert {record.test_id: record.verdict for record in records} == {
        case.id: Verdict.PASS for case in shipped_suite(name).cases
    }


@pytest.mark.parametrize(
    ("name", "flaw"),
    [("ui_mockups", "typo"), ("marketing", "typo"), ("marketing", "extra_text"), ("logo_edits", "missing_line")],
)
def test_wrong_copy_fails(name: str, flaw: str, tmp_path: Path) -> None:
    records = run_offline(name, tmp_path, flaw)
    failed = {record.test_id for record in records if record.verdict is Verdict.FAIL}
    with_copy = {case.id for case in shipped_suite(name).cases if case.expect.text}
    assert failed == with_copy - {"mark"}, "the mark has no copy of its own to miss"
