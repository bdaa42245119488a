"""What B lost against A: metrics, measurements and cells, each of which exits 3 unless it is allowed. And the command, its
HTML page, the API and the page of ``view`` decide a comparison in the same way."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compare_factory import cell, mark, scored, side, verdicts
from toys import LOOK, SECOND, Toy

import visioneval as ve
from visioneval import CellError, Metric, UsageError, Verdict
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import check_coverage, parse_allowed
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.sides import Cell
from visioneval.report.html.pages import PageFrame
from visioneval.serve.site import render_comparison

METRICS = {"look": Metric(type="number", range=(0, 9))}


def states(
    a: list[Cell], b: list[Cell], *allowed: str, filters: ComparisonFilters | None = None, **changes: Any
) -> Any:
    result = compare(side(a, metrics=METRICS), side(b, "b", metrics=METRICS, **changes), filters)
    return [gate.state for gate in check_coverage(result, parse_allowed(allowed))]


def unmeasured(cells: list[Cell], count: int) -> list[Cell]:
    return [replace(item, scores={"look": None}) if at < count else item for at, item in enumerate(cells)]


@pytest.mark.parametrize(("lost", "state"), [(0, "passed"), (5, "passed"), (6, "unmeasured"), (100, "unmeasured")])
def test_a_metric_may_be_measured_5_points_less_often(lost: int, state: str) -> None:
    cells = scored("look", range(100))
    assert states(cells, unmeasured(cells, lost))[0] == state
    assert states(cells, unmeasured(cells, lost), "missing-metrics")[0] == "passed"
    assert states(unmeasured(cells, lost), cells)[0] == "passed"


def test_a_metric_that_few_cells_have_may_not_vanish() -> None:
    a = [*scored("look", [3]), *[cell(f"more{at}") for at in range(99)]]
    b = [replace(item, scores={}) for item in a]
    assert states(a, b)[0] == "unmeasured"


@pytest.mark.parametrize(
    ("before", "after", "allowed", "state"),
    [
        ("PPPP", "PPPP", [], "passed"),
        ("PPPP", "PPF!", [], "unmeasured"),
        ("PPP!", "PPP!", [], "passed"),
        ("PPF!", "PPPP", [], "passed"),
        ("PPPP", "PPF!", ["errors"], "passed"),
        ("PPPP", "PPF!", ["errors=0.25"], "passed"),
        ("PPPP", "PP!!", ["errors=0.25"], "unmeasured"),
        ("PPPP", "PPF!", ["missing-cells", "missing-metrics"], "unmeasured"),
    ],
)
def test_new_errors(before: str, after: str, allowed: list[str], state: str) -> None:
    assert states(verdicts(before), verdicts(after), *allowed)[1] == state


def test_a_failed_grader_of_a_fail_is_a_new_error() -> None:
    a = verdicts("FF")
    failed = replace(mark(), is_unmeasured=True)
    b = [replace(item, graders=(failed,)) for item in a]
    assert states(a, b)[1] == "unmeasured"
    assert states(b, b)[1] == "passed"
    optional = [replace(item, graders=(replace(failed, is_optional=True),)) for item in a]
    assert states(a, optional)[1] == "passed"


LEFT_OUT: list[tuple[dict[str, Any], str]] = [
    ({}, "unmeasured"),
    ({"left_out_cases": frozenset({"two"})}, "passed"),
    ({"left_out_cases": frozenset({"three"})}, "unmeasured"),
    ({"left_out_labels": frozenset({"x"})}, "unmeasured"),
    ({"samples_flag": 1}, "unmeasured"),
]


@pytest.mark.parametrize(("changes", "state"), LEFT_OUT)
def test_a_missing_cell_counts_unless_flags_left_it_out(changes: dict[str, Any], state: str) -> None:
    a, b = [cell("one", tags=("x",)), cell("two")], [cell("one", tags=("x",))]
    assert states(a, b, **changes)[2] == state
    assert states(a, b, "missing-cells", **changes)[2] == "passed"
    assert states(a, b, filters=ComparisonFilters(cases=("one",)), **changes)[2] == "passed"


def test_fewer_samples_than_before_count_unless_a_flag_asked_for_them() -> None:
    a = [cell(sample_index=0), cell(sample_index=1)]
    assert states(a, a[:1])[2] == "unmeasured"
    assert states(a, a[:1], samples_flag=1)[2] == "passed"


@pytest.mark.parametrize("value", ["all", "errors=", "errors=2", "errors=nan", "missing-cells=0.5", ""])
def test_bad_values_of_allow(value: str) -> None:
    with pytest.raises(UsageError, match=r"^--allow '"):
        parse_allowed([value])


def test_an_unknown_loss_lists_each_kind_once() -> None:
    with pytest.raises(UsageError) as error:
        parse_allowed(["nope"])
    kinds = "cannot-tell, errors, excuses, missing-cells, missing-metrics, unmeasured"
    assert str(error.value) == f"--allow 'nope': is none of what can be allowed (known: {kinds})"


def test_a_cell_without_an_output_is_an_error_and_no_lost_metric() -> None:
    a = scored("look", [1, 2, 3, 4])
    failed = CellError(stage="generate", kind="transient", message="it is out")
    b = [*a[:3], replace(a[3], scores={}, verdict=Verdict.ERROR, error=failed)]
    assert states(a, b) == ["passed", "unmeasured", "passed", "passed"]
    judged = [*a[:3], replace(b[3], error=failed.model_copy(update={"stage": "grade"}))]
    assert states(a, judged, "errors") == ["unmeasured", "passed", "passed", "passed"]


BOTH = [LOOK, {**SECOND, "optional": True}]


def test_the_command_reports_each_loss_in_every_output(toy: Toy) -> None:
    passing = {"prompt": "a tree"}
    toy.run(passing, passing, passing, graders=BOTH, arguments=("--run-id", "a"))
    toy.run(passing, {**passing, "metadata": {"look": "raises"}}, graders=[LOOK], arguments=("--run-id", "b"))
    result = toy("compare", "a", "b", "--markdown", "c.md", "--html", "c.html")
    assert result.exit_code == 3, result.output
    lost = (
        "second is measured in 0 of 2 pairs, in A in 2",
        "1 of 2 cells were measured in A and have errors in B: case1",
        "not in B: 1 cell of A: case2",
    )
    for text in (
        " ".join(result.stdout.split()),
        (toy.folder / "c.md").read_text(),
        (toy.folder / "c.html").read_text().replace("<wbr>", ""),
    ):
        assert [message for message in lost if message not in text] == []
    first, *_, last = filter(None, result.stdout.splitlines())
    assert first == last == "A gate was not measured (exit code 3)"
    assert "(--allow missing-cells accepts this)" in " ".join(result.stdout.split())

    assert "now passing" not in result.stdout
    flags = ("--allow", "missing-metrics", "--allow", "errors=0.5", "--allow", "missing-cells")
    allowed = toy("compare", "a", "b", "--fail-on", "regressed", *flags)
    assert (allowed.exit_code, allowed.stdout.count("(allowed)")) == (0, 3), allowed.output
    assert toy("compare", "a", "b", "--fail-on", "regressed", *flags[:4]).exit_code == 3


def test_a_partial_baseline_is_refused_or_marked(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.run({"id": "one"}, {"id": "two"}, arguments=("--run-id", "part", "--case", "one"))
    toy("run", "suite.yaml", "--trust-suite", "--run-id", "full")
    refused = toy("baseline", "set", "part")
    assert (refused.exit_code, Path("baselines/main.jsonl").exists()) == (2, False)
    assert (
        "flags or RUN@LABEL left out cells of the suite: a baseline needs a complete run, or --partial"
        in refused.stderr
    )
    assert toy("baseline", "set", "part", "--partial").exit_code == 0
    compared = toy("compare", "baseline", "full")
    assert compared.exit_code == 0, compared.output
    assert "baseline is partial" in " ".join(compared.stdout.split())
    toy("baseline", "set", "full", "--partial")
    assert "is partial" not in toy("compare", "baseline", "full").stdout
    narrowed = toy("compare", "baseline", "part")
    assert narrowed.exit_code == 0
    assert "no cells of A are missing from B, except 1 that flags left out" in " ".join(narrowed.stdout.split())


@pytest.mark.parametrize(
    ("flags", "changes", "code"),
    [
        (("--limit", "1"), {"cases": [0]}, 3),
        (("--limit", "1"), {"cases": [0, 1]}, 0),
        (("--case", "case*"), {"cases": [0]}, 3),
        (("--model", "m*"), {"labels": ["m1", "m3"]}, 3),
        (("--model", "m1"), {"labels": ["m1", "m2"]}, 0),
    ],
)
def test_flags_excuse_only_what_the_suite_still_has(
    toy: Toy, flags: tuple[str, ...], changes: dict[str, Any], code: int
) -> None:
    for run_id, cases, labels, of_run in (
        ("a", (0, 1), ("m1", "m2"), ()),
        ("b", changes.get("cases", (0, 1)), changes.get("labels", ("m1", "m2")), flags),
    ):
        models = [{"provider": "mine:Generate", "label": label} for label in labels]
        done = toy.run(*({"id": f"case{at}"} for at in cases), models=models, arguments=("--run-id", run_id, *of_run))
        assert done.exit_code == 0, done.output
    assert toy("compare", "a", "b").exit_code == code


WITH_TAGS = ({"tags": ["t"]}, {"tags": ["t", "u"], "prompt": "a cow"})


def test_flags_that_leave_nothing_out_make_no_run_partial(toy: Toy) -> None:
    models = [{"provider": "mine:Generate", "label": label} for label in ("toy", "too")]
    whole = ("--limit", "2", "--model", "*", "--case", "case*", "--tag", "t", "--grader", "*", "--samples", "2")
    whole += ("--shard", "1/1")
    toy.run(*WITH_TAGS, models=models, graders=[LOOK, SECOND], samples=2, arguments=("--run-id", "all", *whole))
    assert toy("baseline", "set", "all").exit_code == 0
    for at, narrower in enumerate(
        (
            ("--limit", "1"),
            ("--model", "toy"),
            ("--case", "case0"),
            ("--tag", "u"),
            ("--grader", "look"),
            ("--samples", "1"),
            ("--shard", "1/2"),
        )
    ):
        toy("run", "suite.yaml", "--trust-suite", "--run-id", f"few{at}", *narrower)
        assert toy("baseline", "set", f"few{at}", "--name", "few").exit_code == 2, narrower


def test_a_baseline_of_a_run_that_was_resumed_with_the_number_of_samples_of_its_suite(toy: Toy) -> None:
    suite = toy.write({}, samples=1)
    toy("run", suite, "--trust-suite", "--run-id", "r")
    for named in ((), (suite,)):
        assert toy("run", *named, "--resume", "r", "--samples", "1", "--trust-suite").exit_code == 0
        assert toy("baseline", "set", "r").exit_code == 0
    assert toy("run", "--resume", "r", "--samples", "2", "--trust-suite").exit_code == 0
    assert "--samples replaced the suite's number" in toy("baseline", "set", "r").stderr
    assert toy("run", "--resume", "r", "--trust-suite").exit_code == 0
    assert toy("baseline", "set", "r").exit_code == 2
    assert toy("run", suite, "--resume", "r", "--samples", "1", "--trust-suite").exit_code == 0
    assert toy("baseline", "set", "r").exit_code == 0


def run_of_another_suite(toy: Toy) -> None:
    suite = toy.write({"prompt": "a tree"})
    suite.write_text(suite.read_text().replace('"toy"', '"another"', 1))
    assert toy("run", suite, "--trust-suite", "--run-id", "b").exit_code == 0


def test_runs_of_two_suites_are_named(toy: Toy) -> None:
    toy.run({"prompt": "a tree"}, arguments=("--run-id", "a"))
    run_of_another_suite(toy)
    assert "A is of the suite toy, B of the suite another" in toy("compare", "a", "b").stdout


def test_a_baseline_is_not_replaced_by_that_of_another_suite(toy: Toy) -> None:
    toy.run({"prompt": "a tree"}, {"prompt": "a bird", "metadata": {"look": False}}, arguments=("--run-id", "a"))
    stored = toy("baseline", "set", "a")
    assert "2 cells, 1 of them passed" in stored.stdout
    run_of_another_suite(toy)
    refused = toy("baseline", "set", "b")
    assert refused.exit_code == 2
    assert "is the baseline of the suite 'toy', and this run is of 'another': choose another name" in refused.stderr
    assert toy("baseline", "set", "b", "--name", "other").exit_code == 0
    assert toy("baseline", "set", "a").exit_code == 0


FINE: list[dict[str, Any]] = [{"id": f"c{at}"} for at in range(6)]
LOST_IN_A = [{**case, "metadata": {"look": "raises"}} if at < 2 else case for at, case in enumerate(FINE)]
FLAKY = [{**case, "flaky": True} for case in FINE]
FAILED = [{**case, "metadata": {"look": "bad"}} for case in FINE]


STATES = {
    "passed": "passed",
    "FAILED": "failed",
    "NOT MEASURED": "unmeasured",
    "CANNOT TELL": "cannot_tell",
    "not applicable": "not_applicable",
}


def decided(page: str) -> tuple[str, list[tuple[str, str]]]:
    """The headline of a page, and the state and name of each gate."""
    (headline,) = re.findall(r"<h1>(.*?)</h1>", page)
    gates = re.findall(r'<th scope="row"><span class="\w+">(.*?)</span></th>\s*<td>([\w<>:-]*)</td>', page)
    return headline, [(STATES[state], name.replace("<wbr>", "")) for state, name in gates if state in STATES]


@pytest.mark.parametrize(
    ("a", "b", "of_b", "code", "headline"),
    [
        (LOST_IN_A, FINE, {}, 3, "A gate was not measured"),
        (FINE, LOST_IN_A, {}, 3, "A gate was not measured"),
        (LOST_IN_A, LOST_IN_A, {}, 0, "All gates passed"),
        (FINE, [{**FINE[0], "flaky": True}, *FINE[1:]], {}, 3, "A gate was not measured"),
        (FLAKY, FLAKY, {}, 3, "A gate was not measured"),
        (FINE, FINE, {"compare": {"must_detect": 5}}, 3, "A gate cannot tell"),
        ([{**FINE[0], "tags": ["must_pass"]}], [{**FAILED[0], "tags": ["must_pass"]}], {}, 1, "A gate failed"),
    ],
    ids=["lost in A", "lost in B", "lost in both", "excused", "flaky", "must_detect", "must_pass"],
)
def test_every_reader_decides_alike(
    toy: Toy, a: list[dict[str, Any]], b: list[dict[str, Any]], of_b: dict[str, Any], code: int, headline: str
) -> None:
    toy.run(*a, arguments=("--run-id", "a"))
    toy.run(*b, arguments=("--run-id", "b"), **of_b)
    done = toy("compare", "a", "b", "--html", "page.html")
    assert done.exit_code == code, done.output
    assert ve.compare("a", "b").exit_code == code
    page = decided((toy.folder / "page.html").read_text())
    runs = toy.folder / "runs"
    assert decided(render_comparison(Path(runs / "a"), Path(runs / "b"), PageFrame(()))) == page
    assert page[0] == headline
    assert [state for state, _ in page[1]] == [gate.state for gate in ve.compare("a", "b").gates]
