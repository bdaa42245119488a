"""The JSON Schema and the loader accept the same suites."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from suite_text import suite

from visioneval.suite.loading.document import read_yaml
from visioneval.suite.model import json_schema

Problems = Callable[..., list[str]]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def case(text: str) -> str:
    return suite(cases=f"cases: [{{id: a, prompt: x, {text}}}]")


GOOD = [
    suite(),
    suite(name="name: no", cases="cases: [{id: 'on', prompt: 4:30}]"),
    suite(
        "description: x", "experiment: e-1", "task: image_generation", "vars: {a: 1, _b: [x], c: {d: null}}", "samples: 3",
        "gates: [pass_rate > 0.5, {rule: error_rate < 1, tags: [t], cases: [o*], models: ['*'], tasks: [image_generation]}]",
        cases="cases: [{id: one, prompt: x, tags: [t]}]",
    ),
    case("task: null, criteria: c, region: r, metadata: {5: {a: [1, null]}}, tags: [a, b]"),
    case("expect: {text: {required: [A], forbidden: [B], allowed: [C], extra: forbid}, size: 10x20, format: jpg, alpha: false}"),
    case("expect: {size: requested, aspect_ratio: 4:3, refusal: true, alpha: any}"),
    case("verdict: [image, {rule: not image.blank, level: warn}]"),
    case("outputs: {m: [a.png, b.png]}"),
    suite(models="models: [{provider: mock, label: s, params: {seed: 1}, grid: {flaw: [none, typo]}, tasks: [image_generation]}]"),
    suite(models="models: [{provider: command, argv: [sh, ''], timeout_s: 5}]"),
    suite(
        "prompts: [{label: a-1, template: '{{ case.prompt }}', when: {tasks: [image_generation]}, graded_as: sent}]",
        models="models: [{provider: mock, prompts: [a-1]}]",
    ),
    suite(models="models: [{provider: 'my_package.module:Class', options: {a: 1}, api_key_env: KEY}]"),
    suite(models="models: [{provider: files, path: 'out/{case}.png'}]"),
    suite(graders="graders: [{key: image, type: 'a:B', writes: {image.blank: {}, n: {type: number, range: [0, null]}}}]"),
    suite(graders="graders: [{key: image, type: properties, when: {cases: ['*'], tasks: [image_generation]}}]"),
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_suites_accepted_by_the_loader_match_the_schema(
    problems: Problems, validator: jsonschema.Draft202012Validator, text: str
) -> None:
    assert problems(text, trust=True) == []
    validator.validate(read_yaml(text, "s"))


def test_images_files_and_datasets(
    problems: Problems,
    validator: jsonschema.Draft202012Validator,
    save_image: Callable[..., Path],
    mask: Callable[..., Path],
) -> None:
    save_image()
    mask()
    entries = (
        "{id: a, prompt: x, images: [a.png, {path: a.png, role: garment}], mask: mask.png, reference: a.png}",
        "{id: b, prompt: x, images: [a.png], masks: {editable: mask.png, clothing: mask.png, occluders: mask.png}}",
        "{file: c.yaml}",
        "{dataset: {path: d.csv, fields: {id: i, prompt: p, metadata.x: i}}}",
        "{dataset: {path: '{{ vars.set }}.csv', separator: ',', group_by: [i], join: {path: d.csv, on: {i: i}, as: j, many: true},"
        " filter: {i: [d], p: {not: null}}, limit: 3, defaults: {tags: ['{{ row.i }}']},"
        " fields: {id: [i, p], prompt: p, questions: {question: p}}}}",
        "{dataset: {path: d.csv, join: [{path: d.csv, on: [i], as: j, optional: true}], fields: {id: 'e{{ row.i }}', prompt: j.p}}}",
    )
    text = suite("vars: {set: d}", cases=f"cases: [{', '.join(entries)}]")
    assert problems(text, {"c.yaml": "- {id: c, prompt: x}\n", "d.csv": "i,p\nd,x\n"}) == []
    validator.validate(read_yaml(text, "s"))


BAD = [
    "name: x",
    "[]",
    suite(name="name: a b"),
    suite("gatez: []"),
    suite("samples: 0"),
    suite("samples: true"),
    suite("samples: '3'"),
    suite("samples: 1.5"),
    suite("task: edit"),
    suite("vars: []"),
    suite("vars: {a-b: 1}"),
    suite("gates: []"),
    suite("gates: [5]"),
    suite(cases="cases: []"),
    suite(cases="cases: {}"),
    suite(cases="cases: [5]"),
    suite(cases="cases: [{prompt: x}]"),
    suite(cases="cases: [{id: ../a, prompt: x}]"),
    suite(cases="cases: [{id: 5, prompt: x}]"),
    suite(cases="cases: [{id: a, prompt: ''}]"),
    suite(cases="cases: [{file: 5}]"),
    suite(cases="cases: [{file: a, more: b}]"),
    suite(cases="cases: [{dataset: {path: a.csv}}]"),
    suite(cases="cases: [{dataset: {path: a.csv, fields: {}}}]"),
    case("promt: x"),
    case("images: a.png"),
    case("images: [{pth: a.png}]"),
    case("mask: 5"),
    case("masks: {edit: a}"),
    case("expect: {refusal: no}"),
    case("expect: {refusal: 'true'}"),
    case("tags: [a;b]"),
    case("expect: {size: 5x}"),
    case("expect: {format: eps}"),
    case("expect: {alpha: 1}"),
    case("expect: {text: {extra: some}}"),
    case("verdict: []"),
    case('region: 5'),
    case(r'images: ["a\x07.png"]'),
    suite("prompts: [{label: a, template: ''}]"),
    suite("prompts: [{label: 'a,b', template: x}]"),
    suite("prompts: [plain]"),
    suite("prompts: [{label: a, template: x, graded_as: own}]"),
    suite(models="models: [mock]"),
    suite(models="models: []"),
    suite(models="models: [{label: x}]"),
    suite(models="models: [{provider: sketsh}]"),
    suite(models="models: [{provider: mock, parms: {}}]"),
    suite(models="models: [{provider: mock, grid: {flaw: []}}]"),
    suite(models="models: [{provider: mock, grid: {flaw: typo}}]"),
    suite(models="models: [{provider: mock, tasks: [edit]}]"),
    suite(models="models: [{provider: command, argv: []}]"),
    suite(models="models: [{provider: command, argv: [a], timeout_s: '5'}]"),
    suite(models="models: [{provider: files, dataset: {path: a}}]"),
    suite(graders="graders: [{key: a, type: imge}]"),
    suite(graders="graders: [{key: a b, type: properties}]"),
    suite(graders="graders: [{type: properties}]"),
    suite(graders="graders: [{key: a, type: properties, wen: {}}]"),
    suite(graders="graders: [{key: a, type: text, min_confidence: 5}]"),
    suite(graders="graders: [{key: a, type: 'm:C', writes: {x: {better: best}}}]"),
    suite(verdict="verdict: image"),
    suite(verdict="verdict: []"),
    suite(verdict="verdict: [5]"),
    suite(verdict="verdict: [{rul: image}]"),
    suite(verdict="verdict: [{rule: image, level: bad}]"),
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_suites_rejected_by_the_schema_are_rejected_by_the_loader(
    problems: Problems, validator: jsonschema.Draft202012Validator, text: str
) -> None:
    assert problems(text, trust=True)
    assert not validator.is_valid(read_yaml(text, "s"))


@pytest.mark.parametrize("path", sorted((ROOT / "suites").glob("*/suite.yaml")), ids=lambda path: path.parent.name)
def test_the_suites_that_are_shipped_fit_it(validator: jsonschema.Draft202012Validator, path: Path) -> None:
    validator.validate(read_yaml(path.read_text(encoding="utf-8"), path.name))


def test_every_part_of_it_is_used() -> None:
    schema = json_schema()
    text = json.dumps(schema)
    assert [name for name in schema["$defs"] if f'"#/$defs/{name}"' not in text] == []


def test_it_has_descriptions_for_editors() -> None:
    schema: dict[str, Any] = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["required"]) == {"name", "cases", "models"}
    assert set(schema["else"]["required"]) == {"graders", "verdict"}
    assert schema["$defs"]["TestCase"]["properties"]["mask"]["description"] == "Short for `masks: {editable: ...}`."


def _undescribed(part: Any, name: str) -> list[str]:
    """The properties below a part of the schema that neither have a description nor can have only one value."""
    if isinstance(part, list):
        return [path for item in part for path in _undescribed(item, name)]
    if not isinstance(part, dict):
        return []
    properties = part["properties"] if part.get("type") == "object" and "properties" in part else {}
    bare = [f"{name}.{key}" for key, value in properties.items() if not {"description", "const"} & value.keys()]
    return bare + [path for key, item in part.items() for path in _undescribed(item, f"{name}.{key}")]


def test_every_property_is_described() -> None:
    assert _undescribed(json_schema(), "suite") == []
