"""Resumed runs: what is done again, why, and what stays unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from toys import LOOK, SECOND, Toy

from visioneval import read_records

pytestmark = pytest.mark.slow

COUNT = """
import mine, pathlib

class Generate(mine.Generate):
    async def generate(self, request):
        with open("generated", "a") as file:
            print(request.case.id, file=file)
        return await super().generate(request)

    edit = generate

class Look(mine.Look):
    async def grade(self, subject):
        with open("graded", "a") as file:
            print(subject.case.id, file=file)
        return await super().grade(subject)
"""


def case(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "prompt": f"an image of {name}"} | more


CASES: tuple[dict[str, Any], ...] = (case("a"), case("b"), case("c"))
COUNTING: dict[str, Any] = {
    "models": [{"provider": "counting:Generate", "label": "toy"}],
    "graders": [{**LOOK, "type": "counting:Look"}],
}


class Resumed:
    """A run, and what its resume did."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        (toy.folder / "counting.py").write_text(COUNT)

    def begin(self, *cases: dict[str, Any], **changes: Any) -> Any:
        self.toy.write(*(cases or CASES), **{**COUNTING, **changes})
        return self._record_work(self.toy("run", "suite.yaml", "--trust-suite", "--run-id", "r"))

    def resumed_info(self, *arguments: str, cases: tuple[dict[str, Any], ...] | None = None, **changes: Any) -> Any:
        """Resumes with a changed suite if there are cases or changes, else with the stored suite."""
        suite = []
        if cases is not None or changes:
            suite = [str(self.toy.write(*(cases or CASES), **{**COUNTING, **changes}))]
        return self._record_work(self.toy("run", *suite, "--resume", "r", "--trust-suite", *arguments))

    def _record_work(self, result: Any) -> Any:
        self.generated, self.graded = self._take_calls("generated"), self._take_calls("graded")
        self.plan = next((line for line in result.stderr.splitlines() if line.startswith("resuming ")), "")
        return result

    def _take_calls(self, name: str) -> list[str]:
        path = self.toy.folder / name
        result = sorted(path.read_text().split()) if path.exists() else []
        path.unlink(missing_ok=True)
        return result

    def clear_cache(self) -> None:
        """Clears the cache, so that the images must be generated again."""
        assert self.toy("cache", "clear", "--yes").exit_code == 0

    @property
    def folder(self) -> Path:
        return self.toy.folder / "runs" / "r"

    @property
    def results(self) -> Path:
        return self.folder / "results.jsonl"

    def verdicts(self) -> dict[str, str]:
        return {record.test_id: str(record.verdict) for record in read_records(self.folder)}


@pytest.fixture
def run(toy: Toy) -> Resumed:
    return Resumed(toy)


def plan_line(generate: str, grade: str, stored: int) -> str:
    return f"resuming runs/r: to generate: {generate}; to grade again: {grade}; unchanged: {stored}"


@pytest.mark.parametrize(("more", "code"), [({}, 0), ({"metadata": {"look": "bad"}}, 1)])
def test_unchanged_run_does_nothing(run: Resumed, more: dict[str, Any], code: int) -> None:
    assert run.begin(*CASES, case("d", **more)).exit_code == code
    before = run.results.read_bytes()
    result = run.resumed_info()
    assert (result.exit_code, run.generated, run.graded) == (code, [], []), result.output
    assert run.plan == plan_line("0", "0", 4)
    assert run.results.read_bytes() == before
    assert run.toy.info.state == "complete"
    assert len(run.toy.info.resumed_at) == 1


def test_resume_reuses_the_command_line_unless_a_suite_is_named(run: Resumed, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = str(run.toy.write(case("a"), **COUNTING, vars={"mood": "calm"}))

    def command_line_of(*arguments: str) -> tuple[str, ...]:
        words = ("run", *arguments, "--trust-suite")
        monkeypatch.setattr("sys.argv", ["visioneval", *words])
        assert run.toy(*words).exit_code == 0
        return run.toy.info.command_line

    first = command_line_of(suite, "--run-id", "r", "--var", "mood=loud")
    assert first == ("run", suite, "--run-id", "r", "--var", "mood=loud", "--trust-suite")
    assert command_line_of("--resume", "r") == first
    assert command_line_of(suite, "--resume", "r") == ("run", suite, "--resume", "r", "--trust-suite")


def test_changed_prompt_generates_only_that_case(run: Resumed) -> None:
    run.begin()
    result = run.resumed_info(cases=(case("a"), case("b", prompt="two trees"), case("c")))
    assert (result.exit_code, run.generated, run.graded) == (0, ["b"], ["b"])
    assert run.plan == plan_line("1 (1 prompt changed)", "0", 2)
    assert run.toy.records["b"].prompt == "two trees"
    assert run.toy.info.suite.cases[1].prompt == "two trees"


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"graders": [{**COUNTING["graders"][0], "options": {"more": 1}}]},
     "3 grader.look changed"),
    ({"graders": [*COUNTING["graders"], SECOND]}, "3 grader.second changed"),
    ({"cases": [{**entry, "criteria": "green"} for entry in CASES]}, "3 case changed"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "why"), CHANGES)
def test_changed_graders_and_cases_only_grade(run: Resumed, changes: dict[str, Any], why: str) -> None:
    run.begin()
    outputs = {record.test_id: record.artifact_sha256 for record in read_records(run.folder)}
    run.resumed_info(**changes)
    assert (run.generated, run.graded) == ([], ["a", "b", "c"])
    assert run.plan == plan_line("0", f"3 ({why})", 0)
    records = list(read_records(run.folder))
    assert {record.test_id: record.artifact_sha256 for record in records} == outputs
    assert [record.cost_usd for record in records] == [0.5] * 3, "how it was generated stays as it was"
    run.resumed_info()
    assert run.plan == plan_line("0", "0", 3), "and is known now"


def test_changed_rules_neither_generate_nor_grade(run: Resumed) -> None:
    run.begin()
    before = {record.test_id: record for record in read_records(run.folder)}
    run.resumed_info(verdict=["fine", "level > 0.9"])
    assert (run.generated, run.graded) == ([], [])
    again = "resuming runs/r: to generate: 0; to grade again: 0; re-evaluated: 3 (3 rules changed); unchanged: 0"
    assert run.plan == again
    for record in read_records(run.folder):
        old = before[record.test_id]
        assert (record.verdict, record.failed_rules) == ("FAIL", ("level > 0.9",))
        assert (record.scores, record.reasons, record.graders) == (old.scores, old.reasons, old.graders)
    run.resumed_info()
    assert run.plan == plan_line("0", "0", 3), "and is known now"


def test_new_case_and_more_samples_are_generated(run: Resumed) -> None:
    run.begin()
    run.resumed_info(cases=(*CASES, case("d")))
    assert (run.generated, run.plan) == (["d"], plan_line("1 (1 not done yet)", "0", 3))
    run.resumed_info("--samples", "2")
    assert (run.generated, run.plan) == (["a", "b", "c", "d"], plan_line("4 (4 not done yet)", "0", 4))
    assert len(list(read_records(run.folder))) == 8


def test_failed_cells_are_retried(run: Resumed) -> None:
    run.begin(
        case("generation", metadata={"generate": "raises"}), case("grading", metadata={"look": "raises"}), case("c")
    )
    assert run.verdicts() == {"generation": "ERROR", "grading": "ERROR", "c": "PASS"}
    result = run.resumed_info("--keep-errors")
    assert (result.exit_code, run.generated, run.graded, run.plan) == (3, [], [], plan_line("0", "0", 3))
    source = (run.toy.folder / "mine.py").read_text()
    source = source.replace('raise RuntimeError("the model is on fire")', "return self.fine(request)")
    (run.toy.folder / "mine.py").write_text(source.replace('raise RuntimeError("the lens is broken")', "return self.fine(subject)"))  # fmt: skip
    program = run.toy.program("run", "--resume", "r", "--trust-suite")  # a new process, to load the fixed code
    errors = program.communicate(timeout=60)[1]
    assert program.returncode == 0, errors
    assert plan_line("1 (1 ended in an error)", "1 (1 ended in an error)", 1) in errors
    assert run._take_calls("generated") == ["generation"]
    assert run._take_calls("graded") == ["generation", "grading"]
    assert set(run.verdicts().values()) == {"PASS"}


def test_paid_images_are_not_generated_again(run: Resumed) -> None:
    run.begin()
    before = run.toy.records["b"]
    (run.folder / str(before.artifact_path)).unlink()
    lines = run.results.read_text().splitlines(keepends=True)
    run.results.write_text("".join(line for line in lines if json.loads(line)["test_id"] != "c"))
    assert run.resumed_info().exit_code == 0
    assert (run.generated, run.plan) == ([], plan_line("2 (1 without an image file, 1 not done yet)", "0", 1))
    again = run.toy.records["b"]
    assert (run.folder / str(again.artifact_path)).is_file()
    assert (again.cost_usd, again.usage, again.cached) == (0.5, before.usage, False), "it was paid for in this run"
    assert run.toy.info.reused_since is None


def overwrite(run: Resumed, case_id: str) -> str:
    """Replaces the image of a cell. Returns its path in the run."""
    name = str(run.toy.records[case_id].artifact_path)
    (run.folder / name).unlink()  # it may be a hard link to another file
    (run.folder / name).write_bytes(b"another")
    return name


@pytest.mark.parametrize("changes", [{}, {"verdict": ["fine", "level > 0.1"]}, {"graders": [*COUNTING["graders"], SECOND]}])  # fmt: skip
def test_overwritten_image_is_generated_again(run: Resumed, changes: dict[str, Any]) -> None:
    run.begin()
    before = run.toy.records["b"]
    name = overwrite(run, "b")
    run.clear_cache()
    result = run.resumed_info("--keep-errors", **changes)
    assert (result.exit_code, run.generated) == (0, ["b"])
    assert "to generate: 1 (1 with a changed image file)" in run.plan
    assert f"changed after they were generated, so generated again: {name}\n" in result.stderr
    assert run.toy.records["b"].artifact_sha256 == before.artifact_sha256
    assert run.resumed_info().exit_code == 0
    assert run.plan == plan_line("0", "0", 3)


def test_overwritten_image_comes_from_the_cache(run: Resumed) -> None:
    run.begin()
    overwrite(run, "b")
    assert run.resumed_info("--offline").exit_code == 0
    assert (run.generated, run.graded) == ([], ["b"])
    overwrite(run, "c")
    run.clear_cache()
    assert run.resumed_info("--offline").exit_code == 3
    assert run.verdicts() == {"a": "PASS", "b": "PASS", "c": "ERROR"}


def test_image_that_is_overwritten_in_the_cache_too_is_generated_again(run: Resumed) -> None:
    run.begin(case("a"))
    (run.folder / str(run.toy.records["a"].artifact_path)).write_bytes(b"another")
    assert run.resumed_info().exit_code == 0
    assert (run.generated, run.graded) == (["a"], ["a"])


def test_overwritten_image_does_not_count_if_the_resume_stops(run: Resumed) -> None:
    """A killed or interrupted resume has removed the record, but has not generated the image again."""
    run.begin()
    overwrite(run, "b")
    lines = run.results.read_text().splitlines(keepends=True)
    run.resumed_info()
    (stale_line,) = (run.folder / "stale.jsonl").read_text().splitlines()
    assert json.loads(stale_line) == next(record for line in lines if (record := json.loads(line))["test_id"] == "b")
    run.results.write_text("".join(run.results.read_text().splitlines(keepends=True)[:2]))
    assert run.resumed_info().exit_code == 0
    assert run.plan == plan_line("1 (1 not done yet)", "0", 2)


def test_overwritten_image_of_another_case_is_generated_again_for_both(run: Resumed) -> None:
    run.begin(case("a"), {"id": "other", "prompt": "three trees", "output_of": "a"})
    overwrite(run, "a")
    assert run.resumed_info().exit_code == 0
    reasons = "1 with a changed image file, 1 use an image that is generated again"
    assert (run.graded, run.plan) == (["a", "other"], plan_line(f"2 ({reasons})", "0", 0))


def test_overwritten_copy_of_an_existing_output_is_copied_again(run: Resumed) -> None:
    run.toy.outputs("a.png")
    run.begin(case("a"), models=[{"provider": "files", "path": "{case}.png", "label": "toy"}])
    overwrite(run, "a")
    run.clear_cache()
    assert run.resumed_info().exit_code == 0
    path = run.folder / str(run.toy.records["a"].artifact_path)
    assert path.read_bytes() == (run.toy.folder / "a.png").read_bytes()


def test_copied_run_is_unchanged(run: Resumed) -> None:
    run.begin()
    copy = run.folder.with_name("copy")
    shutil.copytree(run.folder, copy, copy_function=shutil.copyfile)  # with new times
    result = run.toy("run", "--resume", copy, "--trust-suite")
    assert result.exit_code == 0
    assert "to generate: 0; to grade again: 0; unchanged: 3" in result.stderr


def test_truncated_record_is_done_again(run: Resumed) -> None:
    run.begin()
    data = run.results.read_bytes()
    lost = json.loads(data.splitlines()[-1])["test_id"]
    run.results.write_bytes(data[:-40])
    run.clear_cache()
    assert run.resumed_info().exit_code == 0
    assert (run.generated, run.plan) == ([lost], plan_line("1 (1 not done yet)", "0", 2))
    assert [json.loads(line)["verdict"] for line in run.results.read_bytes().splitlines()] == ["PASS"] * 3


def test_removed_cells_move_to_stale_file(run: Resumed) -> None:
    run.begin()
    result = run.resumed_info(cases=CASES[:2])
    assert (result.exit_code, run.generated, run.plan) == (0, [], plan_line("0", "0", 2))
    assert "1 cells are no longer in the suite: moved to stale.jsonl" in result.stderr
    (stale_line,) = (run.folder / "stale.jsonl").read_text().splitlines()
    assert json.loads(stale_line)["test_id"] == "c"
    assert set(run.verdicts()) == {"a", "b"}
    assert run.toy.summary["planned_cells"] == 2


def test_dependent_case_is_graded_when_needed(run: Resumed) -> None:
    other = {"id": "other", "prompt": "three trees", "output_of": "a"}
    run.begin()
    run.resumed_info(cases=(*CASES, other))
    assert (run.generated, run.graded, run.plan) == ([], ["other"], plan_line("0", "1 (1 not done yet)", 3))
    run.resumed_info(cases=(*CASES, {**other, "prompt": "four trees"}))
    assert (run.generated, run.graded, run.plan) == ([], ["other"], plan_line("0", "1 (1 case changed)", 3))
    run.resumed_info(cases=(case("a", prompt="new"), *CASES[1:], {**other, "prompt": "four trees"}))
    assert (run.generated, run.graded) == (["a"], ["a", "other"])
    assert run.plan == plan_line("2 (1 prompt changed, 1 use an image that is generated again)", "0", 2)
    records = run.toy.records
    assert records["other"].artifact_path == records["a"].artifact_path
    assert (records["other"].cost_usd, records["a"].cost_usd) == (0.0, 0.5)


def test_stored_suite_works_from_any_folder(run: Resumed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.toy.outputs("in/base.png")
    run.begin(case("a", images=["in/base.png"]))
    (run.folder / str(run.toy.records["a"].artifact_path)).unlink()
    (run.toy.folder / "suite.yaml").unlink()
    run.clear_cache()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    result = run.toy("run", "--resume", run.folder, "--trust-suite")
    assert result.exit_code == 0, result.output
    assert "to generate: 1 (1 without an image file)" in result.stderr
    assert (elsewhere / "generated").read_text().split() == ["a"]
    assert not (elsewhere / "runs").exists()
    assert (run.folder / str(run.toy.records["a"].artifact_path)).is_file()


ONE_SUITE = "--resume takes at most one suite, and neither --run-id nor --note"
CHANGES_SUITE = "--var and --judge change the suite: name the suite as well as --resume"
WRONG = {
    "--resume nothing": "'nothing': no such run in runs",
    "--resume=": "matches 2 runs",
    "--resume r suite.yaml suite.yaml": ONE_SUITE,
    "--resume r --run-id s": ONE_SUITE,
    "--resume r --note s": ONE_SUITE,
    "--resume r --var a=b": CHANGES_SUITE,
    "--resume r --judge default=openai:m": CHANGES_SUITE,
    "--resume r --limit 1": "--resume applies to the whole run: leave out --case, --tag, --model",
    "suite.yaml --keep-errors": "--keep-errors needs --resume",
    "": "name a suite, or a run to resume",
}


def test_conflicting_flags_are_a_usage_error(run: Resumed) -> None:
    run.begin(case("a"))
    run.toy("run", "suite.yaml", "--trust-suite", "--run-id", "r2")
    before = run.results.read_bytes()
    for arguments, message in WRONG.items():
        result = run.toy("run", *arguments.split(), "--trust-suite")
        (line,) = result.stderr.splitlines()
        assert (result.exit_code, message in line) == (2, True), line
    assert run.results.read_bytes() == before


def test_resume_reuses_the_selection(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toy.folder)
    toy.write(*CASES)
    assert toy("run", "suite.yaml", "--trust-suite", "--run-id", "r", "--limit", "2").exit_code == 0
    again = toy("run", "suite.yaml", "--trust-suite", "--resume", "r")
    assert "to generate: 0; to grade again: 0; unchanged: 2" in again.stderr
    refused = toy("run", "--trust-suite", "--resume", "r", "--case", "a")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "--resume applies to the whole run: leave out --case" in refused.stderr
    assert len(list(read_records(toy.latest))) == 2
