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
from visioneval.resources import builtin
from visioneval.suite.checks.templates import template_findings
from visioneval.suite.entries.judge_prompt import JudgeTemplate
from visioneval.templates.usage import template_usage

pytest_plugins = ("fake_api.fixtures",)

SUITE = """\
name: demo
cases:
  - {id: one, prompt: a tree, criteria: It is tall.}
models:
  - {provider: mock}
judges:
  default: {provider: openai, model: gpt-5}
graders:
  - key: look
    type: rubric
    template: mine.j2
    metrics: {good: {type: pass_fail, description: Is it good}}
verdict: [good]
"""
NEITHER = "mine.j2: shows neither 'prompt' nor 'criteria', so the judge never sees what was asked"
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
        lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
        return result.exit_code, [line for line in lines if not line.startswith("suite.yaml: valid")]

    return run


@pytest.mark.parametrize(
    "template",
    [
        "Is it good?",
        "{# {{ prompt }} and {{ criteria }} #}Is it good?",
        "{% if prompt and criteria %}Is it good?{% endif %}",
        "{{ 'good' if prompt else 'bad' }}",
        "{% for prompt in images %}{{ prompt.id }}{% endfor %}",
        "{% include 'part.j2' without context %}",
        "{% extends 'base.j2' %}{{ prompt }}",
        "{% extends 'base.j2' %}{% block asked %}Is it good?{% endblock %}",
    ],
)
def test_a_template_that_shows_nothing_is_an_error_at_its_key(template: str, validate: Validate) -> None:
    base = "{% block asked %}{{ prompt }}{{ criteria }}{% endblock %}"
    base = base if "asked" in template else "Is it good?"
    part = "{% if prompt is defined %}{{ prompt }}{% endif %}"
    code, lines = validate(SUITE, mine=template, part=part, base=base)
    assert (code, lines[0]) == (
        2, f"suite.yaml:11:15: {NEITHER} (a judge of the output alone needs 'show: [output]')"
    )  # fmt: skip
    assert len(lines) == 1


@pytest.mark.parametrize(
    "template",
    [
        "{{ prompt }} {{ criteria }}",
        "{{ prompt | upper }}{% if criteria %}{{ criteria }}{% endif %}",
        "{% include 'part.j2' %}{{ criteria }}",
        "{% extends 'base.j2' %}{% block role %}Judge.{% endblock %}",
        "{% extends 'base.j2' %}{% block asked %}{{ super() }} and {{ criteria }}{% endblock %}",
        "{% extends 'judge/rubric.md.j2' %}",
        "{% include media ~ '.j2' %}",
    ],
)
def test_includes_and_inherited_blocks_count(template: str, validate: Validate) -> None:
    base = "{% block role %}{% endblock %}{% block asked %}{{ prompt }} {{ criteria }}{% endblock %}"
    assert validate(SUITE, mine=template, part="{{ prompt }}", base=base, image=base) == (0, [])


@pytest.mark.parametrize(("shown", "missing"), [("prompt", "criteria"), ("criteria", "prompt")])
def test_a_template_that_leaves_one_out_gets_one_warning(shown: str, missing: str, validate: Validate) -> None:
    second = "  - {key: two, type: rubric, template: mine.j2, metrics: {fine: {type: pass_fail, description: d}}}\n"
    text = SUITE.replace("verdict: [good]", f"{second}verdict: [good, fine]")
    code, lines = validate(text, mine=f"{{{{ {shown} }}}}")
    rest = f"{shown}, output"
    assert (code, lines) == (
        0,
        [
            f"suite.yaml:11:15: warning: mine.j2: does not show {missing!r}, so the judge never sees it"
            f" (if that is intended: 'show: [{rest}]')"
        ],
    )


@pytest.mark.parametrize(
    ("template", "lines", "code"),
    [
        ("{prompt} {{ criteria }}", ["'{prompt}' is not replaced: write '{{ prompt }}'"], 2),
        ("{prompt} and {criteria}", ["'{criteria}' is not replaced: write '{{ criteria }}'",
                                     "'{prompt}' is not replaced: write '{{ prompt }}'"], 2),
        ("{image_description} {{ criteria }}", ["'{image_description}' is not replaced: write '{{ prompt }}'"], 2),
        ("{{ prompt }} {{ criteria }} {prompt}", ["'{prompt}' is not replaced: write '{{ prompt }}'"], 0),
        ("{{ prompt }} {{ criteria }} {{ '{prompt}' }} {# {prompt} #} {other} {\"prompt\": 1}", [], 0),
    ],
)  # fmt: skip
def test_a_name_in_single_braces_is_reported(template: str, lines: list[str], code: int, validate: Validate) -> None:
    result, printed = validate(SUITE, mine=template)
    level = "" if code else "warning: "
    assert (result, printed) == (code, [f"suite.yaml:11:15: {level}mine.j2: {line}" for line in lines])


@pytest.mark.parametrize(
    ("grader", "template", "line"),
    [
        ("{key: good, type: alignment, template: mine.j2}", "Is it good?",
         "suite.yaml:9:44: mine.j2: shows neither 'prompt' nor 'criteria', so the judge never sees what was asked"),
        ("{key: good, type: alignment, template: mine.j2}", "{{ criteria }}",
         "suite.yaml:9:44: warning: mine.j2: does not show 'prompt', so the judge never sees it"),
        ("{key: good, type: gecko, questions_template: mine.j2}", "Write questions: {image_description}",
         "suite.yaml:9:50: mine.j2: '{image_description}' is not replaced: write '{{ prompt }}'"),
        ("{key: good, type: gecko, questions_template: mine.j2}", "Write questions.",
         "suite.yaml:9:50: mine.j2: does not show 'prompt', so the judge never sees what was asked"),
        ("{key: good, type: gecko, answers_template: mine.j2}", "Answer.",
         "suite.yaml:9:48: mine.j2: does not show 'questions', so the judge never sees what was asked"),
    ],
)  # fmt: skip
def test_other_graders_are_checked_too(grader: str, template: str, line: str, validate: Validate) -> None:
    head, tail = SUITE.split("  - key: look")[0], "verdict: [good >= 0.5]\n"
    code, lines = validate(f"{head}  - {grader}\n{tail}", mine=template)
    assert (code, lines) == (0 if "warning" in line else 2, [line])


def test_a_built_in_template_replaced_in_the_suite_folder_is_checked(validate: Validate, tmp_path: Path) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge/rubric.md.j2").write_text("Is it good?")
    code, lines = validate(SUITE.replace("    template: mine.j2\n", ""))
    assert code == 2
    assert lines[0].startswith("suite.yaml:9:5: judge/rubric.md.j2: shows neither 'prompt' nor 'criteria'")


def test_rules_are_no_variable(validate: Validate) -> None:
    template = "{{ prompt }} {{ criteria }} {% for rule in rules %}{{ rule }}{% endfor %}"
    message = "suite.yaml:11:15: mine.j2: 'rules' is not set: verdict rules are never shown to a judge"
    assert validate(SUITE, mine=template) == (2, [message])
    guarded = "{{ prompt }} {{ criteria }} {% if rules is defined %}{{ rules }}{% endif %}"
    assert validate(SUITE, mine=guarded) == (2, [message])
    assert validate(f"vars: {{rules: [be kind]}}\n{SUITE}", mine=template) == (0, [])


@pytest.mark.parametrize(
    ("template", "code", "line"),
    [
        ("Is it sharp?", 0, None),
        ("{% if 'prompt' in show %}{{ prompt }}{% endif %}Is it sharp?", 0, None),
        ("{{ prompt }}", 2, "uses 'prompt', which this grader does not show: see its option 'show'"),
        ("{{ criteria }}", 2, "uses 'criteria', which this grader does not show: see its option 'show'"),
        ("{criteria}", 0, "'{criteria}' is not replaced: remove it, because this grader does not show 'criteria'"),
    ],
)
def test_a_judge_of_the_output_alone(template: str, code: int, line: str | None, validate: Validate) -> None:
    text = SUITE.replace("    template: mine.j2\n", "    template: mine.j2\n    show: [output]\n")
    result, lines = validate(text, mine=template)
    assert result == code
    assert ("\n".join(lines) or None) == line or (line is not None and line in lines[0])


@pytest.mark.parametrize("show", ["[prompt]", "[]", "[output, output]", "[image]"])
def test_what_show_can_be(show: str, validate: Validate) -> None:
    code, lines = validate(SUITE.replace("    template: mine.j2\n", f"    show: {show}\n"))
    assert code == 2
    assert lines[0].startswith("suite.yaml:11:")


@pytest.mark.parametrize("name", sorted(path.name for path in builtin("prompts").glob("judge/*.j2")))
def test_our_rubric_templates_show_both(name: str) -> None:
    template = JudgeTemplate(f"judge/{name}", "template", ("prompt", "criteria"))
    assert template_findings(template, (builtin("prompts"),), {}) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("alignment/alignment", {"prompt"}),
        ("pairwise/pairwise", {"prompt", "criteria"}),
        ("gecko/image_questions", {"prompt"}),
        ("gecko/video_questions", {"prompt"}),
        ("gecko/image_answers", {"questions"}),
        ("gecko/video_answers", {"questions"}),
        ("gecko/check", {"prompt", "questions"}),
    ],
)
def test_our_other_templates_show_what_they_must(name: str, shown: set[str]) -> None:
    usage = template_usage(f"{name}.md.j2", (builtin("prompts"),))
    assert shown <= usage.shown
    assert usage.literals == ()


def test_usage_follows_every_file_that_a_template_reads(tmp_path: Path) -> None:
    """The texts decide: another folder, a changed file, a changed included or extended file."""
    first, second = tmp_path / "first", tmp_path / "second"
    files = {"main.j2": "{% extends 'base.j2' %}", "base.j2": "{% include 'part.j2' %}", "part.j2": "{{ prompt }}"}
    for folder in (first, second):
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    changes = [
        (first, "part.j2", "{{ criteria }}", {"criteria"}),
        (first, "base.j2", "{{ region }}{% include 'part.j2' %}", {"region", "criteria"}),
        (first, "main.j2", "{{ images }}", {"images"}),
        (second, "part.j2", "{{ metrics }}", {"metrics"}),
    ]
    assert template_usage("main.j2", (first,)).shown == template_usage("main.j2", (second,)).shown == {"prompt"}
    for folder, name, text, shown in changes:
        (folder / name).write_text(text)
        assert template_usage("main.j2", (folder,)).shown == shown
        assert template_usage("main.j2", (folder,)).shown == shown
    (second / "part.j2").unlink()
    with pytest.raises(TemplateError, match=r"part\.j2"):
        template_usage("main.j2", (second,))


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
    for show, images in ((["output"], 1), (["prompt", "criteria", "output"], 2)):
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
