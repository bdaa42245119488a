"""Baselines of several runs: how they are stored, and how a comparison uses them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from record_factory import record, run_of
from typer.testing import CliRunner

from visioneval import RunFormatError, UsageError
from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.gates import check_gates, exit_code, parse_fail_on
from visioneval.analysis.sides import Side, side_of_baseline, writers_of
from visioneval.cli import app
from visioneval.records.baselines import Baseline, check_addable, make_baseline, read_baseline, write_baseline
from visioneval.records.writer import RunWriter

CASES = [f"c{at}" for at in range(8)]
METRICS: dict[str, Any] = {"fine": {"type": "bool"}, "level": {"type": "number", "range": [0, 5], "better": "higher"}}


def stored(run: str, verdicts: str, levels: Sequence[float | None] = (), **changes: Any) -> Baseline:
    """A run of a baseline. ``P``, ``F`` and ``!`` are the verdicts of its cases; every output is another file."""
    names = {"P": "PASS", "F": "FAIL", "!": "ERROR"}
    info = run_of({case: changes.get("case", {}) for case in CASES}, ["m"], [], METRICS, run_id=run)
    records = [
        record(
            run_id=run,
            test_id=case,
            verdict=names[letter],
            scores={} if letter == "!" else {"fine": letter == "P", "level": level},
            tags=changes.get("tags", ()),
            artifact_sha256=(changes.get("output", f"{run}{case}").encode().hex() + "0" * 64)[:64],
            graders=[
                {"key": "look", "type": "own:Look", "fingerprint": changes.get("fingerprint", {"config_sha256": "c"})}
            ],
        )
        for case, letter, level in zip(CASES, verdicts, levels or [3.0] * len(verdicts), strict=False)
    ]
    return make_baseline(info, records, writers_of(info))


def side(*runs: Baseline, name: str = "a") -> Side:
    return side_of_baseline(name, runs)


def compared(a: Sequence[Baseline], b: Baseline) -> Comparison:
    return compare(side(*a), side(b, name="b"))


def test_runs_are_stored_newest_first_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "main.jsonl"
    runs = [stored("r3", "PPFP"), stored("r2", "PPPP"), stored("r1", "FPPP")]
    write_baseline(runs, path)
    assert [run.header.run for run in read_baseline(path)] == ["r3", "r2", "r1"]
    assert read_baseline(path) == tuple(runs)
    write_baseline(runs[:1], path)
    assert len(path.read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines, *lines[:5]], r"main\.jsonl:11: run r2 is also in line 1"),
        (lambda lines: lines[:-1], r"main\.jsonl:6: the run has 4 cells, but 3 lines of cells"),
        (lambda lines: [*lines[:4], *lines[5:]], r"main\.jsonl:1: the run has 4 cells, but 3 lines of cells"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], r"main\.jsonl:4: c1 on m, sample 0, is also in line 3"),
        (lambda lines: ["<<<<<<< HEAD", *lines], r"main\.jsonl:1: not a baseline"),
        (lambda lines: [*lines[:5], "=======", *lines[5:]], r"main\.jsonl:6: not a baseline"),
    ],
)  # fmt: skip
def test_a_careless_merge_of_runs_is_one_line(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "main.jsonl"
    write_baseline([stored("r2", "PPPP"), stored("r1", "PPFP")], path)
    path.write_text("\n".join(change(path.read_text().splitlines())))
    with pytest.raises(RunFormatError, match=message) as error:
        read_baseline(path)
    assert len(str(error.value).splitlines()) == 1
    assert "restore this file, or set the baseline again" in str(error.value)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (stored("r1", "PPPP"), "already has r1"),
        (stored("r2", "PPPP", output="r1"), None),
        (stored("r2", "PPPP", case={"metadata": {"x": 1}}), None),
        (stored("r2", "PPPP", fingerprint={"config_sha256": "d"}), r"'look' graded its runs in another way \(config"),
        (stored("r2", "PPPP", fingerprint={"config_sha256": "c", "judge_model": "x"}), r"\(judge_model\)"),
        (stored("r2", "PPPP", fingerprint={"config_sha256": "c", "template_sha256": "x"}), r"\(template_sha256\)"),
        (stored("r2", "PP"), None),
    ],
)
def test_only_another_run_of_the_same_suite_is_added(other: Baseline, message: str | None) -> None:
    first = stored("r1", "PPPP")
    if message is None:
        check_addable(other, [first], Path("main.jsonl"))
        return
    with pytest.raises(UsageError, match=message):
        check_addable(other, [first], Path("main.jsonl"))


def test_a_run_with_the_same_outputs_or_another_suite_file_is_not_added() -> None:
    first = stored("r1", "PPPP")
    same = Baseline(header=first.header.model_copy(update={"run": "r2"}), lines=first.lines)
    with pytest.raises(UsageError, match=r"already has r2, or a run with its outputs \(r1\)"):
        check_addable(same, [first], Path("main.jsonl"))
    second = stored("r2", "PPPP")
    other = Baseline(header=second.header.model_copy(update={"source_sha256": "x" * 64}), lines=second.lines)
    with pytest.raises(UsageError, match="of another suite file than r2"):
        check_addable(other, [first], Path("main.jsonl"))


def test_a_cell_passed_if_most_of_its_measured_runs_passed() -> None:
    a = [stored("r3", "PFPF!"), stored("r2", "PFFP!"), stored("r1", "FPP!!")]
    cells = {cell.test_id: cell for cell in side(*a).cells}
    assert [cells[case].verdict for case in CASES[:5]] == ["PASS", "FAIL", "PASS", "FAIL", "ERROR"], "a tie is no pass"
    changes = compared(a, stored("b", "FPFFP")).counts
    assert (changes["broken"], changes["fixed"], changes["error_before"]) == (2, 1, 1)


def test_scores_are_means_over_runs_that_have_them() -> None:
    a = [stored("r2", "PP", [4, None]), stored("r1", "PP", [1, 2])]
    assert [cell.scores["level"] for cell in side(*a).cells] == [2.5, 2]
    comparison = compared(a, stored("b", "PP", [2, 2]))
    (gate,) = check_gates(comparison, parse_fail_on(["level:0.2"]))
    assert (gate.state, gate.message) == ("failed", "2.25 -> 2 (-0.25)")
    (gate,) = check_gates(comparison, parse_fail_on(["level:0.25"]))
    assert gate.state == "passed"


def test_a_fall_that_one_run_cannot_show_is_shown_by_several() -> None:
    runs = [stored(f"r{at}", "PPPPPPPP") for at in range(5)]
    after = stored("b", "PPPPPFFF")
    one, five = (compared(a, after).pass_rate for a in (runs[:1], runs))
    assert one.p is not None
    assert five.p is not None
    assert five.p < 0.05 < one.p
    assert five.samples == (5, 1)


def test_runs_that_differ_among_themselves_make_a_fall_less_sure() -> None:
    steady = [stored(f"r{at}", "PPPPPPFF") for at in range(4)]
    restless = [
        stored(f"r{at}", verdicts) for at, verdicts in enumerate(["PPPPPPPP", "PPPPPFFF", "PPPPPPPP", "PPPFFFFF"])
    ]
    after = stored("b", "FFFFPPFF")
    p_values = [compared(a, after).pass_rate.p or 1 for a in (steady, restless)]
    assert p_values[0] < 0.05 < p_values[1]


def test_must_pass_pools_the_samples_of_all_runs() -> None:
    tagged = {"tags": ("must_pass",)}
    for runs, state in ((("FP", "PP", "PP"), "failed"), (("PP", "FP", "FP"), "passed")):
        a = [stored(f"r{at}", verdicts, **tagged) for at, verdicts in enumerate(runs)]
        (gate,) = check_gates(compared(a, stored("b", "FP", **tagged)), parse_fail_on(["must_pass"]))
        assert gate.state == state
    assert (gate.cases[0].a.passed, gate.cases[0].a.failed) == (1, 2)


def test_the_same_output_is_judged_by_the_newest_run_that_has_it() -> None:
    """The newest run has other outputs. Of the two with B's outputs, the newer one passed them."""
    a = [stored("r3", "FF"), stored("r2", "PF", output="same"), stored("r1", "FP", output="same")]
    b = stored("b", "FF", output="same")
    comparison = compared(a, b)
    (gate,) = check_gates(comparison, parse_fail_on(["broken_same_output"]))
    assert (gate.state, gate.message) == ("failed", "1 of 2 cells with the same output broke")
    (gate,) = check_gates(compared(a[:1], b), parse_fail_on(["broken_same_output"]))
    assert gate.state == "not_applicable"


def test_losses_are_against_the_newest_run() -> None:
    gone = compared([stored("r2", "PP"), stored("r1", "PPPP")], stored("b", "PP"))
    assert not gone.only_a
    lost = compared([stored("r2", "PPPP"), stored("r1", "PP")], stored("b", "PP"))
    assert lost.only_a.columns.used_cases == ("c2", "c3")
    assert exit_code(gone, check_gates(gone, parse_fail_on([]))) == 0


def save(folder: Path, run: str, verdicts: str, **changes: Any) -> None:
    """Writes a finished run."""
    info = run_of({case: {} for case in CASES}, ["m"], [], METRICS, run_id=run, planned_cells=len(verdicts))
    writer = RunWriter.create(folder, info.model_copy(update={"state": "running"}))
    for case, letter in zip(CASES, verdicts, strict=True):
        passed = letter == "P"
        writer.append(
            record(
                run_id=run,
                test_id=case,
                model_label="m",
                verdict="PASS" if passed else "FAIL",
                scores={"fine": passed, "level": 3},
                artifact_sha256=(f"{run}{case}".encode().hex() + "0" * 64)[:64],
                graders=[{"key": "look", "type": "own:Look", "fingerprint": {"config_sha256": "c", **changes}}],
            )
        )
    writer.finish("complete", "2025-01-01T00:01:00+00:00")


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.output


def test_the_commands_from_set_to_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for number in range(4):
        save(Path("runs"), f"r{number}", "PPPPPPPP" if number % 2 else "PPPPPPPF")
    assert call("baseline", "add", "r0") == (
        2,
        "baselines/main.jsonl: no such baseline: create it with 'visioneval baseline set r0 --name main'\n",
    )
    assert call("baseline", "set", "r0")[0] == 0
    assert "One run does not show how much equal runs differ" in call("baseline", "show")[1]
    assert call("baseline", "add", "r0")[0] == 2
    for number in (1, 2, 3):
        assert call("baseline", "add", f"r{number}", "--keep", "3")[0] == 0
    code, shown = call("baseline", "show")
    assert code == 0
    assert [name in shown for name in ("r0", "r1", "r2", "r3")] == [False, True, True, True]
    assert "The runs differ no more than their samples explain" in shown
    summary = json.loads(call("baseline", "show", "--json")[1])
    assert [run["run"] for run in summary["runs"]] == ["r3", "r2", "r1"]
    assert [run["pass_rate"]["value"] for run in summary["runs"]] == [1, 0.875, 1]
    save(Path("runs"), "bad", "FFFFPPPP")
    code, output = call("compare", "baseline", "bad")
    assert code == 1
    assert "A: baseline of 3 runs: 8 cells of demo" in output
    assert "FAILED" in output
    assert "regressed" in output
    assert call("compare", "baseline", "r3", "--fail-on", "regressed")[0] == 0
    save(Path("runs"), "judged", "PPPPPPPP", judge_model="another")
    code, output = call("baseline", "add", "judged")
    assert (code, output.count("\n")) == (2, 1)
    assert "'look' graded its runs in another way (judge_model)" in output
    assert "3" in call("baseline", "list")[1]


def test_a_run_that_differs_from_the_others_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for number in range(4):
        save(Path("runs"), f"r{number}", "PPPPPPPP")
    save(Path("runs"), "odd", "FFFFFFPP")
    call("baseline", "set", "r0")
    for number in (1, 2, 3):
        assert "warning" not in call("baseline", "add", f"r{number}")[1]
    added = call("baseline", "add", "odd")
    assert added[0] == 0
    assert "warning: odd differs from the other runs by more than chance (pass rate 25.0%, p " in added[1]
    assert "differs by more than chance" in call("baseline", "show")[1]


def test_a_run_that_is_compared_with_itself_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its key: a later run with its id is another one, and so is one that has its outputs from the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for number in range(4):
        save(Path("runs"), f"r{number}", "PPPPPPPP")
    call("baseline", "set", "r0", "--name", "one")
    call("baseline", "set", "r0")
    for number in (1, 2):
        call("baseline", "add", f"r{number}")
    among = (
        "B is r1, one of the 3 runs of A: a part of the comparison is of this run with itself, which hides regressions"
    )
    same = "A and B are the same run: this compares it with itself"
    for a, b, note in (
        ("baseline", "r1", among),
        ("baseline@m", "r1@m", among),
        ("baseline", "r3", None),
        ("baseline", "baseline:one", among.replace("r1", "r0")),
        ("baseline:one", "r0", same),
        ("r0", "baseline:one", same),
        ("r2", "baseline", same),
        ("r1", "baseline", None),
        ("r1", "r1", same),
    ):
        code, output = call("compare", a, b)
        assert (code, [text for text in (among, among.replace("r1", "r0"), same) if text in output]) == (
            0,
            [note] if note else [],
        ), (a, b)
    header, *lines = Path("baselines/main.jsonl").read_text().splitlines()
    newest = json.loads(header)
    without_key = {name: value for name, value in newest.items() if name != "run_key"}  # by an earlier version
    for head, notes in ((newest, [among.replace("r1", "r2")]), (without_key, [])):
        Path("baselines/earlier.jsonl").write_text("\n".join((json.dumps(head), *lines, "")))
        code, output = call("compare", "baseline:earlier", "baseline:earlier", "--json")
        assert (code, json.loads(output)["notes"]) == (0, notes)
    path = Path("runs/r1/run.json")
    info = json.loads(path.read_text())
    path.write_text(json.dumps({**info, "started_at": info["started_at"].replace("20", "21", 1)}))
    assert "compared with itself" not in call("compare", "baseline", "r1")[1]


def test_of_a_baseline_of_several_runs_as_b_the_newest_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run, verdicts in (("full", "PPPPPPPP"), ("old", "PPPPFFFF"), ("new", "FFFFPPPP")):
        save(Path("runs"), run, verdicts)
    call("baseline", "set", "old", "--name", "halves")
    call("baseline", "add", "new", "--name", "halves")
    code, output = call("compare", "full", "baseline:halves", "--fail-on", "broken", "--json")
    result = json.loads(output)
    assert (code, result["counts"]["broken"], result["pass_rate"]["b"], result["b"]["runs"]) == (1, 4, 0.5, 1)


def test_runs_of_two_suites_in_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "main.jsonl"
    write_baseline([stored("r2", "PPPP"), stored("r1", "PPFP")], path)
    other = stored("r3", "PPPP")
    write_baseline([Baseline(header=other.header.model_copy(update={"suite": "x"}), lines=other.lines)], tmp_path / "x")
    path.write_text(path.read_text() + (tmp_path / "x").read_text())
    with pytest.raises(
        RunFormatError, match=r"main\.jsonl:11: run r3 is of another suite file than the newest: restore"
    ):
        read_baseline(path)


def test_scores_of_an_error_in_the_newest_run_come_from_the_others() -> None:
    (cell, *_) = side(stored("r2", "!"), stored("r1", "P", [4])).cells
    assert (cell.verdict, cell.scores["level"]) == ("PASS", 4)


def test_a_damaged_baseline_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("runs"), "r", "PPPPPPPP")
    call("baseline", "set", "r")
    Path("baselines/cut.jsonl").write_text("<<<<<<< HEAD\n")
    code, output = call("baseline", "list")
    assert code == 2
    assert "baselines/cut.jsonl:1: not a baseline" in output
    assert "main" in output
