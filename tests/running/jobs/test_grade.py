"""``visioneval grade``: grades the outputs of a run with a changed suite into a new run, without generation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, Script
from PIL import Image
from toys import LOOK, SECOND, Toy

from visioneval import Record, Status, Verdict, read_info, read_records

pytestmark = pytest.mark.slow


BAD = {"metadata": {"look": "bad"}}
REFUSED = {"metadata": {"generate": "refuses"}}
BROKEN = {"metadata": {"generate": "raises"}}


def source(toy: Toy, *cases: dict[str, Any], **changes: Any) -> None:
    """Creates the run ``a`` and resets the count of generations."""
    result = toy.run(*cases, arguments=("--run-id", "a", "--quiet"), **changes)
    assert result.exit_code in (0, 1, 3), result.output
    sys.modules["mine"].Generate.started = 0


def graded(toy: Toy, *arguments: str, run_id: str = "b", code: int = 0) -> dict[str, Record]:
    result = toy("grade", "a", "--run-id", run_id, "--trust-suite", *arguments)
    assert result.exit_code == code, result.output
    assert sys.modules["mine"].Generate.started == 0
    return {record.test_id: record for record in read_records(toy.folder / "runs" / run_id)}


def bytes_of(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in (run / "artifacts").rglob("*") if p.is_file()}


def test_changed_suite_changes_verdicts_without_generation(toy: Toy) -> None:
    source(toy, {}, BAD)
    results = (toy.folder / "runs/a/results.jsonl").read_bytes()
    toy.write({}, BAD, name="new.yaml", graders=[LOOK, SECOND], verdict=["second", "level >= 0.5"])
    result = graded(toy, "--suite", "new.yaml", code=1)
    assert {name: (single.verdict, single.failed_rules) for name, single in result.items()} == {
        "case0": (Verdict.PASS, ()),
        "case1": (Verdict.FAIL, ("level >= 0.5",)),
    }
    before, after = toy.folder / "runs/a", toy.folder / "runs/b"
    assert (before / "results.jsonl").read_bytes() == results
    assert len(bytes_of(before)) == 2
    assert bytes_of(before) == bytes_of(after)
    old = {record.test_id: record for record in read_records(before)}
    assert result["case0"].artifact_sha256 == old["case0"].artifact_sha256
    assert result["case0"].generation_key == old["case0"].generation_key
    assert old["case0"].cost_usd == 0.5
    assert (result["case0"].cost_usd, result["case0"].attempts, result["case0"].seconds) == (0.0, 0, 0.0)
    assert (read_info(after).graded_from, read_info(before).graded_from) == ("a", None)


def test_compare_shows_changes_by_new_rules(toy: Toy) -> None:
    source(toy, {}, {})
    toy.write({}, BAD, name="new.yaml")
    graded(toy, "--suite", "new.yaml", code=1)
    message = json.loads(toy("compare", "a", "b", "--json").stdout)
    assert [(pair["test_id"], pair["change"], pair["same_output"]) for pair in message["changes"]] == [
        ("case1", "broken", True)
    ]
    assert toy("compare", "a", "b").exit_code == 1


def test_stored_suite_can_be_graded_from_any_working_directory(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source(toy, {}, BAD)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = toy("grade", tmp_path / "runs/a", "--runs", "own", "--run-id", "c", "--trust-suite", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["counts"]["passed"] == 1
    assert bytes_of(tmp_path / "runs/a") == bytes_of(tmp_path / "elsewhere/own/c")


def test_refusals_and_failed_generations_are_unchanged(toy: Toy) -> None:
    source(toy, REFUSED, BROKEN, {})
    result = graded(toy, code=3)
    assert result["case0"].status is Status.REFUSED
    assert (result["case0"].verdict, result["case0"].failure_tags) == (Verdict.FAIL, ("refused",))
    assert "on fire" in result["case1"].error.message
    assert result["case2"].verdict is Verdict.PASS


@pytest.mark.parametrize("samples", [1, 2])
def test_missing_cell_is_an_error_and_extra_cell_is_skipped(toy: Toy, samples: int) -> None:
    other: dict[str, Any] = {"prompt": "another tree"}
    source(toy, {"id": "old"}, {"id": "both"}, {"id": "refused", **REFUSED}, samples=samples)
    counter = {"id": "counter", "prompt": "three trees"}
    toy.write(
        {"id": "both", **other},
        {"id": "refused", **REFUSED, **other},
        {"id": "new"},
        {**counter, "output_of": "new"},
        {**counter, "id": "stored", "output_of": "both"},
        name="new.yaml",
    )
    result = toy("grade", "a", "--suite", "new.yaml", "--run-id", "b", "--trust-suite")
    assert result.exit_code == 3
    for expected_message in (
        f"{2 * samples} cells are missing from the source run and become ERROR, because nothing is generated",
        f"{samples} cells of the source run are skipped, because the suite or the flags exclude them",
        f"{samples} images were generated from a prompt that has since changed",
    ):
        assert expected_message in result.stderr
    actual = {record.test_id: record for record in read_records(toy.folder / "runs/b")}
    assert sorted(actual) == ["both", "counter", "new", "refused", "stored"]
    for name in ("new", "counter"):
        error = actual[name].error
        assert error.message == "not in the source run a: 'visioneval grade' generates no images"
        assert (error.kind, actual[name].status) == ("missing_output", Status.ERROR)
    assert actual["both"].prompt == "another tree"
    assert actual["stored"].artifact_sha256 == actual["both"].artifact_sha256


def test_a_masked_secret_in_a_prompt_is_no_other_prompt(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_TOKEN", "hunter2-hunter2")
    source(toy, {"prompt": "a tree hunter2-hunter2"})
    result = toy("grade", "a", "--suite", "suite.yaml", "--run-id", "b", "--trust-suite")
    assert (result.exit_code, toy.record.prompt) == (0, "a tree ***")
    assert "has since changed" not in result.stderr


def test_an_unknown_cost_remains_unknown(toy: Toy) -> None:
    source(toy, {"metadata": {"generate": "jpeg"}})
    assert graded(toy)["case0"].cost_usd is None


def test_questions_of_the_source_are_copied(toy: Toy) -> None:
    source(toy, {})
    graded(toy)
    assert not (toy.folder / "runs/b/questions.json").exists()
    questions = '{"schema_version": 2, "prompts": []}'
    (toy.folder / "runs/a/questions.json").write_text(questions)
    graded(toy, run_id="c")
    assert (toy.folder / "runs/c/questions.json").read_text() == questions


@pytest.mark.parametrize("name", ["images", "masks"])
def test_outputs_of_other_input_files_are_announced(toy: Toy, name: str) -> None:
    """Else a file that was edited since could turn a FAIL into a PASS without a word."""
    mask = Image.new("RGBA", (32, 32), "white")
    mask.putpixel((0, 0), (0, 0, 0, 0))
    for file in ("in.png", "mask.png"):
        mask.save(toy.folder / file)
    files = {"images": ["in.png"], "masks": {"editable": "mask.png"}}
    source(toy, files, {"id": "generated"})
    notice = "1 images were generated from input images or masks that have since changed"
    assert notice not in toy("grade", "a", "--run-id", "b", "--trust-suite").stderr
    mask.putpixel((1, 1), (0, 0, 0, 0))
    mask.save(toy.folder / ("in.png" if name == "images" else "mask.png"))
    assert notice in toy("grade", "a", "--run-id", "c", "--trust-suite").stderr


def test_missing_and_changed_images_are_errors(toy: Toy) -> None:
    source(toy, {}, {}, {}, {"id": "linked"})
    images = {path.parts[-3]: path for path in (toy.folder / "runs/a/artifacts").rglob("*.png")}
    images["case0"].unlink()
    images["linked"].rename(toy.folder / "outside.png")
    images["linked"].symlink_to(toy.folder / "outside.png")
    data = images["case1"].read_bytes()
    images["case1"].unlink()
    images["case1"].write_bytes(data + b"x")
    result = graded(toy, code=3)
    errors = {name: single.error.message if single.error else None for name, single in result.items()}
    assert "cannot be read" in str(errors["case0"])
    assert "was changed after it was generated" in str(errors["case1"])
    assert "is a link to a file outside the run" in str(errors["linked"])
    assert errors["case2"] is None
    assert (result["case1"].status, result["case1"].scores) == (Status.ERROR, {})
    assert {single.error.kind for single in result.values() if single.error} == {"bad_image"}


def test_dependent_case_is_graded(toy: Toy) -> None:
    dependent = {"id": "counter", "output_of": "case0", "expect": {"aligned": False}}
    source(toy, {}, dependent)
    result = graded(toy)
    assert result["counter"].artifact_path == result["case0"].artifact_path
    assert not list((toy.folder / "runs/b").rglob("*.part"))


def test_grade_one_model_run_with_the_selection_of_the_source(toy: Toy) -> None:
    models = [{"provider": "mine:Generate", "label": name} for name in ("x", "y")]
    source(toy, {}, {}, models=models)
    result = toy("grade", "a@y", "--case", "case1", "--run-id", "b", "--trust-suite")
    assert result.exit_code == 0
    assert [record.cell for record in read_records(toy.folder / "runs/b")] == [("case1", "y", 0)]
    assert read_info(toy.folder / "runs/b").graded_from == "a@y"
    assert toy("grade", "a@y", "--model", "x", "--trust-suite").exit_code == 2
    path = toy.write({}, {}, name="new.yaml", models=models)
    result = toy("grade", "b", "--suite", path, "--run-id", "c", "--trust-suite")
    assert [record.cell for record in read_records(toy.folder / "runs/c")] == [("case1", "y", 0)]


def test_regrade_cannot_be_resumed_by_run(toy: Toy) -> None:
    source(toy, {})
    graded(toy)
    result = toy("run", "--resume", "b", "--trust-suite")
    assert result.exit_code == 2
    assert "grades the outputs of a: repeat that 'visioneval grade' command instead" in result.stderr


JUDGED = """\
name: judged
vars: {{least: 3}}
judges:
  default: {{provider: openai, model: gpt-5.4, base_url: "{url}", api_key_env: JUDGE_KEY}}
cases:
  - {{id: tree, prompt: a tree}}
  - {{id: boat, prompt: a boat}}
models:
  - {{provider: openai, base_url: "{url}", api_key_env: CALL_KEY, params: {{model: gpt-image-2}}}}
graders:
  - {{key: look, type: rubric, metrics: {{quality: {{type: score, scale: [0, 5], description: how good}}}}}}
verdict: [quality >= {least}]
prices: {{openai: {{per_call: 0.01, per_image: 0.03}}}}
"""


def test_grade_needs_only_the_judge_key(toy: Toy, local_api: FakeAPI, script: Script) -> None:
    script.judge({"reason": "fine", "quality": 4, "verdict": "PASS"})
    Path("suite.yaml").write_text(JUDGED.format(url=local_api.openai_base_url, least=3))
    assert toy("run", "suite.yaml", "--run-id", "a", CALL_KEY=local_api.key, JUDGE_KEY=local_api.key).exit_code == 0
    sent = len(local_api.requests)
    assert sent == 4
    result = toy("grade", "a", "--run-id", "b", "--budget", "0.5", JUDGE_KEY=local_api.key)
    assert result.exit_code == 0, result.output
    assert len(local_api.requests) == sent, "what a judge said of the same image is kept"
    Path("suite.yaml").write_text(JUDGED.format(url=local_api.openai_base_url, least=5))
    result = toy("grade", "a", "--suite", "suite.yaml", "--run-id", "c", "--reuse", "none", JUDGE_KEY=local_api.key)
    assert [request.path for request in local_api.requests[sent:]] == ["/v1/responses"] * 2
    assert result.exit_code == 1, result.output
    assert {record.cost_usd for record in read_records(Path("runs/c"))} == {0.0}
    assert toy("grade", "a", "--run-id", "d", "--offline").exit_code == 0
    result = toy("grade", "a", "--run-id", "e")
    assert (result.exit_code, "JUDGE_KEY" in result.stderr, "CALL_KEY" in result.stderr) == (2, True, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "to grade the rest, repeat the command, which reuses cached judge answers"),
        (
            ("--run-id", "b"),
            "to grade the rest, repeat the command with another --run-id, which reuses cached judge answers",
        ),
        (
            ("--reuse", "none"),
            "to grade the rest, repeat the command, which asks all judges again; without --reuse none",
        ),
    ],
)
def test_budget_stops_grade_and_prints_a_command_to_continue(
    toy: Toy, local_api: FakeAPI, script: Script, arguments: tuple[str, ...], message: str
) -> None:
    script.judge({"reason": "fine", "quality": 4, "verdict": "PASS"})
    text = JUDGED.format(url=local_api.openai_base_url, least=3)
    Path("suite.yaml").write_text(text)
    assert toy("run", "suite.yaml", "--run-id", "a", CALL_KEY=local_api.key, JUDGE_KEY=local_api.key).exit_code == 0
    Path("suite.yaml").write_text(text.replace("how good", "how very good"))
    few = ("--budget", "0.015", "--max-concurrency", "1")
    result = toy("grade", "a", "--suite", "suite.yaml", *few, *arguments, JUDGE_KEY=local_api.key)
    assert result.exit_code == 3, result.output
    assert message in result.stderr


def test_judge_flag_replaces_judge_of_stored_suite(toy: Toy, local_api: FakeAPI, script: Script) -> None:
    script.judge({"reason": "fine", "quality": 4, "verdict": "PASS"})
    Path("suite.yaml").write_text(JUDGED.format(url=local_api.openai_base_url, least=3))
    assert toy("run", "suite.yaml", "--run-id", "a", CALL_KEY=local_api.key, JUDGE_KEY=local_api.key).exit_code == 0
    result = toy("grade", "a", "--judge", "default=gemini:gemini-3.5-flash")
    assert (result.exit_code, "GEMINI_API_KEY" in result.stderr) == (2, True), result.stderr
    assert "no such judge" in toy("grade", "a", "--judge", "other=gemini:x").stderr
    assert "no such variable" in toy("grade", "a", "--var", "most=3").stderr
