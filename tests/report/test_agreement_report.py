"""The command ``agreement``: exit codes, several runs, large, empty and hostile ones. What it prints is in golden files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from labeled_runs import CLEAR, USABLE, label, run_info
from record_factory import record
from tables import rows_of
from typer.testing import CliRunner

from visioneval.analysis.agreement.agreement import Agreement
from visioneval.analysis.agreement.correction import CorrectedMetric, Correction
from visioneval.cli import app
from visioneval.records.between_cells import Preference, append_preferences
from visioneval.records.labels import Label, append_labels
from visioneval.records.writer import RunWriter
from visioneval.report.agreement import agreement_report
from visioneval.report.sections import Section

rows = rows_of(__file__)

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


@pytest.mark.parametrize(("minimums", "outcome", "line"), rows("the_outcome_is_said_first_and_last"))
def test_the_outcome_is_said_first_and_last(
    tmp_path: Path, call: Any, minimums: list[str], outcome: str, line: str
) -> None:
    write(tmp_path, human_labels("defgh") + human_labels("efgh", "bo", model_label="n"))
    done = call("r", *minimums)
    assert f"(exit code {done.exit_code})" in outcome
    assert [number for number, text in enumerate(done.stdout.splitlines()) if text == outcome][:1] == [1]
    assert done.stdout.rstrip().endswith(outcome)
    assert line in " ".join(done.stdout.split())
    assert not {"\x1b", "\u202e"} & set(done.output)
    assert "<script>[bold]" in done.stdout


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


def test_a_corrected_figure_that_was_not_measured_is_the_outcome() -> None:
    """Its figures are in golden files, and how they are corrected is tested there."""
    metric = {"run": "r", "metric": "good", "question": "usable", "kind": "bool", "note": "3 of 8", "reason": "no draw"}
    correction = Correction(
        metrics=(CorrectedMetric.model_validate({**metric, "is_unreliable": True}),), differences=()
    )
    empty = dict.fromkeys(("graders", "people", "raters", "preferences", "pairwise_judges", "notes"), ())
    report = agreement_report(Agreement(runs=("r",), labels=8, **empty, correction=correction, exit_code=3))
    assert report.outcome.sentence == "A corrected figure was not measured"
    (section,) = (part for part in report.sections if isinstance(part, Section))
    assert [getattr(line, "text", line) for line in section.about] == [
        "NOT MEASURED: 3 of 8 (--allow unmeasured=RATE accepts more)",
        "not corrected: no draw",
    ]


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


def test_a_hostile_judge_of_pairs_and_unreadable_answers(tmp_path: Path, call: Any) -> None:
    labels = [label(case, "ann", "better", "a" if case < "c" else "b", other="r@n") for case in "abcdefgh"]
    folder = write(tmp_path, labels)
    sides = {"a": "r@m", "b": "r@n", "judge": HOSTILE, "reason": None, "error": None}
    append_preferences(folder, [
        Preference(test_id=case, sample_index=0, first=first, answer="b", **sides) for case in "abcdefgh" for first in ("a", "b")
    ])  # fmt: skip
    done = call("r")
    assert ", better: kappa: no interval: 8 cases, 10 are needed" in " ".join(done.stdout.split())
    assert not {"\x1b", "\u202e"} & set(done.output)
    (folder / "preferences.jsonl").write_text("{}\n")
    done = call("r")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "preferences.jsonl:1: no schema_version" in done.stderr
