"""Gates that leave out cells because these were not measured: more than 5 %, or than the suite grants, and they tell
nothing. Cells to which a metric does not apply are no part of it."""

from __future__ import annotations

from typing import Any

import pytest
from record_factory import UNMEASURED, record, run_of

from visioneval import Fingerprint, GraderRecord, Record, Summary
from visioneval.analysis.left_out import LeftOut, granted_share, worst
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.summary import summarize
from visioneval.suite.filters import Scope
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.suite.rules import GateRule

METRICS: dict[str, Any] = {"fine": {"type": "bool"}, "level": {"type": "number", "range": [0, 1]}}
CASES: dict[str, dict[str, Any]] = {
    f"c{at:02}": {"tags": ["few" if at < 4 else "many"], "expect": {"aligned": at % 2 == 0}} for at in range(40)
}
OPTIONAL = GraderRecord(
    key="look", type="own:Look", is_unmeasured=True, is_optional=True, fingerprint=Fingerprint(config_sha256="c" * 64)
)


def cell(case: str, kind: str) -> Record:
    about: dict[str, Any] = {"test_id": case, "tags": CASES[case]["tags"], "provider": "own:Generate"}
    if kind == "error":  # nothing was generated
        return record(**about, status="error", verdict="ERROR", error=UNMEASURED)
    if kind == "failed grader":
        return record(**about, verdict="ERROR", scores={"fine": None, "level": None}, error=UNMEASURED)
    if kind == "optional":
        return record(**about, scores={"fine": True, "level": None, "cost_usd": None}, graders=(OPTIONAL,))
    if kind == "refused":
        return record(**about, status="refused", verdict="FAIL")
    return record(**about, scores={"fine": True, "level": 0.5, "cost_usd": 0.1})


def findings(gates: list[Any], **lost: int | list[str]) -> Summary:
    """40 cells, of which ``lost`` are of a kind: so many of the last ones, or these cases."""
    kinds: dict[str, str] = {}
    for kind, cases in lost.items():
        names = list(reversed(CASES))[:cases] if isinstance(cases, int) else cases
        kinds.update(dict.fromkeys(names, kind.replace("_", " ")))
    info = run_of(CASES, ["m"], gates, METRICS)
    return summarize(
        info.model_copy(update={"metrics": SuiteMetrics(info.suite).all}),
        [cell(case, kinds.get(case, "fine")) for case in CASES],
    )


def first(gates: list[Any], **lost: int | list[str]) -> tuple[GateFinding, int]:
    summary = findings(gates, **lost)
    return summary.gates[0], summary.exit_code


GATES = ["mean(level) >= 0.5", "p50(level) >= 0.5", "separation(level) >= 0", "mean(cost_usd) <= 1"]


@pytest.mark.parametrize("rule", GATES)
def test_a_gate_may_leave_out_5_percent_of_its_cells(rule: str) -> None:
    """No other gate sees these nulls: they are of an optional grader, or an unknown price."""
    even = [f"c{at:02}" for at in (0, 1)]  # one on each side of a separation
    finding, code = first([rule], optional=even)
    assert (finding.state, finding.unmeasured, finding.note, code) == (
        "passed",
        2,
        "2 of 40 cells were not measured",
        0,
    )
    finding, code = first([rule], optional=[*even, "c02", "c03"])
    assert (finding.state, finding.unmeasured, finding.is_unreliable, code) == ("unmeasured", 4, True, 3)
    assert finding.note.endswith(" cells were not measured, more than 5%")


@pytest.mark.parametrize(
    ("grants", "code"),
    [
        ([], 3),
        (["unmeasured_rate <= 0.1"], 0),
        (["unmeasured_rate < 0.2"], 0),
        (["error_rate <= 0.1"], 0),
        (["unmeasured_rate <= 0.09"], 3),
        (["error_rate >= 0"], 3),  # no limit
        (["error_rate != 1"], 3),
        ([{"rule": "unmeasured_rate <= 0.1", "tags": ["many"]}], 3),  # another scope
    ],
)
def test_a_declared_gate_on_errors_grants_more(grants: list[Any], code: int) -> None:
    assert first(["mean(level) >= 0.5", *grants], optional=4)[1] == code


def test_a_gate_that_fails_over_too_few_cells_exits_3() -> None:
    finding, code = first(["mean(level) >= 0.9"], optional=20)
    assert (finding.state, finding.is_unreliable, code) == ("failed", True, 3)
    assert first(["mean(level) >= 0.9"], optional=2)[1] == 1


@pytest.mark.parametrize("kind", ["error", "failed_grader"])
@pytest.mark.parametrize("rule", ["pass_rate == 1", "mean(level) >= 0.5", "rate(fine) == 1"])
def test_errors_of_which_the_suite_accepts_some_may_not_gather_in_a_scope(rule: str, kind: str) -> None:
    """4 of 40 cells are errors, which the suite accepts; they are all that a tag has."""
    grants = ["error_rate <= 0.1"]
    assert first([rule, *grants], **{kind: 4})[1] == 0
    few = {"rule": rule, "tags": ["few"]}
    finding, code = first([few, *grants], **{kind: ["c00", "c01"]})
    assert (finding.state, finding.n, code) == ("unmeasured", 2, 3)
    assert finding.note == "2 of 4 cells were not measured, more than 10%"
    own = {"rule": "error_rate <= 0.5", "tags": ["few"]}
    assert first([few, *grants, own], **{kind: ["c00", "c01"]})[1] == 0
    assert first([few, *grants, own], **{kind: ["c00", "c01", "c02"]})[1] == 3


def test_each_weighted_tag_and_each_side_of_a_separation_counts() -> None:
    """2 of 40 cells are few, and 2 of the 4 of a tag are not."""
    weighted = {"rule": "mean(level) >= 0.5", "weights": {"few": 1, "many": 1}}
    finding, code = first([weighted], optional=["c00", "c01"])
    assert (finding.state, finding.unmeasured, code) == ("unmeasured", 2, 3)
    assert finding.note == "2 of 4 cells were not measured, more than 5%"
    assert first([weighted], optional=["c38", "c39"])[1] == 3  # 2 of 36
    assert first([weighted], optional=["c39"])[1] == 0
    assert first(["separation(level) >= 0"], optional=["c01", "c03"])[1] == 3  # 2 of 20 counter-examples
    assert first(["separation(level) >= 0"], optional=["c01"])[1] == 0


def test_cells_to_which_a_metric_does_not_apply_do_not_count() -> None:
    finding, code = first(["mean(level) >= 0.5"], refused=20)
    assert (finding.state, finding.n, finding.unmeasured, finding.note, code) == ("passed", 20, 0, "", 0)


def test_an_error_does_not_count_for_a_metric_that_its_case_has_not() -> None:
    """Half of the cases have no grader for the metric, and many of these are errors, which the suite accepts."""
    gates = ["mean(level) >= 0.5", "error_rate <= 0.5"]
    info = run_of(CASES, ["m"], gates, METRICS)
    graders = [info.suite.graders[0].model_dump(exclude_unset=True) | {"when": {"tags": ["few"]}}]
    data = info.suite.model_dump(exclude_unset=True) | {"graders": graders, "gates": gates}
    info = info.model_copy(update={"suite": Suite.model_validate(data), "metrics": SuiteMetrics(info.suite).all})
    cells = [cell(case, "fine" if case < "c04" else "error") for case in list(CASES)[:8]]
    (level, *_) = summarize(info.model_copy(update={"planned_cells": 8}), cells).gates
    assert (level.state, level.n, level.unmeasured) == ("passed", 4, 0)


def test_a_model_that_was_never_reached_did_not_comply() -> None:
    """Of 40 cells, 20 are errors and 1 is a refusal: nobody knows what the model would have refused."""
    finding, code = first(["refusal_rate <= 0.04", "error_rate <= 0.5"], error=20, refused=["c00"])
    assert (finding.state, finding.value, finding.n, code) == ("failed", 0.05, 20, 1)
    assert first(["refusal_rate <= 0.05", "error_rate <= 0.49"], error=20, refused=["c00"])[1] == 3


def test_gates_on_errors_leave_nothing_out() -> None:
    summary = findings(["error_rate <= 1"], error=39)
    assert [(gate.state, gate.unmeasured, gate.note) for gate in summary.gates] == [("passed", 0, "")] * 2


@pytest.mark.parametrize(
    ("left_out", "granted", "is_too_much"),
    [((0, 0), 0, False), ((1, 20), 0, False), ((2, 39), 0, True), ((3, 10), 0.3, False), ((31, 100), 0.3, True),
     ((1, 20), 0.01, False), ((1, 1), 1, False)],
)  # fmt: skip
def test_the_limit(left_out: tuple[int, int], granted: float, is_too_much: bool) -> None:
    assert LeftOut(*left_out).is_too_much(granted) is is_too_much
    assert ("more than" in LeftOut(*left_out).sentence("cell", granted)) is is_too_much


def test_sentences() -> None:
    assert LeftOut(0, 60).sentence("cell") == ""
    assert LeftOut(1, 60).sentence("labeled cell") == "1 of 60 labeled cells was not measured"
    assert LeftOut(36, 60).sentence("pair", 0.125) == "36 of 60 pairs were not measured, more than 12.5%"


def test_the_worst_group_decides() -> None:
    assert worst([LeftOut(1, 100), LeftOut(1, 2), LeftOut(0, 0)]) == LeftOut(1, 2)
    assert worst([]) == LeftOut(0, 0)


def test_a_grant_is_of_the_whole_suite_or_of_the_same_scope() -> None:
    declared = [GateRule(rule="error_rate <= 0.1"), GateRule(rule="unmeasured_rate <= 0.3", tags=("b", "a"))]
    assert granted_share(declared, Scope()) == 0.1
    assert granted_share(declared, Scope(tags=("a", "b"))) == 0.3
    assert granted_share(declared, Scope(tags=("a",))) == 0.1
    assert granted_share([GateRule(rule="pass_rate <= 0.5")], Scope()) == 0
