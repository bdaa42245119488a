"""What became of each planted bug, and how it is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.mutants.copies import Copy, TestRun, planted
from tests.mutants.entries import EntryError, Mutant

Status = Literal["killed", "survived", "error"]
LONGEST_S = 120.0
"""How long the tests of a bug may take; without the bug, half as long."""
_FAILED_TESTS = 1


@dataclass(frozen=True, slots=True)
class Result:
    """The end of one planted bug. ``detail`` is the test that found it, or what is wrong with the entry."""

    mutant: Mutant
    status: Status
    detail: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.status:8} {self.mutant.name:14} {self.mutant.bug}\n{'':24}{self.detail} ({self.seconds:.1f} s)"


def try_mutant(mutant: Mutant, copy: Copy, passing: set[tuple[str, ...]]) -> Result:
    """Plants a bug in a copy and runs its tests. A test that finds it must pass without it.

    ``passing`` are the tests that are known to; those that are tried here are added.
    """
    try:
        with planted(mutant, copy.folder):
            run = copy.run(mutant.tests, LONGEST_S)
    except EntryError as error:
        return Result(mutant, "error", str(error), 0.0)
    status, detail = judge_run(run)
    if status == "killed":
        tests = mutant.tests if run.code is None else (run.report["failures"][0]["test"],)
        if tests not in passing and (problem := problem_without_bug(copy.run(tests, LONGEST_S / 2))):
            return Result(mutant, "error", problem, run.seconds)
        passing.add(tests)
    return Result(mutant, status, detail, run.seconds)


def judge_run(run: TestRun) -> tuple[Status, str]:
    """Whether a run with a bug found it. Only a test that failed kills: neither a wrong path nor a module that cannot be imported."""
    if run.code is None:
        return "killed", f"by timeout, after {run.seconds:.0f} s"
    if foreign := run.report.get("foreign"):
        return "error", f"not imported from the copy: {foreign[0]}"
    if run.code == 0:
        return "survived", "all tests passed"
    failures = run.report.get("failures")
    if run.code != _FAILED_TESTS or not failures:
        return "error", f"pytest ended with {run.code}, not with a test that failed: {last_line(run.output)}"
    if failures[0]["is_broken"]:
        return "error", f"the program does not even start: {failures[0]['reason']}"
    return "killed", f"by {failures[0]['test']}"


def problem_without_bug(run: TestRun) -> str | None:
    """Why tests that ran without a bug can find none; ``None`` if they can."""
    if run.code == 0 and not run.report["foreign"]:
        return None
    status, detail = judge_run(run)
    return detail if status == "error" else f"fails without any bug: {detail}"


def last_line(output: str) -> str:
    """The last line of a command's output."""
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no output")


def table(results: Sequence[Result]) -> str:
    """Killed, survived and invalid bugs by package, and the totals."""
    counts = Counter((result.mutant.package, result.status) for result in results)
    packages = sorted({package for package, _ in counts})
    width = max(map(len, packages), default=0)
    lines = [f"{'package':{width}}  killed  survived  error"]
    for package in packages:
        killed, survived, errors = (counts[package, status] for status in ("killed", "survived", "error"))
        lines.append(f"{package:{width}}  {killed:6}  {survived:8}  {errors:5}")
    totals = Counter(result.status for result in results)
    text = f"{len(results)} planted, {totals['killed']} killed, {totals['survived']} survived"
    return "\n".join([*lines, "", text + (f", {totals['error']} invalid" if totals["error"] else "")])
