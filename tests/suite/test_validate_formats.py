"""``validate --format``: what programs read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import visioneval as ve
from visioneval import Problem
from visioneval.cli import app
from visioneval.cli.start import github_annotations

GOOD = """\
name: good
cases: [{id: a, prompt: a tree}]
models: [{provider: openai, params: {model: gpt-image-2}}]
graders: [{key: image, type: properties}]
verdict: [image]
"""


@pytest.fixture
def validate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(GOOD.replace("[image]", "[imagine]"))
    return lambda *arguments: CliRunner().invoke(app, ["validate", *arguments])


def test_json_lists_valid_suites_and_problems(validate):
    result = validate("good.yaml", "bad.yaml", "--format", "json")
    data = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (2, "")
    sizes = {"cases": 1, "model_runs": 1, "cells": 1}
    assert data["suites"] == [{"path": "good.yaml", **sizes, "missing_keys": ["OPENAI_API_KEY"]}]
    problem, note = data["problems"]
    assert (problem["file"], problem["line"], problem["column"], problem["severity"]) == ("bad.yaml", 5, 11, "error")
    assert (note["file"], note["line"], note["severity"]) == ("good.yaml", 0, "note")
    assert note["message"].startswith("1 case x 1 sample cannot show a regression")


def test_github_annotates_the_line(validate):
    result = validate("bad.yaml", "--format", "github")
    assert (result.exit_code, result.stderr) == (2, "")
    assert result.stdout.startswith("::error file=bad.yaml,line=5,col=11::'imagine'")


def test_no_text_of_a_suite_ends_its_annotation():
    """GitHub reads %0A as a line break, and so as the start of another command."""
    problem = Problem("a,b:c%0A.yaml", 1, 2, "no metric 'x%0A::stop-commands::y'\n::error::z")
    assert list(github_annotations([problem])) == [
        "::error file=a%2Cb%3Ac%250A.yaml,line=1,col=2::no metric 'x%250A::stop-commands::y'\\n::error::z"
    ]


def test_a_file_that_is_missing_hides_no_other_problem(validate):
    result = validate("gone.yaml", "bad.yaml", "--format", "json")
    assert (result.exit_code, result.stderr) == (2, "")
    problems = [(problem["file"], problem["line"]) for problem in json.loads(result.stdout)["problems"]]
    assert sorted(problems) == [("bad.yaml", 5), ("gone.yaml", 0)]


@pytest.mark.parametrize("form", ["json", "github", "text"])
def test_a_valid_suite_exits_0(validate, form):
    assert validate("good.yaml", "--format", form).exit_code == 0


def test_an_unknown_format_is_one_line(validate):
    result = validate("good.yaml", "--format", "jsn")
    assert (result.exit_code, result.stderr) == (2, "--format: unknown format 'jsn' (did you mean 'json'?)\n")


IDLE = "gates: [error_rate <= 1]\n"
"""A gate that cannot fail, of which ``validate`` warns."""
PYTHON = "name,lines\na,\"['SALE']\"\n"
"""A dataset with a list in Python's notation, which ``validate`` notes."""
NOTED = GOOD.replace(
    "{id: a, prompt: a tree}", "{dataset: {path: d.csv, fields: {id: name, prompt: name, tags: lines}}}"
)


def test_strict_turns_warnings_into_errors(validate):
    Path("warned.yaml").write_text(GOOD + IDLE)
    relaxed = validate("warned.yaml")
    assert (relaxed.exit_code, "warned.yaml:6:9: warning: 'error_rate <= 1' cannot fail" in relaxed.stdout) == (0, True)
    strict = validate("warned.yaml", "--strict")
    assert (strict.exit_code, strict.stdout) == (2, "")
    assert "warned.yaml:6:9: 'error_rate <= 1' cannot fail" in strict.stderr


def test_strict_reports_every_suite_and_every_form(validate):
    Path("warned.yaml").write_text(GOOD + IDLE)
    result = validate("good.yaml", "warned.yaml", "bad.yaml", "--strict", "--format", "json")
    data = json.loads(result.stdout)
    assert (result.exit_code, [suite["path"] for suite in data["suites"]]) == (2, ["good.yaml"])
    assert [(row["file"], row["severity"]) for row in data["problems"]] == [
        ("warned.yaml", "error"),
        ("bad.yaml", "error"),
        ("good.yaml", "note"),  # too small for 'compare'
    ]


def test_a_suite_without_warnings_passes_strict(validate):
    assert validate("good.yaml", "--strict").exit_code == 0


def test_a_note_is_no_error_even_with_strict(validate):
    Path("noted.yaml").write_text(NOTED)
    Path("d.csv").write_text(PYTHON)
    result = validate("noted.yaml", "--strict")
    assert (result.exit_code, "d.csv:2:1: note: the column 'lines' has Python's notation" in result.stdout) == (0, True)
    row, _ = json.loads(validate("noted.yaml", "--strict", "--format", "json").stdout)["problems"]
    assert (row["severity"], row["message"].startswith("the column")) == ("note", True)
    assert validate("noted.yaml", "--format", "github").stdout.startswith(
        "::notice file=d.csv,line=2,col=1::the column"
    )


def test_strict_in_python(validate):
    Path("warned.yaml").write_text(GOOD + IDLE)
    suite = ve.validate("warned.yaml")
    assert (suite.cases, suite.cells, len(suite.warnings)) == (1, 1, 2)
    assert repr(suite) == "ValidSuite(warned.yaml: 1 case, 1 model run, 1 cell, 2 warnings)"
    with pytest.raises(ve.SuiteError, match="cannot fail"):
        ve.validate("warned.yaml", strict=True)
    (note,) = ve.validate("good.yaml", strict=True).warnings
    assert note.message.startswith("note: 1 case x 1 sample cannot show a regression")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("{model: m}", "requests no size: write the size, as in 1024x1536"),
        ("{model: m, size: auto}", "requests the size 'auto': write the size, as in 1024x1536"),
        ("{model: m, size: 1024x1024}", None),
    ],
)
def test_a_size_that_no_model_run_requests_cannot_be_expected(validate, params, message):
    """Every cell would be an error, whatever the model generates."""
    text = GOOD.replace("{model: gpt-image-2}", params).replace("a tree}", "a tree, expect: {size: requested}}")
    Path("sized.yaml").write_text(text)
    result = validate("sized.yaml")
    if message is None:
        assert result.exit_code == 0
    else:
        assert result.stderr.startswith("sized.yaml:2:48: expect.size is 'requested', but the model run 'm'")
        assert message in result.stderr
    Path("sized.yaml").write_text(text.replace("type: properties}", "type: properties, when: {cases: [b]}}"))
    assert "requested" not in validate("sized.yaml").stderr  # no grader compares it


@pytest.mark.parametrize(("size", "flaw", "is_error"), [("640x481", "none", True), ("640x480", "none", False),
                                                       ("641x480", "wrong_size", False)])  # fmt: skip
def test_a_video_of_the_mock_has_even_sides(validate, size, flaw, is_error):
    models = f"{{provider: mock, params: {{size: {size}, flaw: {flaw}}}}}"
    text = GOOD.replace("{provider: openai, params: {model: gpt-image-2}}", models).replace("properties", "video")
    Path("video.yaml").write_text(f"task: video_generation\n{text}")
    result = validate("video.yaml")
    assert result.exit_code == (2 if is_error else 0)
    assert ("a video needs an even width and height, not 640x481" in result.stderr) == is_error


@pytest.mark.parametrize(("scheme", "module"), [("s3", "s3fs"), ("gs", "gcsfs"), ("hf", "huggingface_hub")])
def test_an_output_that_nothing_here_can_read_is_a_warning(validate, monkeypatch, scheme, module):
    outputs = f"{scheme}://datasets/owner/name/a.png"
    text = GOOD.replace("a tree}", f'a tree, outputs: {{x: ["{outputs}"]}}}}')
    Path("far.yaml").write_text(text.replace("{provider: openai, params: {model: gpt-image-2}}", "{provider: files}"))
    monkeypatch.setattr("visioneval.suite.checks.suite.is_installed", lambda name: name != module)
    result = validate("far.yaml", "--trust-suite")
    assert (result.exit_code, f"far.yaml:2:47: warning: {scheme}:// needs an extra" in result.stdout) == (0, True)
    assert validate("far.yaml", "--trust-suite", "--strict").exit_code == 2
    monkeypatch.setattr("visioneval.suite.checks.suite.is_installed", lambda _: True)
    assert "warning" not in validate("far.yaml", "--trust-suite").stdout
