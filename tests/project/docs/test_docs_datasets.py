"""The examples of datasets and of questions in docs load, with the files that stand above them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from test_docs import ROOT

from visioneval import TestCase
from visioneval.suite.load import LoadedSuite
from visioneval.suite.loading.document import read_yaml
from visioneval.suite.model import suite_schema
from visioneval.templates.render import render

_FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_YAML = re.compile(r"^```yaml\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
BASE = {
    "name": "docs",
    "judges": {"default": {"provider": "gemini", "model": "g"}},
    "models": [{"provider": "mock"}],
    "graders": [{"key": "gecko", "type": "gecko"}],
    "verdict": ["gecko >= 0.5"],
}


def _part(page: str, start: str, end: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8").split(start, 1)[1].split(end, 1)[0]


DATASETS = (ROOT / "docs/reference/suite/datasets.md").read_text(encoding="utf-8")
FORMS = _part("reference/graders/gecko.md", "\n## Questions\n", "\n<!-- keys: QuestionRows")
EXAMPLES = [*_YAML.findall(DATASETS), *_YAML.findall(FORMS)]


def seen(case: TestCase) -> dict[str, Any]:
    """What a case has, in short."""
    values = {"prompt": render(case.prompt, {}), "tags": case.tags, "metadata": case.metadata}
    texts = case.expect.text.required if case.expect.text else ()
    questions = tuple(f"{q.id}<{','.join(q.depends_on)}>" for q in case.questions or ())
    return {key: value for key, value in {**values, "texts": texts, "questions": questions}.items() if value}


EXPECTED: list[dict[str, dict[str, Any]]] = [
    {
        "sale": {"prompt": "A poster for a shop", "tags": ("posters",), "texts": ("SALE", "50 %")},
    },
    {"7_1": {"prompt": "A cup, studio light", "tags": ("cup", "plate"), "metadata": {"look": "flat"}}},
    {"cup": {"prompt": "A cup on a plate", "tags": ("dpg",), "questions": ("1<>", "2<>", "3<1,2>")}},
    {
        "cup": {"prompt": "A cup on a plate", "metadata": {"looks": ["flat"]}},
        "dog": {"prompt": "A dog", "metadata": {"looks": ["bold", "bold"]}},
    },
    {
        "texts": {"prompt": "A cup", "questions": ("q1<>", "q2<>")},
        "pairs": {"prompt": "A cup", "questions": ("q1<>", "q2<>")},
        "lists": {"prompt": "A cup", "questions": ("q1<>", "q2<>")},
        "by_id": {"prompt": "A cup", "questions": ("a<>", "b<a>")},
        "records": {"prompt": "A cup", "questions": ("1<>",)},
        "lines": {"prompt": "A cup", "questions": ("q1<>",)},
    },
    {"cup": {"prompt": "A cup", "questions": ("q1<>", "q2<>")}},
]


@pytest.mark.parametrize("index", range(len(EXPECTED)))
def test_each_example_loads(load: Callable[..., LoadedSuite], tmp_path: Path, index: int) -> None:
    for name, content in _FILE.findall(DATASETS + FORMS):
        (tmp_path / name).write_text(content, encoding="utf-8")
    suite = {**BASE, **read_yaml(EXAMPLES[index], "docs")}
    loaded = load(json.dumps(suite))
    assert {case.id: seen(case) for case in loaded.suite.cases} == EXPECTED[index]
    jsonschema.Draft202012Validator(suite_schema()).validate(suite)


def test_there_is_a_result_for_each_example() -> None:
    assert len(EXAMPLES) == len(EXPECTED)
