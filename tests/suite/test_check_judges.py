from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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


ASKED = "{{ prompt }} {{ criteria }} "
TEMPLATE = ("type: rubric,", "type: rubric, template: mine.j2,")


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


def test_trust_and_the_list_of_hosts(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    custom = "{provider: openai, model: m, base_url: 'http://10.0.0.1:8000/v1', api_key_env: LOCAL_KEY}"
    assert problems(changed((REMOTE, custom)), trust=True) == []
    model = changed(("{provider: mock}", custom.replace("model: m", "params: {model: m}")))
    assert problems(model)[0].startswith("suite.yaml:6:")
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "other, 10.0.0.1")
    assert problems(changed((REMOTE, custom))) == []
    assert problems(model) == []


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
        ("one,good,4\none,verdict,pass\ntwo,good,1\n", []),  # in any case
        ("one,good,4\none,verdict,passed\ntwo,good,1\n", [
            "answers.csv:3:1: 'passed' is no answer to 'verdict' of case 'one': "
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
