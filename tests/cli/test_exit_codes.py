"""Exit codes of the command line, for one suite and for several."""

from __future__ import annotations

from typing import Any

import pytest
from fork_server import COMMAND
from toys import Toy

pytestmark = pytest.mark.slow

PASSES: dict[str, Any] = {}
FAILS: dict[str, Any] = {"metadata": {"look": "bad"}}
BREAKS: dict[str, Any] = {"metadata": {"generate": "raises"}}
REFUSES: dict[str, Any] = {"metadata": {"generate": "refuses"}}

RUNS: list[tuple[list[dict[str, Any]], list[Any] | None, int]] = [
    ([PASSES], None, 0),
    ([PASSES, FAILS], None, 1),
    ([PASSES, REFUSES], None, 1),
    ([PASSES, BREAKS], None, 3),
    ([FAILS, BREAKS], None, 3),
    ([BREAKS], None, 3),
    ([PASSES, FAILS], ["pass_rate >= 0.5"], 0),
    ([PASSES, FAILS, BREAKS], ["pass_rate >= 0.5", "error_rate < 0.5"], 0),
    ([PASSES, FAILS, BREAKS], ["pass_rate >= 0.5", {"rule": "error_rate < 0.5", "cases": ["case0"]}], 3),
    ([PASSES, REFUSES], ["refusal_rate <= 0.5"], 0),
    ([PASSES], ["mean(level) > 0.5"], 1),
    ([{"metadata": {"look": "half"}}], ["mean(level) >= 0"], 3),
]


@pytest.mark.parametrize(("cases", "gates", "code"), RUNS)
def test_gates_decide_exit_code(toy: Toy, cases: list[dict[str, Any]], gates: Any, code: int) -> None:
    result = toy.run(*cases, **({"gates": gates} if gates else {}))
    assert result.exit_code == code, result.output
    assert toy.summary["exit_code"] == code


@pytest.mark.parametrize(("cases", "code"), [([PASSES], 0), ([FAILS], 0), ([BREAKS], 3)])
def test_no_fail_only_ignores_failed_gates(toy: Toy, cases: list[dict[str, Any]], code: int) -> None:
    result = toy.run(*cases, arguments=("--no-fail",))
    assert result.exit_code == code
    assert ("--no-fail: exit code 0, although a gate failed\n" in result.stderr) == (cases == [FAILS])


def test_no_fail_does_not_hide_usage_errors(toy: Toy) -> None:
    assert toy.run(PASSES, arguments=("--no-fail", "--case", "nope")).exit_code == 2


def test_several_suites_exit_with_worst_code(toy: Toy) -> None:
    suites = {
        name: toy.write(case, name=f"{name}.yaml")
        for name, case in (("good", PASSES), ("bad", FAILS), ("broken", BREAKS))
    }
    for names, code in ((("good", "good"), 0), (("good", "bad"), 1), (("broken", "bad"), 3), (("bad", "broken"), 3)):
        result = toy("run", *(suites[name] for name in names), "--trust-suite")
        assert result.exit_code == code, names
        assert result.stdout.count("run: runs/") == len(names)


def test_all_suites_are_checked_before_the_first_runs(toy: Toy) -> None:
    good = toy.write(PASSES, name="good.yaml")
    bad = toy.write({"promt": "x"}, name="bad.yaml")
    worse = toy.write({"id": "../x"}, name="worse.yaml")
    result = toy("run", good, bad, worse, "--trust-suite")
    assert result.exit_code == 2
    assert "bad.yaml:1:" in result.stderr
    assert "worse.yaml:1:" in result.stderr
    assert not (toy.folder / "runs").exists()


USAGE = [
    ([], "Usage"),
    (["nope"], "No such command"),
    (["run"], "name a suite, or a run to resume: --resume RUN"),
    (["run", "nope.yaml"], "nope.yaml: "),
    (["run", ".."], "../suite.yaml: no such file or directory"),
    (["run", "suite.yaml", "--nope"], "No such option"),
    (["run", "suite.yaml", "--max-concurrency", "0"], "--max-concurrency"),
    (["run", "suite.yaml", "suite.yaml", "--run-id", "x", "--trust-suite"], "--run-id names one run"),
    (["run", "suite.yaml", "--trust-suite", "--var", "a"], "--var 'a': write NAME=VALUE"),
    (["run", "suite.yaml", "--trust-suite", "--var", "a=b"], "--var a: the suite has no such variable"),
    (["run", "suite.yaml", "--trust-suite", "--model", "x"], "--model: no match for 'x'"),
    (["run", "suite.yaml", "--trust-suite", "--run-id", "../x"], "--run-id: '../x' is not valid"),
    (["run", "suite.yaml"], "pass --trust-suite"),
    (["show", "nope"], "'nope': no such run in runs"),
    (["show", "latest"], "runs: contains no runs"),
    (["export", "latest", "--format", "xml"], "--format xml: not one of csv, jsonl"),
]


INVALID_ARGUMENTS = [
    (["run", "--max-concurrency", "x"], "run: --max-concurrency: 'x' is not a whole number; see visioneval run --help"),
    (["run", "a", "--limit", "0"], "run: --limit: 0 is less than 1; see visioneval run --help"),
    (["run", "a", "--samples", "1001"], "run: --samples: 1001 is more than 1000; see visioneval run --help"),
    (["run", "a", "--budget", "0"], "run: --budget: 0 is less than 0.000001; see visioneval run --help"),
    (["run", "a", "--budget", "much"], "run: --budget: 'much' is not a number; see visioneval run --help"),
    (["run", "a", "--reuse", "x"], "run: --reuse: 'x' is not one of 'all', 'judges', 'none'; see visioneval run --help"),
    (["run", "a", "--limit"], "run: Option '--limit' requires an argument; see visioneval run --help"),
    (["show", "a", "b", "c"], "show: Got unexpected extra argument(s) (c); see visioneval show --help"),
    (["run", "a", "--env-file", ".env"],
     "run: --env-file goes before the command: visioneval --env-file FILE run ...; see visioneval run --help"),
    (["cache", "nope"], "cache: No such command 'nope'; see visioneval cache --help"),
    (["cache", "clear", "--older-than", "x"],
     "cache clear: --older-than: 'x' is not a number; see visioneval cache clear --help"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "line"), INVALID_ARGUMENTS)
def test_invalid_command_line_is_reported_in_one_line(toy: Toy, arguments: list[str], line: str) -> None:
    result = toy(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"visioneval {line}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--nope"], "visioneval: No such option: --nope; see visioneval --help"),
        (["--env-file"], "visioneval: Option '--env-file' requires an argument; see visioneval --help"),
        (["nope\x1b[2J"], "visioneval: No such command 'nope\\x1b[2J'; see visioneval --help"),
    ],
)
def test_invalid_word_before_the_command(toy: Toy, arguments: list[str], line: str) -> None:
    result = toy(*arguments)
    assert (result.exit_code, result.stderr) == (2, f"{line}\n")


@pytest.mark.parametrize("arguments", [[], ["cache"], ["baseline"]])
def test_command_group_without_command_shows_help(toy: Toy, arguments: list[str]) -> None:
    assert "Usage" in toy(*arguments).output
    assert "see visioneval" not in toy(*arguments).output


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_usage_error_exits_2_without_traceback(toy: Toy, arguments: list[str], message: str) -> None:
    toy.write(PASSES)
    result = toy(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (toy.folder / "runs").exists()


def test_internal_error_is_not_reported_as_gate(toy: Toy) -> None:
    code = f"import visioneval.running.runner as runner\nrunner.summarize = lambda *_: 1 / 0\n{COMMAND}"
    program = toy.program("run", toy.write(FAILS), "--trust-suite", code=code)
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, "ZeroDivisionError" in errors) == (3, True), errors
