"""``--judge NAME=PROVIDER:MODEL``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from visioneval.cli import app

SUITE = """\
name: judged
judges: {default: {provider: openai, model: gpt-5.4}}
cases: [{id: one, prompt: a tree}]
models: [{provider: mock}]
graders:
  - {key: look, type: rubric, metrics: {good: {type: pass_fail, description: it is good}}}
verdict: [good]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE, encoding="utf-8")
    return path


def test_a_judge_is_replaced(suite: Path) -> None:
    before = CliRunner().invoke(app, ["validate", str(suite)])
    after = CliRunner().invoke(app, ["validate", str(suite), "--judge", "default=gemini:gemini-3.5-flash"])
    assert "set OPENAI_API_KEY" in before.output
    assert "set GEMINI_API_KEY" in after.output
    assert "OPENAI_API_KEY" not in after.output


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("default", "--judge 'default': write NAME=PROVIDER:MODEL"),
        ("defualt=openai:x", "--judge defualt: the suite has no such judge (known: default)"),
        (
            "default=gpt-5.4",
            "--judge default=gpt-5.4: write PROVIDER:MODEL with the provider openai, gemini or litellm",
        ),
        (
            "default=mock",
            "without a key, give the suite's judge recorded answers: {provider: recorded, path: answers.csv}",
        ),
        ("default=recorded:a.csv", "write PROVIDER:MODEL with the provider openai, gemini or litellm"),
    ],
)
def test_invalid_judge_flags_are_reported(suite: Path, word: str, message: str) -> None:
    result = CliRunner().invoke(app, ["run", str(suite), "--judge", word])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("judge", "key"),
    [
        ("{provider: openai, model: m, params: {stream: true}}", "stream"),
        ("{provider: openai, model: m, params: {messages: []}}", "messages"),
        ("{provider: gemini, model: m, params: {http_options: {base_url: x}}}", "http_options"),
    ],
)
def test_params_do_not_replace_the_question(suite: Path, judge: str, key: str) -> None:
    suite.write_text(SUITE.replace("{provider: openai, model: gpt-5.4}", judge), encoding="utf-8")
    result = CliRunner().invoke(app, ["validate", str(suite)])
    assert result.exit_code == 2
    assert f"params: {key!r} is set by the grader: remove it" in result.stderr
