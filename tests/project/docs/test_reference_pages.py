"""The tables of the reference are those of the code, and each key of a suite has an example that loads."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from PIL import Image
from test_docs_defaults import ROOT, reference

from visioneval.plugins import GRADERS, config_of
from visioneval.suite.case import TestCase
from visioneval.suite.load import LoadedSuite
from visioneval.suite.loading.document import read_yaml
from visioneval.suite.model import suite_schema

DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
EXAMPLES = [
    (page, at, text)
    for page in PAGES
    if page.startswith("reference/")
    for at, text in enumerate(re.findall(r"(?<!`:\n\n)^```yaml\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL))
]
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A file of an example: its name on a line above its block."""
IMAGES = ("base.png", "scene.png", "logo.png", "person.png", "reference.png", "output.png")
"""Images that examples can name, 64 x 64; ``mask.png`` is transparent in the middle."""
BASE: Mapping[str, Any] = {
    "name": "example",
    "judges": {"default": {"provider": "openai", "model": "gpt-5.4"}},
    "cases": [
        {"id": "one", "prompt": "A red cup", "expect": {"text": {"required": ["Sale"]}}},
        {"id": "edit", "prompt": "A red wall", "images": ["base.png"], "mask": "mask.png"},
    ],
    "models": [{"provider": "mock"}],
}
"""What a fragment of a suite leaves out."""
GRADED: Mapping[str, Any] = {"graders": [{"key": "file", "type": "properties"}], "verdict": ["file"]}
"""What an example without graders leaves out."""


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- " in PAGES[page]])
def test_a_page_is_as_filled_from_the_code(page: str) -> None:
    """If not: make reference."""
    assert reference().filled(page, PAGES) == PAGES[page]


def test_each_model_is_on_one_page() -> None:
    blocks = [block for text in PAGES.values() for block in reference().BLOCK.finditer(text) if block["kind"] == "keys"]
    whole = [block["name"] for block in blocks if block["without"] is None]
    assert [name for name in whole if whole.count(name) > 1] == []
    assert reference().models().keys() - {block["name"] for block in blocks} == set()


def test_each_table_is_on_one_page() -> None:
    blocks = [
        block for text in PAGES.values() for block in reference().BLOCK.finditer(text) if block["kind"] == "table"
    ]
    assert sorted(block["name"] for block in blocks) == sorted(reference().TABLES)


def test_each_key_has_a_type_and_a_sentence() -> None:
    rows = [
        (name, *re.split(r"(?<!\\) \| ", line[2:-2]))
        for name in reference().models()
        for line in reference().keys(name, (), "", {}).splitlines()[2:]
    ]
    assert [row for row in rows if not row[2] or not row[4].rstrip().endswith((".", ")", "?", "`"))] == []


def example_suite(text: str) -> dict[str, Any]:
    """An example, with what it leaves out of a suite."""
    given = read_yaml(text, "docs")
    suite = {**BASE, **({} if {"graders", "verdict"} & given.keys() else GRADED), **given}
    return suite if "cases" in given else {**suite, "models": [*suite["models"], {"provider": "mock", "label": "more"}]}


@pytest.mark.parametrize(("page", "at", "text"), EXAMPLES)
def test_each_example_loads(load: Callable[..., LoadedSuite], tmp_path: Path, page: str, at: int, text: str) -> None:
    for name in IMAGES:
        Image.new("RGB", (64, 64), "white").save(tmp_path / name)
    mask = Image.new("RGBA", (64, 64), "black")
    mask.paste((0, 0, 0, 0), (16, 16, 48, 48))
    mask.save(tmp_path / "mask.png")
    shutil.copytree(DOCS / "examples", tmp_path, dirs_exist_ok=True)
    (tmp_path / "anchors.jsonl").touch()
    (tmp_path / "torch.py").touch()
    (tmp_path / "diffusers.py").write_text("class DiffusionPipeline: ...")
    for name, content in FILE.findall(PAGES[page]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    load(json.dumps(example_suite(text)), trust=True, run_labels=lambda _: ["sdxl"])


def test_each_key_is_in_an_example() -> None:
    schema = suite_schema()
    models = {"Suite": schema, **schema["$defs"]}
    shown: set[tuple[str, str]] = set()
    for _, _, text in EXAMPLES:
        given = read_yaml(text, "docs")
        for key in schema["properties"].keys() & given.keys():
            shown.add(("Suite", key))
            shown.update(keys_of(given[key], schema["properties"][key]))
    listed = {
        (block["name"], key)
        for text in PAGES.values()
        for block in reference().BLOCK.finditer(text)
        if block["kind"] == "keys" and block["name"] in models
        for key in re.findall(r"^\| `([^`]+)`", block["body"], re.MULTILINE)
    }
    assert sorted(listed - shown) == []


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("text", [{"measure": ["word_accuracy", "ned", "complete"]}]),
        ("locality", [{}, {"tolerance": "redrawn"}]),
        ("reference", [{}]),
        ("properties", [{}]),
        ("palette", [{}]),
        ("codes", [{}]),
        ("video", [{}]),
    ],
)
def test_each_metric_of_a_grader_is_in_its_table(name: str, forms: list[dict[str, Any]]) -> None:
    expect = {"text": {"required": ["Sale"], "extra": "forbid"}, "size": "64x64", "format": "png", "alpha": True}
    expect |= {"palette": ["#FFFFFF"], "codes": "none"}
    case = {
        "id": "one",
        "prompt": "A wall",
        "images": ["a.png"],
        "mask": "m.png",
        "reference": "b.png",
        "expect": expect,
    }
    video = {"id": "clip", "prompt": "A wall", "task": "video_generation", "expect": {"text": {"required": ["Sale"]}}}
    video["expect"] |= {"size": "64x64"}
    cases = [TestCase.model_validate(item) for item in (case, video)]
    graders = [config_of(GRADERS, name).model_validate({"key": "key", "type": name, **form}) for form in forms]
    written = {metric for grader in graders for item in cases for metric in grader.metrics(item)}
    table = re.findall(r"^\| `<key>([.\w]*)` \|", PAGES[f"reference/graders/{name}.md"], re.MULTILINE)
    assert {metric.removeprefix("key") for metric in written} == set(table)


def keys_of(value: Any, schema: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, str]]:
    """The keys that a value sets, each with its model in the JSON Schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from keys_of(value, suite_schema()["$defs"][name], name)
    elif forms := schema.get("anyOf") or schema.get("oneOf"):
        yield from next(
            (keys_of(value, form, name) for form in forms if fits(json.dumps(form)).is_valid(value)), iter(())
        )
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            yield from keys_of(item, schema["items"])
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in schema.get("properties", {}):
                yield (name, key)
                yield from keys_of(inner, schema["properties"][key])
            else:
                others = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
                yield from keys_of(inner, next((other for other in others if isinstance(other, dict)), {}))


@cache
def fits(form: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**json.loads(form), "$defs": suite_schema()["$defs"]})
