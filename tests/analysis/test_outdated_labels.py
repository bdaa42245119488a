"""Labels of an image that was generated again since: they are ignored, with a note."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from label_server import SECRET_A, lines, make_image, write_run
from labeled_runs import label, labeled
from typer.testing import CliRunner

from visioneval.analysis.agreement.agreement import agree
from visioneval.cli import app
from visioneval.label.labeling import Labeling
from visioneval.label.work import LabelRequest, prepare
from visioneval.media.images import encode_png
from visioneval.records.labels import Label, append_labels, is_current

IMAGES = [encode_png(make_image(number)) for number in range(3)]
ONE, THEN, NOW = (sha256(image).hexdigest() for image in IMAGES)
AT = "2025-06-01T12:00:00+00:00"
GOOD: dict[str, Any] = {"usable": True, "clarity": 4}


def generated(root: Path, digest: str) -> Path:
    """A run of two cells. The image of the second has this hash."""
    run = write_run(root, [{"id": "one"}, {"id": "two"}], change=lambda at: {"artifact_sha256": digest if at else ONE})
    save(run, digest)
    return run


def save(run: Path, digest: str) -> None:
    """Writes the image of the second cell with this hash."""
    image = next(image for image in IMAGES if sha256(image).hexdigest() == digest)
    (run / "artifacts" / "two" / SECRET_A / "0.png").write_bytes(image)


def regenerate(run: Path, digest: str) -> None:
    """Replaces the image of the last cell and appends its record, as a resumed run does."""
    save(run, digest)
    results = run / "results.jsonl"
    last = results.read_text().splitlines()[-1]
    results.write_text(results.read_text() + last.replace(THEN, digest) + "\n")


def open_labeling(run: Path) -> Labeling:
    return Labeling(prepare(LabelRequest(str(run), run.parent)))


def answered(run: Path, rater: str = "ann") -> Labeling:
    at = open_labeling(run)
    for _ in range(2):
        at.answer(rater, at.next(rater)["item"]["id"], GOOD, 1.0)
    return at


def call(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.parametrize(
    ("labels", "images", "same"),
    [
        ((THEN, None), (THEN, None), True),
        ((THEN, None), (NOW, None), False),
        ((None, None), (NOW, None), True),
        ((THEN, None), (None, None), True),
        ((THEN, THEN), (THEN, NOW), False),
    ],
)
def test_a_label_is_of_the_images_that_it_names(labels: Any, images: Any, same: bool) -> None:
    single = label("a", "ann", "usable", True, artifact_sha256=labels[0], other_sha256=labels[1])
    assert is_current(images, single) is same


def test_label_stores_the_hash_of_its_image(tmp_path: Path) -> None:
    run = generated(tmp_path, THEN)
    answered(run)
    result = {(line["test_id"], line["artifact_sha256"]) for line in lines(run / "labels.jsonl")}
    assert result == {("one", ONE), ("two", THEN)}


def test_page_asks_again_about_an_image_that_was_generated_again(tmp_path: Path) -> None:
    run = generated(tmp_path, THEN)
    answered(run)
    assert open_labeling(run).next("ann")["item"] is None
    assert prepare(LabelRequest(str(run), tmp_path)).notes == ()
    regenerate(run, NOW)
    assert prepare(LabelRequest(str(run), tmp_path)).notes == ("labels for replaced images, ignored: 3",)
    at = open_labeling(run)
    response = at.next("ann")
    assert (response["done"], response["total"], response["item"]["case"], response["item"]["given"]) == (
        1,
        2,
        "two",
        {},
    )
    at.answer("ann", response["item"]["id"], GOOD, 1.0)
    assert at.next("ann")["item"] is None
    assert len(lines(run / "labels.jsonl")) == 12, "labels of the old image stay in the file"


def test_anchors_of_old_images_are_not_shown(tmp_path: Path) -> None:
    run = generated(tmp_path, NOW)
    known = {"rater": "agreed", "model_label": SECRET_A, "sample_index": 0, "question": "usable", "answer": True}
    at = "2025-06-01T12:00:00+00:00"
    anchors = [
        Label(**known, test_id=case, at=at, source="anchor", artifact_sha256=image)
        for case, image in (("one", None), ("two", THEN))
    ]
    append_labels(run / "anchors.jsonl", anchors)
    assert [entry.record.test_id for entry in prepare(LabelRequest(str(run), tmp_path)).anchors] == ["one"]


def test_agreement_ignores_outdated_labels_with_a_note() -> None:
    scores = {"a": {"good": True}, "b": {"good": False}}
    labels = [
        label("a", "ann", "usable", False, artifact_sha256=THEN),
        label("a", "ann", "usable", True, artifact_sha256=NOW),
        label("b", "ann", "usable", True, artifact_sha256=THEN),
        label("b", "bo", "usable", False),
    ]
    run = labeled(scores, labels, anchors=[label("a", "agreed", "usable", False, artifact_sha256=THEN)])
    run = replace(run, records=[entry.model_copy(update={"artifact_sha256": NOW}) for entry in run.records])
    result = agree([run])
    assert result.labels == 2
    assert "ignored: 1 label for replaced images" in result.notes
    usable = next(entry for entry in result.graders if entry.question == "usable")
    assert (usable.cells, usable.measures["kappa"].value) == (2, 1.0)
    assert [(entry.rater, entry.repeats.n, entry.anchors.n) for entry in result.raters] == [("ann", 0, 0), ("bo", 0, 0)]


def test_export_omits_outdated_labels_with_a_note(tmp_path: Path) -> None:
    run = generated(tmp_path, THEN)
    answered(run)
    regenerate(run, NOW)
    result = call("label", "export", "r", "--runs", tmp_path)
    assert {row.split(",")[1] for row in result.stdout.splitlines()[1:]} == {"one"}
    assert result.stderr == "labels for replaced images, left out: 3 (--all includes them)\n"
    assert THEN in call("label", "export", "r", "--all", "--runs", tmp_path).stdout


def test_import_accepts_labels_of_the_current_image_only(tmp_path: Path) -> None:
    run = generated(tmp_path, NOW)
    digest = sha256(b"x").hexdigest()
    (tmp_path / "in.csv").write_text(
        f"case,rater,usable,artifact_sha256\none,ann,yes,\ntwo,ann,yes,{NOW}\ntwo,bo,yes,{digest}\ntwo,cy,yes,abc\n"
    )
    result = call("label", "import", tmp_path / "in.csv", "r", "--runs", tmp_path)
    assert [line.split(": ", 1)[1] for line in result.stderr.splitlines()] == [
        "belongs to an older image of this cell"
    ] * 2
    assert [(line["rater"], line["artifact_sha256"]) for line in lines(run / "labels.jsonl")] == [
        ("ann", ONE), ("ann", NOW)
    ]  # fmt: skip


def test_export_omits_a_pair_if_one_image_was_generated_again(tmp_path: Path) -> None:
    run = generated(tmp_path, THEN)
    name = json.loads((run / "run.json").read_text())["run_id"]
    pair = {"rater": "ann", "question": "better", "answer": "a", "sample_index": 0, "model_label": SECRET_A}
    labels = Label(
        **pair, test_id="two", other=f"{name}@{SECRET_A}", artifact_sha256=None, other_sha256=THEN, at=AT, source="page"
    )
    append_labels(run / "labels.jsonl", [labels])
    assert "two" in call("label", "export", run, "--format", "jsonl").stdout
    regenerate(run, NOW)
    result = call("label", "export", run, "--format", "jsonl")
    assert "two" not in result.stdout
    assert "labels for replaced images, left out: 1" in result.stderr


def test_importing_the_same_file_after_a_new_image_adds_nothing(tmp_path: Path) -> None:
    run = generated(tmp_path, THEN)
    table = tmp_path / "a.csv"
    table.write_text(f"test_id,model_label,rater,question,answer,at\ntwo,{SECRET_A},ann,usable,yes,{AT}\n")
    assert call("label", "import", table, run).exit_code == 0
    regenerate(run, NOW)
    call("label", "import", table, run)
    assert [line["artifact_sha256"] for line in lines(run / "labels.jsonl")] == [THEN]


def test_damaged_line_of_labels_is_reported(tmp_path: Path) -> None:
    run = generated(tmp_path, THEN)
    answered(run)
    path = run / "labels.jsonl"
    path.write_text(path.read_text().replace('"rater":"ann"', '"rater":"an', 1))
    result = call("agreement", run)
    assert result.exit_code == 2
    assert "labels.jsonl:1: not a label: damaged or truncated: delete this line" in result.stderr
