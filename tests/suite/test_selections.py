"""Runs narrowed by flags, of a suite that names everywhere what the flags leave out: every command still works."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from child_process import wait_until
from fake_api import FakeAPI, JudgeRequest, Script
from pairwise_judges import colour_of, judge_of
from toys import LOOK, SECOND, Toy

from visioneval import RunInfo, load_run, read_info, read_records
from visioneval.records.between_cells import read_preferences

pytestmark = pytest.mark.slow

MODELS = ("x", "y", "z")
COLOURS = {"x": "#d01010", "y": "#1010d0", "z": "#d01010"}
CASES: list[dict[str, Any]] = [
    {"id": "a", "tags": ["t"], "criteria": "it is calm"},
    {"id": "b", "tags": ["u"], "criteria": "it is calm", "verdict": ["fine", "second"]},
    {"id": "other", "prompt": "three trees", "tags": ["counter"], "output_of": "a", "expect": {"aligned": False}},
    {"id": "edit", "task": "image_editing", "images": ["input.png"], "tags": ["e"], "criteria": "it is calm"},
]
SUITE: dict[str, Any] = {
    "models": [
        {"provider": "files", "label": "x", "path": "{model}/{case}-{sample}.png"},
        {"provider": "files", "label": "y", "path": "{model}/{case}-{sample}.png"},
        {"provider": "files", "label": "z", "path": "{model}/{case}-{sample}.png", "tasks": ["image_generation"]},
    ],
    "samples": 2,
    "graders": [
        LOOK,
        {**SECOND, "when": {"cases": ["b"]}},
        {"key": "of_edits", "type": "properties", "when": {"tags": ["e"], "tasks": ["image_editing"]}},
        {"key": "better", "type": "pairwise", "models": ["x", "y"]},
        {"key": "calmer", "type": "pairwise", "judge": "second", "models": ["y", "z"]},
    ],
    "verdict": [
        "fine",
        {"rule": "second", "cases": ["b"], "models": ["y"]},
        {"rule": "level >= 0.1", "tags": ["u"], "models": ["z"], "level": "warn"},
        {"rule": "not of_edits.blank", "tasks": ["image_editing"]},
    ],
    "gates": [
        "pass_rate >= 0.1",
        {"rule": "pass_rate == 1", "cases": ["b"], "models": ["y"]},
        {"rule": "mean(level) >= 0.1", "tags": ["t"]},
        {"rule": "pass_rate == 1", "tasks": ["image_editing"]},
        {"rule": "rate(second) == 1", "models": ["z"]},
        {"rule": "separation(level) >= 0", "cases": ["a", "other"]},
    ],
    "labels": {
        "questions": [
            {"key": "good", "ask": "Is it good?", "type": "yes_no", "metric": "second"},
            {"key": "edited", "ask": "Is it edited?", "type": "yes_no", "tasks": ["image_editing"]},
        ],
        "pairs": [{"key": "which", "ask": "Which is better?"}],
    },
    "limits": {"openai": {"max_concurrency": 2}},
    "prices": {"openai": {"per_call": 0.01}},
}
SELECTIONS = {
    "one model run": ("--model", "x"),
    "two of three model runs": ("--model", "y", "--model", "z"),
    "one case": ("--case", "b"),
    "a case and the source of its images": ("--case", "other"),
    "a tag": ("--tag", "t"),
    "another task": ("--tag", "e"),
    "a limit": ("--limit", "1"),
    "one grader": ("--grader", "look"),
    "a grader of one case": ("--grader", "second"),
    "a pairwise grader": ("--grader", "look", "--grader", "calmer"),
    "fewer samples": ("--samples", "1"),
    "everything at once": ("--model", "y", "--case", "b", "--tag", "u", "--grader", "look", "--limit", "1", "--samples", "1"),
}  # fmt: skip
every_selection = pytest.mark.parametrize("flags", SELECTIONS.values(), ids=SELECTIONS)


def prefers_blue(request: JudgeRequest) -> Any:
    *_, a, b = (colour_of(image.data) for image in request.images)
    return {"reason": "calm", "answer": "A" if (a, b) == ("blue", "red") else "B"}


@pytest.fixture(scope="module")
def api() -> Iterator[FakeAPI]:
    script = Script()
    script.judge(prefers_blue)
    with FakeAPI(script) as server:
        yield server


@pytest.fixture(autouse=True)
def _around(toy: Toy, monkeypatch: pytest.MonkeyPatch, api: FakeAPI) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("JUDGE_KEY", api.key)
    monkeypatch.chdir(toy.folder)


@pytest.fixture
def suite(toy: Toy, api: FakeAPI) -> Path:
    from PIL import Image

    toy.outputs("input.png")
    for model in MODELS:
        for at, case in enumerate(CASES):
            for sample in range(2):
                path = toy.folder / model / f"{case['id']}-{sample}.png"
                path.parent.mkdir(exist_ok=True)
                image = Image.new("RGB", (32 + MODELS.index(model), 24 + 2 * at + sample), COLOURS[model])
                image.paste("green", (8, 8, 20, 16))
                image.save(path)
    return toy.write(
        *CASES, **SUITE, judges={"default": judge_of(api), "second": {**judge_of(api), "model": "gpt-5.4-mini"}}
    )


Selected = Callable[..., RunInfo]


@pytest.fixture(scope="module")
def finished_runs() -> dict[tuple[str, ...], Path]:
    """Copies of finished runs, by their flags."""
    return {}


@pytest.fixture
def run_selected(
    toy: Toy, suite: Path, finished_runs: dict[tuple[str, ...], Path], tmp_path_factory: pytest.TempPathFactory
) -> Selected:
    """``run_selected(*flags)`` makes the run ``r``; tests with the same flags begin with copies of the same run."""

    def run(*flags: str) -> RunInfo:
        if flags in finished_runs:
            copy_run(finished_runs[flags], toy.folder)
        else:
            result = toy("run", suite, "--trust-suite", "--run-id", "r", *flags)
            assert result.exit_code in (0, 1, 3), result.output
            finished_runs[flags] = tmp_path_factory.mktemp("finished")
            copy_run(toy.folder, finished_runs[flags])
        info: RunInfo = read_info(Path("runs/r"))
        assert info.state == "complete"
        return info

    return run


def copy_run(source: Path, target: Path) -> None:
    """Copies the run ``r``, as if the suite had been in the folder of the copy."""
    shutil.copytree(source / "runs/r", target / "runs/r")
    run_json = target / "runs/r/run.json"
    run_json.write_text(run_json.read_text().replace(str(source), str(target)))


def cells(run: str = "r") -> set[tuple[str, str, int]]:
    return {record.cell for record in read_records(Path("runs") / run)}


def summary_of(run: str = "r") -> dict[str, Any]:
    """The summary of a run, without what differs between equal runs."""
    summary = load_run(run).summary.model_dump(mode="json")
    return {name: summary[name] for name in ("counts", "gates", "metrics", "tags", "exit_code", "planned_cells")}


def works(result: Any, *codes: int) -> None:
    assert result.exit_code in (codes or (0,)), result.output


def kill_after(cells: int, run: str = "r") -> None:
    """Leaves a run as if it had been killed after some cells."""
    folder = Path("runs") / run
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:cells]))
    (folder / "preferences.jsonl").unlink(missing_ok=True)
    raw = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**raw, "state": "interrupted", "ended_at": None}))


@every_selection
def test_the_run_holds_the_whole_suite(toy: Toy, run_selected: Selected, flags: tuple[str, ...]) -> None:
    info = run_selected(*flags)
    assert [case.id for case in info.suite.cases] == [case["id"] for case in CASES]
    assert [entry.label for entry in info.suite.models] == list(MODELS)
    assert [grader.key for grader in info.suite.graders] == ["look", "second", "of_edits", "better", "calmer"]
    assert info.planned_cells == len(cells())
    assert {case for case, _, _ in cells()} == {case.id for case in info.selected_suite.cases}
    assert {label for _, label, _ in cells()} == {entry.label for entry in info.selected_suite.models}


@pytest.mark.parametrize(
    ("flags", "names_suite"),
    [*((flags, False) for flags in SELECTIONS.values()), *((flags, True) for flags in list(SELECTIONS.values())[1::3])],
)
def test_it_resumes(toy: Toy, run_selected: Selected, suite: Path, flags: tuple[str, ...], names_suite: bool) -> None:
    before = run_selected(*flags)
    done, summary, pairs = cells(), summary_of(), len(list(read_preferences(Path("runs/r"))))
    kill_after(1)
    hint = toy("show", "r").stderr.partition("to resume: ")[2].split("\n")[0]
    assert shlex.split(hint) == ["visioneval", "run", "--resume", "runs/r"]
    named = (str(suite),) if names_suite else ()
    result = toy("run", *named, "--resume", "runs/r", "--trust-suite")
    works(result, 0, 1, 3)
    assert "moved to stale" not in result.stderr
    assert (cells(), summary_of()) == (done, summary)
    assert len(list(read_preferences(Path("runs/r")))) == pairs
    after = read_info(Path("runs/r"))
    assert (after.suite, after.selection, after.planned_cells) == (before.suite, before.selection, before.planned_cells)


@every_selection
def test_it_is_graded_again(toy: Toy, run_selected: Selected, suite: Path, flags: tuple[str, ...]) -> None:
    before = run_selected(*flags)
    works(toy("grade", "r", "--trust-suite", "--run-id", "g"), 0, 1, 3)
    assert (cells("g"), summary_of("g")["counts"]) == (cells(), summary_of()["counts"])
    assert read_info(Path("runs/g")).selection == before.selection
    works(toy("grade", "g", "--trust-suite", "--run-id", "h"), 0, 1, 3)
    assert cells("h") == cells()
    works(toy("grade", "r", "--suite", suite, "--trust-suite", "--run-id", "s"), 0, 1, 3)
    assert cells("s") == cells()
    assert {record.error for record in read_records(Path("runs/s"))} == {None}


@every_selection
def test_one_model_run_of_it_is_graded_again(toy: Toy, run_selected: Selected, flags: tuple[str, ...]) -> None:
    label = str(run_selected(*flags).selected_suite.models[0].label)
    works(toy("grade", f"r@{label}", "--trust-suite", "--run-id", "g"), 0, 1, 3)
    assert cells("g") == {cell for cell in cells() if cell[1] == label}


@every_selection
def test_its_model_runs_are_judged_in_pairs(toy: Toy, run_selected: Selected, flags: tuple[str, ...]) -> None:
    labels = [str(entry.label) for entry in run_selected(*flags).selected_suite.models]
    whole = toy("run", "suite.yaml", "--trust-suite", "--run-id", "w", "--grader", "look", "--samples", "2")
    works(whole, 0, 1, 3)
    opposite = {"x": "y", "y": "x", "z": "y"}[labels[0]]
    result = toy("pairwise", f"w@{opposite}", f"r@{labels[0]}", "--json", "--trust-suite")
    works(result)
    (found,) = json.loads(result.stdout)["preferences"]
    expected = {(case, sample) for case, label, sample in cells() if label == labels[0] and case != "other"}
    expected -= {(case, sample) for case, sample in expected if (case, opposite, sample) not in cells("w")}
    assert (found["judged"], found["errors"]) == (len(expected), 0)
    result = toy("pairwise", f"r@{labels[0]}", f"w@{opposite}", "--trust-suite")
    works(result)


@every_selection
def test_it_is_shown_reported_compared_and_exported(toy: Toy, run_selected: Selected, flags: tuple[str, ...]) -> None:
    info = run_selected(*flags)
    label, code = str(info.selected_suite.models[0].label), summary_of()["exit_code"]
    case = info.selected_suite.cases[0].id
    for run in ("r", f"r@{label}"):
        works(toy("show", run), 0, 1, 3)
        works(toy("report", run, "-o", f"report-{label}{len(run)}"))
        works(toy("compare", run, run), 0, 1, 3)
        works(toy("baseline", "set", run, "--partial"))
        works(toy("compare", "baseline:main", run), 0, 1, 3)
        works(toy("export", run, "-o", "cells.csv"))
        assert len(Path("cells.csv").read_text().splitlines()) == 1 + sum(run == "r" or cell[1] == label for cell in cells())  # fmt: skip
        works(toy("label", "export", run, "-o", "labels.csv"))
    works(toy("show", "r", case))
    works(toy("show", "r"))
    assert code in (0, 1, 3)
    Path("answers.csv").write_text(f"case,model,sample,rater,good\n{case},{label},0,ann,yes\n")
    works(toy("label", "import", "answers.csv", "r", "--map", "good=good"))
    works(toy("agreement", "r"), 0, 3)


@pytest.mark.parametrize(
    ("flags", "states"),
    [
        ((), "passed passed passed passed passed passed"),
        (("--model", "x"), "passed skipped passed passed skipped passed"),
        (("--case", "b"), "passed passed skipped skipped passed skipped"),
        (("--tag", "e"), "passed skipped skipped passed skipped skipped"),
        (("--grader", "look"), "passed passed passed passed skipped passed"),
    ],
)
def test_a_gate_is_skipped_where_the_selection_left_nothing_of_its_scope(
    toy: Toy, run_selected: Selected, flags: tuple[str, ...], states: str
) -> None:
    run_selected(*flags)
    assert [gate["state"] for gate in summary_of()["gates"]][:6] == states.split()


def test_the_printed_line_resumes_an_interrupted_selection(toy: Toy) -> None:
    cases = [{"id": f"slow{at}", "tags": ["slow"], "metadata": {"wait": 0.4}} for at in range(5)]
    rules = ["fine", {"rule": "second", "cases": ["only"]}]
    toy.write(*cases, {"id": "only"}, graders=[LOOK, {**SECOND, "when": {"cases": ["only"]}}], verdict=rules)
    flags = ("--tag", "slow", "--grader", "look", "--max-concurrency", "1", "--run-id", "r")
    program = toy.program("run", "suite.yaml", "--trust-suite", *flags)
    wait_until(lambda: Path("runs/r/results.jsonl").is_file() and len(cells()) >= 1, program)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    (line,) = [line for line in errors.splitlines() if line.startswith("to resume: ")]
    works(toy(*shlex.split(line.removeprefix("to resume: "))[1:]))
    assert {case for case, _, _ in cells()} == {case["id"] for case in cases}


def test_resume_takes_the_same_flags_again_and_refuses_others(toy: Toy, run_selected: Selected, suite: Path) -> None:
    run_selected("--model", "x", "--limit", "2")
    kill_after(1)
    for flags in (
        ("--model", "x"),
        ("--limit", "2"),
        ("--model", "y", "--limit", "2"),
        ("--model", "x", "--limit", "1"),
    ):
        refused = toy("run", "--resume", "r", "--trust-suite", *flags)
        assert refused.exit_code == 2
        assert "--resume applies to the whole run" in refused.stderr
    works(toy("run", suite, "--resume", "r", "--trust-suite", "--model", "x", "--limit", "2"), 0, 1, 3)
    assert len(cells()) == 4


@pytest.mark.parametrize("names_suite", [False, True])
def test_resume_can_change_the_number_of_samples(
    toy: Toy, run_selected: Selected, suite: Path, names_suite: bool
) -> None:
    run_selected("--model", "x", "--case", "a", "--samples", "1")
    named = (suite,) if names_suite else ()
    works(toy("run", *named, "--resume", "r", "--trust-suite", "--samples", "2"), 0, 1, 3)
    assert cells() == {("a", "x", 0), ("a", "x", 1)}
    info = read_info(Path("runs/r"))
    own_number = None if names_suite else 2  # that of the suite is not in the run
    assert (info.selection.samples, info.selection.cases, info.suite.samples) == (own_number, ("a",), 2)
    works(toy("run", *named, "--resume", "r", "--trust-suite"), 0, 1, 3)
    assert len(cells()) == 2


def test_a_changed_suite_is_resumed_with_the_selection(toy: Toy, run_selected: Selected, api: FakeAPI) -> None:
    run_selected("--tag", "t", "--tag", "u", "--model", "x")
    pairs = len(list(read_preferences(Path("runs/r"))))
    changed = [{**case, "prompt": "a tree"} for case in CASES if case["id"] not in ("b", "edit")]
    judges = {"default": judge_of(api), "second": {**judge_of(api), "model": "gpt-5.4-mini"}}
    gates, graders = ["pass_rate >= 0.1"], [LOOK, SUITE["graders"][3]]
    new = {"id": "new", "prompt": "a tree", "tags": ["u"]}
    toy.outputs("x/new-0.png", "x/new-1.png")
    suite = toy.write(*changed, new, **{**SUITE, "gates": gates, "graders": graders, "verdict": ["fine"], "labels": None}, judges=judges)  # fmt: skip
    result = toy("run", suite, "--resume", "r", "--trust-suite")
    works(result)
    assert "2 cells are no longer in the suite: moved to stale.jsonl" in result.stderr
    assert cells() == {(case, "x", sample) for case in ("a", "new") for sample in range(2)}
    assert len(list(read_preferences(Path("runs/r")))) == pairs == 0


def test_answers_about_pairs_stay_if_only_left_out_parts_are_resumed(
    toy: Toy, run_selected: Selected, api: FakeAPI
) -> None:
    run_selected("--model", "x", "--model", "y")
    before = len(api.requests)
    works(toy("run", "--resume", "r", "--trust-suite"), 0, 1, 3)
    assert len(api.requests) == before


@pytest.mark.parametrize(
    ("before", "flags", "expected"),
    [
        (("--case", "a", "--case", "b"), ("--case", "b"), {("b", "x"), ("b", "y"), ("b", "z")}),
        (("--limit", "2"), ("--tag", "u", "--model", "x"), {("b", "x")}),
        (("--case", "other"), ("--case", "other", "--model", "z"), {("a", "z"), ("other", "z")}),
        (("--model", "x", "--model", "y"), ("--model", "[!y]*", "--model", "?"), None),
        (("--model", "x", "--case", "edit"), ("--grader", "of_edits"), {("edit", "x")}),
    ],
)
def test_flags_of_grade_select_among_the_cells_of_the_run(
    toy: Toy, run_selected: Selected, before: tuple[str, ...], flags: tuple[str, ...], expected: Any
) -> None:
    run_selected(*before)
    result = toy("grade", "r", "--trust-suite", "--run-id", "g", *flags)
    if expected is None:
        assert result.exit_code == 2
        return
    works(result, 0, 1, 3)
    assert {cell[:2] for cell in cells("g")} == expected
    assert {record.error for record in read_records(Path("runs/g"))} == {None}
    works(toy("grade", "g", "--trust-suite", "--run-id", "h"), 0, 1, 3)
    assert cells("h") == cells("g")


def test_grade_can_ask_a_grader_that_the_run_left_out(toy: Toy, run_selected: Selected) -> None:
    run_selected("--grader", "look", "--case", "b")
    works(toy("grade", "r", "--trust-suite", "--run-id", "g", "--grader", "second"), 0, 1, 3)
    assert {grader.key for record in read_records(Path("runs/g")) for grader in record.graders} == {"second"}


@pytest.mark.parametrize("flags", [("--case", "edit"), ("--model", "z"), ("--tag", "e")])
def test_grade_refuses_what_the_run_left_out(toy: Toy, run_selected: Selected, flags: tuple[str, ...]) -> None:
    run_selected("--case", "a", "--model", "x")
    result = toy("grade", "r", "--trust-suite", *flags)
    assert result.exit_code == 2
    assert "no match for" in result.stderr or "no case has the tag" in result.stderr


def test_a_model_run_that_was_left_out_cannot_be_named(toy: Toy, run_selected: Selected) -> None:
    run_selected("--model", "x", "--model", "y")
    for command in ("show", "grade", "report"):
        result = toy(command, "r@z")
        assert result.exit_code == 2
        assert "no model run 'z' in r" in result.stderr
    path = toy.write({"id": "a"}, name="again.yaml", models=[{"provider": "files", "run": "r"}])
    works(toy("run", path, "--trust-suite", "--run-id", "s"), 0, 1, 3)
    assert {label for _, label, _ in cells("s")} == {"x", "y"}


def test_many_samples_of_a_part_of_a_suite_can_be_resumed(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    path = toy.write({}, {}, {}, {})
    monkeypatch.setenv("VISIONEVAL_MAX_CELLS", "10")
    works(toy("run", path, "--trust-suite", "--run-id", "r", "--samples", "8", "--limit", "1"))
    kill_after(3)
    works(toy("run", "--resume", "r", "--trust-suite"))
    assert len(cells()) == 8
