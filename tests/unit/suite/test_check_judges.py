from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    assert "local OCR cannot read" in problems(text.replace(f", extract: {extract}", ""))[0]


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


@pytest.mark.parametrize(
    ("metric", "rows", "messages"),
    [
        (SCALE, "one,good,4\ntwo,good,\n", []),
        (SCALE, "one,good,4\nother,good,5\n", ["answers.csv has no answer for 1 of 2 cases: two"]),
        (
            SCALE,
            "one,good,7\ntwo,good,maybe\n",
            [
                "answers.csv has answers that count as not measured: line 2: '7' is no number from 1 to 5 (good);"
                " line 3: 'maybe' is no number from 1 to 5 (good)"
            ],
        ),
        (
            (),
            "one,good,perhaps\ntwo,good,Yes\n",
            ["answers.csv has answers that count as not measured: line 2: 'perhaps' is no yes or no (good)"],
        ),
    ],
)
def test_recorded_answers_that_cannot_count_are_warnings(
    tmp_path: Path, metric: tuple[str, str] | tuple[()], rows: str, messages: list[str]
) -> None:
    text = changed((REMOTE, "{provider: recorded, path: answers.csv}"), *([metric] if metric else []))
    (tmp_path / "suite.yaml").write_text(text.replace("[good]", "[good >= 3]") if metric else text)
    (tmp_path / "answers.csv").write_text(f"case,question,answer\n{rows}")
    loaded = load_suite(tmp_path / "suite.yaml", run_labels=lambda _: [])
    assert [str(warning).split("warning: ")[1] for warning in loaded.warnings] == messages


def test_recorded_answers(problems: Problems) -> None:
    rows = "case,model,question,said\none,mock,good,true\n"
    assert problems(changed(RECORDED), {"answers.csv": rows}) == []
    result = problems(changed(RECORDED), {"answers.csv": rows.replace("said", "sad")})
    assert result == ["suite.yaml:8:69: the dataset has no column 'said' (did you mean 'sad'?)"]
    broken = problems(changed((REMOTE, "{provider: recorded, path: a.jsonl}")), {"a.jsonl": '{"case": 1}\n{"case":\n'})
    assert broken == ["a.jsonl:2:9: not JSON: expecting value"]
    empty: Any = problems(changed(RECORDED), {"answers.csv": ""})
    assert empty == ["answers.csv:1:1: the dataset has no rows"]
