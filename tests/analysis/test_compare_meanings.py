"""A metric whose meaning changed is another metric: it is not compared, pooled or drawn with the one before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compare_factory import scored, side
from record_factory import run_of
from toys import LOOK, Toy

from visioneval import Metric, UsageError, read_info
from visioneval.analysis.agreement.graders import metrics_of
from visioneval.analysis.compare.compare import changed_meanings, compare
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.run_lookup import read_side
from visioneval.suite.metrics import Meaning, describe_meaning, meanings_of, same_meaning
from visioneval.suite.model import Suite

SIDES = [("a", "b"), ("baseline", "baseline:b")]


def look(**level: Any) -> list[dict[str, Any]]:
    """The toy's grader with another meaning of its number."""
    return [{**LOOK, "writes": {**LOOK["writes"], "level": {**LOOK["writes"]["level"], **level}}}]


def double(expression: str = "level * 2", **changes: Any) -> dict[str, Any]:
    return {"metrics": {"double": {"expression": expression, **changes}}}


def runs(toy: Toy, before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, changes in (("a", before), ("b", after)):
        toy.run({}, {}, **changes, arguments=("--run-id", name))
    assert toy("baseline", "set", "a").exit_code == 0
    assert toy("baseline", "set", "b", "--name", "b").exit_code == 0


UP = "number from 0 to 1, higher is better"
CHANGED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {},
        {"graders": look(range=[0, 100])},
        f"level means another thing in B: A: {UP}; B: number from 0 to 100, higher",
    ),
    (
        double(),
        double("level * 3"),
        "double means another thing in B: A: number, higher is better, computed as level * 2; B: number, higher is"
        " better, computed as level * 3",
    ),
    (double(), double("level > 0"), "; B: yes or no, higher is better, computed as level > 0"),
    (
        double(),
        {**double(), "graders": look(unit="px")},
        f"computed as level * 2; level is {UP}; B: number, higher is better, computed as level * 2; level is number"
        " from 0 to 1 in px",
    ),
]


@pytest.mark.parametrize(("before", "after", "message"), CHANGED)
def test_a_metric_of_another_meaning_is_missing(
    toy: Toy, before: dict[str, Any], after: dict[str, Any], message: str
) -> None:
    runs(toy, before, after)
    for a, b in SIDES:
        result = toy("compare", a, b, "--json")
        comparison = json.loads(result.stdout)
        loss = next(gate for gate in comparison["gates"] if gate["fail_on"] == "missing-metrics")
        assert (result.exit_code, loss["state"], message in loss["message"]) == (3, "unmeasured", True), loss
        changed = {entry["metric"] for entry in comparison["changed_metrics"]}
        assert not changed & {entry["name"] for entry in comparison["metrics"]}
        assert toy("compare", a, b, "--allow", "missing-metrics").exit_code == 0
    gate = f"{min(changed)}:0.5"
    assert toy("compare", a, b, "--fail-on", gate, "--allow", "missing-metrics").exit_code == 3
    assert toy("compare", a, b, "--metric", "fine").exit_code == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (double(), double("level*2")),
        (
            {"graders": look(unit="px")},
            {"graders": [{**look(unit="px")[0], "key": "other"}], **double()},
        ),  # a new metric
    ],
)
def test_the_same_meaning_is_compared(toy: Toy, before: dict[str, Any], after: dict[str, Any]) -> None:
    runs(toy, before, after)
    for a, b in SIDES:
        result = toy("compare", a, b, "--json")
        assert (result.exit_code, json.loads(result.stdout)["changed_metrics"]) == (0, [])


@pytest.mark.parametrize(
    ("values", "metric", "changed"),
    [
        ([0.0, 60.0], Metric(type="number", range=(0, 5)), True),
        ([0.0, 5.0], Metric(type="number", range=(0, 5)), False),
        ([-1.0, 5.0], Metric(type="number", range=(0, None)), True),
        ([1.0, 5.0], Metric(type="number"), False),
        ([1, 0], Metric(type="bool"), True),
        ([True, False], Metric(type="bool"), False),
        ([True, False], Metric(type="number", range=(0, 5)), True),
    ],
)
def test_values_of_records_outside_the_range_are_another_metric(
    tmp_path: Path, values: list[Any], metric: Metric, changed: bool
) -> None:
    from record_factory import record

    path = tmp_path / "a.jsonl"
    lines = [record(test_id=f"c{at}", scores={"look": value}) for at, value in enumerate(values)]
    path.write_text("".join(f"{line.model_dump_json()}\n" for line in lines))
    known = side(scored("look", [metric.type == "bool"]), metrics={"look": Meaning(**dict(metric))})
    records = read_side(str(path), tmp_path)
    for a, b in ((records, known), (known, records)):
        assert [item.metric for item in changed_meanings(a, b)] == ["look"] * changed


def test_a_filter_leaves_out_what_changed() -> None:
    a, b = ({"look": Meaning(type="number", range=(0, high)), "copy": Meaning()} for high in (5, 100))
    cells = scored("look", [1, 2])
    result = compare(side(cells, metrics=a), side(cells, "b", metrics=b), ComparisonFilters(metrics=("copy",)))
    assert (result.changed_metrics, result.metrics) == ((), ())


def test_a_narrowed_run_that_lacks_an_input_means_the_same(toy: Toy) -> None:
    other = {"key": "more", "type": "mine:Second", "writes": {"second": {"type": "bool"}}, "when": {"tags": ["x"]}}
    suite = {"graders": [LOOK, other], **double("where(tag(x), second, level)")}
    toy.run({}, {"tags": ["x"]}, **suite, arguments=("--run-id", "a"))
    toy("run", "suite.yaml", "--trust-suite", "--case", "case0", "--run-id", "b")
    result = toy("compare", "a", "b", "--json")
    assert (result.exit_code, json.loads(result.stdout)["changed_metrics"]) == (0, [])


def test_meanings_in_words() -> None:
    metric = Meaning(type="number", range=(0, 5), step=0.5, unit="px")
    assert describe_meaning(metric) == "number from 0 to 5 in px in steps of 0.5, higher is better"
    for change, words in (
        ({"step": None}, "number from 0 to 5 in px, higher is better"),
        ({"unit": None}, "number from 0 to 5 in steps of 0.5, higher is better"),
        ({"range": (0, None)}, "number of 0 or more in px in steps of 0.5, higher is better"),
        ({"range": None}, "number in px in steps of 0.5, higher is better"),
        ({"better": "lower"}, "number from 0 to 5 in px in steps of 0.5, lower is better"),
        ({"better": "none"}, "number from 0 to 5 in px in steps of 0.5, neither is better"),
    ):
        other = metric.model_copy(update=change)
        assert (describe_meaning(other), same_meaning(metric, other)) == (words, False)
    assert same_meaning(Metric(), Meaning())


def test_one_suite_cannot_give_a_name_two_meanings(toy: Toy) -> None:
    graders = [
        {**look(range=[0, high])[0], "key": f"look{high}", "when": {"cases": [case]}}
        for case, high in (("case0", 1), ("case1", 9))
    ]
    refused = toy.run({}, {}, graders=graders)
    assert refused.exit_code == 2
    assert "'level' is number from 0 to 9, higher is better, but number from 0 to 1" in " ".join(refused.output.split())
    graders[1]["writes"] = graders[0]["writes"]
    assert toy.run({}, {}, graders=graders).exit_code == 0


def test_plan_refuses_the_noise_of_another_meaning(toy: Toy) -> None:
    runs(toy, {}, {"graders": look(range=[0, 100])})
    detect = ("plan", "suite.yaml", "--trust-suite", "--detect", "level:0.1", "--like")
    refused = toy(*detect, "a")
    assert refused.exit_code == 2
    assert "--like a: level means another thing there" in " ".join(refused.output.split())
    assert "means another thing" not in toy(*detect, "b").output


def test_agreement_over_runs_refuses_two_meanings(toy: Toy) -> None:
    runs(toy, {}, {"graders": look(range=[0, 100])})
    infos = [read_info(Path("runs") / name) for name in "ab"]
    assert "level" in metrics_of([infos[0], infos[0]])
    with pytest.raises(UsageError, match=f"b defines metric 'level' differently \\({UP} -> number from 0"):
        metrics_of(infos)


def test_the_steps_of_a_rubric_are_its_choices() -> None:
    steps = [
        meanings_of({"look": Metric(type="number", range=(0, 5))}, suite_of(rubric))["look"]
        for rubric in ({"step": 1}, {"step": 0.5}, {})
    ]
    assert [same_meaning(steps[0], other) for other in steps] == [True, False, True]


def suite_of(rubric: dict[str, Any]) -> Suite:
    asked = {"look": {"type": "score", "scale": [0, 5], "description": "How good?", **rubric}}
    grader = {"key": "judge", "type": "rubric", "metrics": asked}
    suite = run_of({"one": {}}, ["m"], [], {"look": {"type": "number"}}).suite
    return Suite.model_validate({**suite.model_dump(mode="json", exclude_unset=True), "graders": [grader]})
