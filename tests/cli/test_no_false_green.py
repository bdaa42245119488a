"""Every way to make or read a run, by every way in which something can be missing from it: none ends in exit code 0."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suite_runner import LOOK as RUBRIC
from suite_runner import SuiteRunner
from toys import LOOK, SECOND, Toy

import visioneval as ve

MISSING: dict[str, dict[str, Any]] = {
    "generation failed": {"generate": "raises"},
    "grader raised": {"look": "raises"},
    "judge unreachable": {"look": "judge_down"},
    "metric null": {"look": "half"},
    "no scores": {"look": "nothing"},
    "undeclared metric": {"look": "undeclared"},
    "grader raised in a cell that fails": {"look": "raises", "second": "fails"},
}
SUITE: dict[str, Any] = {"graders": [LOOK, SECOND], "verdict": ["second"], "gates": ["pass_rate >= 0"]}
"""Neither its rule nor its gate reads a metric of the grader that fails."""


def run(toy: Toy, metadata: dict[str, Any], *flags: str, run_id: str = "r") -> int:
    cases = ({"id": "good"}, {"id": "odd", "prompt": "a boat", "metadata": metadata})
    result = toy.run(*cases, arguments=("--run-id", run_id, *flags), **SUITE)
    return int(result.exit_code)


def a_run(toy: Toy, metadata: dict[str, Any]) -> int:
    return run(toy, metadata)


def a_run_with_no_fail(toy: Toy, metadata: dict[str, Any]) -> int:
    return run(toy, metadata, "--no-fail")


def a_selection(toy: Toy, metadata: dict[str, Any]) -> int:
    return run(toy, metadata, "--case", "odd")


def a_resumed_run(toy: Toy, metadata: dict[str, Any]) -> int:
    run(toy, metadata)
    return int(toy("run", "--resume", "r", "--trust-suite").exit_code)


def a_resumed_selection(toy: Toy, metadata: dict[str, Any]) -> int:
    run(toy, metadata, "--case", "odd")
    return int(toy("run", "--resume", "r", "--trust-suite", "--keep-errors").exit_code)


def a_run_graded_again(toy: Toy, metadata: dict[str, Any]) -> int:
    run(toy, metadata)
    return int(toy("grade", "r", "--trust-suite").exit_code)


def a_run_with_changed_rules(toy: Toy, metadata: dict[str, Any]) -> int:
    run(toy, metadata)
    toy.write(
        {"id": "good"},
        {"id": "odd", "prompt": "a boat", "metadata": metadata},
        name="other.yaml",
        **{**SUITE, "verdict": ["second", {"rule": "second", "level": "warn"}]},
    )
    return int(toy("grade", "r", "--suite", "other.yaml", "--trust-suite").exit_code)


def a_run_that_is_read(toy: Toy, metadata: dict[str, Any]) -> int:
    run(toy, metadata)
    return ve.load_run("r").exit_code


def a_model_run_that_is_read(toy: Toy, metadata: dict[str, Any]) -> int:
    run(toy, metadata)
    return ve.load_run("r@toy").exit_code


def a_comparison(toy: Toy, metadata: dict[str, Any]) -> int:
    run(toy, {}, run_id="before")
    run(toy, metadata)
    return int(toy("compare", "before", "r", "--fail-on", "regressed").exit_code)


def a_comparison_with_a_baseline(toy: Toy, metadata: dict[str, Any]) -> int:
    run(toy, {}, run_id="before")
    toy("baseline", "set", "before")
    run(toy, metadata)
    return int(toy("compare", "baseline", "r@toy", "--fail-on", "regressed").exit_code)


WAYS: list[Callable[[Toy, dict[str, Any]], int]] = [
    a_run,
    a_run_with_no_fail,
    a_selection,
    a_resumed_run,
    a_resumed_selection,
    a_run_graded_again,
    a_run_with_changed_rules,
    a_run_that_is_read,
    a_model_run_that_is_read,
    a_comparison,
    a_comparison_with_a_baseline,
]


@pytest.mark.slow
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_nothing_that_is_missing_ends_in_exit_code_0(
    toy: Toy, way: Callable[[Toy, dict[str, Any]], int], missing: str
) -> None:
    assert way(toy, MISSING[missing]) == 3


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_with_nothing_missing_each_of_them_exits_0(toy: Toy, way: Callable[[Toy, dict[str, Any]], int]) -> None:
    assert way(toy, {}) == 0


def cut_the_last_line(results: Path) -> None:
    results.write_bytes(results.read_bytes()[:-20])


def remove_a_line(results: Path) -> None:
    results.write_text("".join(results.read_text().splitlines(keepends=True)[:-1]))


def add_a_line(results: Path) -> None:
    extra = json.loads(results.read_text().splitlines()[-1]) | {"test_id": "other"}
    results.write_text(f"{results.read_text()}{json.dumps(extra)}\n")


@pytest.mark.parametrize("damage", [cut_the_last_line, remove_a_line, add_a_line])
def test_results_that_lack_or_add_cells_are_incomplete_wherever_they_are_read(
    toy: Toy, damage: Callable[[Path], None]
) -> None:
    run(toy, {}, run_id="before")
    run(toy, {})
    damage(toy.folder / "runs" / "r" / "results.jsonl")
    assert ve.load_run("r").exit_code == 3
    assert toy("report", "r", "--single-file", "-o", "page.html").exit_code == 0
    assert "All gates passed" not in (toy.folder / "page.html").read_text()
    if damage is not add_a_line:
        assert toy("compare", "before", "r", "--fail-on", "regressed").exit_code == 3
        allowed = toy("compare", "before", "r", "--fail-on", "regressed", "--allow", "missing-cells")
        assert allowed.exit_code == 3  # what is allowed is another plan of B, not that B was not finished
        assert toy("baseline", "set", "r").exit_code == 2


def test_a_deleted_output_is_an_error_when_graded_again(toy: Toy) -> None:
    run(toy, {})
    next((toy.folder / "runs" / "r").glob("artifacts/odd/*/*.png")).unlink()
    assert toy("grade", "r", "--trust-suite").exit_code == 3


@pytest.mark.parametrize("command", [["run", "suite.yaml"], ["grade", "r"], ["pairwise", "r", "r"]])
def test_nothing_can_be_answered_offline_without_the_cache(toy: Toy, command: list[str]) -> None:
    run(toy, {})
    result = toy(*command, "--offline", "--reuse", "none", "--trust-suite")
    assert result.exit_code == 2
    assert "offline takes all answers from the cache, and reuse 'none' takes none" in result.stderr


@pytest.mark.parametrize("flags", [(), ("--no-fail",)])
def test_a_replay_without_its_answers_is_incomplete_even_where_a_rule_failed_already(
    runner: SuiteRunner, flags: tuple[str, ...]
) -> None:
    file = {"key": "file", "type": "properties"}
    failing = {"verdict": ["file.blank"], "gates": ["pass_rate <= 1"]}
    runner.write("tree", "boat", graders=[file], **failing)
    assert runner.run().exit_code == 0
    runner.write("tree", "boat", graders=[file, RUBRIC], **failing)
    assert runner.run("--offline", *flags, run_id="replay").exit_code == 3
    assert {record.verdict for record in runner.records("replay").values()} == {"FAIL"}
