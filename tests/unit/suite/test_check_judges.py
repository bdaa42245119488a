from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from visioneval import SuiteError
from visioneval.suite.load import load_suite

Problems = Callable[..., list[str]]

SUITE = """\
name: demo
cases:
  - {id: one, prompt: a tree, metadata: {kind: oak}, expect: {text: {required: [OAK]}}}
  - {id: two, prompt: a bush, tags: [short]}
models:
  - {provider: mock}
judges:
  default: {provider: openai, model: gpt-5.4}
graders:
  - {key: look, type: rubric, metrics: {good: {type: pass_fail, description: Is it good}}}
verdict: [good]
"""


def changed(*pairs: tuple[str, str]) -> str:
    text = SUITE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_suite_with_a_judge_is_right(problems: Problems) -> None:
    assert problems(SUITE) == []


def test_an_unknown_judge_is_reported(problems: Problems) -> None:
    result = problems(changed(("type: rubric,", "type: rubric, judge: defualt,")))
    assert result == [
        "suite.yaml:10:38: there is no judge 'defualt' under 'judges' (did you mean 'default'?)",
    ]
    text = changed(("type: rubric,", "type: text, extract: judge, judge: eyes}\n  - {key: more, type: rubric,"))
    assert [line.split(": ", 1)[1] for line in problems(text)] == [
        "there is no judge 'eyes' under 'judges' (known: default)"
    ]


@pytest.mark.parametrize("extract", ["judge", "[ocr, judge]"])
def test_a_text_grader_with_a_judge_takes_every_sign(extract: str, problems: Problems) -> None:
    grader = f"{{key: copy, type: text, extract: {extract}}}\n  - {{key: look, type: rubric,"
    text = changed(("{key: look, type: rubric,", grader), ("OAK", "नमस्ते"))
    assert problems(text) == []


ASKED = "{{ prompt }} {{ criteria }} "
TEMPLATE = ("type: rubric,", "type: rubric, template: mine.j2,")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "there is no template 'mine.j2'"),
        ("{{ nothing }}", "mine.j2: undefined template variable: 'nothing'"),
        (
            "{{ metadata.kind }}",
            "there is no 'kind' (known: nothing) (case 'two')",
        ),
        ("a\n{% if %}", "mine.j2, line 2: Expected an expression, got 'end of statement block' (case 'one')"),
        ("{% include 'other.j2' %}", "there is no template 'other.j2'"),
        ("{{ 1 / 0 }}", "cannot be rendered: division by zero (case 'one')"),
    ],
)
def test_a_template_is_tried_on_every_case(template: str | None, message: str, problems: Problems) -> None:
    files = {} if template is None else {"mine.j2": f"{ASKED}{template}"}
    result = problems(changed(TEMPLATE), files)
    assert len(result) == 1
    assert result[0].startswith("suite.yaml:10:41: ")
    assert message in result[0]


def test_a_template_is_tried_only_where_it_is_used(problems: Problems) -> None:
    text = changed(
        ("type: rubric,", "type: rubric, template: mine.j2, when: {cases: [one]},"), ("[good]", "[good, tree]")
    )
    text = text.replace(
        "\nverdict", "\n  - {key: tree, type: rubric, metrics: {tree: {type: pass_fail, description: x}}}\nverdict"
    )
    assert problems(text, {"mine.j2": f"{ASKED}{{{{ metadata.kind }}}}"}) == []


def test_a_per_metric_template_is_checked_per_metric(problems: Problems) -> None:
    metrics = "metrics: {good: {type: pass_fail, description: x}, fine: {type: pass_fail, description: x}}"
    text = changed(("metrics: {good: {type: pass_fail, description: Is it good}}", metrics), TEMPLATE)
    assert problems(text, {"mine.j2": f"{ASKED}{{{{ metrics.good.description }}}}"}) == []
    alone = problems(text.replace("template: mine.j2,", "template: mine.j2, per_metric: true,"))
    assert len(alone) == 1
    assert "there is no 'good'" in alone[0]


def test_suite_templates_take_precedence_and_are_checked_for_text_too(problems: Problems) -> None:
    text = changed(("{key: look", "{key: copy, type: text, extract: judge}\n  - {key: look"))
    result = problems(text, {"text/list.md.j2": "{{ lines }}"})
    assert len(result) == 1
    assert result[0].startswith("suite.yaml:10:5: text/list.md.j2: undefined template variable: 'lines'")
    moved = changed(("name: demo", "name: demo\ntemplates_dir: words"), TEMPLATE)
    assert problems(moved, {"words/mine.j2": f"{ASKED}Look at {{{{ case.id }}}}."}) == []


@pytest.mark.parametrize("name", ["../outside.j2", "sub/../../outside.j2", "/etc/hostname"])
def test_a_template_outside_is_not_there(name: str, problems: Problems, tmp_path: Path) -> None:
    (tmp_path.parent / "outside.j2").write_text("secret")
    result = problems(changed(("type: rubric,", f"type: rubric, template: {name},")))
    assert len(result) == 1
    assert f"there is no template '{name}'" in result[0]


def test_a_link_to_an_outside_file_is_not_followed_without_trust(problems: Problems, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.j2"
    outside.write_text(ASKED)
    (tmp_path / "mine.j2").symlink_to(outside)
    assert "is outside the suite's folder" in problems(changed(TEMPLATE))[0]
    assert problems(changed(TEMPLATE), trust=True) == []
    moved = changed(("name: demo", "name: demo\ntemplates_dir: ../elsewhere"))
    assert problems(moved)[0].startswith("suite.yaml:2:16: '../elsewhere' is outside the suite's folder")


REMOTE = "{provider: openai, model: gpt-5.4}"


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (
            "{provider: openai, model: m, base_url: 'http://10.0.0.1:8000/v1'}",
            "set api_key_env to a separate environment variable",
        ),
        (
            "{provider: openai, model: m, base_url: 'http://10.0.0.1:8000/v1', api_key_env: OPENAI_API_KEY}",
            "so that OPENAI_API_KEY is not sent there",
        ),
        (
            "{provider: openai, model: m, base_url: 'http://10.0.0.1:8000/v1', api_key_env: LOCAL_KEY}",
            "base_url '10.0.0.1' is not the provider's own host: pass --trust-suite",
        ),
        ("{provider: openai, model: m, base_url: 'http://api.openai.com/v1'}", "api.openai.com accepts only https"),
        ("{provider: gemini, model: m, base_url: 'https://evil-googleapis.com'}", "GEMINI_API_KEY is not sent there"),
        ("{provider: openai, model: m, base_url: 'http://[::1]extra:80/v1', api_key_env: K}", "needs an IPv6 address"),
        ("{provider: openai, model: m, base_url: 'http://[v1.a]/v1', api_key_env: K}", "needs an IPv6 address"),
        ("{provider: 'own:Judge'}", "'own:Judge' runs code from the suite"),
        ("{provider: recorded, path: ../answers.csv}", "is outside the suite's folder"),
        ("{provider: recorded, path: none.csv}", "none.csv: no such file or directory"),
        (
            "{provider: recorded, path: answers.txt}",
            "answers.txt: unknown file type: a dataset's name must end in .jsonl",
        ),
    ],
)
def test_a_judge_that_cannot_be_asked(judge: str, message: str, problems: Problems) -> None:
    result = problems(changed((REMOTE, judge)))
    assert len(result) == 1
    key = next(key for key in ("base_url: ", "path: ", "provider: ") if key in judge)
    column = len("  default: ") + judge.index(key) + len(key) + 1
    assert result[0].startswith(f"suite.yaml:8:{column}: ")
    assert message in result[0]


def test_trust_and_the_list_of_hosts(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    custom = "{provider: openai, model: m, base_url: 'http://10.0.0.1:8000/v1', api_key_env: LOCAL_KEY}"
    assert problems(changed((REMOTE, custom)), trust=True) == []
    model = changed(("{provider: mock}", custom.replace("model: m", "params: {model: m}")))
    assert problems(model)[0].startswith("suite.yaml:6:")
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "other, 10.0.0.1")
    assert problems(changed((REMOTE, custom))) == []
    assert problems(model) == []


RECORDED = (REMOTE, "{provider: recorded, path: answers.csv, fields: {answer: said, model: model}}")


SCALE = (
    "{good: {type: pass_fail, description: Is it good}}",
    "{good: {type: score, scale: [1, 5], description: How good}}",
)


def recorded(tmp_path: Path, rows: str, *pairs: tuple[str, str], header: str = "case,question,answer") -> list[str]:
    """Problems and warnings of a suite whose judge is a file of answers."""
    text = changed((REMOTE, "{provider: recorded, path: answers.csv}"), *pairs)
    (tmp_path / "suite.yaml").write_text(text.replace("[good]", "[good >= 3]") if SCALE in pairs else text)
    (tmp_path / "answers.csv").write_text(f"{header}\n{rows}")
    try:
        loaded = load_suite(tmp_path / "suite.yaml", run_labels=lambda _: [])
    except SuiteError as error:
        return [str(problem).removeprefix(f"{tmp_path}/") for problem in error.problems]
    return [str(warning).removeprefix(f"{tmp_path}/") for warning in loaded.warnings]


LACKS = "suite.yaml:8:39: warning: answers.csv has no answer for 1 of 2 cells of 'look': two (good)"
ONE_TO_FIVE = "write a whole number from 1 to 5, or leave it empty if there is none"


@pytest.mark.parametrize(
    ("rows", "messages"),
    [
        ("one,good,4\ntwo,good,1\n", []),
        ("one,good,4\ntwo,good,5.0\n", []),
        ("one,good,4\ntwo,good,\n", [LACKS]),
        ("one,good,4\nother,good,x\n", [LACKS]),
        ("one,good,4\ntwo,good,5.5\n", [f"answers.csv:3:1: '5.5' is no answer to 'good' of case 'two': {ONE_TO_FIVE}"]),
        ("one,good,4\ntwo,good,6\n", [f"answers.csv:3:1: '6' is no answer to 'good' of case 'two': {ONE_TO_FIVE}"]),
        ("one,good,maybe\ntwo,good,1\n", [
            f"answers.csv:2:1: 'maybe' is no answer to 'good' of case 'one': {ONE_TO_FIVE}"
        ]),
        ("one,good,4\none,verdict,pass\ntwo,good,1\n", [
            "answers.csv:3:1: 'pass' is no answer to 'verdict' of case 'one': "
            "write PASS or FAIL, or leave it empty if there is none"
        ]),
        ("one,Good,4\ntwo,Good,1\n", [
            "suite.yaml:8:39: answers.csv has no answer for 2 of 2 cells of 'look': one (good), two (good)"
            " (did you mean 'Good'?)"
        ]),
    ],
)  # fmt: skip
def test_recorded_answers_that_no_run_can_use(tmp_path: Path, rows: str, messages: list[str]) -> None:
    assert recorded(tmp_path, rows, SCALE) == messages


@pytest.mark.parametrize(
    ("step", "answer", "is_error"),
    [("0.5", "2.5", False), ("0.5", "2.25", True), ("1", "2.5", True), ("2", "3", False), ("2", "2", True)],
)
def test_recorded_scores_are_on_a_step(tmp_path: Path, step: str, answer: str, is_error: bool) -> None:
    scale = (SCALE[0], SCALE[1].replace("[1, 5]", f"[1, 5], step: {step}"))
    messages = recorded(tmp_path, f"one,good,{answer}\ntwo,good,5\n", scale, ("[good]", "[good >= 3]"))
    assert [message.split(" is no")[0] for message in messages] == [f"answers.csv:2:1: '{answer}'"] * is_error


def test_only_answers_about_cells_of_the_suite_count(tmp_path: Path) -> None:
    """A table may have the answers of other model runs and samples."""
    judge = (REMOTE, "{provider: recorded, path: answers.csv, fields: {model: model, sample: n}}")
    rows = "one,mock,0,good,yes\ntwo,mock,0,good,no\none,other,0,good,maybe\none,mock,1,good,maybe\n"
    text = changed(judge)
    (tmp_path / "suite.yaml").write_text(text)
    (tmp_path / "answers.csv").write_text(f"case,model,n,question,answer\n{rows}")
    assert load_suite(tmp_path / "suite.yaml", run_labels=lambda _: []).warnings == ()
    (tmp_path / "suite.yaml").write_text(f"{text}samples: 2\n")
    with pytest.raises(SuiteError, match=r"answers\.csv:5:1: 'maybe' is no answer to 'good' of case 'one'"):
        load_suite(tmp_path / "suite.yaml", run_labels=lambda _: [])


def test_a_case_without_an_output_needs_no_answer(tmp_path: Path) -> None:
    """Its cell is an error in any case, or there is none."""
    outputs = ("tags: [short]", "tags: [short], outputs: {a: [x.png, y.png], b: [z.png]}")
    judge = (REMOTE, "{provider: recorded, path: answers.csv, fields: {model: model, sample: n}}")
    files = ("- {provider: mock}", "- {provider: files}")
    (tmp_path / "suite.yaml").write_text(changed(outputs, judge, files))
    rows = ["two,a,0,good,yes", "two,a,1,good,no", "two,b,0,good,yes"]
    (tmp_path / "answers.csv").write_text("\n".join(["case,model,n,question,answer", *rows]))
    assert load_suite(tmp_path / "suite.yaml", run_labels=lambda _: []).warnings == ()
    (tmp_path / "answers.csv").write_text("\n".join(["case,model,n,question,answer", rows[0], rows[2]]))
    (warning,) = load_suite(tmp_path / "suite.yaml", run_labels=lambda _: []).warnings
    assert str(warning).endswith("answers.csv has no answer for 1 of 3 cells of 'look': two a 1 (good)")


QUESTIONS = (
    "metadata: {kind: oak},",
    "questions: [{id: q1, question: Is it?}, {id: q2, question: What color?, choices: [red, blue], answer: red}],",
)
GECKO = (
    "type: rubric, metrics: {good: {type: pass_fail, description: Is it good}}",
    "type: gecko, when: {cases: [one]}",
)


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("one,q1,yes\none,q2,red\n", []),
        ("one,q1,A\none,What color?,b) blue\n", []),
        ("one,q1,TRUE\none,q2,red\n", ["answers.csv:2:1: 'TRUE' is no answer to 'q1'"]),
        ("one,q1,maybe\none,q2,c. red\n", [
            "answers.csv:2:1: 'maybe' is no answer to 'q1'", "answers.csv:3:1: 'c. red' is no answer to 'q2'"
        ]),
        ("one,q1,yes\n", ["suite.yaml:7:39: answers.csv has no answer for 1 of 1 cell of 'look': one (q2) (known: q1)"]),
    ],
)  # fmt: skip
def test_recorded_answers_name_a_choice(tmp_path: Path, rows: str, lines: list[str]) -> None:
    alone = ("  - {id: two, prompt: a bush, tags: [short]}\n", "")
    pairs = (QUESTIONS, GECKO, alone, ("[good]", "[look >= 0.5]"))
    messages = recorded(tmp_path, rows, *pairs)
    assert [message.split(" of case ")[0] for message in messages] == lines
    policy = (GECKO[0], f"{GECKO[1]}, on_unanswered: wrong")
    assert recorded(tmp_path, rows, QUESTIONS, policy, *pairs[2:]) == []


def test_recorded_answers(problems: Problems) -> None:
    rows = "case,model,question,said\none,mock,good,true\n"
    assert problems(changed(RECORDED), {"answers.csv": rows}) == []
    result = problems(changed(RECORDED), {"answers.csv": rows.replace("said", "sad")})
    assert result == ["suite.yaml:8:69: the dataset has no column 'said' (did you mean 'sad'?)"]
    broken = problems(changed((REMOTE, "{provider: recorded, path: a.jsonl}")), {"a.jsonl": '{"case": 1}\n{"case":\n'})
    assert broken == ["a.jsonl:2:9: not JSON: expecting value"]
    empty: Any = problems(changed(RECORDED), {"answers.csv": ""})
    assert empty == ["answers.csv:1:1: the dataset has no rows"]
