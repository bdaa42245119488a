"""Loading a file as a checked suite, or reporting every problem with its position."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite_text import suite

from visioneval import Problem, SuiteError, UsageError
from visioneval.suite.load import LoadedSuite, load_suite
from visioneval.suite.model import Suite

Problems = Callable[..., list[str]]
Load = Callable[..., LoadedSuite]

CASE_KEYS = "add_questions, criteria, dataset, expect, file, flaky, id, images, mask, masks, metadata, output_of, outputs, prompt, questions"
RULE = (
    "is not a valid rule: write 'METRIC' or 'not METRIC' for a yes/no metric, 'METRIC OP NUMBER' with OP one of >= > <= < == !=,"
    """ or 'METRIC == "WORD"' or 'METRIC in ["WORD", "WORD"]' (put names with special characters in quotes)"""
)
TASKS = "image_generation, image_editing, video_generation"


def test_a_suite_is_loaded(load: Load) -> None:
    loaded = load()
    assert loaded.suite.name == "demo"
    assert loaded.folder == loaded.path.parent
    assert [case.id for case in loaded.suite.cases] == ["one"]


def test_the_suite_as_resolved_is_a_suite_again(load: Load) -> None:
    text = suite(
        "vars: {brand: Butter & Flour, ratio: 1.10, big: 123456789012345678901234567890}",
        "gates: [{rule: pass_rate >= 0.9, models: ['mock*']}, error_rate <= 0.1]",
        cases="cases: [{id: one, prompt: '{{ brand }}', metadata: {no: on, at: 4:30, 5: [1, null]}, verdict: [image]}]",
        models="models: [{provider: mock, grid: {flaw: [none, typo]}}]",
    )
    resolved = load(text).suite
    assert Suite.model_validate(json.loads(resolved.model_dump_json())) == resolved


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "suite.yaml:1:1: the suite is empty: create a starting point with 'visioneval init'"),
        ("# nothing\n", "suite.yaml:1:1: the suite is empty: create a starting point with 'visioneval init'"),
        ("\n- 1\n", "suite.yaml:2:1: a suite must be a mapping with the keys name, cases, models, graders and verdict"),
        ("hello", "suite.yaml:1:1: a suite must be a mapping with the keys name, cases, models, graders and verdict"),
        (b"name: caf\xe9\n", "suite.yaml:1:10: not valid UTF-8: save the file as UTF-8"),
        (suite("name: again"), "suite.yaml:6:1: the key 'name' is duplicated"),
        ("vars: &a {b: *a}", "suite.yaml:1:14: the alias *a refers to itself: it is inside its own anchor"),
        (suite("gatez: []"), "suite.yaml:6:1: unknown key 'gatez' (did you mean 'gates'?)"),
        (suite(name="name: ''"), "suite.yaml:1:7: name: '' is not valid: use letters, digits, '_', '-' and '.'"),
        (suite(name="name: a b"), "suite.yaml:1:7: name: 'a b' is not valid: use letters, digits, '_', '-' and '.'"),
        (
            suite("tracking: {to: vertex, project: p, location: l, bucket: s3://x}"),
            "suite.yaml:6:57: bucket: 's3://x' is not valid: write gs://BUCKET/FOLDER",
        ),
        (suite(name="name: 5"), "suite.yaml:1:7: name: expected text, not 5: put it in quotes"),
        (suite(name="name: 2024-01-31\nname_of: x"), "suite.yaml:2:1: unknown key 'name_of' (did you mean 'name'?)"),
        (suite("task: image_edit"), f"suite.yaml:6:7: task: 'image_edit' is not one of {TASKS}"),
        (suite("samples: 0"), "suite.yaml:6:10: samples: must be at least 1, not 0"),
        (suite("samples: 1001"), "suite.yaml:6:10: samples: must be at most 1000, not 1001"),
        (suite("samples: true"), "suite.yaml:6:10: samples: expected a whole number, not true"),
        (suite("samples: 1.5"), "suite.yaml:6:10: samples: expected a whole number, not 1.5"),
        (suite("samples: '3'"), "suite.yaml:6:10: samples: expected a whole number, not '3'"),
        (suite("samples: " + "9" * 100), f"suite.yaml:6:10: samples: must be at most 1000, not {'9' * 57}..."),
        (suite("samples: " + "9" * 9000), f"suite.yaml:6:10: samples: expected a whole number, not '{'9' * 56}..."),
        (suite("vars: [x]"), "suite.yaml:6:7: vars: expected a mapping of keys to values, not a list"),
        (
            suite("vars: {ok: 1, a-b: 2}"),
            "suite.yaml:6:15: a-b: 'a-b' is not valid: use letters, digits and '_' (no digit first)",
        ),
        (suite("vars: {case: 2}"), "suite.yaml:6:8: the name 'case' is reserved for templates: rename the variable"),
    ],
)
def test_a_complete_suite_loads(problems: Problems, text: str, message: str) -> None:
    assert problems(text) == [message]


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ("{}", "2:8: cases: expected a list, not a mapping"),
        ("", "2:7: cases: expected a list, not null"),
        ("[]", "2:8: cases: must not be empty"),
        ("one", "2:8: cases: expected a list, not 'one'"),
        ("[5]", "2:9: cases: expected a mapping of keys to values, not 5"),
        ("[null]", "2:9: cases: expected a mapping of keys to values, not null"),
        ("[[]]", "2:9: cases: expected a mapping of keys to values, not a list"),
        ("[{id: a}]", "2:9: the key 'prompt' is missing"),
        ("[{prompt: a}]", "2:9: the key 'id' is missing"),
        ("[{id: a, promt: x}]", "2:17: unknown key 'promt' (did you mean 'prompt'?)"),
        ("[{id: a, prompt: x, text: [y]}]", "2:28: unknown key 'text': it belongs inside 'expect'"),
        (
            "[{id: a, prompt: x, 5: y}]",
            f"2:28: unknown key '5' (known: {CASE_KEYS}, reference, region, tags, task, turns, ...)",
        ),
        (
            "[{id: ../a, prompt: x}]",
            "2:14: id: '../a' is not valid: use letters, digits, '_', '-' and '.' (not '-' or '.' first), at most 120 characters",
        ),
        (
            "[{id: .a, prompt: x}]",
            "2:14: id: '.a' is not valid: use letters, digits, '_', '-' and '.' (not '-' or '.' first), at most 120 characters",
        ),
        (
            r'[{id: "a\n", prompt: x}]',
            r"2:14: id: 'a\n' is not valid: use letters, digits, '_', '-' and '.' (not '-' or '.' first), at most 120 characters",
        ),
        ("[{id: 5, prompt: x}]", "2:14: id: expected text, not 5: put it in quotes"),
        (f"[{{id: {'x' * 121}, prompt: x}}]", f"2:14: id: '{'x' * 56}... is longer than 120 characters"),
        (
            "[{id: a, prompt: x, expect: {text: {required: [Open: 9 am]}}}]",
            "2:55: required: expected text, not a mapping: put text with ':' in quotes",
        ),
        ("[{id: a, prompt: 1.50}]", "2:25: prompt: expected text, not 1.50: put it in quotes"),
        ("[{id: a, prompt: ''}]", "2:25: prompt: must not be empty"),
        ("[{id: a, prompt: '  '}]", "2:25: the prompt is empty after rendering"),
        (
            r'[{id: a, prompt: "a\x1b[31m"}]',
            r"2:25: prompt: 'a\x1b[31m' is not valid: control characters are not allowed",
        ),
        ("[{id: a, prompt: x, task: edit}]", f"2:34: task: 'edit' is not one of {TASKS}"),
        ("[{id: a, prompt: x, expect: {refusal: no}}]", "2:46: refusal: expected true or false, not 'no'"),
        ("[{id: a, prompt: x, tags: t}]", "2:34: tags: expected a list, not 't'"),
        (
            "[{id: a, prompt: x, tags: [a;b]}]",
            "2:35: tags: 'a;b' is not valid: a tag is one line without , ; | and without spaces around it: write several as a list, [a, b]",
        ),
        (
            "[{id: a, prompt: x, tags: [' a']}]",
            "2:35: tags: ' a' is not valid: a tag is one line without , ; | and without spaces around it: write several as a list, [a, b]",
        ),
        ("[{id: a, prompt: x, images: [5]}]", "2:37: images: expected text or a mapping of keys to values, not 5"),
        ("[{id: a, prompt: x, images: [{pth: a}]}]", "2:38: unknown key 'pth' (did you mean 'path'?)"),
        (
            r'[{id: a, prompt: x, images: ["a\0"]}]',
            r"2:37: path: 'a\x00' is not valid: control characters are not allowed",
        ),
        ("[{id: a, prompt: x, mask: 5}]", "2:34: editable: expected text, not 5: put it in quotes"),
        ("[{id: a, prompt: x, mask: m, masks: {}}]", "2:9: 'mask' and 'masks' are both set: use only one"),
        ("[{id: a, prompt: x, masks: {edit: m}}]", "2:36: unknown key 'edit' (did you mean 'editable'?)"),
        (
            "[{id: a, prompt: x, expect: {size: 5x}}]",
            "2:43: size: '5x' is not valid: write a size such as 1024x1536, or 'requested'",
        ),
        (
            "[{id: a, prompt: x, expect: {aspect_ratio: 2/3}}]",
            "2:51: aspect_ratio: '2/3' is not valid: write a ratio such as 2:3",
        ),
        (
            "[{id: a, prompt: x, expect: {format: eps}}]",
            "2:45: format: 'eps' is not one of png, jpeg, webp, gif, bmp, tiff, svg",
        ),
        (
            "[{id: a, prompt: x, expect: {text: {}}}]",
            "2:43: expect.text is empty: add 'required' or 'forbidden' lines, or set 'extra: forbid'",
        ),
        ("[{id: a, prompt: x, verdict: []}]", "2:37: verdict: must not be empty"),
        ("[{id: a, prompt: x, verdict: [a b]}]", f"2:38: 'a b' {RULE}"),
    ],
)
def test_cases(problems: Problems, cases: str, message: str) -> None:
    assert problems(suite(cases=f"cases: {cases}")) == [f"suite.yaml:{message}"]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("{provider: mock}", "3:9: models: expected a list, not a mapping"),
        ("[]", "3:9: models: must not be empty"),
        ("[mock]", "3:10: expected a mapping with the key 'provider', not 'mock'"),
        ("[{label: a}]", "3:10: the key 'provider' is missing"),
        ("[{provider: mokc}]", "3:21: unknown provider 'mokc' (did you mean 'mock'?)"),
        ("[{provider: mock, parms: {}}]", "3:27: unknown key 'parms' (did you mean 'params'?)"),
        (
            "[{provider: mock, size: 8x8}]",
            "3:27: unknown key 'size' (known: grid, label, params, prompts, provider, tasks): "
            "parameters of a call belong inside 'params'",
        ),
        ("[{provider: mock, params: 5}]", "3:35: params: expected a mapping of keys to values, not 5"),
        ("[{provider: mock, grid: {flaw: []}}]", "3:40: flaw: must not be empty"),
        ("[{provider: mock, grid: {flaw: typo}}]", "3:40: flaw: expected a list, not 'typo'"),
        (
            "[{provider: mock, params: {flaw: typo}, grid: {flaw: [none]}}]",
            "3:10: params and grid both set flaw: remove one of them",
        ),
        (r'[{provider: mock, label: "a\x1b"}]', r"3:34: label: 'a\x1b' is not valid: control characters are not allowed"),
        ("[{provider: files, path: a, run: b}]", "3:10: files takes one source of outputs, not path and run"),
        ("[{provider: files, path: '{cse}'}]", "3:10: path may contain {case}, {model} and {sample}, and no other braces"),
        ("[{provider: files, path: '{case!r}'}]", "3:10: path may contain {case}, {model} and {sample}, and no other braces"),
        ("[{provider: files, path: '{case'}]", "3:10: path may contain {case}, {model} and {sample}, and no other braces"),
        ("[{provider: command, argv: []}]", "3:36: argv: must not be empty"),
        ("[{provider: command, argv: [a], timeout_s: 0}]", "3:52: timeout_s: must be more than 0, not 0"),
        ("[{provider: command, argv: [a], timeout_s: '5'}]", "3:52: timeout_s: expected a number, not '5'"),
        ("[{provider: 'a:'}]", "3:21: provider: 'a:' is not valid: write a custom class as package.module:Class"),
    ],
)  # fmt: skip
def test_models(problems: Problems, models: str, message: str) -> None:
    assert problems(suite(models=f"models: {models}")) == [f"suite.yaml:{message}"]


@pytest.mark.parametrize(
    ("graders", "message"),
    [
        ("[text]", "4:11: expected a mapping with the key 'type', not 'text'"),
        ("[{key: a}]", "4:11: the key 'type' is missing"),
        (
            "[{key: a, type: propertis}]",
            "4:26: unknown grader type 'propertis' (did you mean 'properties'?)",
        ),
        ("[{key: a b, type: properties}]", "4:17: key: 'a b' is not valid: use letters, digits, '_', '-' and '.'"),
        ("[{key: a, type: properties, wen: {}}]", "4:38: unknown key 'wen' (did you mean 'when'?)"),
        ("[{key: a, type: properties, when: {tag: [a]}}]", "4:45: unknown key 'tag' (did you mean 'tags'?)"),
        ("[{key: a, type: text, min_confidence: 5}]", "4:48: min_confidence: must be at most 1, not 5"),
        (
            "[{key: a, type: 'm:C'}]",
            "4:26: 'm:C' runs code from the suite: pass --trust-suite if you trust it",
        ),
        (
            "[{key: a, type: 'm:C', writes: {x: {range: [1]}}}]",
            "4:53: range: has too few values",
        ),
    ],
)
def test_graders(problems: Problems, graders: str, message: str) -> None:
    assert problems(suite(graders=f"graders: {graders}")) == [f"suite.yaml:{message}"]


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        ("image", ["5:10: verdict: expected a list, not 'image'"]),
        ("[]", ["5:10: verdict: must not be empty"]),
        ("[5]", ["5:11: verdict: expected text or a mapping of keys to values, not 5"]),
        ("[image >=]", [f"5:11: 'image >=' {RULE}"]),
        ("[{rul: image}]", ["5:12: unknown key 'rul' (did you mean 'rule'?)"]),
        ("[{rule: image, level: bad}]", ["5:32: level: 'bad' is not one of fail, warn"]),
        (
            "[{image: true}]",
            [
                "5:11: the key 'rule' is missing",
                "5:12: unknown key 'image' (known: cases, level, models, rule, tags, tasks)",
            ],
        ),
    ],
)
def test_verdict(problems: Problems, verdict: str, message: list[str]) -> None:
    assert problems(suite(verdict=f"verdict: {verdict}")) == [f"suite.yaml:{line}" for line in message]


def test_every_missing_key_is_reported(problems: Problems) -> None:
    assert problems("description: x\n") == [
        f"suite.yaml:1:1: the key {key!r} is missing" for key in ("cases", "graders", "models", "name", "verdict")
    ]


def test_all_problems_are_reported_together_in_file_order(problems: Problems) -> None:
    text = suite(
        "vars: {a-b: 1}",
        "sampels: 3",
        cases="cases: [{id: a, prompt: x, bogus: 1}, {id: b, prompt: y, images: [gone.png]}, {id: b, prompt: z}]",
        models="models: [{provider: mock, grid: {flaw: [tpyo]}}, {provider: skech}]",
        graders="graders: [{key: image, type: properties}, {key: image, type: properties}]",
        verdict="verdict: [image, 'a b']",
    )
    message = problems(text)
    assert [line.split(": ", 1)[1][:38] for line in message] == [
        "unknown key 'bogus' (known: add_questi",
        "gone.png: there is no such file",
        "two cases have the ID 'b'",
        "flaw: 'tpyo' is not one of none, typo,",
        "unknown provider 'skech' (known: comma",
        "two graders have the key 'image'",
        "'a b' is not a valid rule: write 'METR",
        "a-b: 'a-b' is not valid: use letters, ",
        "unknown key 'sampels' (did you mean 's",
    ]
    places = [tuple(map(int, line.split(":")[1:3])) for line in message]
    assert places == sorted(places)


@pytest.mark.parametrize(("wrong", "more"), [(100, None), (101, "1 more problem"), (1_102, "1,002 more problems")])
def test_a_hundred_problems_per_file_are_reported(wrong: int, more: str | None) -> None:
    result = [Problem("a.yaml", at, 1, "wrong") for at in range(1, wrong + 1)]
    lines = str(SuiteError([*result, Problem("b.yaml", 1, 1, "wrong")])).splitlines()
    assert lines[99] == "a.yaml:100:1: wrong"
    assert lines[100:] == [*([f"a.yaml: ... and {more} in this file"] if more else []), "b.yaml:1:1: wrong"]


def test_one_cause_is_reported_once(problems: Problems) -> None:
    text = suite(cases="base: &base {id: a, prompt: 5}\ncases: [*base, {<<: *base, id: b}, *base]")
    assert problems(text) == [
        "suite.yaml:2:1: unknown key 'base' (did you mean 'cases'?)",
        "suite.yaml:2:29: prompt: expected text, not 5: put it in quotes",
    ]


def test_an_unknown_task_is_not_reported_for_every_case(problems: Problems) -> None:
    assert len(problems(suite("task: edit", cases="cases: [{id: a, prompt: x}, {id: b, prompt: y}]"))) == 1


def test_the_suites_task_is_the_default_of_its_cases(load: Load) -> None:
    text = suite(
        "task: image_generation", cases="cases: [{id: a, prompt: x}, {id: b, prompt: x, task: image_generation}]"
    )
    assert [case.task for case in load(text).suite.cases] == ["image_generation"] * 2


def test_no_message_mentions_python_or_pydantic(problems: Problems) -> None:
    text = suite(
        cases="cases: [{id: [], prompt: {}, images: x, masks: 5, expect: [], tags: {}, metadata: 5, flaky: null, verdict: x}]",
        models="models: [{provider: mock, label: 5, tasks: x, params: [], grid: {x: {}}}, {provider: command, argv: {}}]",
        graders="graders: [{key: {}, type: text, when: 5, min_confidence: x}, {key: a, type: 'a:B', writes: {x: 5}}]",
        verdict="verdict: [{rule: 5, tags: x, level: {}}]",
    )
    message = problems(text)
    assert len(message) >= 20
    for word in ("Input", "input", " dict", "tuple", "None", "True", "validation", "instance", "pydantic", "model_"):
        assert not [line for line in message if word in line]


# --- files of cases


def test_problems_in_a_case_file_name_that_file(problems: Problems) -> None:
    cases = "- {id: a, prompt: x}\n- {id: ../b, prompt: y}\n- {id: c, prompt: z, mask: gone.png, images: [no.png]}\n- {id: a, prompt: '{{ u }}'}\n"
    assert problems(suite(cases="cases: [{file: sub/cases.yaml}]"), {"sub/cases.yaml": cases}) == [
        "sub/cases.yaml:2:8: id: '../b' is not valid: use letters, digits, '_', '-' and '.' (not '-' or '.' first), at most 120 characters",
        "sub/cases.yaml:3:28: sub/gone.png: there is no such file",
        "sub/cases.yaml:3:47: sub/no.png: there is no such file",
        "sub/cases.yaml:4:8: two cases have the ID 'a'",
        "sub/cases.yaml:4:19: undefined template variable: 'u' is not set (known: case, expect, metadata)",
    ]


@pytest.mark.parametrize(
    ("entry", "content", "message"),
    [
        ("{file: c.yaml}", None, "suite.yaml:2:16: file: c.yaml: no such file or directory"),
        ("{file: .}", None, "suite.yaml:2:16: file: .: is a folder: name a file in it"),
        ("{file: 5}", None, "suite.yaml:2:16: file: expected text, not 5: put it in quotes"),
        ("{file: c.yaml, tags: [a]}", "[]", "suite.yaml:2:24: unknown key 'tags' (known: file)"),
        ("{file: c.yaml}, {file: ./c.yaml}", "- {id: a, prompt: x}", "suite.yaml:2:32: file: ./c.yaml is already included"),
        ("{file: c.yaml}", "- {file: c.yaml}", "c.yaml:1:10: file: c.yaml is already included"),
        ("{file: c.yaml}", "", "c.yaml:1:1: a case file must be a list: '- id: ...'"),
        ("{file: c.yaml}", "\ncases: []", "c.yaml:2:1: a case file must be a list: '- id: ...'"),
        ("{file: c.yaml}", "[]", "suite.yaml:2:8: cases: must not be empty"),
        ("{file: c.yaml}", "- {id: a", "c.yaml:1:3: invalid YAML: the mapping that opens at line 1, column 3 is missing a '}' or a ','"),
        ("{file: c.yaml}", "- id: a\n  id: b", "c.yaml:2:3: the key 'id' is duplicated"),
        ("{file: c.yaml}", b"- {id: \xff}", "c.yaml:1:8: not valid UTF-8: save the file as UTF-8"),
        ("{file: 'https://x.org/c.yaml'}", None, "suite.yaml:2:16: file: 'https://x.org/c.yaml' is a URL: only datasets and existing outputs can be read from URLs"),
    ],
)  # fmt: skip
def test_files_of_cases(problems: Problems, entry: str, content: str | bytes | None, message: str) -> None:
    files = {} if content is None else {"c.yaml": content}
    assert problems(suite(cases=f"cases: [{entry}]"), files) == [message]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:hunter2@example.com/v1", "https://***@example.com/v1"),
        ("https://me:p@ss@example.com", "https://***@example.com"),
        ("https://me:a/b c@example.com", "https://***@example.com"),
        ("me:hunter2@example.com/v1", "***@example.com/v1"),
    ],
)
def test_a_refused_url_is_shown_without_its_password(problems: Problems, url: str, shown: str) -> None:
    entry = f"models: [{{provider: openai, base_url: '{url}', params: {{model: m}}}}]"
    (message,) = problems(suite(models=entry), {})
    assert message.endswith(f"base_url: '{shown}' is not valid: write a URL such as https://example.com/v1")


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ("{file: c.csv}", "2:8: cases: expected a list: write [{dataset: {path: c.csv}}]"),
        ("{file: c.yaml}", "2:8: cases: expected a list: write [{file: c.yaml}]"),
        ("{dataset: {path: c.csv}}", "2:8: cases: expected a list: write [{dataset: ...}]"),
        ("rows/c.jsonl", "2:8: cases: expected a list: write [{dataset: {path: rows/c.jsonl}}]"),
        ("[rows/c.jsonl]", "2:9: expected a case, not 'rows/c.jsonl': write {dataset: {path: rows/c.jsonl}}"),
        ("[more.yaml]", "2:9: expected a case, not 'more.yaml': write {file: more.yaml}"),
        ("[A red apple.]", "2:9: cases: expected a mapping of keys to values, not 'A red apple.'"),
        ("{id: a, prompt: x}", "2:8: cases: expected a list, not a mapping"),
        ("none", "2:8: cases: expected a list, not 'none'"),
        (
            "[{file: c.csv}]",
            "2:16: file: c.csv is a table, not a YAML list of cases: write {dataset: {path: c.csv}}",
        ),
        (
            "[{file: my rows.csv}]",
            "2:16: file: my rows.csv is a table, not a YAML list of cases: write {dataset: {path: my rows.csv}}",
        ),
        (
            "[{id: a, prompt: x}, {file: C.Parquet}]",
            "2:36: file: C.Parquet is a table, not a YAML list of cases: write {dataset: {path: C.Parquet}}",
        ),
    ],
)
def test_a_table_as_a_file_of_cases_names_the_dataset_that_was_meant(
    problems: Problems, cases: str, message: str
) -> None:
    files = {"c.csv": "id,prompt\na,x\n"}
    assert problems(suite(cases=f"cases: {cases}"), files) == [f"suite.yaml:{message}"]


def test_a_json_file_is_a_file_of_cases(load: Load, write_suite: Callable[..., Path]) -> None:
    write_suite('[{"id": "a", "prompt": "x"}]', "c.json")
    assert [case.id for case in load(suite(cases="cases: [{file: c.json}]")).suite.cases] == ["a"]


def test_missing_keys_in_a_case_file_do_not_hide_other_problems(problems: Problems) -> None:
    text = suite(cases="cases: [{file: gone.yaml}]", models="models: [{provider: mock, x: 1}]")
    assert [line[:14] for line in problems(text)] == ["suite.yaml:2:1", "suite.yaml:3:2"]


def test_paths_in_a_file_of_cases_are_relative_to_that_file(
    load: Load, tmp_path: Path, save_image: Callable[..., Path], write_suite: Callable[..., Path]
) -> None:
    save_image("sub/a.png")
    write_suite("- {id: a, prompt: x, images: [a.png], reference: a.png}\n- {file: deep/d.yaml}\n", "sub/c.yaml")
    write_suite("- {id: b, prompt: x, images: [{path: ../a.png, role: person}]}\n", "sub/deep/d.yaml")
    cases = load(suite(cases="cases: [{file: sub/c.yaml}]")).suite.cases
    assert [case.images[0].path for case in cases] == ["sub/a.png", "sub/a.png"]
    assert cases[0].reference == "sub/a.png"


# --- the path and the variables


def test_a_suite_that_cannot_be_read(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path / "gone.yaml", "no such file or directory"),
        (tmp_path / "suite.yaml", "no such file or directory"),
        (tmp_path / ("x" * 300), "file name too long"),
        (Path("/dev/null"), "is not a regular file"),
    ]:
        with pytest.raises(SuiteError) as caught:
            load_suite(path, run_labels=lambda run: [])
        assert str(caught.value) == f"{path}: {message}"


def test_problems_use_the_suite_path_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_suite: Callable[..., Path]
) -> None:
    write_suite(suite(cases="cases: [{file: c.yaml}]"), "inner/suite.yaml")
    write_suite("- {id: 5, prompt: x}\n", "inner/c.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SuiteError, match=r"^inner/c.yaml:1:8: id: expected text"):
        load_suite(Path("inner/suite.yaml"), run_labels=lambda run: [])


def test_variables_are_replaced_and_read_as_yaml(load: Load) -> None:
    text = suite("vars: {n: 1, word: x}", cases="cases: [{id: a, prompt: '{{ n + 1 }} {{ word }}'}]")
    assert load(text, variables={"n": "5", "word": "no"}).suite.vars == {"n": 5, "word": "no"}


def test_a_variable_that_the_suite_does_not_have(load: Load) -> None:
    with pytest.raises(UsageError, match=r"^--var colour: the suite has no such variable \(known: color\)$"):
        load(suite("vars: {color: red}"), variables={"colour": "blue"})
    with pytest.raises(UsageError, match=r"^--var color: the value is not valid UTF-8$"):
        load(suite("vars: {color: red}"), variables={"color": "\udcff"})


# --- size


MEASURE = """
import resource, sys
from pathlib import Path
from visioneval.suite.load import load_suite
load_suite(Path(sys.argv[1]), run_labels=lambda run: [])
status = Path("/proc/self/status")
if status.exists():  # what getrusage says on Linux includes the process that started this one
    print(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_ten_thousand_cases_fit_in_little_memory(write_suite: Callable[..., Path]) -> None:
    case = "  - id: case_{0}\n    prompt: A poster number {0} for {{{{ brand }}}}\n    criteria: Sharp\n    tags: [t{1}]\n    expect: {{text: {{required: [HELLO {0}]}}}}\n"
    cases = "cases:\n" + "".join(case.format(index, index % 7) for index in range(10_000))
    graders = "graders: [{key: image, type: properties}, {key: text, type: text}]"
    path = write_suite(suite("vars: {brand: Butter}", cases=cases, graders=graders, verdict="verdict: [image, text]"))
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 250 * 1024, done.stdout  # KiB


JUNK = [
    "",
    "[]",
    "{}",
    "null",
    "no",
    "-1",
    "../x",
    '"\\x07"',
    "{{",
    "[[a]]",
    "{a: 1}",
    "*x",
    "&x ",
    "!t ",
    "\t",
    "\n",
    ": ",
    "- ",
    "é",
    "'",
]


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), st.sampled_from(JUNK)), min_size=1, max_size=3))
def test_a_damaged_suite_loads_or_has_problems_with_positions(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, str]]
) -> None:
    text = suite(
        "gates: [pass_rate > 0, {rule: rate(image) > 0, models: ['s*']}]",
        cases="cases: [{id: a, prompt: '{{ metadata.f }}', tags: [t], expect: {text: {required: [A]}}, metadata: {f: 1}}]",
        models="models: [{provider: mock, label: s, params: {seed: 1}, grid: {flaw: [none, typo]}}]",
        graders="graders: [{key: image, type: properties, when: {tags: [t]}}, {key: text, type: text}]",
        verdict="verdict: [image, {rule: text, level: warn}]",
    )
    for start, length, junk in edits:
        text = text[:start] + junk + text[start + length :]
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        load_suite(path, run_labels=lambda run: [])
    except SuiteError as error:
        for problem in error.problems:
            assert problem.line >= 1
            assert problem.message.isprintable()
