"""The tables of a comparison in a terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html import unescape
from typing import Literal

import pytest
from compare_factory import cell, side, verdicts
from rich.console import Console

from visioneval import Metric, Verdict
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.gates import check_gates, parse_fail_on
from visioneval.analysis.stats.basic import Interval
from visioneval.report.compare.json import comparison_json
from visioneval.report.compare.page import comparison_page
from visioneval.report.markdown import comparison_markdown
from visioneval.report.sentences import power_lines, show_difference
from visioneval.report.terminal.compare import print_comparison

FAIL = Verdict.FAIL

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


@pytest.mark.parametrize(
    ("kind", "value", "low", "high", "text"),
    [
        ("bool", -0.03, -0.067, 0.0, "-3.0 [-6.7, 0]"),  # 0 is in the interval
        ("bool", -0.03, -0.067, -1e-12, "-3.0 [-6.7, <0]"),  # the test excludes 0, and nothing else
        ("bool", 0.03, 1e-12, 0.067, "+3.0 [>0, +6.7]"),
        ("bool", -0.005, -0.01, -0.0002, "-0.5 [-1.0, -0.02]"),
        ("bool", -0.004, -0.008, 0.0004, "-0.4 [-0.8, +0.04]"),
        ("bool", 0.0, -0.05, 0.05, "0 [-5.0, +5.0]"),
        ("bool", -1e-17, -0.05, 0.05, "0 [-5.0, +5.0]"),
        ("bool", -0.0001, -0.0002, 0.0, "-0.01 [-0.02, 0]"),
        ("number", -0.5, -1.2345, -1e-12, "-0.5 [-1.23, <0]"),
        ("number", 0.25, 0.0, 0.5, "+0.25 [0, +0.5]"),
        ("number", 0.25, 0.00004, 0.5, "+0.25 [+4e-05, +0.5]"),
    ],
)
def test_the_ends_of_an_interval_show_their_side_of_0(
    kind: Literal["bool", "number"], value: float, low: float, high: float, text: str
) -> None:
    item = Difference("look", Metric(type=kind), difference=value, interval=Interval(low, high, 0.95))
    assert show_difference(item) == text


@pytest.mark.parametrize(
    ("broken", "p", "end"), [(3, 0.1, 0.43), (4, 0.038, -1e-12)], ids=["0 is included", "0 is excluded"]
)
def test_every_output_shows_whether_an_interval_has_0(broken: int, p: float, end: float) -> None:
    samples = [cell(f"c{case}", sample_index=at) for case in range(5) for at in range(8)]
    result = compare(side(samples), side([replace(item, verdict=FAIL) for item in samples[:broken]] + samples[broken:]))
    rate = result.pass_rate
    assert rate.p is not None
    assert rate.interval is not None
    assert (rate.p, rate.interval.high) == (pytest.approx(p, abs=0.001), pytest.approx(end, abs=0.005))
    console = Console(file=io.StringIO(), width=120)
    print_comparison(result, [], console)
    assert isinstance(console.file, io.StringIO)
    pages = console.file.getvalue(), comparison_markdown(result, []), unescape(comparison_page(result, []))
    assert [", <0]" in page for page in pages] == [rate.p < 0.05] * 3
    (interval,) = re.findall(r'"name": "pass_rate".*?"interval": \[(.*?)\]', "".join(comparison_json(result, [], 0)))
    assert float(interval.split(", ")[1]) == rate.interval.high


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
