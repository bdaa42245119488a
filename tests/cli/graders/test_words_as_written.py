"""How the words of a metric are written: outer spaces, Unicode forms, case and quotes, in choices, answers and labels."""

from __future__ import annotations

import csv
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from visioneval import Metric, read_records
from visioneval.cli import app
from visioneval.rules import parse_rule
from visioneval.suite.labels import LabelQuestion

CAFE = unicodedata.normalize("NFC", "café")
DECOMPOSED = unicodedata.normalize("NFD", CAFE)
CHOICES = ["flat", f" {DECOMPOSED} ", "Sketch"]
DECLARED = ("flat", CAFE, "Sketch")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def write(choices: Any = CHOICES, answer: str = "flat", **changes: Any) -> None:
    metric = {"type": "one_of", "choices": choices, "description": "The style."}
    suite = {
        "name": "icons",
        "judges": {"default": {"provider": "recorded", "path": "answers.csv"}},
        "cases": [{"id": "home", "prompt": "an icon"}],
        "models": [{"provider": "mock", "label": "m"}],
        "graders": [{"key": "look", "type": "rubric", "metrics": {"style": metric}}],
        "verdict": ['style != "flat"'],
        **changes,
    }
    Path("suite.yaml").write_text(yaml.safe_dump(suite, sort_keys=False, allow_unicode=True))
    with Path("answers.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["case", "question", "answer"], ["home", "style", answer]])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


WRITTEN = [
    ("FLAT", "flat"), (" flat ", "flat"), (CAFE, CAFE), (DECOMPOSED, CAFE), (f" {DECOMPOSED.upper()}", CAFE),
    ("sketch", "Sketch"), ("SKETCH", "Sketch"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "stored"), WRITTEN)
def test_a_recorded_answer_is_read_in_any_form(answer: str, stored: str) -> None:
    write(answer=answer)
    assert call("validate", "suite.yaml").exit_code == 0
    call("run", "suite.yaml", "--run-id", "a")
    (record,) = read_records(Path("runs/a"))
    assert record.scores["style"] == stored


@pytest.mark.parametrize(("answer", "stored"), WRITTEN)
def test_a_label_is_read_in_any_form(answer: str, stored: str) -> None:
    question = {"key": "s", "ask": "Which?", "type": "one_of", "choices": CHOICES, "metric": "style"}
    write(answer=answer, labels={"questions": [question]})
    assert call("run", "suite.yaml", "--run-id", "a").exit_code in (0, 1)
    with Path("labels.csv").open("w", newline="") as file:
        rows = [["case", "model", "sample", "rater", "question", "answer"], ["home", "m", 0, "ann", "s", answer]]
        csv.writer(file).writerows(rows)
    assert call("label", "import", "labels.csv", "a").exit_code == 0
    label = json.loads(Path("runs/a/labels.jsonl").read_text())
    assert label["answer"] == stored
    Path("runs/a/labels.jsonl").write_text(json.dumps({**label, "answer": answer}) + "\n")
    (agreement,) = json.loads(call("agreement", "a", "--json").stdout)["graders"]
    assert agreement["confusion"]["counts"][DECLARED.index(stored)] == [int(word == stored) for word in DECLARED]


def test_tags_are_read_in_any_form_and_stored_as_declared() -> None:
    question = LabelQuestion.model_validate({"key": "t", "ask": "What?", "type": "tags", "choices": CHOICES})
    assert question.choices == DECLARED
    assert question.in_order(["sketch", DECOMPOSED]) == (CAFE, "Sketch")
    assert question.answer_problem(question.in_order(["flat", "other"])) is not None


def test_choices_and_words_of_rules_are_normalized() -> None:
    assert Metric(type="one_of", choices=CHOICES).choices == DECLARED
    assert parse_rule(f'style in [" {DECOMPOSED}", "Sketch "]').words == (CAFE, "Sketch")


@pytest.mark.parametrize("word", ["5'", '6"'])
def test_a_word_with_one_kind_of_quotes_is_a_choice(word: str) -> None:
    quote = '"' if "'" in word else "'"
    write([word, "flat"], word, verdict=[f"style == {quote}{word}{quote}"])
    assert call("run", "suite.yaml", "--run-id", "a").exit_code == 0


def test_words_of_records_are_compared_as_they_are() -> None:
    write()
    call("run", "suite.yaml", "--run-id", "a")
    record = json.loads(Path("runs/a/results.jsonl").read_text())
    for name, words in (("a", ["flat", "Flat"]), ("b", [" flat", "5'6\""])):
        rows = [{**record, "test_id": f"c{at}", "scores": {"style": word}} for at, word in enumerate(words)]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    compared = json.loads(call("compare", "a.jsonl", "b.jsonl", "--json").stdout)
    shares = {row["name"]: (row["a"], row["b"]) for row in compared["by_word"]}
    assert shares == {
        "style: flat": (0.5, 0), "style: Flat": (0.5, 0), "style:  flat": (0, 0.5), "style: 5'6\"": (0, 0.5),
    }  # fmt: skip


def test_a_word_that_means_yes_elsewhere_is_written_in_quotes() -> None:
    write(["true", "false"], "TRUE", verdict=["style == true"])
    assert (
        "write 'style', or 'style == \"true\"' if that is one word of a list" in call("validate", "suite.yaml").stderr
    )
    write(["true", "false"], "TRUE", verdict=['style == "true"'])
    assert call("run", "suite.yaml", "--run-id", "a").exit_code == 0
