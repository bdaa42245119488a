"""The lists of planted bugs fit the code and the tests that they name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.copies import TestRun
from tests.mutants.entries import EntryError, Mutant, read_mutants
from tests.mutants.results import judge_run, table

ROOT = Path(__file__).parents[2]
MUTANTS = read_mutants()


@cache
def defined_tests(path: str) -> frozenset[str]:
    """The functions and classes of a file of tests, as node ids name them."""
    names = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            names.update(f"{node.name}::{part.name}" for part in ast.walk(node) if isinstance(part, ast.FunctionDef))
    return frozenset(names)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_bug_can_be_planted_and_its_tests_exist(mutant: Mutant) -> None:
    mutant.planted(ROOT)
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not name or name.partition("[")[0] in defined_tests(path), test


def test_every_package_and_every_room_of_the_engine_has_bugs() -> None:
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "visioneval").glob("*/__init__.py")}
    folders |= {path.parent.relative_to(ROOT) for path in (ROOT / "visioneval" / "running").rglob("__init__.py")}
    assert not [folder for folder in folders if not any(Path(m.file).is_relative_to(folder) for m in MUTANTS)]
    assert len(MUTANTS) >= 80


def test_no_bug_is_listed_twice() -> None:
    assert len({(mutant.file, mutant.find, mutant.replace) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.bug for mutant in MUTANTS}) == len(MUTANTS)


def test_each_bug_is_a_sentence_about_what_goes_wrong() -> None:
    assert not [mutant.name for mutant in MUTANTS if len(mutant.bug.split()) < 5]


def mutant(**changes: object) -> Mutant:
    entry = {
        "name": "a:1",
        "bug": "It is wrong.",
        "file": "code.py",
        "find": "a = 1",
        "replace": "a = 2",
        "tests": ("t.py",),
    }
    return Mutant(**{**entry, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"find": "c = 3"}, "code.py: the text to find occurs 0 times, not once"),
        ({"find": " = 1"}, "code.py: the text to find occurs 2 times, not once"),
        ({"replace": "a = 1"}, "code.py: the replacement changes nothing"),
        ({"replace": "a = ("}, "code.py: with the bug it does not compile: line 1: '(' was never closed"),
        ({"file": "other.py"}, "other.py: No such file or directory"),
    ],
)
def test_an_entry_that_plants_no_bug_is_an_error(changes: dict[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("a = 1\nb = 1\n")
    with pytest.raises(EntryError) as error:
        mutant(**changes).planted(tmp_path)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "x.yaml: must be a list of bugs"),
        ("- {bug: a}", "x:1: must have exactly the keys bug, file, find, replace, tests"),
        ("- {bug: a, file: b, find: c, replace: 1, tests: [d]}", "x:1: replace must be a str"),
        ("- {bug: a, file: b, find: c, replace: d, tests: []}", "x:1: tests must be a list of files or node ids"),
    ],
)
def test_an_invalid_list_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(EntryError) as error:
        read_mutants(folder=tmp_path)
    assert str(error.value) == message


def test_bugs_are_chosen_by_list_and_number(tmp_path: Path) -> None:
    entry = "- {bug: b, file: f, find: a, replace: c, tests: [t]}\n"
    for name, count in (("b", 2), ("a", 1)):
        (tmp_path / f"{name}.yaml").write_text(entry * count)
    names = [[m.name for m in read_mutants(chosen, tmp_path)] for chosen in ([], ["b"], ["b:2", "a"])]
    assert names == [["a:1", "b:1", "b:2"], ["b:1", "b:2"], ["a:1", "b:2"]]
    with pytest.raises(EntryError, match="there is no list or bug named b:3"):
        read_mutants(["a", "b:3"], tmp_path)


@pytest.mark.parametrize(
    ("code", "report", "status", "detail"),
    [
        (None, {}, "killed", "by timeout, after 1 s"),
        (0, {"failures": [], "foreign": []}, "survived", "all tests passed"),
        (1, {"failures": [{"test": "a::b", "is_broken": False}], "foreign": []}, "killed", "by a::b"),
        (0, {"failures": [], "foreign": ["visioneval.cli"]}, "error", "not imported from the copy: visioneval.cli"),
        (1, {"failures": [], "foreign": []}, "error", "pytest ended with 1, not with a test that failed: the end"),
        (2, {"failures": [], "foreign": []}, "error", "pytest ended with 2, not with a test that failed: the end"),
        (4, {}, "error", "pytest ended with 4, not with a test that failed: the end"),
        (
            1,
            {"failures": [{"test": "a::b", "is_broken": True, "reason": "NameError: x"}]},
            "error",
            "the program does not even start: NameError: x",
        ),
    ],
)
def test_what_kills_a_bug(code: int | None, report: dict[str, object], status: str, detail: str) -> None:
    assert judge_run(TestRun(code, 1.0, report, "a line\nthe end\n\n")) == (status, detail)


def test_a_list_without_bugs_has_a_table() -> None:
    assert table([]).endswith("0 planted, 0 killed, 0 survived")
