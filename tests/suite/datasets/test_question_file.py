"""``questions.json``: one entry per set, written atomically, and validated on reading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from visioneval import RunFormatError, StorageError
from visioneval.records.questions import (
    DroppedQuestion,
    PromptQuestions,
    QuestionsWriter,
    prompt_sha256,
    read_questions,
)
from visioneval.suite.questions import GeckoQuestion

DOG = GeckoQuestion(id="q1", question="Is there a dog?", type="animal")
PINNED = PromptQuestions(prompt_sha256=prompt_sha256("a dog"), source="pinned", questions=(DOG,))
GENERATED = PromptQuestions(
    prompt_sha256=prompt_sha256("a red dog"),
    keywords="a {1}[red] {2}[dog]",
    source="generated",
    template_sha256="0" * 64,
    making_sha256="a" * 64,
    coverage=0.5,
    questions=(DOG,),
    dropped=(DroppedQuestion(question="Is it?", reason="not an object"),),
)


def test_questions_round_trip(tmp_path: Path) -> None:
    writer = QuestionsWriter(tmp_path)
    for entry in (PINNED, GENERATED, PINNED, GENERATED):
        writer.add(entry)
    writer.close()
    assert read_questions(tmp_path) == (PINNED, GENERATED)
    entry = json.loads((tmp_path / "questions.json").read_text())["prompts"][1]
    assert set(entry) == {
        *("prompt_sha256", "keywords", "source", "template_sha256", "making_sha256", "coverage", "questions", "dropped")
    }  # fmt: skip
    assert entry["questions"] == [
        {"id": "q1", "question": "Is there a dog?", "choices": ["yes", "no"], "answer": "yes", "type": "animal",
         "justification": "", "depends_on": []}
    ]  # fmt: skip


def test_generated_questions_are_written_immediately(tmp_path: Path) -> None:
    writer = QuestionsWriter(tmp_path)
    writer.add(PINNED)
    assert read_questions(tmp_path) == ()
    writer.add(GENERATED)
    assert read_questions(tmp_path) == (PINNED, GENERATED)


def test_resumed_run_reuses_its_questions(tmp_path: Path) -> None:
    QuestionsWriter(tmp_path).add(GENERATED)
    writer = QuestionsWriter(tmp_path)
    writer.add(PINNED)
    writer.close()
    assert read_questions(tmp_path) == (GENERATED, PINNED)
    assert writer.find(GENERATED.prompt_sha256, "0" * 64, "a" * 64) == GENERATED
    assert writer.find(GENERATED.prompt_sha256, "1" * 64, "a" * 64) is None
    assert writer.find(GENERATED.prompt_sha256, "0" * 64, "b" * 64) is None
    assert writer.find(PINNED.prompt_sha256, "0" * 64, "a" * 64) is None


def test_entry_without_making_hash_matches_any_options(tmp_path: Path) -> None:
    older = GENERATED.model_copy(update={"making_sha256": None})
    QuestionsWriter(tmp_path).add(older)
    assert QuestionsWriter(tmp_path).find(GENERATED.prompt_sha256, "0" * 64, "b" * 64) == older


def test_entries_added_after_start_are_not_found(tmp_path: Path) -> None:
    writer = QuestionsWriter(tmp_path)
    writer.add(GENERATED)
    assert writer.find(GENERATED.prompt_sha256, "0" * 64, "a" * 64) is None


def test_run_without_questions_has_no_file(tmp_path: Path) -> None:
    QuestionsWriter(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_reports_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"questions\.json: cannot write: No such file"):
        QuestionsWriter(tmp_path / "gone").add(GENERATED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema_version": 9, "prompts": []}', "schema_version 9 is newer than"),
        ('{"prompts": []}', "not a question file"),
        ("[]", "not a question file"),
        ('{"schema_version": 2, "prompts": [{}]}', r"prompts\.0\.prompt_sha256: Field required; restore this file"),
        ("{", "not a question file"),
    ],
)
def test_rejects_invalid_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "questions.json").write_text(text)
    with pytest.raises(RunFormatError, match=message):
        read_questions(tmp_path)
