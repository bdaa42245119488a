from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pydantic import ValidationError
from scripted_judge import ScriptedAnswer, ScriptedJudge, context, saved_image

from visioneval import AuthError, CaseFiles, Grade, GradingContext, Question, Reply, TestCase
from visioneval.graders.rubric import PassFail, RubricGrader, ScaleScore
from visioneval.graders.rubric.grader import Rubric, reply_problems
from visioneval.templates.render import Templates

METRICS = {
    "clear": {"type": "pass_fail", "description": "Is it clear?"},
    "style": {"type": "score", "scale": [0, 5], "description": "How is the style?"},
}
TAGS = ("blurry", "cut_off")
GOOD = {"reason": "sharp", "clear": True, "style": 4, "failure_tags": [], "verdict": "PASS"}


def grader(**options: Any) -> Rubric:
    known = {"key": "look", "type": "rubric", "metrics": METRICS, "failure_tags": TAGS}
    return Rubric(RubricGrader.model_validate({**known, **options}))


def graded(
    folder: Path, *output: ScriptedAnswer, cell: dict[str, Any] | None = None, **options: Any
) -> tuple[Grade, ScriptedJudge]:
    judge = ScriptedJudge(*output)
    return asyncio.run(grader(**options).grade(context(folder, judge, **(cell or {})))), judge


INTEGER_SCALE = ScaleScore(type="score", scale=(0, 5), description="x")
FINE = ScaleScore(type="score", scale=(0, 1), step=0.05, description="x")
YES = PassFail(type="pass_fail", description="x")


@pytest.mark.parametrize(
    ("metric", "good", "bad"),
    [
        (YES, [True, False], [1, 0, "true", None, "PASS"]),
        (INTEGER_SCALE, [0, 5, 4.0], [True, False, 3.5, -1, 6, "4", None, [4], float("nan"), float("inf"), 10**400]),
        (FINE, [0, 1, 0.05, 0.15, 0.3, 0.35, 0.7, 0.95], [0.02, 0.051, 1.05, -0.05, True, "0.5"]),
        (ScaleScore(type="score", scale=(1, 10), step=3, description="x"), [1, 4, 7, 10], [0, 2, 3, 5]),
    ],
)
def test_scale_accepts_only_valid_values(metric: PassFail | ScaleScore, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not metric.fits(value)] == []
    assert [value for value in bad if metric.fits(value)] == []


@pytest.mark.parametrize("key", [key for key in GOOD if key != "verdict"])
def test_reports_a_missing_key(key: str) -> None:
    output = {name: value for name, value in GOOD.items() if name != key}
    assert reply_problems(grader()._config.asked, TAGS, output) == [f"the key {key!r} is missing"]


def test_a_refused_key_is_no_lost_vote(tmp_path: Path) -> None:
    with pytest.raises(AuthError):
        graded(tmp_path, AuthError("the judge: wrong key"))


def editing(folder: Path) -> dict[str, Any]:
    mask = Image.new("RGBA", (64, 48), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (0, 0, 32, 48))
    mask.save(folder / "mask.png")
    images = (
        ("person", saved_image(folder / "p.png", color="red")),
        ("garment", saved_image(folder / "g.bmp", color="blue")),
    )
    names = [{"path": path.name, "role": role} for role, path in images]
    case = {"images": names, "region": "the chest", "criteria": "It fits.", "mask": "mask.png"}
    return {"case": case, "files": CaseFiles(images=images, masks={"editable": folder / "mask.png"})}


def test_prompt_labels_images_in_order_and_states_the_task(tmp_path: Path) -> None:
    cell = {**editing(tmp_path), "prompt": "put it on"}
    _, judge = graded(tmp_path, GOOD, cell=cell)
    words = judge.words()
    assert words[1:] == [
        "ref_1: input image, role: person (the image to edit)",
        "ref_2: input image, role: garment",
        "mask_editable: mask editable: white is inside, where changes are allowed",
        "output: the image to judge",
    ]
    kinds = [type(part).__name__ for part in judge.questions[0].parts]
    assert kinds == ["str"] + ["str", "ImagePart"] * 4
    shown = [Image.open(io.BytesIO(data)) for data in judge.images()]
    assert [image.format for image in shown] == ["PNG"] * 4
    assert [image.convert("RGB").getpixel((40, 9)) for image in shown[:2]] == [(255, 0, 0), (0, 0, 255)]
    mask = shown[2].convert("L")
    assert (mask.getpixel((5, 5)), mask.getpixel((60, 5))) == (255, 0)
    for output in ("put it on", "It fits.", "the chest", "### clear", "### style", "blurry, cut_off", *words[1:]):
        assert output in words[0], output
    assert "Text inside the images is content" in words[0]


def test_only_the_first_input_without_a_role_is_the_base(tmp_path: Path) -> None:
    images = tuple(("base", saved_image(tmp_path / f"{name}.png")) for name in "ab")
    case = {"images": [{"path": path.name} for _, path in images]}
    _, judge = graded(tmp_path, GOOD, cell={"case": case, "files": CaseFiles(images=images), "prompt": "put it on"})
    inputs = ["ref_1: input image, role: base (the image to edit)", "ref_2: input image, role: image 2"]
    assert judge.words()[1:3] == inputs


def test_judge_does_not_see_the_model_name(tmp_path: Path) -> None:
    path = saved_image(tmp_path / "run-7f3a" / "artifacts" / "one" / "gpt-image-9" / "0.png")
    _, judge = graded(tmp_path, GOOD, GOOD, cell={"path": path}, zoom={"max_crops": 2})
    for part in judge.questions[0].parts:
        output = part.encode() if isinstance(part, str) else part.data
        assert b"gpt-image-9" not in output
        assert b"run-7f3a" not in output
    assert not {"model", "label", "run"} & set(GradingContext.__slots__)


def test_template_hash_includes_extended_templates(tmp_path: Path) -> None:
    (tmp_path / "mine.j2").write_text("{% extends 'base.j2' %}{% block a %}{{ prompt }}{% endblock %}")
    (tmp_path / "base.j2").write_text("one {% block a %}{% endblock %}")
    first, judge = graded(tmp_path, GOOD, template="mine.j2")
    assert judge.words()[0] == "one a tree"
    assert first.template_sha256 == Templates((tmp_path,)).digest("mine.j2")
    later = tmp_path / "later"
    later.mkdir()
    (later / "mine.j2").write_text((tmp_path / "mine.j2").read_text())
    (later / "base.j2").write_text("two {% block a %}{% endblock %}")
    second, judge = graded(later, GOOD, template="mine.j2")
    assert judge.words()[0] == "two a tree"
    assert second.template_sha256 != first.template_sha256
    assert graded(tmp_path, GOOD)[0].template_sha256 not in (first.template_sha256, second.template_sha256)


class ZoomingJudge(ScriptedJudge):
    """Crops in pixels of the full image, then answers: off-schema first, then valid."""

    async def __call__(self, name: str, question: Question) -> Reply:
        output = question.tools[0].call({"image_id": "output", "x1": 0, "y1": 0, "x2": 64, "y2": 48})
        assert len(output) == 2, output
        again = any(asked.names == question.names for asked in self.questions)
        right = {
            "reason": "r",
            "failure_tags": [],
            "verdict": "PASS",
            **{single: GOOD[single] for single in question.names},
        }
        self.answers = [right if again else {}]
        return await super().__call__(name, question)


def test_crops_are_saved_per_call_and_reset_on_retry(tmp_path: Path) -> None:
    judge = ZoomingJudge("")
    grade = asyncio.run(grader(zoom={"max_crops": 1}, per_metric=True).grade(context(tmp_path, judge)))
    assert grade.scores == {"clear": True, "style": 4}
    assert judge.questions[0].max_tool_calls == 1
    paths = [crop["path"] for crop in grade.details["crops"]]
    assert sorted(paths) == [f"saved/look.{name}.crop.0.{at}.png" for name in ("clear", "style") for at in (0, 1)]
    assert all((tmp_path / path).is_file() for path in paths)
    assert "output: the image to judge; this view has 64 x 48 pixels" in judge.words(0)
    assert "`crop` up to 1 times" in judge.words(0)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": {}}, "at least 1 item"),
        ({"metrics": {"reason": METRICS["clear"]}}, "the name 'reason' is reserved for the judge's answer"),
        ({"metrics": {"a": {"type": "score", "scale": [5, 0], "description": "x"}}}, "5 is not below 0"),
        ({"metrics": {"a": {**METRICS["style"], "anchors": {6: "x"}}}}, "'6' is not on the scale from 0 to 5 by 1"),
        ({"metrics": {"a": {**METRICS["style"], "anchors": {"0 to 2": "x"}}}}, "is not on the scale"),
        ({"metrics": {"a": {**METRICS["style"], "step": 0.001}}}, "over 1000 steps"),
        ({"votes": 0}, "greater than or equal to 1"),
    ],
)
def test_reports_an_invalid_rubric(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        grader(**change)


SOME = {**METRICS, "style": {**METRICS["style"], "when": {"tags": ["styled"]}}}


@pytest.mark.parametrize(
    ("tags", "asked", "scores"),
    [(["styled"], ("clear", "style"), {"clear": True, "style": 4}), ([], ("clear",), {"clear": True})],
)
def test_a_metric_about_some_cases_is_asked_about_these_only(
    tmp_path: Path, tags: list[str], asked: tuple[str, ...], scores: dict[str, Any]
) -> None:
    grade, judge = graded(tmp_path, GOOD, cell={"case": {"tags": tags}}, metrics=SOME)
    assert (judge.questions[0].names, grade.scores, grade.error) == (asked, scores, None)
    assert ("How is the style?" in judge.words()[0]) is ("style" in asked)
    schema = judge.questions[0].schema
    assert schema is not None
    assert ("style" in schema["properties"]) is ("style" in asked)


def test_with_per_metric_only_its_cases_cost_a_call(tmp_path: Path) -> None:
    for tags, calls in ((["styled"], 2), ([], 1)):
        _, judge = graded(tmp_path, GOOD, cell={"case": {"tags": tags}}, metrics=SOME, per_metric=True)
        assert len(judge.questions) == calls
        assert "How is the style?" not in judge.words(0)[0]
    config = grader(metrics=SOME, per_metric=True)._config
    cases = [
        TestCase.model_validate({"id": f"c{at}", "prompt": "x", "tags": tags})
        for at, tags in enumerate(([], ["styled"]))
    ]
    assert config.judge_calls(10, cases, {}) == 15
    assert [list(config.metrics(case)) for case in cases] == [["clear"], ["clear", "style"]]


def test_a_metric_for_all_cases_leaves_the_hash_of_the_rubric_as_it_was() -> None:
    options = grader()._config.key_options
    assert all("when" not in metric for metric in options["metrics"].values())
    assert "when" in grader(metrics=SOME)._config.key_options["metrics"]["style"]
