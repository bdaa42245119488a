"""Loading a file as a checked suite, or reporting every problem with its position."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite_text import suite

from visioneval import Problem, SuiteError, UsageError
from visioneval.suite.load import LoadedSuite, load_suite
from visioneval.suite.model import Suite

pytestmark = pytest.mark.slow

Problems = Callable[..., list[str]]
Load = Callable[..., LoadedSuite]


def test_a_suite_is_loaded(load: Load) -> None:
    loaded = load()
    assert loaded.suite.name == "demo"
    assert loaded.folder == loaded.path.parent
    assert [case.id for case in loaded.suite.cases] == ["one"]


def test_the_suite_as_resolved_is_a_suite_again(load: Load) -> None:
    text = suite(
        "vars: {brand: Butter & Flour, ratio: 1.10, big: 123456789012345678901234567890}",
        "gates: [{rule: pass_rate >= 0.9, models: ['mock*']}, error_rate <= 0.1]",
        cases="cases: [{id: one, prompt: '{{ brand }}', metadata: {no: on, at: 4:30, 5: [1, null]}, verdict: [image]}]",
        models="models: [{provider: mock, grid: {flaw: [none, typo]}}]",
    )
    resolved = load(text).suite
    assert Suite.model_validate(json.loads(resolved.model_dump_json())) == resolved


@pytest.mark.parametrize(("wrong", "more"), [(100, None), (101, "1 more problem"), (1_102, "1,002 more problems")])
def test_a_hundred_problems_per_file_are_reported(wrong: int, more: str | None) -> None:
    result = [Problem("a.yaml", at, 1, "wrong") for at in range(1, wrong + 1)]
    lines = str(SuiteError([*result, Problem("b.yaml", 1, 1, "wrong")])).splitlines()
    assert lines[99] == "a.yaml:100:1: wrong"
    assert lines[100:] == [*([f"a.yaml: ... and {more} in this file"] if more else []), "b.yaml:1:1: wrong"]


def test_the_suites_task_is_the_default_of_its_cases(load: Load) -> None:
    text = suite(
        "task: image_generation", cases="cases: [{id: a, prompt: x}, {id: b, prompt: x, task: image_generation}]"
    )
    assert [case.task for case in load(text).suite.cases] == ["image_generation"] * 2


# --- files of cases


def test_a_json_file_is_a_file_of_cases(load: Load, write_suite: Callable[..., Path]) -> None:
    write_suite('[{"id": "a", "prompt": "x"}]', "c.json")
    assert [case.id for case in load(suite(cases="cases: [{file: c.json}]")).suite.cases] == ["a"]


def test_paths_in_a_file_of_cases_are_relative_to_that_file(
    load: Load, tmp_path: Path, save_image: Callable[..., Path], write_suite: Callable[..., Path]
) -> None:
    save_image("sub/a.png")
    write_suite("- {id: a, prompt: x, images: [a.png], reference: a.png}\n- {file: deep/d.yaml}\n", "sub/c.yaml")
    write_suite("- {id: b, prompt: x, images: [{path: ../a.png, role: person}]}\n", "sub/deep/d.yaml")
    cases = load(suite(cases="cases: [{file: sub/c.yaml}]")).suite.cases
    assert [case.images[0].path for case in cases] == ["sub/a.png", "sub/a.png"]
    assert cases[0].reference == "sub/a.png"


# --- the path and the variables


def test_a_suite_that_cannot_be_read(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path / "gone.yaml", "no such file or directory"),
        (tmp_path / "suite.yaml", "no such file or directory"),
        (tmp_path / ("x" * 300), "file name too long"),
        (Path("/dev/null"), "is not a regular file"),
    ]:
        with pytest.raises(SuiteError) as caught:
            load_suite(path, run_labels=lambda run: [])
        assert str(caught.value) == f"{path}: {message}"


def test_problems_use_the_suite_path_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_suite: Callable[..., Path]
) -> None:
    write_suite(suite(cases="cases: [{file: c.yaml}]"), "inner/suite.yaml")
    write_suite("- {id: 5, prompt: x}\n", "inner/c.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SuiteError, match=r"^inner/c.yaml:1:8: id: expected text"):
        load_suite(Path("inner/suite.yaml"), run_labels=lambda run: [])


def test_variables_are_replaced_and_read_as_yaml(load: Load) -> None:
    text = suite("vars: {n: 1, word: x}", cases="cases: [{id: a, prompt: '{{ n + 1 }} {{ word }}'}]")
    assert load(text, variables={"n": "5", "word": "no"}).suite.vars == {"n": 5, "word": "no"}


def test_a_variable_that_the_suite_does_not_have(load: Load) -> None:
    with pytest.raises(UsageError, match=r"^--var colour: the suite has no such variable \(known: color\)$"):
        load(suite("vars: {color: red}"), variables={"colour": "blue"})
    with pytest.raises(UsageError, match=r"^--var color: the value is not valid UTF-8$"):
        load(suite("vars: {color: red}"), variables={"color": "\udcff"})


# --- size


MEASURE = """
import resource, sys
from pathlib import Path
from visioneval.suite.load import load_suite
load_suite(Path(sys.argv[1]), run_labels=lambda run: [])
status = Path("/proc/self/status")
if status.exists():  # what getrusage says on Linux includes the process that started this one
    print(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_ten_thousand_cases_fit_in_little_memory(write_suite: Callable[..., Path]) -> None:
    case = "  - id: case_{0}\n    prompt: A poster number {0} for {{{{ brand }}}}\n    criteria: Sharp\n    tags: [t{1}]\n    expect: {{text: {{required: [HELLO {0}]}}}}\n"
    cases = "cases:\n" + "".join(case.format(index, index % 7) for index in range(10_000))
    graders = "graders: [{key: image, type: properties}, {key: text, type: text}]"
    path = write_suite(suite("vars: {brand: Butter}", cases=cases, graders=graders, verdict="verdict: [image, text]"))
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 250 * 1024, done.stdout  # KiB


JUNK = [
    "",
    "[]",
    "{}",
    "null",
    "no",
    "-1",
    "../x",
    '"\\x07"',
    "{{",
    "[[a]]",
    "{a: 1}",
    "*x",
    "&x ",
    "!t ",
    "\t",
    "\n",
    ": ",
    "- ",
    "é",
    "'",
]


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), st.sampled_from(JUNK)), min_size=1, max_size=3))
def test_a_damaged_suite_loads_or_has_problems_with_positions(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, str]]
) -> None:
    text = suite(
        "gates: [pass_rate > 0, {rule: rate(image) > 0, models: ['s*']}]",
        cases="cases: [{id: a, prompt: '{{ metadata.f }}', tags: [t], expect: {text: {required: [A]}}, metadata: {f: 1}}]",
        models="models: [{provider: mock, label: s, params: {seed: 1}, grid: {flaw: [none, typo]}}]",
        graders="graders: [{key: image, type: properties, when: {tags: [t]}}, {key: text, type: text}]",
        verdict="verdict: [image, {rule: text, level: warn}]",
    )
    for start, length, junk in edits:
        text = text[:start] + junk + text[start + length :]
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        load_suite(path, run_labels=lambda run: [])
    except SuiteError as error:
        for problem in error.problems:
            assert problem.line >= 1
            assert problem.message.isprintable()
