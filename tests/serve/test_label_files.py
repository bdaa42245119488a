"""Import and export of labels: rows that do not match are reported and skipped, never guessed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from record_factory import info, record
from tables import rows_of
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.records.labels import Label, append_labels, newest, read_labels
from visioneval.records.writer import RunWriter
from visioneval.suite.model import Suite

rows = rows_of(__file__)

pytestmark = pytest.mark.slow

LABELS = {
    "questions": [
        {"key": "usable", "ask": "Is it usable?", "type": "yes_no", "metric": "verdict"},
        {"key": "clarity", "ask": "How clear is it?", "type": "scale", "scale": [1, 5]},
        {"key": "artifacts", "ask": "Artifacts?", "type": "one_of", "choices": ["none", "minor", "major"]},
        {"key": "wrong", "ask": "What is wrong?", "type": "tags", "choices": ["color", "cut, or fit", "logo"]},
        {"key": "note", "ask": "Anything else?", "type": "text"},
    ],
    "pairs": [{"key": "better", "ask": "Which is better?"}],
}


class Folder:
    """A run ``r`` of the cases one and two on the model runs m and n, two samples of two on n."""

    def __init__(self, folder: Path) -> None:
        suite = Suite.model_validate({**info().suite.model_dump(mode="json"), "labels": LABELS})
        writer = RunWriter.create(folder / "runs", info(suite=suite, planned_cells=5))
        for cell in (("one", "m", 0), ("one", "n", 0), ("two", "m", 0), ("two", "n", 0), ("two", "n", 1)):
            writer.append(record(test_id=cell[0], model_label=cell[1], sample_index=cell[2]))
        writer.finish("complete", "2025-01-01T00:00:01+00:00")
        self.folder = folder
        self.path = writer.folder / "labels.jsonl"

    def add(self, text: str | bytes, *flags: str, name: str = "in.csv") -> Any:
        (self.folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return self.call("import", str(self.folder / name), "r", *flags)

    def call(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["label", *arguments, "--runs", str(self.folder / "runs")])

    @property
    def labels(self) -> list[Label]:
        return read_labels(self.path)

    @property
    def answers(self) -> dict[str, Any]:
        return {label.question: label.answer for label in self.labels}


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


HEAD = "case,model,rater,question,answer\n"


def test_imports_a_plain_file_without_options(run: Folder) -> None:
    done = run.add(HEAD + "one,m,ann,usable,yes\none,m,ann,clarity,4\none,n,bo,usable,FALSE\n")
    assert done.exit_code == 0, done.output
    assert done.output == "r: labels added: 3 (cells: 2, raters: 2); already present: 0; skipped: 0\n"
    first = run.labels[0]
    assert (first.rater, first.cell, first.question, first.answer) == ("ann", ("one", "m", 0), "usable", True)
    assert (first.source, first.seconds, first.other) == ("import", None, None)
    assert [label.answer for label in run.labels] == [True, 4, False]


def test_a_drawn_table_is_filled_in_and_imported(run: Folder) -> None:
    table = run.folder / "cells.csv"
    done = run.call("draw", "r", "random:9", "--seed", "1", "-o", str(table))
    assert done.exit_code == 0, done.output
    assert "usable (yes or no): Is it usable?" in done.stderr
    assert "clarity (from 1 to 5): How clear is it?" in done.stderr
    assert "artifacts (one of: none; minor; major): Artifacts?" in done.stderr
    assert done.stdout == f"wrote {table}\n"
    printed = run.call("draw", "r", "random:9", "--seed", "1")
    assert printed.stdout == table.read_text(), "the table alone"
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[4:] == ["rater", "usable", "clarity", "artifacts", "wrong", "note"]
    rows[0] |= {"rater": "ann", "usable": "yes", "clarity": "4"}
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    done = run.call("import", str(table), "r")
    assert done.stdout == "r: labels added: 2 (cells: 1, raters: 1); already present: 0; skipped: 0\n"
    assert run.answers == {"usable": True, "clarity": 4}
    again = run.call("draw", "r", "random:9", "-o", str(table))
    assert (again.exit_code, "already exists, and may have been filled in" in again.stderr) == (2, True)
    assert "ann" in table.read_text()


@pytest.mark.parametrize(("question", "given", "saved"), rows("answers_are_read_by_their_questions_type"))
def test_answers_are_read_by_their_questions_type(run: Folder, question: str, given: Any, saved: Any) -> None:
    row = {"case": "one", "model": "m", "rater": "ann", "question": question, "answer": given}
    done = run.add(json.dumps(row) + "\n", name="in.jsonl")
    assert done.exit_code == 0, done.output
    (label,) = run.labels
    assert label.answer == (tuple(saved) if isinstance(saved, list) else saved)
    assert type(label.answer) is (tuple if isinstance(saved, list) else type(saved))


@pytest.mark.parametrize(("row", "expected"), rows("bad_row_is_reported_and_skipped"))
def test_bad_row_is_reported_and_skipped(run: Folder, row: str, expected: str) -> None:
    done = run.add(HEAD + f"one,m,ann,usable,yes\n{row}\none,n,ann,usable,no\n")
    assert done.exit_code == 3
    where, _, message = done.stderr.strip().partition(": ")
    assert where.endswith("in.csv:3:1")
    assert message == expected
    assert done.stdout.endswith("labels added: 2 (cells: 2, raters: 1); already present: 0; skipped: 1\n")
    assert len(run.labels) == 2


def test_only_bad_rows_is_a_usage_error(run: Folder) -> None:
    done = run.add(HEAD + "three,m,ann,usable,yes\n" * 150)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 101
    assert done.stderr.splitlines()[-1] == "... and 50 more"
    assert not run.path.exists()


def test_columns_are_mapped_and_fields_set(run: Folder) -> None:
    text = "image\twho\tscore\twhen\ttook\tmodel\none\tw1\t2\t2024-05-01T10:00:00Z\t3.5\tnobody\n"
    flags = [
        "--map",
        "case=image",
        "--map",
        "rater=who",
        "--map",
        "answer=score",
        "--map",
        "at=when",
        "--map",
        "seconds=took",
    ]
    done = run.add(text, *flags, "--set", "model=n", "--set", "question=How clear is it?", name="in.tsv")
    assert done.exit_code == 0, done.output
    (label,) = run.labels
    assert (label.rater, label.cell, label.question, label.answer) == ("w1", ("one", "n", 0), "clarity", 2)
    assert (label.at, label.seconds) == ("2024-05-01T10:00:00+00:00", 3.5)


def test_a_wide_file_answers_several_questions_in_a_row(run: Folder) -> None:
    done = run.add(
        "test_id,model_label,sample_index,rater,usable,clarity,note\ntwo,n,1,ann,yes,9,\none,n,0,bo,no,2,ok\n"
    )
    assert done.exit_code == 3
    assert done.stderr.strip().endswith("in.csv:2:1: clarity: 9 is not on the scale from 1 to 5")
    assert [(label.cell, label.question, label.answer) for label in run.labels] == [
        (("two", "n", 1), "usable", True),
        (("one", "n", 0), "usable", False),
        (("one", "n", 0), "clarity", 2),
        (("one", "n", 0), "note", "ok"),
    ]
    mapped = run.add("case,model,who,Q1,Q2\none,m,cy,yes,3\n", "--map", "rater=who", "--map", "usable=Q1", "--map",
                     "clarity=Q2")  # fmt: skip
    assert mapped.exit_code == 0, mapped.output
    assert [(label.question, label.answer) for label in run.labels[4:]] == [("usable", True), ("clarity", 3)]


@pytest.mark.parametrize(("text", "flags", "expected"), rows("missing_columns_are_a_usage_error"))
def test_missing_columns_are_a_usage_error(run: Folder, text: Any, flags: tuple[str, ...], expected: str) -> None:
    done = run.add(text, *flags)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert expected in line
    assert not run.path.exists()


def test_unsupported_files_are_a_usage_error(run: Folder, tmp_path: Path) -> None:
    for name, expected in (("in.xlsx", "must end in .jsonl"), ("none.csv", "no such file")):
        done = run.call("import", str(tmp_path / name), "r")
        assert (done.exit_code, expected in done.stderr) == (2, True), done.output
    assert run.call("import", str(tmp_path), "nope").exit_code == 2
    assert "not valid UTF-8" in run.add(b"\xff\xfe").stderr


def test_invalid_json_line_is_reported_and_skipped(run: Folder) -> None:
    good = '{"case": "one", "model": "m", "rater": "ann", "question": "usable", "answer": true}'
    done = run.add(f"{good}\n{{torn\n[1]\n", name="in.jsonl")
    assert done.exit_code == 3
    assert [line.split("in.jsonl:")[1].split(": ")[0] for line in done.stderr.splitlines()] == ["2:2", "3:1"]
    assert len(run.labels) == 1


def test_later_answer_of_a_rater_counts(run: Folder) -> None:
    run.add(HEAD + "one,m,ann,usable,yes\none,m,ann,usable,no\n")
    assert [label.answer for label in run.labels] == [True, False]
    assert [label.answer for label in newest(run.labels)] == [False]


def test_importing_a_file_again_adds_only_new_labels(run: Folder) -> None:
    text = HEAD + "one,m,ann,usable,yes\none,m,ann,usable,yes\none,m,ann,clarity,1\n"
    run.add(text)
    second = run.add(text + "one,n,ann,usable,no\n")
    assert second.stdout == "r: labels added: 1 (cells: 1, raters: 1); already present: 3; skipped: 0\n"
    assert len(run.labels) == 4


def test_imports_pairs(run: Folder) -> None:
    text = "case,model,rater,question,answer,other\n"
    done = run.add(text + "one,m,ann,better,A,r@n\none,m,ann,better.why,sharper,r@n\none,m,ann,better,left,r@n\n"
                   "one,m,ann,usable,yes,r@n\n")  # fmt: skip
    assert run.answers == {"better": "a", "better.why": "sharper"}
    assert {label.other for label in run.labels} == {"r@n"}
    assert [line.split(": ", 1)[1] for line in done.stderr.splitlines()] == [
        "better: 'left' is not one of a, b, tie",
        "usable: a question about one image takes no 'other'",
    ]


def test_single_model_run_is_the_default(run: Folder, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("case,rater,usable\none,ann,yes\ntwo,ann,no\n")
    done = run.call("import", str(tmp_path / "in.csv"), "r@mock")
    assert done.exit_code == 2
    assert "no model run 'mock' in r" in done.stderr or "has no case" in done.stderr


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_import_reads_an_export_without_options(run: Folder, tmp_path: Path, form: str) -> None:
    given = {"usable": False, "clarity": 2, "artifacts": "none", "wrong": ("color",), "note": 'a "b", c\nd\te'}
    known = {"rater": "ann", "test_id": "two", "model_label": "n", "sample_index": 1}
    at = "2025-06-14T09:00:00+00:00"
    labels = [Label(**known, question=key, answer=answer, at=at, source="import") for key, answer in given.items()]
    append_labels(
        run.path, [*labels, Label(**known, question="better", answer="b", other="r@m", at=at, source="import")]
    )
    before = run.labels
    file = tmp_path / f"out.{form}"
    assert run.call("export", "r", "-o", str(file)).stdout.startswith("wrote 6 labels to ")
    run.path.unlink()
    done = run.call("import", str(file), "r")
    assert done.exit_code == 0, done.output
    assert run.labels == before


def test_export_omits_superseded_answers_by_default(run: Folder) -> None:
    run.add(HEAD + "one,m,ann,usable,yes\none,m,ann,usable,no\none,n,bo,note,\x1b[31mred\n")
    rows = run.call("export", "r").stdout.splitlines()
    assert (
        rows[0]
        == "rater,test_id,model_label,sample_index,other,question,answer,seconds,at,source,artifact_sha256,other_sha256"
    )
    assert [row.split(",")[6] for row in rows[1:]] == ["false", "\ufffd[31mred"]
    assert len(run.call("export", "r", "--all").stdout.splitlines()) == 4
    assert len(run.call("export", "r", "--all", "--format", "jsonl").stdout.splitlines()) == 3


def test_unknown_command_opens_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from visioneval.cli.label import RunOrCommand

    group = typer.Typer(cls=RunOrCommand)
    text: list[tuple[str, int]] = []

    @group.command("page")
    def page(run: str, port: int = 0) -> None:
        text.append((run, port))

    @group.command("import")
    def import_file(file: str) -> None:
        text.append((file, -1))

    for arguments in (
        ["latest"],
        ["--port", "80", "latest"],
        ["latest", "--port", "81"],
        ["import", "x"],
        ["page", "y"],
    ):
        assert CliRunner().invoke(group, arguments).exit_code == 0
    assert text == [("latest", 0), ("latest", 80), ("latest", 81), ("x", -1), ("y", 0)]
    assert "import" in CliRunner().invoke(group, ["--help"]).output


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("text", ["=1+1", "+1", "-1 for this", "@SUM(A1)", "'=x", "''@", "'quoted'", "plain"])
def test_exported_text_is_never_a_formula(run: Folder, tmp_path: Path, text: str, form: str) -> None:
    row = {"case": "one", "model": "m", "rater": text, "question": "note", "answer": text}
    run.add(json.dumps(row) + "\n", name="in.jsonl")
    file = tmp_path / f"out.{form}"
    run.call("export", "r", "-o", str(file))
    if form != "jsonl":
        (output,) = csv.DictReader(io.StringIO(file.read_text("utf-8")), delimiter="," if form == "csv" else "\t")
        assert {output["answer"][0], output["rater"][0]}.isdisjoint("=+-@")
    before = run.labels
    run.path.unlink()
    assert run.call("import", str(file), "r").exit_code == 0
    assert run.labels == before
    assert run.answers == {"note": text}


def test_answer_with_the_same_time_is_a_duplicate(run: Folder) -> None:
    row = "one,m,ann,usable,yes,2025-06-14T09:00:00Z\n"
    done = run.add("case,model,rater,question,answer,at\n" + row + row)
    assert done.stdout.startswith("r: labels added: 1 ")
    assert "already present: 1; skipped: 0" in done.stdout
    page = [label.model_copy(update={"source": "page"}) for label in run.labels]
    run.path.unlink()
    append_labels(run.path, page)
    assert "labels added: 0 " in run.call("import", str(run.folder / "in.csv"), "r").stdout


def test_reports_repeated_rows_without_a_time(run: Folder) -> None:
    done = run.add(HEAD + "one,m,ann,usable,yes\none,m,ann,usable,yes\none,m,ann,usable,no\n")
    assert done.stderr == "repeated answers, stored as repeats: 1\n"
    assert [label.answer for label in run.labels] == [True, True, False]


@pytest.mark.parametrize(("row", "expected"), rows("lists_and_mappings_are_not_text"))
def test_lists_and_mappings_are_not_text(run: Folder, row: dict[str, Any], expected: str) -> None:
    good = {"case": "one", "model": "m", "rater": "ann", "question": "note", "answer": "x"}
    done = run.add(json.dumps({**good, **row}) + "\n", name="in.jsonl")
    assert done.stderr.splitlines()[0].endswith(f"in.jsonl:1:1: {expected}")
    assert not run.path.exists() or run.labels == []


def test_missing_column_message_lists_columns(run: Folder) -> None:
    done = run.add("case;model;rater;usable\none;m;ann;yes\n")
    assert done.stderr.endswith(
        "no column 'case': --map case=COLUMN or --set case=VALUE sets it."
        " The file's columns: 'case;model;rater;usable'\n"
    )
    assert run.add(HEAD + "one,m,ann,usable,yes\n", "--map", "case=case", "--map", "case=rater").stderr == (
        "--map case: given twice\n"
    )
