"""The tables of a comparison in a terminal."""

from __future__ import annotations

import io

from compare_factory import cell, side
from rich.console import Console

from visioneval.analysis.compare.compare import compare
from visioneval.report.terminal.compare import print_comparison
from visioneval.types import Metric

NAME = "magnification_of_it"


def lines_of(width: int) -> list[str]:
    metrics = {NAME: Metric(type="bool", better="higher")}
    before, after = (
        side([cell(case, scores={NAME: case in good}) for case in "abcd"], name, metrics=metrics)
        for name, good in (("a", "abcd"), ("b", "ab"))
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


def test_an_interrupted_comparison_states_the_exit_code_that_it_ends_with() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_comparison(compare(side([cell("a")]), side([cell("a")], "b")), [], console, interrupted=True)
    assert isinstance(console.file, io.StringIO)
    first, *_, last = filter(None, console.file.getvalue().splitlines())
    assert first == last == "Interrupted (exit code 130)"
