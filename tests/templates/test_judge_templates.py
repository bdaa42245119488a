"""What a judge's template must show, and what it cannot use. Everything goes through the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, JudgeRequest
from suite_runner import SuiteRunner
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.errors import TemplateError
from visioneval.templates.render import Templates

PROMPTS = Path(__file__).parents[2] / "prompts"

SUITE = """\
name: demo
cases:
  - {id: one, prompt: a tree, criteria: It is tall.}
models:
  - {provider: mock}
judges:
  default: {provider: openai, model: gpt-5.4}
graders:
  - key: look
    type: rubric
    template: mine.j2
    metrics: {good: {type: pass_fail, description: Is it good}}
verdict: [good]
"""
Validate = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validate:
    """``validate(suite, files)``: the exit code of the command, and what it prints about templates."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")

    def run(suite: str, **files: str) -> tuple[int, list[str]]:
        Path("suite.yaml").write_text(suite)
        for name, text in files.items():
            Path(f"{name}.j2").write_text(text)
        result = CliRunner().invoke(app, ["validate", "suite.yaml"])
        shown = [*result.stdout.splitlines(), *result.stderr.splitlines()]
        lines = [line for line in shown if ": note: " not in line]  # that the suite is small
        return result.exit_code, [line for line in lines if not line.startswith("suite.yaml: valid")]

    return run


@pytest.mark.parametrize(
    "prompt",
    [
        "X",
        "7",
        "???",
        "\u4e00\u68f5\u6811",
        "\U0001f333",
        "\u0434\u0435\u0440\u0435\u0432\u043e",
        "\u0e15\u0e49\u0e19\u0e44\u0e21\u0e49",
    ],
)
@pytest.mark.parametrize(
    ("template", "is_shown"),
    [("{{ prompt }}", True), ("X ??? {{ prompt | upper | tojson }}", True), ("X 7 ??? {{ prompt | length }}", False)],
)
def test_short_prompts_in_any_script(prompt: str, template: str, is_shown: bool, validate: Validate) -> None:
    text = SUITE.replace("prompt: a tree, criteria: It is tall.", f'prompt: "{prompt}"')
    assert validate(text, mine=template)[0] == (0 if is_shown else 2)


@pytest.mark.parametrize("name", sorted(path.name for path in PROMPTS.glob("judge/*.j2")))
def test_our_rubric_templates_show_both(name: str, validate: Validate) -> None:
    assert validate(SUITE.replace("mine.j2", f"judge/{name}")) == (0, [])
    neither = SUITE.replace("template: mine.j2", f"template: judge/{name}\n    show: [output]")
    assert validate(neither) == (0, [])


@pytest.mark.parametrize(
    "grader",
    [
        "{key: good, type: alignment}",
        "{key: good, type: gecko, check_questions: true}",
        "{key: good, type: text, extract: judge, describe: true}",
    ],
)
@pytest.mark.parametrize("prompt", ["a tree", "X", "???", "\u6811", "a very long prompt about a tree"])
def test_our_other_templates_show_what_they_must(grader: str, prompt: str, validate: Validate) -> None:
    verdict = "verdict: [good]" if "text" in grader else "verdict: [good >= 0.5]"
    case = f'cases:\n  - {{id: one, prompt: "{prompt}", criteria: It is tall., expect: {{text: {{required: [x]}}}}}}\n'
    text = f"name: demo\n{case}models:{SUITE.split('models:')[1].split('  - key')[0]}  - {grader}\n{verdict}\n"
    assert validate(text) == (0, [])
    both = f"{text}  # two\n".replace("graders:", "graders:\n  - {key: pair, type: pairwise}")
    assert validate(
        both.replace("- {provider: mock}", "- {provider: mock, label: a}\n  - {provider: mock, label: b}")
    ) == (0, [])


def test_our_video_templates_show_what_they_must(validate: Validate) -> None:
    text = SUITE.split("graders:")[0].replace("{id: one,", "{id: one, task: video_generation,")
    text = text.replace("{provider: mock}", "{provider: files, path: '{case}.mp4'}")
    Path("one.mp4").write_bytes(b"a video")
    grader = "graders:\n  - {key: good, type: gecko, media: video}\nverdict: [good >= 0.5]\n"
    assert validate(f"{text}{grader}") == (0, [])


def test_the_names_in_a_template_are_those_of_every_file_that_it_reads(tmp_path: Path) -> None:
    files = {
        "main.j2": "{% extends 'base.j2' %}{% block a %}{{ region }}{% endblock %}",
        "base.j2": "{% include 'part.j2' %}{% block a %}{% endblock %}{# {prompt} #}{{ '{prompt}' }} {criteria}",
        "part.j2": "{% for prompt in metadata %}{{ prompt }}{% endfor %} { criteria } {{criteria}} { image_description}",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert Templates((tmp_path,)).names_in("main.j2") == (
        {"region", "metadata", "criteria"}, ("criteria", "image_description")
    )  # fmt: skip
    (tmp_path / "part.j2").unlink()
    with pytest.raises(TemplateError, match=r"part\.j2"):
        Templates((tmp_path,)).names_in("main.j2")


@pytest.fixture
def suite(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> SuiteRunner:
    monkeypatch.setenv("LOCAL_KEY", api.key)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    return SuiteRunner(tmp_path, api)


LOOK: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "metrics": {"nice": {"type": "pass_fail", "description": "Is it sharp?"}},
}
CASE = {"id": "one", "prompt": "a secret tree", "criteria": "It is tall.", "region": "the left half"}


def asked(suite: SuiteRunner) -> list[str]:
    return [str(entry.asked) for entry in suite.api.requests if isinstance(entry.asked, JudgeRequest)]


def test_show_output_withholds_what_was_asked(suite: SuiteRunner) -> None:
    suite.write(cases=[CASE], graders=[{**LOOK, "show": ["output"]}])
    assert suite.run().exit_code == 0
    (text,) = asked(suite)
    assert "Is it sharp?" in text
    assert "You are not told what was asked for." in text
    for withheld in ("a secret tree", "It is tall.", "the left half", "The request"):
        assert withheld not in text


def test_show_prompt_withholds_the_criteria(suite: SuiteRunner) -> None:
    suite.write(cases=[CASE], graders=[{**LOOK, "show": ["prompt", "output"]}])
    assert suite.run().exit_code == 0
    (text,) = asked(suite)
    assert "a secret tree" in text
    assert "It is tall." not in text


def test_show_output_attaches_no_input_images(suite: SuiteRunner) -> None:
    from PIL import Image

    Image.new("RGB", (64, 64), "red").save(suite.folder / "base.png")
    for show, images in ((["output"], 1), (["prompt", "criteria", "inputs", "output"], 2)):
        suite.write(cases=[{**CASE, "images": ["base.png"]}], graders=[{**LOOK, "show": show}])
        assert suite.run(run_id=f"r{images}").exit_code == 0
        assert ("ref_1: input image" in asked(suite)[-1]) is (images == 2)


def test_show_is_part_of_the_grade_key(suite: SuiteRunner) -> None:
    suite.write(cases=[CASE], graders=[LOOK])
    suite.run()
    path = suite.write(cases=[CASE], graders=[{**LOOK, "show": ["output"]}])
    result = suite("run", path, "--resume", suite.out / "r", "--runs", suite.out)
    assert "to grade again: 1 (1 grader.look changed)" in result.stderr
    assert len(asked(suite)) == 2


def test_the_next_run_of_a_process_sees_an_edited_template(suite: SuiteRunner) -> None:
    """As in a notebook."""
    suite.write(cases=[CASE], graders=[{**LOOK, "template": "mine.j2"}])
    for number, question in enumerate(("Is it a tree?", "Is it tall?")):
        (suite.folder / "mine.j2").write_text(f"{{{{ prompt }}}} {{{{ criteria }}}} {question}")
        assert suite.run(run_id=f"r{number}").exit_code == 0
        assert question in asked(suite)[-1]


@pytest.mark.parametrize("command", ["run", "plan", "resume", "grade"])
def test_commands_print_the_warning_once(command: str, suite: SuiteRunner) -> None:
    (suite.folder / "mine.j2").write_text("{{ prompt }}")
    path = suite.write(cases=[CASE], graders=[{**LOOK, "template": "mine.j2"}])
    result = suite.run()
    if command == "plan":
        result = suite("plan", path)
    elif command == "resume":
        result = suite("run", path, "--resume", suite.out / "r", "--runs", suite.out)
    elif command == "grade":
        result = suite("grade", "r", "--suite", path, "--runs", suite.out)
    assert result.exit_code == 0
    assert result.stderr.count("warning: mine.j2: does not show 'criteria', so the judge never sees it") == 1
