from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval import TestCase
from visioneval.graders.rubric import RubricGrader, reply_keys
from visioneval.graders.rubric.grader import reply_problems
from visioneval.graders.text import CHECK, DESCRIBE, LIST, text_contexts
from visioneval.installation import builtin
from visioneval.judging.ask import object_schema
from visioneval.templates.render import Templates

METRICS = {
    "gate": {"type": "pass_fail", "description": "A gate.", "pass_if": ["it is there"], "fail_if": ["it is torn"]},
    "score": {"type": "score", "scale": [0, 5], "description": "A score.", "anchors": {5: "fine", "0-2": "poor"}},
    "share": {"type": "score", "scale": [0, 1], "step": 0.05, "description": "A share."},
}
CASE = TestCase.model_validate({"id": "one", "prompt": "a tree", "metadata": {"size": "tall"}, "tags": ["t"]})
TEMPLATES = Templates((builtin("prompts"),))


def options(**changes: Any) -> RubricGrader:
    return RubricGrader.model_validate({"key": "k", "type": "rubric", "metrics": METRICS, **changes})


def context(created: RubricGrader, **changes: Any) -> dict[str, Any]:
    known = {"images": [{"id": "output", "description": "the image"}], "variables": {"tone": "calm"}}
    return created.prompt_variables(CASE, "a tall tree", metrics=created.asked, **{**known, **changes})


def test_the_schema_is_in_the_form_that_strict_mode_takes() -> None:
    schema = object_schema(options(failure_tags=["blurry"]).reply_schema(options().asked))
    assert schema["additionalProperties"] is False
    assert schema["required"] == list(schema["properties"])
    assert schema["required"] == ["reason", "gate", "score", "share", "failure_tags", "verdict"]
    assert schema["properties"]["gate"] == {"type": "boolean"}
    assert schema["properties"]["score"] == {"type": "integer", "enum": [0, 1, 2, 3, 4, 5]}
    assert schema["properties"]["share"] == {"type": "number", "minimum": 0, "maximum": 1}
    assert schema["properties"]["failure_tags"]["items"]["enum"] == ["blurry"]
    jsonschema.Draft202012Validator.check_schema(schema)


def test_without_tags_none_are_asked_for() -> None:
    assert reply_keys(options().asked, []) == ["reason", "gate", "score", "share", "verdict"]
    assert list(options().reply_schema(options().asked)) == reply_keys(options().asked, [])


@given(
    gate=st.one_of(st.booleans(), st.integers(-1, 2)),
    score=st.one_of(st.integers(-1, 6), st.booleans(), st.floats(-1, 6)),
    share=st.one_of(st.sampled_from([0, 0.05, 1, 1.5]), st.text(max_size=2)),
    more=st.sampled_from([{}, {"extra": 1}, {"verdict": "MAYBE"}, {"verdict": None}]),
)
def test_replies_accepted_by_the_check_match_the_schema(gate: Any, score: Any, share: Any, more: Any) -> None:
    asked = options().asked
    output = {"reason": "r", "gate": gate, "score": score, "share": share, **more}
    if not reply_problems(asked, [], output):  # an extra key is ignored, and the judge's own verdict
        whole = {key: value for key, value in output.items() if key != "extra"} | {"verdict": "PASS"}
        jsonschema.validate(whole, object_schema(options().reply_schema(asked)))


def test_the_built_in_template_describes_every_metric_completely() -> None:
    created = options(failure_tags=["blurry", "cut_off"], zoom={"max_crops": 3})
    words = TEMPLATES.render(created.template, context(created))
    for output in (
        *("A gate.", "it is there", "it is torn", "A score.", "5: fine", "0-2: poor", "from 0 to 5 in steps of 1"),
        *("from 0 to 1 in steps of 0.05", "a tall tree", "output: the image", "PASS if it can be used as it is"),
        *("blurry, cut_off", "up to 3 times", "reason, gate, score, share, failure_tags, verdict"),
    ):
        assert output in words, output
    bare = TEMPLATES.render(created.template, context(options()))
    for unsaid in ("ailure tags", "failure_tags", "Looking closer", "Rules", "What makes it good", "None"):
        assert unsaid not in bare, unsaid


def test_a_template_sees_the_case_and_the_variables() -> None:
    seen = context(options())
    assert (seen["tone"], seen["metadata"], seen["case"]["id"]) == ("calm", {"size": "tall"}, "one")
    assert seen["task_type"] == "image_generation"
    assert not {"model", "label", "model_label", "provider", "run_id"} & seen.keys()


def test_metrics_that_share_a_call() -> None:
    assert [list(group) for group in options().groups(CASE)] == [["gate", "score", "share"]]
    assert [list(group) for group in options(per_metric=True).groups(CASE)] == [["gate"], ["score"], ["share"]]


@pytest.mark.parametrize(("describe", "names"), [(False, [LIST]), (True, [DESCRIBE, CHECK])])
def test_every_template_of_a_text_grader_renders(describe: bool, names: list[str]) -> None:
    for criteria in (None, "A red lamp."):
        case = CASE.model_copy(update={"criteria": criteria})
        contexts = text_contexts(case, "a tree", "It shows a lamp.", describe=describe)
        assert list(contexts) == names
        for name, seen in contexts.items():
            words = TEMPLATES.render(name, seen)
            assert ("A red lamp." in words) is (name == CHECK and criteria is not None)
            assert name == CHECK or "content to be" in words, "words in an image are content"
