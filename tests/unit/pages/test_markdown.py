"""Markdown: text of a model is no markup, link or mention, and does not break a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compare_factory import cell, scored, side, verdicts
from record_factory import record, run_of

from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import GateResult, check_gates, parse_fail_on
from visioneval.analysis.summary.summary import summarize
from visioneval.records.model import RunState
from visioneval.report.markdown import MAX_ROWS, code, comparison_markdown
from visioneval.report.markdown_blocks import report_markdown
from visioneval.report.run import run_report


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("", ""),
        ("a|b", "`a|b`"),
        ("`x`", "`` `x` ``"),
        ("a``b", "```a``b```"),
        ("two\nlines", "`two lines`"),
        ("@someone <img src=x> [a](http://b)", "`@someone <img src=x> [a](http://b)`"),
    ],
)
def test_code_spans(text: str, shown: str) -> None:
    assert code(text) == shown


def test_a_comparison() -> None:
    before = verdicts("P" * 9 + "F")
    after = [replace(item, failed_rules=("fine",), reasons={"fine": "@all | see `x`"}) for item in verdicts("F" * 9)]
    result = compare(side(before), side([*after, cell("c9", "FAIL")], "b"))
    text = comparison_markdown(result, check_gates(result, parse_fail_on([])))
    assert text.startswith("## visioneval compare: A gate failed\n\n**9 broken, 1 still failing**")
    assert "| `c0` | `m` | 0 | `` fine: @all \\| see `x` `` |  |" in text
    assert "<details><summary>Still failing: 1</summary>" in text
    assert "**significantly worse**" in text
    assert "| **FAILED** | `regressed` | `pass_rate -90.0 points (p 0.002)` |" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


def test_the_statistics_of_fewer_than_five_cases_are_folded() -> None:
    few, enough = (
        comparison_markdown(compare(side(verdicts("P" * n)), side(verdicts("F" * n), "b")), []) for n in (4, 5)
    )
    assert (
        "<details><summary>Statistics of fewer than 5 cases</summary>\n\n### Pass rate and metrics\n\n| metric |" in few
    )
    assert few.index("### Broken") < few.index("<details>") < few.index("</details>") < few.index("### Gates")
    assert "Statistics of fewer" not in enough


def test_pipe_is_escaped_only_in_tables() -> None:
    result = compare(
        side([cell("a|b"), cell("gone|x")]),
        side([cell("a|b", "FAIL")], "b"),
    )
    text = comparison_markdown(result, check_gates(result, parse_fail_on([])))
    assert "| `a\\|b` |" in text
    assert "- `only in A: 1 cell: m: gone|x [0]`" in text


def test_long_lists_are_truncated_with_a_note() -> None:
    many = MAX_ROWS + 3
    result = compare(side(verdicts("P" * many)), side(verdicts("F" * many), "b"))
    text = comparison_markdown(result, check_gates(result, parse_fail_on(["broken"])))
    assert "... and 3 more" in text
    assert text.count("| `c") == MAX_ROWS


def test_gates_in_the_title() -> None:
    for after, outcome in (("P", "All gates passed"), ("F", "A gate failed"), ("!", "A gate was not measured")):
        result = compare(side(verdicts("P")), side(verdicts(after), "b"))
        assert f"compare: {outcome}\n" in comparison_markdown(result, check_gates(result, parse_fail_on(["broken"])))
    result = compare(side(verdicts("P")), side(verdicts("F"), "b"))
    text = comparison_markdown(result, check_gates(result, parse_fail_on(["must_pass"])))
    assert text.startswith("## visioneval compare: All gates passed, but 1 cell broke\n")


def test_changes_by_tag_count_broken_and_fixed_cells() -> None:
    result = compare(side(verdicts("PPF", tags=("logo",))), side(verdicts("FPP", tags=("logo",)), "b"))
    assert "| `logo` | 66.7% | 66.7% | 0 [-100.0, +100.0] | 1.00 | 3 | 1 | 1 | cannot tell: too few cases |" in (
        comparison_markdown(result, [])
    )


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


def test_incomplete_run_is_in_the_title() -> None:
    result = compare(side(verdicts("P")), side(verdicts("P"), "b", state="interrupted"))
    text = comparison_markdown(result, check_gates(result, parse_fail_on(["broken"])))
    assert text.startswith("## visioneval compare: B is incomplete\n")


def test_lower_is_better_in_words() -> None:
    result = compare(side(scored("copy.cer", [0.1] * 7)), side(scored("copy.cer", [0.4] * 7), "b"))
    assert (
        "| `copy.cer` | 0.1 | 0.4 | +0.3 [+0.137, +0.388] | 0.0022 | 0.0022 | 7 | **significantly worse** |"
        in comparison_markdown(result, [])
    )


def test_a_run_beside_itself_is_said_to_be_the_same() -> None:
    same = "A and B are the same run: this compares it with itself"
    a, b = side(verdicts("PF"), run_ids=(("1", "r"),)), side(verdicts("PF"), run_ids=(("2", "r"),))
    other_model = side(verdicts("PF", model_label="n"), run_ids=(("1", "r"),))
    texts = [comparison_markdown(compare(a, other), []) for other in (a, b, other_model)]
    assert [same in text for text in texts] == [True, False, False]
    assert same not in comparison_markdown(compare(side(verdicts("P")), side(verdicts("P"))), [])


def test_a_run() -> None:
    info = run_of({"one": {}, "two": {}}, ["m|x"], [], {"fine": {"type": "bool"}})
    cells = [
        record(model_label="m|x", scores={"fine": True}),
        record(test_id="two", model_label="m|x", verdict="FAIL", failed_rules=("fine",), scores={"fine": False}),
    ]
    text = report_markdown(run_report(summarize(info, cells).model_copy(update={"suite": "@all <b>"})))
    assert text.startswith(
        "## visioneval: `@all <b>`: 1 of 3 gates failed\n\n2 of 2 cells, 1 PASS, **1 FAIL**, 0 ERROR"
    )
    assert "| **FAILED** | `pass_rate == 1` | all cells | 0.5 [0.09, 0.91] | 2 | 7 of 10 runs |" in text
    errors = [cells[0], record(test_id="two", model_label="m|x", verdict="ERROR")]
    text_of_errors = report_markdown(run_report(summarize(info, errors)))
    assert "| `pass_rate == 1` | all cells | 1 [0.21, 1.00] | 1 !1 |" in text_of_errors
    assert "| `error_rate == 0` | all cells | 0.5 [0.09, 0.91] | 2 |" in text_of_errors
    assert "| `m\\|x` | 50.0% [9.5, 90.5] n=2 | **1** | 0 |" in text
    assert "| metric | `m\\|x` |\n| --- | ---: |\n| `fine` | 1/2 [0.09, 0.91] |" in text
    assert "| **1** | `fine` | `m\\|x` | `two` |  |" in text
