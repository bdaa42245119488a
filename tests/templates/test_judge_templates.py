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
        shown = [*result.stdout.splitlines(), *result.stderr.splitlines()]
        lines = [line for line in shown if ": note: " not in line]  # that the suite is small
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
        "{% if false %}{{ prompt }}{{ criteria }}{% endif %}",
        "{% if media == 'video' %}{{ prompt }}{% endif %}{{ criteria if task_type == 'image_editing' }}",
        "{{ prompt[:0] }}{{ criteria[:1] }}",
        "{{ '' if prompt else prompt }}{{ criteria | length }}",
        "{% for word in prompt.split() if word == 'boat' %}{{ word }}{% endfor %}",
        "{{ prompt | wordcount }}{{ prompt | first }}{{ prompt[-1:] }}{{ prompt in criteria }}",
        "{{ prompt | replace(prompt, 'the request') }}{% if 'tree' in prompt %}Look at its leaves.{% endif %}",
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
        "{{ prompt | tojson }}{{ criteria | upper }}",
        "{{ prompt | title | replace(' ', '_') }}{{ criteria | e }}",
        "{% for line in prompt.splitlines() %}> {{ line }}{% endfor %}{{ criteria.split('.') | join('; ') }}",
        "{{ prompt[:300] }}{{ criteria | truncate(80) }}",
        "{% if 'tree' in prompt %}Tree: {{ prompt }}{% endif %}{% if criteria.startswith('It') %}{{ criteria }}{% endif %}",
        "{{ {'a tree': 'ein Baum'}[prompt] }}{{ criteria }}",
        "{% if task_type == 'image_editing' %}Edit: {{ prompt }}{% else %}{{ prompt }}{% endif %}{{ [criteria] }}",
        "{% if prompt | length < 100 and criteria %}{{ prompt }} {{ criteria }}{% endif %}",
    ],
)
def test_includes_and_inherited_blocks_count(template: str, validate: Validate) -> None:
    base = "{% block role %}{% endblock %}{% block asked %}{{ prompt }} {{ criteria }}{% endblock %}"
    assert validate(SUITE, mine=template, part="{{ prompt }}", base=base) == (0, [])


@pytest.mark.parametrize("tag", ["include", "extends"])
def test_the_name_of_an_included_template_is_no_expression(tag: str, validate: Validate) -> None:
    """Its file would be read without a check of its place, and a change of it would not be noticed."""
    template = f"{{% {tag} media ~ '.j2' %}}{{{{ prompt }}}}{{{{ criteria }}}}"
    code, (line,) = validate(SUITE, mine=template, image="Judge.")
    assert code == 2
    assert line.startswith(
        "suite.yaml:11:15: mine.j2: include and extends need the name of a template in quotes, not an expression"
    )


CASES = """\
cases:
  - {id: one, prompt: a tree, criteria: It is tall.}
  - {id: two, prompt: a boat, criteria: It is red., tags: [water]}
  - {id: three, prompt: a car}
"""
NEVER = "so the judge never sees it (if that is intended: 'show: [prompt, inputs, masks, output]')"


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{ prompt }}{% if criteria %}{{ criteria }}{% endif %}", None),
        ("{{ prompt }}{{ criteria or '' }}", None),
        ("{% if 'water' in case.tags %}On water: {{ prompt }}{% else %}{{ prompt }}{% endif %}{{ criteria }}", None),
        ("{% if case.id == 'two' %}{{ prompt }} {{ criteria }}{% endif %}", f"{NEITHER}{{}} (case 'one')"),
        ("{% if 'water' not in case.tags %}{{ prompt }} {{ criteria }}{% endif %}", f"{NEITHER}{{}} (case 'two')"),
        ("{{ criteria }}", f"{NEITHER}{{}} (case 'three')"),
        ("{{ prompt }}", f"warning: mine.j2: does not show 'criteria', {NEVER}"),
        ("{{ prompt }}{% if not case.tags %}{{ criteria }}{% endif %}",
         f"warning: mine.j2: does not show 'criteria', {NEVER} (case 'two')"),
    ],
)  # fmt: skip
def test_what_each_case_shows(template: str, line: str | None, validate: Validate) -> None:
    text = SUITE.replace(SUITE[SUITE.index("cases:") : SUITE.index("models:")], CASES)
    code, lines = validate(text, mine=template)
    advice = " (a judge of the output alone needs 'show: [output]')"
    expected = [f"suite.yaml:13:15: {line.format(advice)}"] if line else []
    assert (code, lines) == (2 if line and "neither" in line else 0, expected)


def test_criteria_that_no_case_has_need_not_be_shown(validate: Validate) -> None:
    assert validate(SUITE.replace(", criteria: It is tall.", ""), mine="{{ prompt }}") == (0, [])


def test_only_the_cases_of_a_grader_count(validate: Validate) -> None:
    text = SUITE.replace(SUITE[SUITE.index("cases:") : SUITE.index("models:")], CASES)
    text = text.replace("    type: rubric\n", "    type: rubric\n    when: {tags: [water]}\n")
    text = text.replace("verdict:", "  - {key: size, type: properties}\nverdict:").replace("[good]", "[good, size]")
    assert validate(text, mine="{% if case.tags %}{{ prompt }}{{ criteria }}{% endif %}") == (0, [])


@pytest.mark.parametrize(("condition", "is_shown"), [("'good' in metrics", True), ("metrics | length == 2", False)])
def test_one_call_of_a_case_must_show_what_was_asked(condition: str, is_shown: bool, validate: Validate) -> None:
    metrics = "{good: {type: pass_fail, description: d}, sharp: {type: pass_fail, description: d}}"
    text = SUITE.replace("{good: {type: pass_fail, description: Is it good}}", f"{metrics}\n    per_metric: true")
    text = text.replace("[good]", "[good, sharp]")
    code, lines = validate(text, mine=f"{{% if {condition} %}}{{{{ prompt }}}}{{{{ criteria }}}}{{% endif %}}")
    assert (code, [NEITHER in line for line in lines]) == ((0, []) if is_shown else (2, [True]))


def test_a_value_that_cannot_be_replaced_hides_no_other(validate: Validate) -> None:
    code, lines = validate(
        SUITE, mine="{{ {'a tree': 'ein Baum'}[prompt] }}{% if not criteria %}{{ criteria }}{% endif %}"
    )
    assert (code, lines) == (
        0, [f"suite.yaml:11:15: warning: mine.j2: does not show 'criteria', {NEVER}"]
    )  # fmt: skip


QUESTIONS = ["{id: q1, question: Is there a tree}", "{id: q2, question: Is it tall}"]


@pytest.mark.parametrize(
    ("template", "is_shown"),
    [
        ("{% for item in questions %}{{ item.id }}{{ item.question }}{% endfor %}", True),
        ("{{ questions | tojson }}", True),
        ("{% for item in questions %}{{ item.id | upper }}{{ item.question | upper }}{% endfor %}", True),
        ("{% for item in questions %}{{ item.id }}{% endfor %}", False),
        ("{% for item in questions[:1] %}{{ item.question }}{% endfor %}", False),
        ("{{ questions | length }}", False),
    ],
)
def test_every_question_must_be_shown(template: str, is_shown: bool, validate: Validate) -> None:
    head = SUITE.split("  - key: look")[0].replace("a tree,", f"a tree, questions: [{', '.join(QUESTIONS)}],")
    text = f"{head}  - {{key: good, type: gecko, answers_template: mine.j2}}\nverdict: [good >= 0.5]\n"
    line = "suite.yaml:9:48: mine.j2: does not show 'questions', so the judge never sees what was asked"
    assert validate(text, mine=template) == ((0, []) if is_shown else (2, [line]))


@pytest.mark.parametrize(
    ("template", "is_shown"),
    [
        ("{% for item in questions %}{{ item.id }}: {{ item.question }}{% endfor %}", True),
        ("{% for item in questions %}{{ item.question }}{% endfor %}", False),
        ("{% for item in questions %}{{ item.question }}{% if item.id %}!{% endif %}{% endfor %}", False),
        ("{% for item in questions %}- q{{ loop.index }}: {{ item.question }}\n{% endfor %}", True),
        ("{% for item in questions %}- q{{ loop.index0 }}: {{ item.question }}\n{% endfor %}", False),
        ("{{ questions[0].id }}{% for item in questions %}{{ item.question }}{% endfor %}", False),
    ],
)
def test_every_id_must_be_shown_as_answers_name_it(template: str, is_shown: bool, validate: Validate) -> None:
    head = SUITE.split("  - key: look")[0].replace("a tree,", f"a tree, questions: [{', '.join(QUESTIONS)}],")
    text = f"{head}  - {{key: good, type: gecko, answers_template: mine.j2}}\nverdict: [good >= 0.5]\n"
    line = "suite.yaml:9:48: mine.j2: does not show the 'id' of all questions, which the judge's answers must name"
    assert validate(text, mine=template) == ((0, []) if is_shown else (2, [line]))
    alone = text.replace("type: gecko,", "type: gecko, mode: single,")
    assert validate(alone, mine=template) == (0, [])


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{ prompt }}{{ description }}{{ criteria }}", None),
        ("{{ description }}{{ criteria }}", None),
        ("{{ description }}", "warning: {}: does not show 'criteria', so the judge never sees it"),
        ("{{ prompt }}{{ criteria[:0] }}",
         "{}: shows neither 'description' nor 'criteria', so the judge never sees what was asked"),
    ],
)  # fmt: skip
def test_the_check_of_a_description_is_checked(
    template: str, line: str | None, validate: Validate, tmp_path: Path
) -> None:
    name = "text/check_description.md.j2"
    (tmp_path / "text").mkdir()
    (tmp_path / name).write_text(template)
    head = SUITE.split("  - key: look")[0].replace("a tree,", "a tree, expect: {text: {required: [x]}},")
    text = f"{head}  - {{key: good, type: text, extract: judge, describe: true}}\nverdict: [good]\n"
    expected = [f"suite.yaml:9:55: {line.format(name)}"] if line else []
    assert validate(text) == (2 if line and "neither" in line else 0, expected)


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


@pytest.mark.parametrize(("shown", "missing"), [("prompt", "criteria"), ("criteria", "prompt")])
def test_a_template_that_leaves_one_out_gets_one_warning(shown: str, missing: str, validate: Validate) -> None:
    second = "  - {key: two, type: rubric, template: mine.j2, metrics: {fine: {type: pass_fail, description: d}}}\n"
    text = SUITE.replace("verdict: [good]", f"{second}verdict: [good, fine]")
    code, lines = validate(text, mine=f"{{{{ {shown} }}}}")
    rest = f"{shown}, inputs, masks, output"
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
         "suite.yaml:9:44: warning: mine.j2: does not show 'prompt', so the judge never sees it"
         " (if that is intended: 'show: [criteria, inputs, masks, output]')"),
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
