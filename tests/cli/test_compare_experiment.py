"""``compare A --experiment NAME --last N``: exit codes, what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from series_runs import baseline_of, failing, night
from typer.testing import CliRunner

import visioneval as ve
from visioneval.cli import app

RUNS = Path("runs")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def baseline(runs: int = 3, **changes: Any) -> None:
    """A baseline of runs in another folder, in which a fifth of the cases failed."""
    stored = [
        night(Path("old"), -at, name=f"base-{at}", failed=failing(0.2, at), **{"experiment": None, **changes})
        for at in range(runs)
    ]
    baseline_of(*stored)


def nights(count: int, share: float = 0.2, first: int = 1, **changes: Any) -> None:
    for number in range(first, first + count):
        night(RUNS, number, failed=failing(share, number), **changes)


def compared(*words: str) -> Any:
    return CliRunner().invoke(app, ["compare", "baseline", *words])


def experiment(*words: str) -> Any:
    return compared("--experiment", "nightly", *words)


def data(*words: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(experiment("--json", *words).stdout)
    return result


def test_equal_nights_pass_and_worse_nights_are_a_drift() -> None:
    baseline()
    nights(5)
    result = experiment("--last", "5")
    assert result.exit_code == 0, result.output
    assert "no drift found: pass rate +0.0 points over the last 5 runs" in " ".join(result.stdout.split())
    assert "Drift: nightly against baseline\ndate        run " in result.stdout, "a table, at 80 columns"
    nights(5, 0.5, first=6)
    result = experiment("--last", "5")
    assert result.exit_code == 1, result.output
    assert "DRIFT: pass rate -30.0 points over the last 5 runs" in " ".join(result.stdout.split())


def test_what_must_be_detected_is_a_matter_of_the_last_runs_together() -> None:
    baseline()
    nights(5)
    alone = experiment("--last", "1", "--must-detect", "25")
    assert alone.exit_code == 3
    assert "is detected with 80 % power over 30 cases in 1 run" in " ".join(alone.stdout.split())
    assert experiment("--last", "5", "--must-detect", "25").exit_code == 0
    assert experiment("--last", "5", "--must-detect", "2").exit_code == 3
    output = " ".join(experiment("--last", "5", "--must-detect", "2").stdout.split())
    assert "is detected with 80 % power over 30 cases in 5 runs" in output


@pytest.mark.parametrize("runs", [1, 3])
def test_every_form_of_the_comparison_has_the_verdict_and_the_table(runs: int) -> None:
    baseline(runs)
    nights(4, 0.5)
    night(RUNS, 6, failed=failing(0.5, 9), errors=[0])
    result = experiment(
        "--last", "5", "--allow", "errors", "--markdown", "c.md", "--html", "c.html", "--junit", "c.xml"
    )
    assert result.exit_code == 1
    for name in ("c.md", "c.html"):
        text = Path(name).read_text()
        assert "DRIFT: pass rate -" in text
        for part in ("night-01", "2026-11-02", "No run on 2026-11-06", "night-06: 1 of 30 cells was not measured"):
            assert part in text, (name, part)
    assert '<testcase name="drift"' in Path("c.xml").read_text()
    found = data("--last", "5")["drift"]
    assert (found["experiment"], found["last"], found["state"]) == ("nightly", 5, "failed")
    assert found["missing_days"] == ["2026-11-06"]
    assert [run["run_id"] for run in found["runs"]] == ["night-01", "night-02", "night-03", "night-04", "night-06"]
    assert found["runs"][-1]["is_drift"]
    assert found["runs"][-1]["evidence"]["p"] < found["limit"]


def test_a_comparison_of_two_runs_has_no_drift() -> None:
    baseline()
    nights(1)
    result = compared("night-01", "--json")
    assert json.loads(result.stdout)["drift"] is None
    refused = compared("night-01", "--fail-on", "drift")
    assert refused.exit_code == 2
    assert "--fail-on drift: is about the last runs of an experiment: name it with --experiment" in refused.stderr


def test_drift_takes_the_place_of_regressed_and_other_gates_are_of_the_last_run() -> None:
    baseline()
    nights(4)
    night(RUNS, 5, failed=range(12))
    states = {gate["fail_on"]: gate["state"] for gate in data("--last", "5")["gates"]}
    assert states["drift"] == "passed"
    assert "regressed" not in states
    assert "must_pass" in states
    for gate in ("broken", "regressed"):
        named = data("--last", "5", "--fail-on", gate)
        assert [item["fail_on"] for item in named["gates"]][:2] == ["drift", gate]
    assert named["b"]["name"] == "night-05"
    assert experiment("--last", "5", "--fail-on", "broken").exit_code == 1
    assert experiment("--last", "5", "--fail-on", "drift").exit_code == 0


@pytest.mark.parametrize("drift", [None, 3])
def test_the_suite_says_how_many_runs_are_tested_together(drift: int | None) -> None:
    baseline()
    nights(4, drift=drift)
    result = experiment("--json")
    assert result.exit_code == (0 if drift else 2)
    if drift:
        assert json.loads(result.stdout)["drift"]["last"] == 3
        assert data("--last", "2")["drift"]["last"] == 2
    else:
        assert "the suite demo does not say how many runs are tested together: add --last N" in result.stderr


def test_fewer_runs_than_asked_for_are_tested_and_said() -> None:
    baseline()
    nights(2)
    result = experiment("--last", "20")
    assert result.exit_code == 0
    assert "up to 20, of which there are 2" in " ".join(result.stdout.split())


def test_too_few_cases_exit_3_unless_that_is_allowed() -> None:
    baseline(1, cases=3)
    nights(1, cases=3)
    assert experiment("--last", "5", "--fail-on", "drift").exit_code == 3
    assert experiment("--last", "5", "--fail-on", "drift", "--allow", "cannot-tell").exit_code == 0


def test_holes_exit_3() -> None:
    baseline()
    nights(2)
    nights(3, first=3, errors=range(5))
    accepted = ("--last", "5", "--allow", "missing-metrics", "--allow")
    assert experiment(*accepted, "errors").exit_code == 0, "any number of cells without a verdict"
    result = experiment(*accepted, "errors=0.1")
    assert result.exit_code == 3
    assert "the last run, night-05, is left out: 5 of 30 cells were not measured, more than 10%" in " ".join(
        result.stdout.split()
    )
    night(RUNS, 6, state="interrupted")
    result = experiment("--last", "5")
    assert result.exit_code == 3
    assert "night-06 is left out: incomplete: interrupted" in " ".join(result.stdout.split())


def test_a_run_that_cannot_be_read_is_left_out_unless_it_is_the_newest() -> None:
    baseline()
    nights(4)
    (RUNS / "night-02" / "results.jsonl").write_text("{\n")
    result = experiment("--last", "4")
    assert result.exit_code == 0, result.output
    assert "night-02 is left out: cannot be read: " in " ".join(result.stdout.split())
    (RUNS / "night-04" / "results.jsonl").write_text("{\n")
    assert experiment("--last", "4").exit_code == 2


def test_a_run_that_is_there_twice_counts_once() -> None:
    baseline()
    nights(2, 0.5)
    again = RUNS / "night-02-copy"
    again.mkdir()
    for name in ("run.json", "results.jsonl"):
        (again / name).write_bytes((RUNS / "night-02" / name).read_bytes())
    found = data("--last", "5")["drift"]
    assert [run["left_out"] for run in found["runs"]] == ["", "", "it is the same run as night-02"]
    assert found["state"] == "unmeasured"


def test_the_newest_run_is_that_of_the_series_and_no_folder_of_its_name() -> None:
    baseline()
    nights(3)
    night(Path(), 1, name="night-03", failed=range(30), experiment=None)
    found = data("--last", "3")
    assert (found["b"]["name"], found["counts"]["broken"]) == ("night-03", 6)


def test_a_baseline_with_few_verdicts_exits_3() -> None:
    baseline(errors=range(3, 30))
    nights(7)
    result = experiment("--last", "7")
    assert result.exit_code == 3
    assert "night-07 is left out: of A, 27 of 30 cells were not measured, more than 5%" in " ".join(
        result.stdout.split()
    )
    assert experiment("--last", "7", "--allow", "unmeasured").exit_code == 0


def test_the_run_of_the_baseline_is_no_evidence_against_it() -> None:
    nights(3)
    baseline_of(RUNS / "night-01")
    runs = data("--last", "5")["drift"]["runs"]
    assert [run["left_out"] for run in runs] == ["it is one of the runs of A", "", ""]


def test_a_changed_suite_is_said_and_what_is_not_comparable_left_out() -> None:
    baseline()
    nights(3)
    nights(2, first=4, cases=32)
    result = experiment("--last", "5")
    assert result.exit_code == 0
    assert "night-04, night-05: 2 cells not in A: c30, c31" in " ".join(result.stdout.split())
    nights(1, first=6, judge="judge-2")
    result = experiment("--last", "5")
    assert result.exit_code == 3
    assert "it was graded in another way than A: look: judge model judge-1 -> judge-2" in " ".join(
        result.stdout.split()
    )


def test_nothing_comparable_exits_3() -> None:
    baseline()
    nights(2, record_changes={"model_label": "other"})
    with_other_cases = experiment("--last", "5", "--case", "c*")
    assert with_other_cases.exit_code == 0, "two single model runs are paired"
    other = night(Path("elsewhere"), 1, name="other", cases=2, record_changes={"test_id": "else"})
    baseline_of(other)
    result = experiment("--last", "5")
    assert result.exit_code == 3
    assert "the runs have no cell in common" in result.stderr


def test_runs_of_other_suites_are_said_and_cannot_hide_that_the_suite_ended() -> None:
    baseline()
    nights(3)
    other = {"suite": ve.read_info(RUNS / "night-01").suite.model_copy(update={"name": "second"})}
    night(RUNS, 3, name="second-03", **other)
    result = experiment("--last", "3")
    assert result.exit_code == 0
    assert "Runs of other suites, not in the series: 1 of second" in " ".join(result.stdout.split())
    night(RUNS, 4, name="second-04", **other)
    result = experiment("--last", "3")
    assert result.exit_code == 3
    assert "since night-03, only another suite has run again: second" in " ".join(result.stdout.split())
    for number in (1, 2, 3):
        for path in (RUNS / f"night-{number:02}").iterdir():
            if path.is_file():
                path.unlink()
    result = experiment("--last", "3")
    assert result.exit_code == 3
    assert "--experiment 'nightly': has no run of the suite demo: its runs are 2 of second" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--experiment", "nightly", "--last", "0"], "--last"),
        (["--experiment", "nightly", "--last", "101"], "--last"),
        (["night-01", "--experiment", "nightly"], "--experiment: B is its newest run, so leave out 'night-01'"),
        (["night-01", "--last", "3"], "--last: of which experiment? Add --experiment NAME"),
        ([], "name the run B, or the experiment of the last runs with --experiment NAME"),
        (["--experiment", "nigthly", "--last", "3"], "no run in runs is of it (did you mean 'nightly'?)"),
        (
            ["--experiment", "nightly", "--last", "3", "--fail-on", "drift", "--confirm", "2"],
            "--confirm is for the gates",
        ),
        (["--experiment", "", "--last", "3"], "--experiment '': no run in runs is of it"),
    ],
)
def test_what_cannot_be_asked_exits_2(words: list[str], message: str) -> None:
    baseline()
    nights(2)
    result = compared(*words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_an_experiment_is_named_exactly() -> None:
    baseline()
    for number, name in enumerate(("a *b", "a *b", "a xb"), 1):
        night(RUNS, number, experiment=name)
    result = compared("--experiment", "a *b", "--last", "9", "--json")
    assert [run["run_id"] for run in json.loads(result.stdout)["drift"]["runs"]] == ["night-01", "night-02"]


def test_selections_narrow_the_drift() -> None:
    baseline()
    nights(3)
    found = data("--last", "3", "--case", "c1?", "--metric", "look")
    assert found["drift"]["runs"][-1]["evidence"]["cases"] == 10
    assert experiment("--last", "3", "--case", "nope").exit_code == 2


def test_the_python_api_is_the_command() -> None:
    baseline()
    nights(4, 0.5)
    result = ve.compare("baseline", experiment="nightly", last=4)
    assert result.exit_code == 1
    assert result.comparison.drift is not None
    assert [night.run_id for night in result.comparison.drift.nights][-1] == result.comparison.b.name == "night-04"
    for arguments in (
        {"last": 3},
        {"experiment": "nightly", "last": 0},
        {"b": "night-01", "experiment": "nightly"},
        {},
    ):
        with pytest.raises(ve.UsageError):
            ve.compare("baseline", **arguments)  # type: ignore[arg-type]


def test_shards_are_no_runs_of_the_series() -> None:
    baseline()
    nights(3)
    night(RUNS, 3, name="shard-1", cases=15, selection={"shard": {"number": 1, "count": 2}})
    assert [run["run_id"] for run in data("--last", "9")["drift"]["runs"]] == ["night-01", "night-02", "night-03"]
