"""``validate --format``: what programs read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.cli.problem_formats import github_annotations
from visioneval.errors import Problem

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
