"""``turns`` of a case as they are loaded: a case for each turn, what it takes from its case, and all bad input."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from suite_text import suite

from visioneval import TaskType, TestCase
from visioneval.suite.cases.case import with_output_sources
from visioneval.suite.filters import When, any_case
from visioneval.suite.load import LoadedSuite
from visioneval.suite.model import suite_schema
from visioneval.suite.selection import Shard, cases_of_shard
from visioneval.suite.turns import chain_of, first_turn, previous_turn

Problems = Callable[..., list[str]]
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


ONE = "{id: one, images: [a.png], "


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (ONE + "turns: []}", "2:43: turns: must not be empty"),
        (ONE + "turns: x}", "2:43: turns: expected a list, not 'x'"),
        (ONE + "turns: [5]}", "2:44: turns: expected text or a mapping of keys to values, not 5"),
        (ONE + "turns: ['']}", "2:44: prompt: must not be empty"),
        (ONE + "turns: [x, {criteria: y}]}", "2:47: the key 'prompt' is missing"),
        (ONE + "turns: [{prompt: x, prmpt: y}]}", "2:56: unknown key 'prmpt' (did you mean 'prompt'?)"),
        (ONE + "turns: [{prompt: x, id: y}]}", "2:56: unknown key 'id'"),
        (ONE + "turns: [{prompt: x, turns: [y]}]}", "2:56: unknown key 'turns'"),
        (ONE + "turns: [{prompt: x, region: 5}]}", "2:64: region: expected text, not 5: put it in quotes"),
        (ONE + "turns: [x], region: 5}", "2:56: region: expected text, not 5: put it in quotes"),
        (ONE + "turns: [x], flavor: 5}", "2:48: unknown key 'flavor'"),
        (ONE + "turns: [x], prompt: y}", "2:48: turns: each turn has its own prompt: move this one to a turn"),
        (ONE + "turns: [x], outputs: {m: [a.png]}}", "2:48: turns: each turn has its own outputs: move these to the"),
        (ONE + "turns: [x], output_of: y}", "2:48: turns: a case with 'output_of' generates nothing, so it has no"),
        (ONE + "turns: [x, '{{ nope }}']}", "2:47: undefined template variable: 'nope' is not set"),
        (ONE + "turns: [x, {prompt: y, mask: small.png}]}", "2:65: small.png has no transparent pixel (alpha 0)"),
        (ONE + "turns: [x, {prompt: y, mask: none.png}]}", "2:65: none.png: there is no such file"),
        (ONE + "turns: [x], mask: small.png}", "2:54: small.png is 8 x 8 pixels, but the base image is 64 x 48"),
        (
            ONE + "turns: [{prompt: x, expect: {refusal: true}}, y]}",
            "2:74: the next turn edits the output of this one: only the last turn can expect a refusal",
        ),
        ("{id: one, turns: [x]}", "2:26: turns edit an image: add 'images' to the case"),
        (
            "{id: one, task: image_generation, turns: [x]}",
            "2:50: only an edit has turns, but the task of this case is image_generation",
        ),
        ("{images: [a.png], turns: [x]}", "2:9: a case with turns needs an 'id', as text"),
        ("{id: one/2, images: [a.png], prompt: x}", "2:14: id: 'one/2' is the ID of a turn: write the turns of a case"),
        (ONE + "turns: [x]}, {id: ONE, prompt: y}", "2:54: the IDs 'one' and 'ONE' differ only in upper and lower case"),
        (ONE + "turns: [x]}, " + ONE + "turns: [y]}", "2:54: two cases have the ID 'one'"),
        (ONE + "turns: [x]}, {id: b, prompt: y, output_of: one}", "2:79: 'one' has turns: name one of them, such as 'one"),
        (ONE + "turns: [x]}, {id: b, prompt: y, output_of: one/2}", "2:79: there is no case 'one/2'"),
    ],
)  # fmt: skip
def test_bad_turns_are_reported_where_they_are(problems: Problems, written: str, problem: str) -> None:
    reported = problems(suite(cases=f"cases: [{written}]"))
    assert [line[: len(problem) + 11] for line in reported] == [f"suite.yaml:{problem}"]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("models", "problem"),
    [
        (
            "models: [{provider: openai, params: {model: m, n: 2}}]",
            "3:51: a turn edits one output, but a call of 'm' generates 2: use 'samples' instead of 'n'",
        ),
        (
            "models: [{provider: openai, params: {model: m}, grid: {n: [1, 3]}}]",
            "3:59: a turn edits one output, but a call of 'm,n=3' generates 3: use 'samples' instead of 'n'",
        ),
        (
            "models: [{provider: mock, tasks: [image_generation]}]",
            "2:44: no model of this suite supports image_editing: add such a model or remove the case",
        ),
    ],
)
def test_models_that_cannot_edit_turn_by_turn_are_reported(problems: Problems, models: str, problem: str) -> None:
    reported = problems(suite(cases=f"cases: [{ONE}turns: [x, y]}}]", models=models))
    assert f"suite.yaml:{problem}" in reported


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


@pytest.mark.usefixtures("files")
def test_too_many_turns_are_reported(problems: Problems) -> None:
    turns = ", ".join(["x"] * 100)
    (problem,) = problems(suite(cases=f"cases: [{ONE}turns: [{turns}]}}]"))
    assert problem == "suite.yaml:2:43: turns: must have at most 99 items"


def test_a_problem_of_defaults_is_reported_in_them(problems: Problems, save_image: SaveImage) -> None:
    save_image("a.png")
    row = '{"id": "r", "steps": ["x"], "file": "a.png"}'
    dataset = "{path: r.jsonl, fields: {id: id, turns: steps, images: file}, defaults: {region: 5}}"
    reported = problems(suite(cases=f"cases: [{{dataset: {dataset}}}]"), {"r.jsonl": row})
    assert reported == ["suite.yaml:2:100: region: expected text, not 5: put it in quotes"]


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
    from visioneval.suite.cases.prompts import rendered

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
