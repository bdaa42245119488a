"""The command ``agreement``: its output and exit codes, with large, empty and hostile runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from labeled_runs import CLEAR, USABLE, label, run_info
from record_factory import record
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.records.labels import Label, append_labels
from visioneval.records.preferences import Preference, append_preferences
from visioneval.records.writer import RunWriter

HOSTILE = "\x1b[31m<script>[bold]\u202e"


@pytest.fixture
def call(tmp_path: Path) -> Any:
    """``call(*words)`` runs ``agreement`` over the runs of tmp_path."""

    def run_agreement(*arguments: str) -> Any:
        done = CliRunner().invoke(app, ["agreement", *arguments, "--runs", str(tmp_path)], env={"COLUMNS": "100"})
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run_agreement


def write(folder: Path, labels: list[Label], run_id: str = "r", good: str = "efgh") -> Path:
    """A run of the cases a to h on m and n; the grader passes those in ``good``."""
    facts = run_info("abcdefgh", [USABLE, CLEAR], run_id, ["m", "n"])
    writer = RunWriter.create(folder, facts)
    for case in "abcdefgh":
        for model in "mn":
            scores = {"good": case in good, "layout": 3 if case in good else None}
            writer.append(record(run_id=run_id, test_id=case, model_label=model, scores=scores,
                                 reasons={"good": HOSTILE}))  # fmt: skip
    writer.finish("complete", "2025-01-01T00:00:01+00:00")
    append_labels(writer.folder / "labels.jsonl", labels)
    return writer.folder


def human_labels(good: str, rater: str = "ann", **more: Any) -> list[Label]:
    return [label(case, rater, "usable", case in good, **more) for case in "abcdefgh"]


def test_printed_output(tmp_path: Path, call: Any) -> None:
    write(tmp_path, human_labels("defgh") + human_labels("efgh", "bo", model_label="n"))
    done = call("r", "--min", "good:0.6", "--min-point", "good:0.6", "--min", "good:accuracy:0.9", "--min", "blank:0")
    text = " ".join(done.stdout.split())
    assert "r labels: 16 raters: 2" in text
    assert "good and human label usable, cells: 16" in text
    assert "kappa 0.875 16 no interval: 8 cases, 10 are needed" in text
    assert "accuracy 0.938 [" in text
    assert "precision of FAIL 0.875 [" in text
    assert "recall of FAIL 1.000 [" in text
    assert "no 7 0 yes 1 8" in text
    assert "Largest disagreements" in text
    assert "good and human label usable: kappa 0.875 (no interval: 8 cases, 10 are needed) on 16 cells Minimums" in text
    assert "passed --min-point good:0.6: kappa 0.875 " in text
    assert "NOT MEASURED --min good:0.6: kappa 0.875 (no interval: 8 cases, 10 are needed;" in text
    assert "FAILED --min good:0.9: accuracy 0.938, lower bound 0." in text
    assert "NOT MEASURED --min blank:0 (no question has the metric 'blank': the answered ones have good)" in text
    assert text.index("Minimums") < text.index("cells: 16")
    assert "--min-point" in text.partition("no interval: 8 cases")[2]
    assert done.exit_code == 3
    assert not {"\x1b", "\u202e"} & set(done.output)
    assert "<script>[bold]" in text


def test_one_model_run_and_several_runs(tmp_path: Path, call: Any) -> None:
    write(tmp_path, human_labels("defgh") + human_labels("abcd", model_label="n"))
    write(tmp_path, human_labels("efgh"), "s")
    for arguments, cells, kappa in ((["r@m"], 8, 0.75), (["r@n"], 8, -1), (["r@m", "s"], 16, 0.875)):
        data = json.loads(call(*arguments, "--json").stdout)
        assert (data["graders"][0]["cells"], data["notes"][0]) == (cells, data["notes"][0])
        assert data["graders"][0]["measures"]["kappa"]["value"] == pytest.approx(kappa)
        assert not any("not in the run" in note for note in data["notes"])
    assert call("r@m", "--min-point", "good:0.75").exit_code == 0
    assert call("r", "--min-point", "good:0.75").exit_code == 1
    assert call("r@m", "--min", "good:0.5").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["r", "--min", "good"], "--min 'good': write METRIC:VALUE or METRIC:MEASURE:VALUE with a value from -1 to 1"),
        (["r", "--min", "good:2"], "--min 'good:2': write METRIC:VALUE"),
        (["r", "--min", "good:nan"], "--min 'good:nan': write METRIC:VALUE"),
        (["r", "--min-point", "good:2"], "--min-point 'good:2': write METRIC:VALUE"),
        (["r", "--min", "good:0.5", "--min", "good:0.6"], "--min good: given twice"),
        (["r", "--min", "goood:0.5"], "--min goood: no run has the metric 'goood' (did you mean 'good'?)"),
        (["r", "--min", "good:kapa:0.5"], "--min good:kapa: no measure 'kapa' (did you mean 'kappa'?)"),
        (["nope"], "'nope': no such run"),
        (["r@q"], "no model run 'q'"),
        (["r", "--correct"], "--correct: r: no random draw of cells to label is recorded"),
    ],
)
def test_wrong_usage(tmp_path: Path, call: Any, arguments: list[str], message: str) -> None:
    write(tmp_path, [])
    done = call(*arguments)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)


def test_corrected_figures(tmp_path: Path, call: Any) -> None:
    """The grader fails d; people pass it. All cells of m are drawn, then labels are imported."""
    for run in "rs":
        write(tmp_path, [], run)
        table = tmp_path / f"{run}.csv"
        done = CliRunner().invoke(
            app, ["label", "draw", f"{run}@m", "random:99", "-o", str(table), "--runs", str(tmp_path)]
        )
        assert (done.exit_code, done.stdout, done.stderr[:14]) == (0, "", "drawn: 8 cells")
        header, *rows = table.read_text().splitlines()
        assert header == "case,model,sample,output,rater,usable,clear"
        assert sorted(rows) == [f"{case},m,0,,,," for case in "abcdefgh"]
        assert call(run, "--correct").exit_code == 2
        answers = [f"{row},{str(row[0] in 'defgh').lower()}" for row in rows]
        table.write_text("\n".join([f"{header},answer", *answers]))
        done = CliRunner().invoke(
            app,
            [
                "label",
                "import",
                str(table),
                run,
                "--set",
                "rater=ann",
                "--set",
                "question=usable",
                "--runs",
                str(tmp_path),
            ],
        )
        assert done.exit_code == 0, done.output
    done = call("r", "s", "--correct")
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "good corrected by human label usable, r draw random:99, weight of the judge" in text
    assert "8 cells not covered by the draw" in text
    assert "judge, all cells 0.500 [" in text
    assert "corrected 0.625 [" in text
    assert "layout corrected by human label clear, r not corrected: r: random:99 has no answer to 'clear' yet" in text
    assert "Corrected figure of s minus that of r" in text
    assert "good usable 0.000 [" in text
    data = json.loads(call("r@m", "--correct", "--json").stdout)["correction"]
    assert [entry["run"] for entry in data["metrics"]] == ["r@m", "r@m"]
    assert data["metrics"][0]["uncovered"] == 0
    assert data["differences"] == []
    assert json.loads(call("r", "--json").stdout)["correction"] is None


@pytest.mark.parametrize("which", ["all", "disputed:3", "random", "random:0"])
def test_only_random_cells_are_drawn(tmp_path: Path, which: str) -> None:
    folder = write(tmp_path, [])
    done = CliRunner().invoke(app, ["label", "draw", "r", which, "--runs", str(tmp_path)])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "labeling_draws.jsonl").exists()


def test_run_without_labels_has_a_note(tmp_path: Path, call: Any) -> None:
    folder = write(tmp_path, [])
    for _ in range(2):
        done = call("r")
        assert done.exit_code == 0
        assert "these runs have no labels yet" in done.stdout
        assert call("r", "--min", "good:0.1").exit_code == 3
        (folder / "labels.jsonl").touch()
    (folder / "results.jsonl").write_text("")
    assert call("r").exit_code == 0


def test_invalid_line_of_labels_is_reported(tmp_path: Path, call: Any) -> None:
    folder = write(tmp_path, human_labels("efgh"))
    with (folder / "labels.jsonl").open("a") as file:
        file.write('{"torn')
    assert call("r").exit_code == 0
    with (folder / "labels.jsonl").open("a") as file:
        file.write("\n")
    done = call("r")
    assert done.exit_code == 2
    assert "labels.jsonl:9: not a label: " in done.stderr
    assert "Traceback" not in done.output


def test_raters_are_compared_with_anchors(tmp_path: Path, call: Any) -> None:
    folder = write(tmp_path, human_labels("defgh"))
    append_labels(folder / "anchors.jsonl", human_labels("efgh", "agreed", source="anchor"))
    (rater,) = json.loads(call("r", "--json").stdout)["raters"]
    assert (rater["anchors"]["n"], rater["anchors"]["same"]) == (8, 7)
    assert "7/8" in call("r").stdout


def test_pairs_are_printed(tmp_path: Path, call: Any) -> None:
    labels = [label(case, "ann", "better", "a" if case < "c" else "b", other="r@n") for case in "abcdefgh"]
    folder = write(tmp_path, labels)
    sides = {"a": "r@m", "b": "r@n", "judge": HOSTILE, "reason": None, "error": None}
    append_preferences(folder, [
        Preference(test_id=case, sample_index=0, first=first, answer="b", **sides) for case in "abcdefgh" for first in ("a", "b")
    ])  # fmt: skip
    done = call("r")
    text = " ".join(done.stdout.split())
    assert "better r@m r@n 0.75 [0.41, 0.95] 6 2 0 8 1" in text
    judge = text.partition("Pairwise judges and people")[2]
    assert "accuracy [95%] 0.75 [0.41, 0.95] decided 8 kappa [95%] 0.00 pairs 8 flips 0 not judged 0" in judge
    assert "kappa: no interval: 8 cases, 10 are needed" in judge
    assert not {"\x1b", "\u202e"} & set(done.output)
    data = json.loads(call("r", "--json").stdout)
    assert data["preferences"][0]["b_win_rate"]["value"] == 0.75
    assert data["pairwise_judges"][0]["accuracy"]["value"] == 0.75
    (folder / "preferences.jsonl").write_text("{}\n")
    done = call("r")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "preferences.jsonl:1: no schema_version" in done.stderr


def test_large_run(tmp_path: Path, call: Any) -> None:
    folder = write(tmp_path, [])
    line = record(run_id="r", scores={"good": True}).model_dump_json()
    answer = label("a", "ann", "usable", True).model_dump_json()
    with (folder / "results.jsonl").open("w") as cells, (folder / "labels.jsonl").open("w") as labels:
        for number in range(40_000):
            case, good = "abcdefgh"[number % 8], str(number % 3 == 0).lower()
            cells.write(line.replace('"one"', f'"{case}"').replace('"sample_index":0', f'"sample_index":{number // 8}')
                        .replace('"good":true', f'"good":{good}') + "\n")  # fmt: skip
            if number % 4 == 0:
                labels.write(answer.replace('"a"', f'"{case}"').replace('"sample_index":0', f'"sample_index":{number // 8}')
                             .replace('"answer":true', f'"answer":{good}') + "\n")  # fmt: skip
    done = call("r", "--json", "--min-point", "good:0.99")
    assert done.exit_code == 0, done.output
    (data,) = [entry for entry in json.loads(done.stdout)["graders"] if entry["metric"] == "good"]
    assert (data["cells"], data["measures"]["kappa"]["value"]) == (10_000, 1)


def test_the_conclusion_says_how_sure_the_agreement_of_raters_is(tmp_path: Path, call: Any) -> None:
    write(tmp_path, human_labels("defgh") + human_labels("efgh", "bo"))
    text = " ".join(call("r").stdout.split())
    assert re.search(r"; a rater and the others agree 0\.\d{3} (\[|\(no interval: 8 cases, 10 are needed\))", text), (
        text
    )
