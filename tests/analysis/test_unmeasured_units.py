"""What a gate leaves out, by command: over 5 % that was not measured, none of them ends in exit code 0."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compare_factory import METRICS, cell, scored, side, verdicts
from labeled_runs import CLEAR, USABLE, label, labeled, run_info
from record_factory import record
from toys import LOOK, SECOND, Toy
from typer.testing import CliRunner

import visioneval as ve
from visioneval import CellError, Status, UsageError, Verdict
from visioneval.analysis.agreement.agreement import Minimum, agree
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import decide, exit_code, parse_criteria
from visioneval.analysis.left_out import LeftOut
from visioneval.analysis.probe import MinDetection, ProbedCell
from visioneval.analysis.probe import check_gates as check_probe_gates
from visioneval.analysis.sides import Cell
from visioneval.cli import app
from visioneval.records.labels import append_labels
from visioneval.records.writer import RunWriter

UNREACHABLE = CellError(stage="generate", kind="transient", message="no answer")


def agreement(folder: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["agreement", *arguments, "--runs", str(folder)], env={"COLUMNS": "200"})


def labeled_run(folder: Path, unmeasured: int, run_id: str = "r") -> None:
    """60 labeled cells: where the judge is wrong, it is down."""
    cases = [f"c{at:02}" for at in range(60)]
    writer = RunWriter.create(folder, run_info(cases, [USABLE], run_id, ["m"]))
    for at, case in enumerate(cases):
        score, verdict = (None, "ERROR") if at < unmeasured else (at % 2 == 0, "PASS" if at % 2 == 0 else "FAIL")
        writer.append(record(run_id=run_id, test_id=case, verdict=verdict, scores={"good": score}))
    writer.finish("complete", "2025-01-01T00:00:01+00:00")
    answers = [label(case, "ann", "usable", at % 2 == 0) for at, case in enumerate(cases)]
    append_labels(writer.folder / "labels.jsonl", answers)


@pytest.mark.parametrize(
    ("unmeasured", "allow", "code", "flag", "metric"),
    [(0, [], 0, "--min", "good"), (3, ["unmeasured=0"], 0, "--min-point", "good:accuracy"),
     (4, [], 3, "--min", "good:accuracy"), (36, ["unmeasured=0.6"], 0, "--min-point", "good"),
     (36, ["unmeasured=0.59"], 3, "--min", "good"), (36, ["unmeasured"], 0, "--min", "good:accuracy")],
)  # fmt: skip
def test_required_agreement(
    tmp_path: Path, unmeasured: int, allow: list[str], code: int, flag: str, metric: str
) -> None:
    labeled_run(tmp_path, unmeasured)
    done = agreement(tmp_path, "r", flag, f"{metric}:0.5", *(word for value in allow for word in ("--allow", value)))
    assert done.exit_code == code, done.stdout
    line = next(line for line in done.stdout.splitlines() if flag in line)
    assert ("NOT MEASURED" in line) == (code == 3)
    assert (f"{unmeasured} of 60 labeled cells were not measured" in line) == (unmeasured > 0)
    assert ("--allow unmeasured=RATE accepts more" in line) == (code == 3)
    conclusion = next(line for line in done.stdout.splitlines() if line.startswith("good and human label"))
    assert ("more than" in conclusion) == (code == 3), conclusion
    minimums = {metric: 0.5}
    keyword = {"minimums": minimums} if flag == "--min" else {"minimum_points": minimums}
    result = ve.agreement("r", **keyword, allow=allow, runs=tmp_path)
    assert (result.exit_code, result.minimums[0].unmeasured) == (code, unmeasured)


def test_without_a_minimum_agreement_decides_nothing(tmp_path: Path) -> None:
    labeled_run(tmp_path, 36)
    done = agreement(tmp_path, "r")
    assert done.exit_code == 0
    assert "on 24 cells; 36 of 60 labeled cells were not measured, more than 5%\n" in done.stdout


def test_allow_needs_something_that_decides(tmp_path: Path) -> None:
    labeled_run(tmp_path, 36)
    done = agreement(tmp_path, "r", "--allow", "unmeasured=0.6")
    message = "--allow: is for --min, --min-point and --correct: add one of them"
    assert (done.exit_code, done.stderr) == (2, f"{message}\n")
    with pytest.raises(UsageError, match=re.escape(message)):
        ve.agreement("r", allow=["unmeasured"], runs=tmp_path)
    assert ve.agreement("r", minimums={"good": 0.5}, allow=["unmeasured"], runs=tmp_path).allowed_unmeasured == 1


def test_a_wrong_allow_is_one_line(tmp_path: Path) -> None:
    labeled_run(tmp_path, 0)
    for value, message in (
        ("unmeasured=2", "only unmeasured takes a rate, from 0 to 1, such as unmeasured=0.02"),
        ("unmeasured=nan", "only unmeasured takes a rate"),
        ("unmeasured=", "only unmeasured takes a rate"),
        ("unmesured=0.1", "is none of what can be allowed (did you mean 'unmeasured'?)"),
        ("", "is none of what can be allowed"),
    ):
        done = agreement(tmp_path, "r", "--min", "good:0.5", "--allow", value)
        (line,) = done.stderr.splitlines()
        assert (done.exit_code, line.startswith(f"--allow {value!r}: {message}")) == (2, True), line
    with pytest.raises(UsageError, match=re.escape(message)):
        ve.agreement("r", allow=[value], runs=tmp_path)
    with pytest.raises(UsageError, match="allow must be a list of strings, not one string"):
        ve.agreement("r", allow="unmeasured", runs=tmp_path)


def state_of(cells: dict[str, dict[str, Any]], labels: list[Any], questions: Any = (USABLE, CLEAR)) -> tuple[str, int]:
    (result,) = agree([labeled(cells, labels, questions)], [Minimum("good:accuracy", 0.1)]).minimums
    return result.state, result.unmeasured


def test_each_question_about_a_metric_must_be_measured() -> None:
    """All labels of a second question are of cells that the judge did not measure: the first alone decides nothing."""
    cells = {f"c{at:02}": {"good": None if at < 10 else at % 2 == 0} for at in range(30)}
    first = [label(case, "ann", "usable", True) for case in list(cells)[10:]]
    second = [label(case, "ann", "fine", True) for case in list(cells)[:10]]
    questions = [USABLE, {**USABLE, "key": "fine"}]
    assert state_of(cells, first, questions) == ("passed", 0)
    assert state_of(cells, [*first, *second], questions) == ("unmeasured", 10)


def test_labeled_cells_that_the_run_lost_were_not_measured() -> None:
    cells = {f"c{at:02}": {"good": at % 2 == 0} for at in range(20)}
    labels = [label(case, "ann", "usable", at % 2 == 0) for at, case in enumerate(cells)]
    gone = [label(f"gone{at}", "ann", "usable", False) for at in range(2)]
    assert state_of(cells, [*labels, gone[0]]) == ("passed", 1)
    assert state_of(cells, [*labels, *gone]) == ("unmeasured", 2)
    assert state_of(cells, [*labels, *(label.model_copy(update={"rater": "bo"}) for label in [*gone, *gone])])[1] == 2


def test_cells_to_which_a_metric_does_not_apply_and_split_raters_do_not_count() -> None:
    cells: dict[str, dict[str, Any]] = {f"c{at:02}": {"good": at % 2 == 0} if at < 20 else {} for at in range(40)}
    labels = [label(case, "ann", "usable", at % 2 == 0) for at, case in enumerate(cells)]
    split = [label(case, "bo", "usable", at % 2 == 1) for at, case in enumerate(cells) if at < 10]
    assert state_of(cells, [*labels, *split]) == ("passed", 0)


OPTIONAL = {**SECOND, "optional": True}
RUNS = {"graders": [LOOK, OPTIONAL], "verdict": ["fine"], "gates": ["rate(second) == 1"]}


def cases(unmeasured: int) -> list[dict[str, Any]]:
    return [{"id": f"c{at:02}", **({"metadata": {"second": "raises"}} if at < unmeasured else {})} for at in range(20)]


@pytest.mark.parametrize(("unmeasured", "code"), [(1, 0), (2, 3)])
def test_a_gate_of_a_suite_wherever_the_run_is_read(toy: Toy, unmeasured: int, code: int) -> None:
    done = toy.run(*cases(unmeasured), arguments=("--run-id", "r", "--markdown", "r.md"), **RUNS)
    assert done.exit_code == code, done.stdout
    sentence = f"{unmeasured} of 20 cells {'was' if unmeasured == 1 else 'were'} not measured"
    assert f"rate(second) == 1: {sentence}" in done.stdout
    assert sentence in (toy.folder / "r.md").read_text()
    gate = toy.summary["gates"][0]
    assert (gate["unmeasured"], gate["is_unreliable"]) == (unmeasured, code == 3)
    for command in (["show", "r"], ["grade", "r", "--run-id", "again", "--trust-suite"], ["show", "again"]):
        done = toy(*command)
        assert (sentence in done.stdout, done.exit_code) == (True, code if command[0] == "grade" else done.exit_code)
    assert (ve.load_run("r").exit_code, ve.load_run("r@toy").exit_code, ve.load_run("again").exit_code) == (code,) * 3
    assert toy("report", "r", "--single-file", "-o", "page.html").exit_code == 0
    assert sentence in (toy.folder / "page.html").read_text()
    path = toy.folder / "suite.yaml"
    for part in "12":
        assert toy("run", path, "--shard", f"{part}/2", "--run-id", f"part{part}", "--trust-suite").exit_code == 0
    merged = toy("merge", "part1", "part2", "--run-id", "merged")
    assert (merged.exit_code, toy.summary["exit_code"]) == (code, code)


def test_a_labeled_cell_that_was_generated_again_and_failed_was_not_measured() -> None:
    """Its label has no hash, so it is of the current image, which does not exist."""
    cells = {f"c{at:02}": {"good": at % 2 == 0} for at in range(20)}
    run = labeled(cells, [label(case, "ann", "usable", at % 2 == 0) for at, case in enumerate(cells)], [USABLE])
    for lost, state in ((1, "passed"), (2, "unmeasured")):
        records = [
            record.model_copy(
                update={"scores": {}, "status": Status.ERROR, "verdict": Verdict.ERROR, "error": UNREACHABLE}
            )
            if at < lost
            else record
            for at, record in enumerate(run.records)
        ]
        (result,) = agree([replace(run, records=records)], [Minimum("good:accuracy", 0.1)]).minimums
        assert (result.state, result.unmeasured) == (state, lost)


def test_the_command_compare_and_a_baseline(toy: Toy) -> None:
    toy.run(*cases(2), arguments=("--run-id", "r"), **{**RUNS, "gates": ["pass_rate == 1"]})
    toy("baseline", "set", "r")
    for a in ("r", "baseline"):
        for flags, code in (([], 3), (["--allow", "unmeasured=0.1"], 0), (["--allow", "unmeasured=0.09"], 3)):
            done = toy("compare", a, "r", *flags, "--json", "--markdown", "c.md", "--junit", "c.xml")
            assert done.exit_code == code, done.output
            gates = {gate["fail_on"]: gate for gate in json.loads(done.stdout)["gates"]}
            assert gates["regressed"]["state"] == ("passed" if code == 0 else "unmeasured")
            assert "second: 2 of 20 pairs were not measured" in gates["regressed"]["message"]
            assert "second: 2 of 20 pairs" in (toy.folder / "c.md").read_text()
            assert ("<error" in (toy.folder / "c.xml").read_text()) == (code == 3)
    assert toy("compare", "r", "r", "--fail-on", "broken").exit_code == 0
    assert ve.compare("r", "r", allow=["unmeasured=0.1"]).exit_code == 0
    for wrong in ("unmeasured=1.5", "unmeasured=some"):
        done = toy("compare", "r", "r", "--allow", wrong)
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)


METRIC = {"look": METRICS["look"]}


def compared(a: list[Cell], b: list[Cell], *fail_on: str, allow: tuple[str, ...] = ()) -> tuple[list[str], str, int]:
    """The states of the gates, their messages and the exit code."""
    comparison = compare(side(a, metrics=METRIC), side(b, "b", metrics=METRIC))
    all_results = decide(comparison, parse_criteria(fail_on, allow))
    results = all_results[: len(fail_on)]
    code = exit_code(comparison, all_results)
    return [result.state for result in results], "; ".join(result.message for result in results), code


@pytest.mark.parametrize(
    ("lost", "allow", "code"),
    [(1, (), 0), (2, (), 3), (2, ("errors=0.1",), 0), (2, ("unmeasured=0.09",), 3), (2, ("missing-cells",), 3)],
)
@pytest.mark.parametrize("gate", ["broken", "regressed", "pass_rate:0.5"])
def test_pairs_without_a_verdict_in_a(gate: str, lost: int, allow: tuple[str, ...], code: int) -> None:
    a, b = verdicts("!" * lost + "P" * (20 - lost)), verdicts("P" * 20)
    states, message, exits = compared(a, b, gate, allow=allow)
    assert (states, exits) == (["unmeasured" if code else "passed"], code)
    assert f"pass_rate: {lost} of 20 pairs {'was' if lost == 1 else 'were'} not measured" in message
    assert ("--allow unmeasured=RATE accepts more" in message) == (code == 3)


@pytest.mark.parametrize("gate", ["look:1", "regressed"])
@pytest.mark.parametrize(("lost", "allow", "code"), [(1, (), 0), (2, (), 3), (2, ("unmeasured=0.1",), 0)])
def test_pairs_without_a_score_on_both_sides(gate: str, lost: int, allow: tuple[str, ...], code: int) -> None:
    """An optional grader was down in both runs: B lost nothing, and yet nobody knows."""
    cells = scored("look", [None] * lost + [3] * (20 - lost))
    states, message, exits = compared(cells, cells, gate, allow=allow)
    assert (states, exits) == (["unmeasured" if code else "passed"], code)
    assert f"look: {lost} of 20 pairs" in message


@pytest.mark.parametrize("lost", [1, 2])
def test_a_loss_that_several_metrics_share_is_said_once(lost: int) -> None:
    """Of ``m1``, one more pair is lost, and only the first five metrics are named."""
    metrics = {f"m{at}": METRICS["look"] for at in range(6 + lost)}
    cells = [
        cell(f"c{at}", scores={name: None if at < lost + (name == "m1") else 3 for name in metrics}) for at in range(40)
    ]
    comparison = compare(side(cells, metrics=metrics), side(cells, "b", metrics=metrics))
    message = decide(comparison, parse_criteria(["regressed"]))[0].message
    shared, other = (
        f"{number} of 40 pairs {'was' if number == 1 else 'were'} not measured" for number in (lost, lost + 1)
    )
    if lost == 1:
        assert f"; m0, m2, m3, m4: {shared}; m1: {other}; 2 more metrics" in message
    else:
        assert message.count("not measured") == 1, "only those of which too many are lost are named"
        assert f"; m1: {other}, more than 5% (--allow" in message


def test_a_metric_that_neither_run_measured_is_not_unchanged() -> None:
    cells = scored("look", [None] * 9)
    assert compared(cells, cells, "regressed")[::2] == (["unmeasured"], 3)
    assert compared(cells, cells, "broken")[::2] == (["passed"], 0)  # is not about it


@pytest.mark.parametrize("gate", ["look:1", "regressed"])
@pytest.mark.parametrize(("allow", "code"), [((), 3), (("unmeasured=0.1",), 0), (("errors=0.1",), 0)])
def test_accepting_a_removed_metric_accepts_no_other_loss(gate: str, allow: tuple[str, ...], code: int) -> None:
    """B lacks the metric ``gone``, and A did not measure ``look`` in 2 of 20 pairs."""
    metrics = {**METRIC, "gone": METRICS["look"]}
    a = [
        replace(item, scores={"look": None if at < 2 else 3, "gone": 3})
        for at, item in enumerate(scored("look", [3] * 20))
    ]
    comparison = compare(side(a, metrics=metrics), side(scored("look", [3] * 20), "b", metrics=METRIC))
    results = decide(comparison, parse_criteria([gate], ["missing-metrics", *allow]))
    assert (exit_code(comparison, results), results[0].state) == (code, "unmeasured" if code else "passed")
    lost = next(result for result in results if result.fail_on.text == "missing-metrics")
    assert (lost.state, "gone" in lost.message) == ("passed", True)


@pytest.mark.parametrize("stage", ["generate", "grade"])
def test_cells_that_are_errors_on_both_sides_do_not_count(stage: Any) -> None:
    error = CellError(stage=stage, kind="transient", message="no answer")
    scores = {} if stage == "generate" else {"look": None}
    lost = [cell(f"e{at}", "ERROR", error=error, scores=scores) for at in range(5)]
    cells = [*scored("look", [3] * 10), *lost]
    assert compared(cells, cells, "broken", "regressed", "look:1")[::2] == (["passed"] * 3, 0)


def test_an_output_that_only_b_has_leaves_a_pair_out() -> None:
    lost = [cell("c0", "ERROR", error=UNREACHABLE), *scored("look", [3] * 10)[1:]]
    states, message, code = compared(lost, scored("look", [3] * 10), "look:1")
    assert (states, code, "look: 1 of 10 pairs" in message) == (["unmeasured"], 3, True)


def test_a_cell_that_broke_is_broken_whatever_was_not_measured() -> None:
    states, message, code = compared(verdicts("!!PP"), verdicts("PPPF"), "broken")
    assert (states, code) == (["failed"], 1)
    assert "pass_rate: 2 of 4 pairs were not measured" in message


def probed(at: int, verdict: Verdict) -> ProbedCell:
    return ProbedCell(f"c{at}", "m", 0, "pixels.patch", "s0", 0, verdict)


def probe_state(caught: int, missed: int, unmeasured: int, rate: float, **left_out: Any) -> str:
    verdict_of = [Verdict.FAIL] * caught + [Verdict.PASS] * missed + [Verdict.ERROR] * unmeasured
    cells = [probed(at, verdict) for at, verdict in enumerate(verdict_of)]
    (gate,) = check_probe_gates(cells, [MinDetection("pixels", "pixels", rate)], None, **left_out)
    return gate.state


def test_a_probe_fails_no_grader_for_an_outage_and_needs_the_outputs() -> None:
    assert probe_state(40, 0, 0, 0.9) == "passed"
    assert probe_state(40, 0, 20, 0.5) == "passed"  # even if the 20 were missed
    assert probe_state(40, 0, 20, 0.9) == "unmeasured"
    assert probe_state(10, 28, 2, 0.9) == "failed"  # 5 %
    assert probe_state(10, 28, 3, 0.9) == "unmeasured"
    assert probe_state(10, 28, 3, 0.9, granted=0.1) == "failed"
    assert probe_state(40, 0, 0, 0.9, originals=LeftOut(2, 40)) == "passed"
    assert probe_state(40, 0, 0, 0.9, originals=LeftOut(3, 40)) == "unmeasured"
    assert probe_state(40, 0, 0, 0.9, originals=LeftOut(3, 40), granted=0.1) == "passed"


def test_the_results_as_json(tmp_path: Path) -> None:
    labeled_run(tmp_path, 36)
    (minimum,) = json.loads(agreement(tmp_path, "r", "--min", "good:accuracy:0.8", "--json").stdout)["minimums"]
    assert (minimum["state"], minimum["unmeasured"], minimum["value"]) == ("unmeasured", 36, 1.0)
