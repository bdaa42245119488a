"""The tables of a comparison in a terminal."""

from __future__ import annotations

import io

from compare_factory import cell, side, verdicts
from rich.console import Console

from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.gates import check_gates, parse_fail_on
from visioneval.report.sentences import power_lines
from visioneval.report.terminal.compare import print_comparison
from visioneval.types import Metric

NAME = "magnification_of_it"


def lines_of(width: int) -> list[str]:
    metrics = {NAME: Metric(type="bool", better="higher")}
    before, after = (
        side([cell(case, scores={NAME: case in good}) for case in "abcdef"], name, metrics=metrics)
        for name, good in (("a", "abcdef"), ("b", "abc"))
    )
    console = Console(file=io.StringIO(), width=width)
    print_comparison(compare(before, after), [], console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_80_columns_break_no_name_and_have_two_lines_for_each_metric() -> None:
    lines = lines_of(80)
    (row,) = (at for at, line in enumerate(lines) if line.startswith(f"{NAME}  "))
    assert "50.0%" in lines[row]
    assert lines[row + 1].split()[0].startswith("[")
    assert ["metric", "A", "B", "[95%]", "Holm", "(cases)", "result"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 80


def test_a_wide_terminal_has_one_line_for_each_metric() -> None:
    (row,) = (line for line in lines_of(140) if line.startswith(f"{NAME}  "))
    assert "-50.0 [" in row


def printed(before: str, after: str, *fail_on: str) -> str:
    result = compare(side(verdicts(before)), side(verdicts(after), "b"))
    console = Console(file=io.StringIO(), width=120)
    print_comparison(result, check_gates(result, parse_fail_on(fail_on)), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_fewer_than_five_cases_show_what_broke_and_no_statistics() -> None:
    text = printed("PPPP", "FFFF")
    assert text.startswith("A gate cannot tell (exit code 3)\n4 broken\n")
    assert text.index("Broken (passed in A, fails in B): 4") < text.index(
        "Statistics of fewer than 5 cases are left out"
    )
    assert "CANNOT TELL" in text
    assert "B - A" not in text
    assert "can be missed" not in text
    assert "B - A" in printed("PPPPP", "FFFFF")


def test_nothing_says_that_a_change_would_be_missed_that_was_found() -> None:
    for p, lines in ((0.2, ["With 6 cases, any change can be missed (ok)"]), (0.01, [])):
        difference = Difference("ok", Metric(type="bool", better="higher"), difference=-1.0, n_cases=6, p=p)
        assert list(power_lines([difference])) == lines


def test_an_interrupted_comparison_states_the_exit_code_that_it_ends_with() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_comparison(compare(side([cell("a")]), side([cell("a")], "b")), [], console, interrupted=True)
    assert isinstance(console.file, io.StringIO)
    first, *_, last = filter(None, console.file.getvalue().splitlines())
    assert first == last == "Interrupted (exit code 130)"
