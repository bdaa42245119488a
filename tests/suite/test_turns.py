"""``turns`` of a case as they are loaded: a case for each turn, what it takes from its case, and all bad input."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from visioneval import TaskType, TestCase
from visioneval.suite.case import with_output_sources
from visioneval.suite.filters import When, any_case, chain_of, first_turn, previous_turn
from visioneval.suite.load import LoadedSuite
from visioneval.suite.model import suite_schema
from visioneval.suite.runs import Shard, cases_of_shard

Load = Callable[..., LoadedSuite]
SaveImage = Callable[..., Path]


@pytest.fixture
def files(save_image: SaveImage) -> None:
    """An image and masks for it."""
    save_image("a.png")
    for name in ("m.png", "n.png", "more/m.png"):
        left = save_image(name, mode="RGBA", color=(0, 0, 0, 255))
        _clear_half(left)
    save_image("small.png", size=(8, 8), mode="RGBA", color=(0, 0, 0, 255))


def _clear_half(path: Path) -> None:
    from PIL import Image

    with Image.open(path) as handle:
        mask = handle.copy()
    mask.paste((0, 0, 0, 0), (0, 0, mask.width // 2, mask.height))
    mask.save(path)


def cases(load: Load, *raw: dict[str, Any], **changes: Any) -> dict[str, TestCase]:
    text = json.loads(json.dumps({"cases": raw, "name": "demo", "models": [{"provider": "mock"}], **changes}))
    text = {"graders": [{"key": "image", "type": "properties"}], "verdict": ["not image.blank"], **text}
    jsonschema.Draft202012Validator(suite_schema()).validate(text)
    return {case.id: case for case in load(json.dumps(text)).suite.cases}


@pytest.mark.usefixtures("files")
def test_each_turn_is_a_case_that_takes_what_it_does_not_set_from_its_case(load: Load) -> None:
    first = {"prompt": "one", "tags": ["x"], "expect": {"text": {"required": ["A"]}}, "mask": "n.png"}
    second = {"prompt": "two", "images": [{"path": "a.png", "role": "style"}], "masks": {"clothing": "m.png"}}
    loaded = cases(
        load,
        {
            "id": "cat",
            "images": ["a.png"],
            "mask": "m.png",
            "criteria": "Only that.",
            "expect": {"format": "png"},
            "metadata": {"k": 1},
            "flaky": True,
            "turns": [first, second, "three", {"prompt": "four", "masks": None}],
        },
        {"id": "other", "images": ["a.png"], "prompt": "x"},
    )
    assert list(loaded) == ["cat/1", "cat/2", "cat/3", "cat/4", "other"]
    turns = list(loaded.values())[:4]
    assert [case.prompt for case in turns] == ["one", "two", "three", "four"]
    assert {(case.task_type, case.criteria, case.flaky) for case in turns} == {
        (TaskType.IMAGE_EDITING, "Only that.", True)
    }
    assert [case.tags for case in turns] == [("x",), (), (), ()]
    assert [case.expect.format for case in turns] == ["png"] * 4  # merged at any depth
    assert [case.expect.text is not None for case in turns] == [True, False, False, False]
    assert [[image.role for image in case.images] for case in turns] == [["base"], ["style"], [], []]
    masks = [case.masks.model_dump(exclude_none=True) for case in turns if case.masks]
    both = {"editable": "m.png", "clothing": "m.png"}
    assert masks == [{"editable": "n.png"}, both, {"editable": "m.png"}]
    assert [case.previous_turn for case in loaded.values()] == [None, "cat/1", "cat/2", "cat/3", None]
    assert all(case.edits_image for case in loaded.values())


@pytest.mark.usefixtures("files")
def test_paths_of_turns_in_another_file_are_relative_to_that_file(load: Load, tmp_path: Path) -> None:
    turns = "[{id: cat, images: [../a.png], turns: [{prompt: x, mask: m.png}, y]}]"
    (tmp_path / "more" / "cases.yaml").write_text(turns)
    loaded = cases(load, {"file": "more/cases.yaml"})
    assert [case.masks and case.masks.editable for case in loaded.values()] == ["more/m.png", None]
    assert loaded["cat/1"].images[0].path == "a.png"


@pytest.mark.parametrize(
    ("case", "is_valid"),
    [
        ({"id": "a", "turns": ["x", {"prompt": "y", "tags": ["z"]}]}, True),
        ({"id": "a/1", "prompt": "x"}, False),
        ({"id": "a", "prompt": "x", "output_of": "b/2"}, True),
        ({"id": "a", "turns": []}, False),
        ({"id": "a", "turns": [""]}, False),
        ({"id": "a", "turns": [{"tags": ["z"]}]}, False),
        ({"id": "a", "turns": [{"prompt": "x", "id": "y"}]}, False),
    ],
)
def test_the_json_schema_knows_turns(case: dict[str, Any], *, is_valid: bool) -> None:
    graders = [{"key": "image", "type": "properties"}]
    document = {
        "name": "d",
        "cases": [case],
        "models": [{"provider": "mock"}],
        "graders": graders,
        "verdict": ["image"],
    }
    assert jsonschema.Draft202012Validator(suite_schema()).is_valid(document) is is_valid


DATASETS: list[tuple[str, str, dict[str, Any], dict[str, tuple[str, str | None]]]] = [
    (
        "rows.jsonl",
        '{"id": "r", "steps": ["one", "{{ two }}", "one"]}\n{"id": "s", "steps": [{"prompt": "x", "criteria": "{%"}]}',
        {"fields": {"id": "id", "turns": "steps"}, "defaults": {"criteria": "Keep {{ row.id }}"}},
        {"r/1": ("one", "Keep r"), "r/2": ("{{ two }}", "Keep r"), "r/3": ("one", "Keep r"), "s/1": ("x", "{%")},
    ),
    (
        "rows.csv",
        'id,steps\nr,"[""one"", ""two""]"\ns,alone\n',
        {"fields": {"id": "id", "turns": "steps"}},
        {"r/1": ("one", None), "r/2": ("two", None), "s/1": ("alone", None)},
    ),
    (
        "rows.csv",
        "talk,say,rule\na,same,{{ x }}\nb,only,\na,same,\na,,nothing\n",
        {"group_by": "talk", "fields": {"turns": {"prompt": "say", "criteria": "rule"}}},
        {"a/1": ("same", "{{ x }}"), "a/2": ("same", None), "b/1": ("only", None)},
    ),
    (
        "rows.csv",
        "id\nr\n{{ y }}\n",
        {
            "fields": {"id": "{{ 'row' ~ row._row }}", "metadata.name": "id"},
            "defaults": {"turns": ["Say {{ row.id }}", {"prompt": "{{ word }}", "criteria": "Of {{ row.id }}"}]},
        },
        {
            "row1/1": ("Say r", None),
            "row1/2": ("hello", "Of r"),
            "row2/1": ("Say {{ y }}", None),
            "row2/2": ("hello", "Of {{ y }}"),
        },
    ),
]


@pytest.mark.parametrize(("name", "content", "dataset", "expected"), DATASETS)
@pytest.mark.usefixtures("files")
def test_turns_of_datasets(
    load: Load,
    tmp_path: Path,
    name: str,
    content: str,
    dataset: dict[str, Any],
    expected: dict[str, tuple[str, str | None]],
) -> None:
    from visioneval.suite.case import rendered

    (tmp_path / name).write_text(content)
    defaults = {"images": ["a.png"], **dataset.get("defaults", {})}
    loaded = cases(load, {"dataset": {"path": name, **dataset, "defaults": defaults}}, vars={"word": "hello"})
    assert {case.id: rendered(case, {"word": "hello"}) for case in loaded.values()} == expected


def test_ids_of_turns() -> None:
    assert [chain_of(name) for name in ("a", "a/1", "a.b/12")] == ["a", "a", "a.b"]
    assert [previous_turn(name) for name in ("a", "a/1", "a/2", "a/10")] == [None, None, "a/1", "a/9"]
    assert [first_turn(name) for name in ("a", "a/3")] == ["a", "a/1"]


@pytest.mark.parametrize(
    ("patterns", "selected"),
    [
        (["a"], ["a/1", "a/2", "a/3"]),
        (["a/2"], ["a/2"]),
        (["a*"], ["a/1", "a/2", "a/3", "ab"]),
        (["a/*"], ["a/1", "a/2", "a/3"]),
        (["?"], ["a/1", "a/2", "a/3"]),
        (["*/1"], ["a/1"]),
    ],
)
def test_patterns_select_turns_and_whole_cases(patterns: Sequence[str], selected: list[str]) -> None:
    ids = ["a/1", "a/2", "a/3", "ab"]
    assert [name for name in ids if any_case(patterns, name)] == selected
    scope = When(cases=tuple(patterns))
    assert [name for name in ids if scope.fits(name, TaskType.IMAGE_EDITING, ())] == selected


def chain(name: str, *prompts: str) -> list[TestCase]:
    return [
        TestCase(id=f"{name}/{number}", task=TaskType.IMAGE_EDITING, prompt=prompt)
        for number, prompt in enumerate(prompts, 1)
    ]


def test_a_chosen_turn_brings_the_turns_before_it_and_so_does_a_case_that_uses_its_output() -> None:
    turns = chain("a", "x", "y", "z")
    user = TestCase(id="user", prompt="w", output_of="a/2")
    all_cases = [user, *turns]
    assert [case.id for case in with_output_sources([turns[2]], all_cases)] == ["a/1", "a/2", "a/3"]
    assert [case.id for case in with_output_sources([user], all_cases)] == ["user", "a/1", "a/2"]
    assert [case.id for case in with_output_sources([turns[0]], all_cases)] == ["a/1"]


def test_shards_keep_turns_together() -> None:
    all_cases = [case for number in range(20) for case in chain(f"c{number}", f"x{number}", f"y{number}", f"z{number}")]
    parts = [cases_of_shard(all_cases, Shard(number=number, count=3)) for number in (1, 2, 3)]
    assert all(parts)
    assert sum(map(len, parts)) == len(all_cases)
    for part in parts:
        assert len(part) == 3 * len({chain_of(name) for name in part})
