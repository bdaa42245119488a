"""The plan of ``visioneval grade``: which outputs of another run are graded, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_parts import plan_of, recorded
from toys import Toy

from visioneval import Record, StorageError
from visioneval.records.questions import PromptQuestions, QuestionsWriter, prompt_sha256, read_questions
from visioneval.running.jobs import RegradePlan, copy_questions, plan_regrade

COUNTER = {"id": "counter", "prompt": "three trees", "output_of": "case0"}


def source(toy: Toy, *cases: dict[str, Any], **suite: Any) -> list[Record]:
    """The records of a complete run in the toy's folder."""
    return recorded(toy.folder, plan_of(toy.write(*cases, **suite)))


def regraded(toy: Toy, records: list[Record], *cases: dict[str, Any], **suite: Any) -> tuple[RegradePlan, Any]:
    """The decisions for these records, and the jobs of all calls."""
    plan = plan_of(toy.write(*cases, **suite))
    grading = plan_regrade(plan, records, toy.folder, "r")
    return grading, list(grading.jobs(plan))


def test_all_outputs_are_graded_and_none_is_generated(toy: Toy) -> None:
    records = source(toy, {}, {}, samples=2)
    grading, jobs = regraded(toy, records, {}, {}, samples=2, verdict=["level > 0.1"])
    assert (grading.missing, grading.left_out, grading.other_prompt, str(grading)) == (0, 0, 0, "")
    assert {job.generate for job in jobs} == {()}
    assert [stored.record for job in jobs for stored in job.regrade] == records
    assert all(stored.is_of_another_run and stored.folder == toy.folder for job in jobs for stored in job.regrade)


def test_a_missing_cell_becomes_an_error_that_names_the_source(toy: Toy) -> None:
    records = source(toy, {})
    grading, jobs = regraded(toy, records, {}, {})
    assert (grading.missing, grading.left_out) == (1, 0)
    assert "1 cells are missing from the source run and become ERROR" in str(grading)
    (stored,) = jobs[1].regrade
    assert (stored.record.cell, stored.record.status, stored.record.mime) == (("case1", "toy", 0), "error", None)
    assert stored.record.error is not None
    assert (stored.record.error.kind, stored.record.error.message) == (
        "missing_output", "not in the source run r: 'visioneval grade' generates no images"
    )  # fmt: skip


def test_a_missing_image_is_missing_for_every_case_that_uses_it(toy: Toy) -> None:
    grading, jobs = regraded(toy, [], {}, COUNTER)
    assert grading.missing == 2
    assert [stored.call.case.id for stored in jobs[0].regrade] == ["case0", "counter"]


def test_a_dependent_case_is_graded_from_the_image_of_its_source(toy: Toy) -> None:
    records = source(toy, {})
    grading, jobs = regraded(toy, records, {}, COUNTER)
    assert grading.missing == 0
    assert [(stored.call.case.id, stored.record) for stored in jobs[0].regrade] == [
        ("case0", records[0]), ("counter", records[0])
    ]  # fmt: skip


def test_cells_not_in_the_suite_are_counted_as_left_out(toy: Toy) -> None:
    records = source(toy, {}, {}, samples=2)
    grading, jobs = regraded(toy, records, {}, samples=1)
    assert grading.left_out == 3
    assert str(grading) == "3 cells of the source run are skipped, because the suite or the flags exclude them"
    assert len(jobs) == 1


@pytest.mark.parametrize(("record", "count"), [({}, 1), ({"mime": None, "artifact_path": None}, 0)])
def test_images_of_another_prompt_are_counted(toy: Toy, record: dict[str, Any], count: int) -> None:
    records = [old.model_copy(update=record) for old in source(toy, {})]
    grading, _ = regraded(toy, records, {"prompt": "a boat"})
    assert grading.other_prompt == count


def test_a_masked_secret_in_the_prompt_is_no_other_prompt(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_TOKEN", "hunter2-hunter2")
    (old,) = source(toy, {"prompt": "a tree hunter2-hunter2"})
    records = [old.model_copy(update={"prompt": "a tree ***"})]
    assert regraded(toy, records, {"prompt": "a tree hunter2-hunter2"})[0].other_prompt == 0


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    both = tmp_path / "source", tmp_path / "target"
    for folder in both:
        folder.mkdir()
    return both


def test_questions_are_copied_to_the_new_run(folders: tuple[Path, Path]) -> None:
    entry = PromptQuestions(prompt_sha256=prompt_sha256("a tree"), source="generated", questions=())
    QuestionsWriter(folders[0]).add(entry)
    copy_questions(*folders)
    assert read_questions(folders[1]) == (entry,)


def test_a_source_without_questions_gives_none(folders: tuple[Path, Path]) -> None:
    copy_questions(*folders)
    assert list(folders[1].iterdir()) == []


def test_questions_that_cannot_be_copied_stop_the_run(folders: tuple[Path, Path]) -> None:
    (folders[0] / "questions.json").write_text("{}")
    (folders[1] / "questions.json").mkdir()
    with pytest.raises(StorageError, match=r"target/questions\.json: cannot write: "):
        copy_questions(*folders)
