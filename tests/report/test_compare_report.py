"""A comparison in a terminal, in Markdown and in HTML: text of a model is no markup, link or mention."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Literal

import pytest
from compare_factory import cell, comparison_markdown, comparison_text, scored, side, verdicts
from tables import rows_of

from visioneval import Metric, Verdict
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.gates import GateResult, check_gates, parse_fail_on
from visioneval.analysis.stats.basic import Interval
from visioneval.records.model import RunState
from visioneval.report.compare import MAX_ROWS, comparison_json
from visioneval.report.differences import power_lines, show_difference
from visioneval.report.html.compare import comparison_page

rows = rows_of(__file__)

FAIL = Verdict.FAIL

NAME = "magnification_of_it"


@pytest.mark.parametrize(("kind", "value", "low", "high", "text"), rows("the_ends_of_an_interval_show_their_side_of_0"))
def test_the_ends_of_an_interval_show_their_side_of_0(
    kind: Literal["bool", "number"], value: float, low: float, high: float, text: str
) -> None:
    item = Difference("look", Metric(type=kind), difference=value, interval=Interval(low, high))
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
    assert (rate.p, rate.interval.high) == pytest.approx((p, end), abs=0.005)
    pages = (
        comparison_text(result),
        comparison_markdown(result).replace("\\", ""),
        unescape(comparison_page(result, [])),
    )
    assert [", <0]" in page for page in pages] == [rate.p < 0.05] * 3
    (interval,) = re.findall(r'"name": "pass_rate".*?"interval": \[(.*?)\]', "".join(comparison_json(result, [], 0)))
    assert float(interval.split(", ")[1]) == rate.interval.high


def test_nothing_says_that_a_change_would_be_missed_that_was_found() -> None:
    for p, lines in ((0.2, ["With 6 cases, any change can be missed (ok)"]), (0.01, [])):
        difference = Difference("ok", Metric(type="bool", better="higher"), difference=-1.0, n_cases=6, p=p)
        assert list(power_lines([difference])) == lines


def test_an_interrupted_comparison_states_the_exit_code_that_it_ends_with() -> None:
    text = comparison_text(compare(side([cell("a")]), side([cell("a")], "b")), interrupted=True)
    first, *_, last = filter(None, text.splitlines())
    assert first == last == "Interrupted (exit code 130)"


def test_the_statistics_of_fewer_than_five_cases_are_folded() -> None:
    few, enough = (
        comparison_markdown(compare(side(verdicts("P" * n)), side(verdicts("F" * n), "b")), []) for n in (4, 5)
    )
    assert (
        "<details><summary>Statistics of fewer than 5 cases</summary>\n\n### Pass rate and metrics (paired)\n\n| metric |"
        in few
    )
    assert few.index("### Broken") < few.index("<details>") < few.index("</details>") < few.index("### Gates")
    assert "Statistics of fewer" not in enough


def test_pipe_is_escaped_only_in_tables() -> None:
    result = compare(side([cell("a|b"), cell("gone|x")]), side([cell("a|b", "FAIL")], "b"))
    text = comparison_markdown(result, check_gates(result, parse_fail_on([])))
    assert "| **`a\\|b`** |" in text
    assert "- `only in A: 1 cell: m: gone|x [0]`" in text


def test_long_lists_are_truncated_with_a_note() -> None:
    many = MAX_ROWS + 3
    result = compare(side(verdicts("P" * many)), side(verdicts("F" * many), "b"))
    text = comparison_markdown(result, check_gates(result, parse_fail_on(["broken"])))
    assert "... and 3 more" in text
    assert text.count("| **`c") == MAX_ROWS


def test_gates_in_the_title() -> None:
    for after, outcome in (("P", "All gates passed"), ("F", "A gate failed"), ("!", "A gate was not measured")):
        result = compare(side(verdicts("P")), side(verdicts(after), "b"))
        assert f"compare: {outcome}\n" in comparison_markdown(result, check_gates(result, parse_fail_on(["broken"])))
    result = compare(side(verdicts("P")), side(verdicts("F"), "b"))
    text = comparison_markdown(result, check_gates(result, parse_fail_on(["must_pass"])))
    assert text.startswith("## visioneval compare: All gates passed, but 1 cell broke\n")


@pytest.mark.parametrize(
    ("state", "names", "outcome"),
    [
        ("complete", ["broken"], "A gate failed"),
        ("complete", ["broken", "level:1"], "A gate failed, and another was not measured"),
        ("interrupted", ["broken"], "A gate failed, and B is incomplete"),
        ("interrupted", ["must_pass"], "B is incomplete"),
    ],
)
def test_a_failed_gate_is_in_the_title_beside_what_is_missing(state: RunState, names: list[str], outcome: str) -> None:
    result = compare(side(verdicts("P")), side(verdicts("F"), "b", state=state))
    gates = [
        GateResult(gate, "unmeasured", "no pair with both cells measured") if gate.metric else checked
        for gate, checked in zip(
            parse_fail_on(names), check_gates(result, parse_fail_on(names[:1])) * len(names), strict=True
        )
    ]
    assert comparison_markdown(result, gates).startswith(f"## visioneval compare: {outcome}\n")


def test_the_longest_title_fits_a_status_check() -> None:
    a = side(verdicts("P" * 1001), is_partial=True)
    b = side(verdicts("F" * 1000), "b", is_partial=True)
    title = comparison_markdown(compare(a, b), []).partition("\n")[0]
    everything = "1,000 cells broke, A is incomplete, B is incomplete, B lacks measurements that A has"
    assert title == f"## visioneval compare: All gates passed, but {everything}"
    assert len(title) <= 140


def test_lower_is_better_in_words() -> None:
    result = compare(side(scored("copy.cer", [0.1] * 7)), side(scored("copy.cer", [0.4] * 7), "b"))
    assert (
        "| `copy.cer` | 0.1 | 0.4 | +0.3 [+0.137, +0.388] | 0.0022 | 0.0022 | 7 | **significantly worse** |"
        in comparison_markdown(result)
    )


@pytest.mark.parametrize(("name", "a", "b"), [("copy.cer", 0.1, 0.4), ("look", 4, 2)])
def test_worse_is_left_of_zero_in_a_plot(name: str, a: float, b: float) -> None:
    page = comparison_page(compare(side(scored(name, [a] * 7)), side(scored(name, [b] * 7), "b")), [])
    plots = page[page.index(f">{name}</th>") :]
    zero, *ends = (
        float(re.findall(pattern, plots)[0])
        for pattern in ('class="grid" x1="(.*?)"', 'class="dot" cx="(.*?)"', 'class="whisker" x1="(.*?)"',
                        'class="whisker" x1=".*?" x2="(.*?)"')
    )  # fmt: skip
    assert max(ends) < zero


def test_a_run_beside_itself_is_said_to_be_the_same() -> None:
    same = "A and B are the same run: this compares it with itself"
    a, b = side(verdicts("PF"), run_ids=(("1", "r"),)), side(verdicts("PF"), run_ids=(("2", "r"),))
    other_model = side(verdicts("PF", model_label="n"), run_ids=(("1", "r"),))
    texts = [comparison_markdown(compare(a, other), []) for other in (a, b, other_model)]
    assert [same in text for text in texts] == [True, False, False]
    assert same not in comparison_markdown(compare(side(verdicts("P")), side(verdicts("P"))), [])


def test_markdown_leaves_out_no_metric_and_no_gate() -> None:
    names = [f"m{at:02}" for at in range(25)]
    metrics = {name: Metric(type="number", better="higher", range=(0, 5)) for name in names}
    cells = [cell(f"c{at}", scores=dict.fromkeys(names, 3)) for at in range(6)]
    result = compare(side(cells, metrics=metrics), side(cells, "b", metrics=metrics))
    gates = check_gates(result, parse_fail_on([f"{name}:1" for name in names]))
    text = comparison_markdown(result, gates)
    assert all(f"| `{name}` | 3 | 3 |" in text and f"| `{name}:1` |" in text for name in names)
    assert " more" not in text.replace("more than one time in five", "")
