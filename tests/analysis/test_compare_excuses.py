"""What excuses a case is read from A: a change that excuses more exits 3, whatever else is equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compare_factory import cell, mark, side
from toys import LOOK, SECOND, Toy

from visioneval.analysis.compare.compare import compare, dropped_rules
from visioneval.analysis.compare.gates import NAMES, check_gates, parse_fail_on
from visioneval.analysis.compare.pairing import ComparisonFilters

MUST: dict[str, Any] = {"tags": ["must_pass", "x"]}
BAD: dict[str, Any] = {"metadata": {"look": "bad"}}
BOTH = [LOOK, {**SECOND, "optional": False}]
RULES: list[Any] = ["fine", "second"]


def suites(toy: Toy, before: dict[str, Any], after: dict[str, Any], cases: int = 8) -> None:
    """Runs A, sets its baseline, and runs B. ``case`` of each are changes of all its cases."""
    for name, changes in (("a", before), ("b", after)):
        suite = {"graders": BOTH, "verdict": RULES, **changes}
        case = suite.pop("case", {})
        toy.run(*([{**MUST, **case}] * cases), **suite, arguments=("--run-id", name, "--no-fail"))
    assert toy("baseline", "set", "a").exit_code == 0
    assert toy("baseline", "set", "b", "--name", "b").exit_code == 0


def gates(toy: Toy, a: str, b: str, *flags: str) -> tuple[int, dict[str, Any]]:
    result = toy("compare", a, b, "--json", *flags)
    comparison = json.loads(result.stdout)
    return result.exit_code, {gate["fail_on"]: gate for gate in comparison["gates"]}


SIDES = [("a", "b"), ("baseline", "baseline:b")]
CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"case": {"flaky": True}}, "8 cells flaky"),
    ({"case": {"tags": ["x"]}}, "8 cells not tagged must_pass"),
    ({"verdict": [{"rule": "fine", "level": "warn"}, "second"]}, "8 cells not failed by the rule 'fine'"),
    ({"verdict": ["second"]}, "8 cells not failed by the rule 'fine'"),
    ({"verdict": [{"rule": "fine", "cases": ["case0"]}, "second"]}, "7 cells not failed by the rule 'fine'"),
    ({"case": {"verdict": ["second"]}}, "8 cells not failed by the rule 'fine'"),
    (
        {"graders": [{**LOOK, "optional": True}, SECOND]},
        "8 cells not in need of the grader 'look', which is optional",
    ),
    ({"graders": [{**LOOK, "when": {"cases": ["case0"]}}, SECOND]}, "7 cells not graded by 'look'"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_change_that_excuses_more_is_a_loss(toy: Toy, change: dict[str, Any], message: str) -> None:
    suites(toy, {}, change)
    for a, b in SIDES:
        code, results = gates(toy, a, b, "--allow", "missing-metrics")
        assert (code, results["excuses"]["state"]) == (3, "unmeasured"), (a, b)
        assert results["excuses"]["message"].startswith("excused in B, but not in A: "), (a, b)
        assert message in results["excuses"]["message"], (a, b)
        assert "(--allow excuses accepts this)" in results["excuses"]["message"]
        code, results = gates(toy, a, b, "--allow", "missing-metrics", "--allow", "excuses")
        assert (code, results["excuses"]["state"]) == (0, "passed"), (a, b)
        code, results = gates(toy, b, a)
        assert results["excuses"]["message"] == "no new excuses in B", (a, b)


@pytest.mark.parametrize(
    ("before", "after", "is_excuse"),
    [
        ("level >= 0.4", "level >= 0", True),  # which no score can fail
        ("level >= 0.4", "level > -1", True),
        ("level >= 0.4", "level != 7", True),
        ("level >= 0.4", "level > 0", False),
        ("fine", "not fine", True),
    ],
)
def test_a_rule_that_cannot_fail_what_the_other_failed_is_an_excuse(
    toy: Toy, before: str, after: str, is_excuse: bool
) -> None:
    suites(toy, {"verdict": [before]}, {"verdict": [after], "case": BAD}, cases=2)
    for a, b in SIDES:
        code, results = gates(toy, a, b, "--fail-on", "must_pass")
        assert (code, results["excuses"]["state"]) == ((3, "unmeasured") if is_excuse else (0, "passed")), (a, b)
        assert (f"2 cells not failed by the rule {before!r}" in results["excuses"]["message"]) is is_excuse, (a, b)


UNCHANGED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"case": {"flaky": True}}, {"case": {"flaky": True}}),  # no gate could fail: exit 3, for that alone
    (
        {"verdict": ["level >= 0.4", "second"]},
        {"verdict": ["second", "level > 0"]},
    ),  # another threshold is another measure, not an excuse
    ({}, {"graders": [{**LOOK, "key": "seen"}, SECOND]}),  # the same metrics by another key
    ({"verdict": [{"rule": "fine", "level": "warn"}, "second"]}, {"verdict": ["fine", "second"]}),
    ({"verdict": ["fine"]}, {"verdict": ["fine"], "case": {"verdict": ["fine", "second"]}}),
]


@pytest.mark.parametrize(("before", "after"), UNCHANGED)
def test_other_changes_excuse_nothing(toy: Toy, before: dict[str, Any], after: dict[str, Any]) -> None:
    suites(toy, before, after, cases=2)
    for a, b in SIDES:
        code, results = gates(toy, a, b)
        assert (code, results["excuses"]["state"]) == (3 if "case" in before else 0, "passed"), (a, b)


def test_cases_that_break_are_judged_by_the_excuses_of_a(toy: Toy) -> None:
    suites(toy, {}, {"case": {**BAD, "flaky": True, "tags": ["x"]}})
    for a, b in SIDES:
        code, results = gates(toy, a, b)
        assert (code, results["must_pass"]["state"]) == (3, "failed")
        text = toy("compare", a, b).stdout
        assert text.count("A gate failed, and another was not measured (exit code 3)") == 2, text
        assert results["must_pass"]["message"].startswith("8 of 8 cases tagged must_pass broke")
        assert gates(toy, a, b, "--allow", "excuses")[0] == 1
    code, results = gates(toy, "b", "a")
    assert results["must_pass"]["message"] == "every case is flaky, so no gate could fail"


def test_gates_that_are_all_about_nothing_were_not_measured(toy: Toy) -> None:
    """The default gates too. What filters leave counts, and ``cannot-tell`` accepts another thing."""
    toy.run({"id": "stable"}, {"id": "unsure", "flaky": True}, arguments=("--run-id", "a"))
    for a in ("a", "baseline"):
        toy("baseline", "set", "a")
        code, results = gates(toy, a, "a")
        assert (code, results["must_pass"]["state"]) == (0, "not_applicable")
        assert gates(toy, a, "a", "--case", "stable")[0] == 0
        for flags in ((), ("--allow", "cannot-tell"), ("--fail-on", "must_pass")):
            code, results = gates(toy, a, "a", "--case", "unsure", *flags)
            of_gates = [gate for name, gate in results.items() if name in NAMES]
            assert (code, {gate["state"] for gate in of_gates}) == (3, {"unmeasured"}), flags
            assert {gate["message"] for gate in of_gates} == {"every case is flaky, so no gate could fail"}
        assert gates(toy, a, "a", "--fail-on", "must_pass")[0] == 3


def test_records_show_what_they_know_of_excuses(toy: Toy) -> None:
    suites(toy, {"case": BAD}, {"case": BAD, "verdict": [{"rule": "fine", "level": "warn"}, "second"]}, cases=2)
    records = "runs/a/results.jsonl"
    Path("a.jsonl").write_text(Path(records).read_text())
    code, results = gates(toy, "a.jsonl", "b")
    assert (code, "2 cells not failed by the rule 'fine'" in results["excuses"]["message"]) == (3, True)
    Path("b.jsonl").write_text(Path("runs/b/results.jsonl").read_text())
    code, results = gates(toy, "a", "b.jsonl")
    assert (code, "2 cells not in need of the grader 'look'" in results["excuses"]["message"]) == (3, True)
    assert "it is unknown which rules could fail a cell" in " ".join(toy("compare", "a", "b.jsonl").stdout.split())


def test_a_tag_filter_reads_the_tags_of_a() -> None:
    before = [cell("one", tags=("must_pass",)), cell("two")]
    after = [cell("one", "FAIL"), cell("two", tags=("must_pass",)), cell("new", tags=("must_pass",))]
    result = compare(side(before), side(after, "b"), ComparisonFilters(tags=("must_pass",)))
    assert [pair.b.test_id for pair in result.pairs] == ["one"]
    assert (list(result.only_a.names()), [name[0] for name in result.only_b.names()]) == ([], ["new"])
    (gate,) = check_gates(result, parse_fail_on(["must_pass"]))
    assert gate.state == "failed"


def test_a_cell_without_an_output_excuses_no_grader() -> None:
    before = [cell("one", graders=(mark(),)), cell("two", graders=(mark(),))]
    after = [cell("one", "ERROR", grade_key="case:2"), cell("two", graders=(mark(),), grade_key="case:2")]
    assert compare(side(before), side(after, "b")).excuses == ()
    refused = [cell("one", grade_key="case:2"), after[1]]  # passes without being graded
    assert [excuse.what for excuse in compare(side(before), side(refused, "b")).excuses] == ["not graded by 'rubric'"]


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        (["look >= 3"], ["look >= 2"], []),
        (["look >= 3"], ["look > 3"], []),
        (["look >= 3"], ["look <= 3"], ["look >= 3"]),
        (["look >= 3", "look <= 9"], ["look >= 3"], ["look <= 9"]),
        (["look >= 3", "look >= 1"], ["look >= 1"], ["look >= 3"]),  # what is left is not in its stead
        (["look >= 3", "look >= 1"], ["look >= 2"], []),
        (["look == 3"], ["look >= 3"], ["look == 3"]),
        (["look == 3"], ["look >= 3", "look <= 4"], []),
        (["look >= 3"], ["look == 3"], []),
        (["look != 3"], ["look == 4"], ["look != 3"]),
        (["look >= 0.4"], ["look != 1"], ["look >= 0.4"]),  # it no longer fails what is below
        (["fine"], ["not fine"], ["fine"]),
        (["not fine"], ["fine"], ["not fine"]),
        (["fine"], ["'fine'"], []),
        (["fine"], ["fine", "more"], []),
        (["fine"], [], ["fine"]),
    ],
)
def test_a_rule_is_dropped_unless_another_threshold_replaces_it(
    before: list[str], after: list[str], dropped: list[str]
) -> None:
    assert list(dropped_rules(tuple(before), tuple(after))) == dropped


def test_errors_in_both_runs_are_named() -> None:
    from visioneval.analysis.compare.gates import check_coverage

    cells = [cell("one"), cell("two", "ERROR")]
    _, errors, *_ = check_coverage(compare(side(cells), side(cells, "b")), {})
    assert (errors.state, errors.message) == (
        "passed",
        "no new errors in B; ERROR in both: two",
    )


def test_a_rule_whose_metric_the_case_no_longer_has_is_dropped(toy: Toy) -> None:
    image = {"key": "image", "type": "properties"}
    sized = {"graders": [LOOK, image], "verdict": ["fine", "image.size"], "case": {"expect": {"size": "32x24"}}}
    mixed = {"graders": [LOOK, image], "verdict": ["fine", "image.size"]}
    for name, expected in (("a", [0, 1, 2]), ("b", [0, 1])):
        cases = [{**MUST, **(sized["case"] if at in expected else {})} for at in range(3)]
        toy.run(*cases, **mixed, arguments=("--run-id", name))
    toy("baseline", "set", "a")
    for a in ("a", "baseline"):
        code, results = gates(toy, a, "b", "--allow", "missing-metrics")
        assert (code, results["excuses"]["state"]) == (3, "unmeasured")
        assert "1 cell not failed by the rule 'image.size': case2" in results["excuses"]["message"]


def test_rules_are_those_of_the_mapped_model_run() -> None:
    of_run = {"old": ("fine", "sharp"), "new": ("fine",), "same": ("fine",)}
    labels = {"a": ("old", "same"), "b": ("new", "same")}
    a, b = (
        side(
            [cell(model_label=label, grade_key=f"case:1 rules:{label}") for label in labels[name]],
            name,
            rules_of=lambda _, label: of_run[label],
        )
        for name in "ab"
    )
    assert [(item.what, item.cells) for item in compare(a, b, renamed=["old=new"]).excuses] == [
        ("not failed by the rule 'sharp'", 1)
    ]


def test_a_must_pass_case_that_is_an_error_in_both_runs_exits_3(toy: Toy) -> None:
    raises = {**MUST, "metadata": {"look": "raises"}}
    for name in ("a", "b"):
        toy.run(MUST, MUST, MUST, raises, {"metadata": {"look": "raises"}}, arguments=("--run-id", name))
        toy("baseline", "set", name, "--name", name)
    for a, b in (("a", "b"), ("baseline:a", "b"), ("baseline:a", "baseline:b")):
        code, results = gates(toy, a, b)
        assert code == 3
        assert results["must_pass"]["message"].startswith("0 of 3 cases tagged must_pass broke; 1 not measured: case3 ")
        assert results["errors"]["message"].endswith("; ERROR in both: case3, case4")
        assert gates(toy, a, b, "--fail-on", "broken")[0] == 0
