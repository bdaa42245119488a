"""Label presets, and the default questions of a suite without labels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from label_server import make_image, write_run
from tables import rows_of

from visioneval import TaskType
from visioneval.graders.rubric import RubricGrader
from visioneval.label.labeling import Labeling
from visioneval.label.work import LabelRequest, prepare
from visioneval.suite.labels import READY, LabelQuestion, resolve_labels
from visioneval.suite.load import load_suite
from visioneval.suite.model import Suite

rows = rows_of(__file__)

ROOT = Path(__file__).parents[2]
WHY_NOT = ("missing_section", "action_unclear", "text_unreadable", "layout_confusing")
SUITES = [("ui_mockups", "ui"), ("marketing", "marketing"), ("try_on", "try_on"), ("logo_edits", "logo")]


def suite_for(labels: dict[str, Any] | None, *tasks: str) -> Suite:
    """A suite with one case for each task."""
    cases = [{"id": f"c{at}", "prompt": "x", "task": task, "images": ["a.png"] if "edit" in task else []} for at, task in enumerate(tasks)]  # fmt: skip
    return Suite.model_validate(
        {
            "name": "demo",
            "cases": cases,
            "models": [{"provider": "own:Generate", "label": "m"}],
            "graders": [{"key": "image", "type": "properties"}],
            "verdict": ["not image.blank"],
            **({"labels": labels} if labels else {}),
        }
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ui", [("would_iterate", "yes_no", ()), ("why_not", "tags", WHY_NOT), ("clarity", "scale", (1, 2, 3, 4, 5))]),
        ("marketing", [("would_iterate", "yes_no", ()), ("why_not", "tags", WHY_NOT), ("clarity", "scale", (1, 2, 3, 4, 5))]),
        ("try_on", [
            ("identity_preserved", "yes_no", ()),
            ("garment_matches", "yes_no", ()),
            ("garment_wrong", "tags", ("color", "pattern", "cut_or_length", "details", "logo_or_text")),
            ("artifacts", "one_of", ("none", "minor", "major")),
            ("usable_in_shop", "yes_no", ()),
        ]),
        ("logo", [("edit_right", "yes_no", ()), ("else_changed", "yes_no", ()), ("on_brand", "yes_no", ())]),
    ],
)  # fmt: skip
def test_a_preset_asks_these_questions(name: str, expected: list[tuple[str, str, tuple[Any, ...]]]) -> None:
    result = suite_for({"preset": name}, "image_generation").resolved_labels
    assert [(item.key, item.type, item.choices or item.steps) for item in result.questions] == expected
    assert [pair.key for pair in result.pairs] == ["preferred"]
    assert [item.key for item in result.questions if item.metric == "verdict"] == [
        {"try_on": "usable_in_shop", "logo": "edit_right"}.get(name, "would_iterate")
    ]


def test_the_docs_list_the_presets() -> None:
    text = (ROOT / "docs/reference/suite/labels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE)
    for name, preset in READY.items():
        listed = {key: answers for owner, key, answers in rows if owner == name}
        assert [*listed] == [*(item.key for item in preset.questions), *(pair.key for pair in preset.pairs)]
        for question in preset.questions:
            assert all(choice in listed[question.key] for choice in question.choices)
            assert ("compared with the verdict" in listed[question.key]) == (question.metric == "verdict")


def test_suite_questions_extend_a_preset_and_override_by_key() -> None:
    custom = {"key": "on_brand", "ask": "Is it ours?", "type": "scale", "scale": [1, 3]}
    more = {"key": "note", "ask": "Else?", "type": "text"}
    labels = {"preset": "logo", "questions": [custom, more], "pairs": [{"key": "bolder", "ask": "Which is bolder?"}]}
    result = suite_for(labels, "image_editing").resolved_labels
    assert [(item.key, item.type) for item in result.questions] == [
        ("edit_right", "yes_no"), ("else_changed", "yes_no"), ("on_brand", "scale"), ("note", "text")
    ]  # fmt: skip
    assert [pair.key for pair in result.pairs] == ["preferred", "bolder"]


@pytest.mark.parametrize(("labels", "message"), rows("a_preset_is_validated"))
def test_a_preset_is_validated(problems: Callable[..., list[str]], labels: str, message: str) -> None:
    text = "name: a\ncases: [{id: one, prompt: a tree}]\nmodels: [{provider: mock}]\ngraders: [{key: image, type: properties}]\n"
    (line,) = problems(f"{text}verdict: [not image.blank]\nlabels: {labels}\n")
    assert line.startswith("suite.yaml:6:")
    assert message in line


@pytest.mark.parametrize(
    ("tasks", "keys"),
    [
        (["image_generation"], ["usable", "as_asked", "note"]),
        (["image_editing"], ["usable", "edit_right", "else_changed", "note"]),
        (["video_generation"], ["usable", "as_asked", "motion", "note"]),
        (["image_generation", "image_editing"], ["usable", "as_asked", "edit_right", "else_changed", "note"]),
    ],
)
def test_the_default_preset_follows_the_tasks(tasks: list[str], keys: list[str]) -> None:
    assert [item.key for item in suite_for(None, *tasks).resolved_labels.questions] == keys


def test_a_question_shared_with_a_rubric_is_linked_to_its_metric() -> None:
    metrics = {"edit_right": {"type": "pass_fail", "description": "The edit is right."}}
    grader = RubricGrader.model_validate({"key": "r", "type": "rubric", "metrics": metrics})
    result = {
        item.key: item for item in resolve_labels(None, [grader.label_questions], [TaskType.IMAGE_EDITING]).questions
    }
    assert list(result) == ["usable", "edit_right", "else_changed", "note"]
    assert (result["edit_right"].metric, result["edit_right"].ask) == ("edit_right", "Is this true: the edit is right?")


@pytest.mark.parametrize(("metric", "ask"), rows("the_question_to_a_judge_is_a_question_to_people"))
def test_the_question_to_a_judge_is_a_question_to_people(metric: dict[str, Any], ask: str) -> None:
    scale = {"scale": [0, 5]} if metric["type"] == "score" else {}
    assert rubric_question({**metric, **scale}).ask == ask


@pytest.mark.parametrize(
    ("anchors", "ends"),
    [
        ({}, ("0 = worst", "5 = best")),
        ({5: "clear at once", "0-2": "unclear"}, ("0 = unclear", "5 = clear at once")),
        ({"1-2": "unclear", "4-5": "clear"}, ("0 = worst", "5 = clear")),
    ],
)
def test_a_scale_has_names_for_its_ends(anchors: dict[Any, str], ends: tuple[str, str]) -> None:
    metric = {"type": "score", "scale": [0, 5], "description": "how tidy it is", "anchors": anchors}
    assert rubric_question(metric).end_texts == ends


@pytest.mark.parametrize(
    ("question", "ends", "answers"),
    [
        ({"ask": "How clear is it?"}, ("1 = least", "5 = most"), "from 1 to 5"),
        ({"ask": "How clear, 1 (not) to 5 (very)?"}, (), "from 1 to 5"),
        ({"ask": "How clear, to 15?"}, ("1 = least", "5 = most"), "from 1 to 5"),
        ({"ask": "1 or 5?", "ends": ["dim", "clear"]}, ("1 = dim", "5 = clear"), "from 1 to 5, where 1 = dim and 5 = clear"),
    ],
)  # fmt: skip
def test_a_question_names_the_ends_of_its_scale(question: dict[str, Any], ends: tuple[str, ...], answers: str) -> None:
    asked = LabelQuestion.model_validate({"key": "clarity", "type": "scale", "scale": [1, 5], **question})
    assert (asked.end_texts, asked.answers_text) == (ends, answers)


def rubric_question(metric: dict[str, Any]) -> LabelQuestion:
    grader = RubricGrader.model_validate({"key": "r", "type": "rubric", "metrics": {"visual_hierarchy": metric}})
    return grader.label_questions["visual_hierarchy"]


def test_each_cell_gets_the_questions_of_its_task(tmp_path: Path) -> None:
    make_image(3).save(tmp_path / "base.png")
    cases = [{"id": "generated"}, {"id": "edited", "images": ["base.png"]}]
    tasks = ["image_generation", "image_editing"]
    run = write_run(tmp_path, cases, labels=None, change=lambda at: {"task_type": tasks[at]})
    labeling = Labeling(prepare(LabelRequest(str(run), tmp_path)))
    result = {}
    for _ in cases:
        item = labeling.next("ann")["item"]
        result[item["case"]] = keys = [ask["key"] for ask in item["asks"]]
        labeling.answer("ann", item["id"], {key: True for key in keys if key != "note"}, 1.0)
    assert result == {
        "generated": ["usable", "as_asked", "note"], "edited": ["usable", "edit_right", "else_changed", "note"]
    }  # fmt: skip


@pytest.mark.parametrize(("name", "preset"), SUITES)
def test_the_built_in_workflows_use_their_preset(name: str, preset: str) -> None:
    suite = load_suite(ROOT / "suites" / name / "suite.yaml", run_labels=lambda run: []).suite
    assert suite.labels is not None
    assert suite.labels.preset == preset
    assert [(item.key, item.ask, item.choices) for item in suite.resolved_labels.questions] == [
        (item.key, item.ask, item.choices) for item in READY[preset].questions
    ]
    again = Suite.model_validate_json(suite.model_dump_json(by_alias=True))
    assert again.resolved_labels == suite.resolved_labels
