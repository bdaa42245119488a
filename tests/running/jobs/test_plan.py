"""From a suite to its cells, and back again from run.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from toys import LOOK, SECOND, Toy

from visioneval import RunInfo, SuiteError, UsageError, read_info
from visioneval.running.loading import SuiteOptions, expand, run_labels
from visioneval.running.plan import Plan
from visioneval.suite.files import Trust
from visioneval.suite.load import LoadedSuite, load_suite
from visioneval.suite.runs import Selection

pytestmark = pytest.mark.slow

GRID = """\
name: sweep
cases:
  - {id: a, prompt: "a {{ what }}", tags: [x]}
  - {id: b, prompt: "b", tags: [y]}
  - {id: c, prompt: "c", images: [in.png]}
vars: {what: tree}
models:
  - provider: mine:Generate
    params: {model: m-1}
    grid: {ratio: [1.10, 2], size: [64x64, null, true]}
  - {provider: mine:Generate, label: gen, tasks: [image_generation]}
samples: 2
graders:
  - {key: look, type: "mine:Look", writes: {fine: {type: bool}}}
  - {key: more, type: "mine:Look", writes: {more: {type: bool}}, when: {tags: [x]}}
verdict: [fine, {rule: more, tags: [x]}, {rule: not more, models: [gen], tags: [x], level: warn}]
"""
SWEPT = [f"m-1,ratio={ratio},size={size}" for ratio in ("1.10", "2") for size in ("64x64", "null", "true")]


def planned(
    path: Path, *, samples: int | None = None, trust: bool = True, out: Path = Path("runs"), **chosen: Any
) -> Plan:
    loaded = load_suite(path, trust=trust, run_labels=run_labels(out))
    return expand(loaded, SuiteOptions(selection=Selection(**chosen, samples=samples), runs=out))


def cells(plan: Plan) -> list[tuple[Any, ...]]:
    return [
        (
            call.case.id,
            call.run.label,
            sample,
            call.task_type,
            call.prompt,
            dict(call.params),
            call.grading.graders,
            call.grading.rules,
        )
        for call in plan.calls()
        for sample in call.samples
    ]


@pytest.fixture
def sweep(toy: Toy) -> Path:
    toy.outputs("in.png")
    path = toy.folder / "suite.yaml"
    path.write_text(GRID)
    return path


def test_a_suite_expands_to_cases_by_model_runs_by_samples(sweep: Path) -> None:
    plan = planned(sweep)
    result = [cell[:3] for cell in cells(plan)]
    expected = [
        (case, label, sample)
        for case, labels in (("a", [*SWEPT, "gen"]), ("b", [*SWEPT, "gen"]), ("c", SWEPT))
        for label in labels
        for sample in (0, 1)
    ]
    assert result == expected
    assert plan.cells == len(expected) == 40
    assert sum(plan.count(case, run)[0] for case in plan.suite.cases for run in plan.runs) == 40


def test_a_planned_call_has_prompt_params_graders_rules_and_files(sweep: Path) -> None:
    calls = list(planned(sweep).calls())
    first = calls[0]
    assert (first.prompt, first.params) == ("a tree", {"model": "m-1", "ratio": 1.1, "size": "64x64"})
    assert [grader.key for grader in first.grading.graders] == ["look", "more"]
    assert [(rule.text, warn) for rule, warn in first.grading.rules] == [("fine", False), ("more", False)]
    generation = next(call for call in calls if call.run.label == "gen" and call.case.id == "a")
    assert [(rule.text, warn) for rule, warn in generation.grading.rules][-1] == ("not more", True)
    edit = calls[-1]
    assert [grader.key for grader in edit.grading.graders] == ["look"]
    assert edit.files.base == sweep.parent / "in.png"


NARROWED: list[tuple[dict[str, Any], int]] = [
    ({}, 40),
    ({"cases": ("a",)}, 14),
    ({"cases": ("[ab]",)}, 0),
    ({"cases": ("a", "c")}, 26),
    ({"tags": ("y",)}, 14),
    ({"models": ("*1.10*",)}, 18),
    ({"models": ("gen",)}, 4),
    ({"models": ("gen",), "limit": 1}, 2),
    ({"graders": ("look",)}, 40),
    ({"limit": 2}, 28),
]


@pytest.mark.parametrize(("chosen", "count"), NARROWED)
def test_flags_narrow_the_plan_and_the_resolved_suite_expands_to_the_same(
    sweep: Path, chosen: dict[str, Any], count: int
) -> None:
    if count == 0:
        with pytest.raises(UsageError, match=r"--case: no match for '\[ab\]'"):
            planned(sweep, **chosen)
        return
    plan = planned(sweep, **chosen)
    result = cells(plan)
    assert len(result) == plan.cells == count
    stored = plan.whole_suite.model_validate_json(plan.whole_suite.model_dump_json())
    again = _expand_again(stored, sweep, plan.selection)
    assert again.suite == plan.suite
    assert [cell[:6] for cell in cells(again)] == [cell[:6] for cell in result]
    assert [cell[6:] for cell in cells(again)] == [cell[6:] for cell in result]
    assert again.metrics == plan.metrics


def _expand_again(suite: Any, path: Path, selection: Selection | None = None) -> Plan:
    loaded = LoadedSuite(suite, path, path.parent, "", Trust(path.parent, path.parent, everything=True))
    return expand(loaded, SuiteOptions(selection=selection or Selection()))


@pytest.mark.parametrize("flags", [(), ("--model", "*1.10*"), ("--case", "a", "--model", "gen"), ("--samples", "3")])
def test_run_json_expands_to_the_cells_that_were_run(toy: Toy, sweep: Path, flags: tuple[str, ...]) -> None:
    toy("run", sweep, "--trust-suite", *flags)
    info = toy.info
    plan = _expand_again(info.suite, sweep, info.selection)
    from visioneval import read_records

    recorded = {record.cell for record in read_records(toy.latest)}
    assert {(case, label, sample) for case, label, sample, *_ in cells(plan)} == recorded
    assert plan.cells == info.planned_cells == len(recorded)


def test_variables_from_the_command_line_are_in_run_json(toy: Toy, sweep: Path) -> None:
    toy("run", sweep, "--trust-suite", "--var", "what=bush", "--case", "a", "--model", "gen")
    assert toy.records["a"].prompt == "a bush"
    assert next(_expand_again(toy.info.suite, sweep).calls()).prompt == "a bush"


BAD_FLAGS: list[tuple[dict[str, Any], str]] = [
    ({"cases": ("aa",)}, "--case: no match for 'aa'"),
    ({"models": ("gent",)}, r"--model: no match for 'gent' \(did you mean 'gen'\?\)"),
    ({"graders": ("lok",)}, r"--grader: no match for 'lok' \(did you mean 'look'\?\)"),
    ({"tags": ("z",)}, "--tag: no case has the tag 'z'"),
    ({"cases": ("c",), "models": ("gen",)}, "nothing to run"),
    ({"cases": ("a",), "tags": ("y",)}, "nothing to run"),
]


@pytest.mark.parametrize(("chosen", "message"), BAD_FLAGS)
def test_flags_that_select_no_cells_are_rejected(sweep: Path, chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned(sweep, **chosen)


def test_a_case_with_its_own_rules_uses_only_those(toy: Toy) -> None:
    path = toy.write({"verdict": ["level > 0"]}, {})
    first, second = planned(path).calls()
    assert [rule.text for rule, _ in first.grading.rules] == ["level > 0"]
    assert [rule.text for rule, _ in second.grading.rules] == ["fine"]


def test_planned_calls_are_created_lazily(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISIONEVAL_MAX_CELLS", "2000000")
    path = toy.write(*[{} for _ in range(2000)], samples=1000)
    plan = planned(path)
    assert plan.cells == 2_000_000
    assert next(plan.calls()).samples == (0,)


def test_an_estimate_counts_and_names_missing_outputs(toy: Toy) -> None:
    from visioneval.running.estimate import estimate
    from visioneval.running.plan import needed_keys

    toy.outputs("images/case0.png")
    models = [
        {"provider": "files", "label": "old", "path": "images/{case}.png"},
        {"provider": "mine:Generate", "label": "toy", "api_key_env": "TOY_KEY"},
    ]
    plan = planned(toy.write({}, {}, models=models, graders=[LOOK, SECOND], verdict=["fine"], samples=2))
    work = estimate(plan)
    assert (work.calls, work.cells, work.grader_calls) == (8, 8, 16)
    assert work.unpriced == ("toy",)
    assert needed_keys(plan) == {"TOY_KEY": ["toy"]}
    assert work.missing_files == ("images/case1.png", "images/case1.png")


def test_another_run_is_named_in_full_in_the_resolved_suite(toy: Toy) -> None:
    toy.run({})
    first = toy.latest.name
    path = toy.write({}, models=[{"provider": "files", "run": "latest"}])
    plan = planned(path)
    assert plan.runs[0].config.run == f"{first}@toy"
    toy("run", path, "--trust-suite")
    assert _expand_again(read_info(toy.latest).suite, path).finished["toy"] == plan.finished["toy"]


OUTSIDE: list[tuple[str, str]] = [
    ("{provider: files, label: x, path: 'out/{case}/../../../far.png'}", "5:37"),
    ("{provider: files, label: ../.., path: 'out/{model}/far.png'}", "5:41"),
    ("{provider: files, label: x, path: 'link/{case}.png'}", "5:37"),
    ("{provider: files, label: x, path: 'in/{case}.png'}", "5:37"),
    ("{provider: files, label: x, dataset: {path: rows.csv, fields: {id: id, output: up}}}", "5:47"),
    ("{provider: files, label: x, dataset: {path: rows.csv, fields: {id: id, output: root}}}", "5:47"),
]


@pytest.mark.parametrize(("model", "position"), OUTSIDE)
def test_only_a_trusted_suite_reads_finished_images_elsewhere(
    toy: Toy, model: str, position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.outputs("far.png")
    suite = toy.folder / "suite"
    for name in ("suite", "suite/out", "suite/in", "elsewhere"):
        (toy.folder / name).mkdir(exist_ok=True)
    (suite / "link").symlink_to(toy.folder / "elsewhere")
    (suite / "in" / "a.png").symlink_to(toy.folder / "far.png")
    (suite / "rows.csv").write_text(f"id,up,root\na,../far.png,{toy.folder / 'far.png'}\n")
    path = suite / "suite.yaml"
    path.write_text(
        "name: far\ncases: [{id: a, prompt: p}]\n"
        "models:\n- {provider: mock}\n"
        f"- {model}\n"
        "graders: [{key: file, type: properties}]\nverdict: [file]\n"
    )
    monkeypatch.chdir(suite)
    outside = "is outside the suite's folder and the working directory: pass --trust-suite if you trust this suite"
    with pytest.raises(SuiteError, match=re.escape(outside)):
        planned(path, trust=False)
    assert planned(path, trust=True).cells == 2
    result = toy("run", "suite.yaml")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"suite.yaml:{position}: ")
    assert line.endswith(outside)
    assert not (suite / "runs").exists()


def test_a_link_out_of_another_run_is_not_followed(toy: Toy) -> None:
    toy.run({})
    artifact = toy.latest / str(toy.record.artifact_path)
    artifact.unlink()
    artifact.symlink_to(toy.folder / "mine.py")
    plan = planned(toy.write({}, models=[{"provider": "files", "run": "latest"}]))
    assert plan.finished["toy"] == {"case0": [None]}


def test_a_selected_run_holds_the_whole_suite_and_the_selection(toy: Toy) -> None:
    toy.run({}, {}, arguments=("--case", "case1"))
    info: RunInfo = toy.info
    assert info.selection.narrows
    assert [case.id for case in info.suite.cases] == ["case0", "case1"]
    assert [case.id for case in info.selected_suite.cases] == ["case1"]
