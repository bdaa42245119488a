"""What a judge's message has: the parts of ``show`` in order, and the template of the case."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_parts import plan_of
from labeled_runs import label, run_info
from record_factory import record
from scripted_judge import ScriptedJudge, context, saved_image
from suite_text import suite

from visioneval import CaseFiles, GradingContext, ImageError, Question
from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.graders.alignment import AlignmentGrader
from visioneval.graders.alignment.grader import Alignment
from visioneval.graders.pairwise import PairwiseGrader
from visioneval.graders.pairwise.grader import Pairwise
from visioneval.graders.rubric import RubricGrader
from visioneval.graders.rubric.grader import Rubric
from visioneval.media.images import identify
from visioneval.running.keys import grade_key

Problems = Callable[..., list[str]]
METRICS = {"clear": {"type": "pass_fail", "description": "Is it clear?"}}
GOOD = {"reason": "sharp", "clear": True, "verdict": "PASS"}
REQUIREMENT = {"requirement": "a tree", "question": "A tree?", "analysis": "yes", "answer": True, "gap": ""}
ALIGNED = {"requirements": [REQUIREMENT], "score": 90}
CASE = {"id": "one", "prompt": "plant a tree", "criteria": "it is tall", "region": "the left half"}


def cell(folder: Path, judge: ScriptedJudge, **changes: Any) -> GradingContext:
    """A cell with two inputs, a mask and a reference."""
    files = CaseFiles(
        images=(("base", saved_image(folder / "base.png")), ("logo", saved_image(folder / "logo.png", color="red"))),
        masks={"editable": saved_image(folder / "mask.png", color=(0, 0, 0, 0), mode="RGBA")},
        reference=saved_image(folder / "right.png", color="green"),
    )
    return context(folder, judge, {**CASE, "images": ["base.png", "logo.png"]}, files=files, **changes)


def rubric_question(folder: Path, show: list[str] | None = None, **options: Any) -> Question:
    judge = ScriptedJudge(GOOD)
    config = RubricGrader.model_validate(
        {"key": "look", "type": "rubric", "metrics": METRICS, **({"show": show} if show else {}), **options}
    )
    asyncio.run(Rubric(config).grade(cell(folder, judge)))
    return judge.questions[0]


def alignment_question(folder: Path, show: list[str] | None = None) -> Question:
    judge = ScriptedJudge(ALIGNED)
    config = AlignmentGrader.model_validate({"key": "al", "type": "alignment", **({"show": show} if show else {})})
    asyncio.run(Alignment(config).grade(cell(folder, judge)))
    return judge.questions[0]


def pairwise_question(folder: Path, show: list[str] | None = None) -> Question:
    subject = cell(folder, ScriptedJudge(""))
    config = PairwiseGrader.model_validate({"key": "pw", "type": "pairwise", **({"show": show} if show else {})})
    return Pairwise(config).question(subject, subject.generated, subject.generated)


def outline(question: Question) -> list[str]:
    """The message in order: ``text`` for the instructions, and the name of each image."""
    words = [part for part in question.parts if isinstance(part, str)]
    return ["text" if "\n" in word else word.partition(":")[0] for word in words]


INPUTS = ["ref_1", "ref_2"]
QUESTIONS = pytest.mark.parametrize(
    ("ask", "output"),
    [(rubric_question, ["output"]), (alignment_question, ["output"]), (pairwise_question, ["A", "B"])],
)


@QUESTIONS
def test_by_default_the_judge_sees_all_but_the_reference(
    tmp_path: Path, ask: Callable[..., Question], output: list[str]
) -> None:
    assert outline(ask(tmp_path)) == ["text", *INPUTS, "mask_editable", *output]
    listed = ask(tmp_path, ["prompt", "criteria", "inputs", "masks", "output"])
    assert listed.parts == ask(tmp_path).parts


@QUESTIONS
@pytest.mark.parametrize(
    ("show", "order"),
    [
        (["prompt", "output"], ["text", "OUTPUT"]),
        (["output", "prompt"], ["OUTPUT", "text"]),
        (["inputs", "prompt", "criteria", "output"], [*INPUTS, "text", "OUTPUT"]),
        (["inputs", "output", "prompt", "criteria"], [*INPUTS, "OUTPUT", "text"]),
        (["prompt", "reference", "output", "masks"], ["text", "reference", "OUTPUT", "mask_editable"]),
    ],
)
def test_show_decides_the_parts_and_their_order(
    tmp_path: Path, ask: Callable[..., Question], output: list[str], show: list[str], order: list[str]
) -> None:
    expected = [name for part in order for name in (output if part == "OUTPUT" else [part])]
    question = ask(tmp_path, show)
    assert outline(question) == expected
    instructions = next(part for part in question.parts if isinstance(part, str) and "\n" in part)
    assert ("it is tall" in instructions) is ("criteria" in show and ask is not alignment_question)
    listed = [
        line[2:].partition(":")[0] for line in instructions.splitlines() if line.startswith("- ") and ": " in line
    ]
    assert [name for name in listed if name in expected] == [name for name in expected if name != "text"]


def test_a_judge_of_the_output_alone_gets_neither_request_nor_inputs(tmp_path: Path) -> None:
    question = rubric_question(tmp_path, ["output"])
    assert outline(question) == ["text", "output"]
    assert not {"plant a tree", "it is tall", "the left half"} & {*str(question.parts[0]).splitlines()}
    assert "the left half" not in str(question.parts[0])


def test_crops_keep_the_order(tmp_path: Path) -> None:
    question = rubric_question(tmp_path, ["output", "prompt", "inputs"], zoom={})
    assert outline(question) == ["output", "text", *INPUTS]


def test_the_options_of_a_grader_without_show_are_hashed_as_before() -> None:
    rubric = {"key": "look", "type": "rubric", "metrics": METRICS}
    assert RubricGrader.model_validate(rubric).key_options["show"] == ("prompt", "criteria", "output")
    assert "show" not in AlignmentGrader.model_validate({"key": "al", "type": "alignment"}).key_options
    assert "show" not in PairwiseGrader.model_validate({"key": "pw", "type": "pairwise"}).key_options
    shown = [RubricGrader.model_validate({**rubric, "show": show}).key_options["show"] for show in
             (["prompt", "output"], ["output", "prompt"], ["prompt", "criteria", "output"])]  # fmt: skip
    assert len({json.dumps(value) for value in shown}) == 3
    assert ("prompt", "criteria", "output") not in shown  # inputs and masks are no longer meant


JUDGED = "judges: {default: {provider: openai, model: m}}"


def judged(grader: str, *more: str, cases: str = "cases: [{id: one, prompt: a tree, criteria: tall}]") -> str:
    return suite(JUDGED, *more, cases=cases, graders=f"graders: [{{key: k, {grader}}}]", verdict="verdict: [k.x]")


RUBRIC = "type: rubric, metrics: {k.x: {type: pass_fail, description: x}}"


def test_an_svg_without_its_extra_is_refused_with_what_to_do(
    problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("visioneval.media.svg.has_extra", lambda _: False)
    drawing = '<?xml version="1.0"?>\n<!-- a logo -->\n<svg xmlns="http://www.w3.org/2000/svg"/>'
    cases = "cases: [{id: one, prompt: x, images: [logo.svg]}]"
    (problem,) = problems(suite(cases=cases), {"logo.svg": drawing})
    assert problem.startswith("suite.yaml:2:39: logo.svg: SVGs need an extra: run pip install")
    for data in (b"\xef\xbb\xbf" + drawing.encode(), b"  <SVG>", drawing.encode()):
        with pytest.raises(ImageError, match="SVGs need an extra"):
            identify(data)


TWO_KINDS = (
    "cases: [{id: one, prompt: a tree, metadata: {kind: poster}}, {id: two, prompt: a boat, metadata: {kind: banner}}]"
)
BY_KIND = f"{RUBRIC.replace('k.x', 'x')}, template: '{{{{ case.metadata.kind }}}}.j2'"
FILES = {"poster.j2": "A poster: {{ prompt }}", "banner.j2": "A banner: {{ prompt }}"}


def by_kind(grader: str = BY_KIND, cases: str = TWO_KINDS) -> str:
    return suite(JUDGED, cases=cases, graders=f"graders: [{{key: k, {grader}}}]", verdict="verdict: [x]")


def test_the_template_of_a_case_is_in_its_grade_key_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("suite.yaml").write_text(by_kind())

    def keys(poster: str) -> dict[str, str]:
        folder = tmp_path / poster.partition(":")[0]
        folder.mkdir()
        for name, text in {**FILES, "poster.j2": poster, "suite.yaml": by_kind()}.items():
            (folder / name).write_text(text)
        plan = plan_of(folder / "suite.yaml")
        return {call.case.id: grade_key(call, lambda _: "") for call in plan.calls()}

    before, after = keys("A poster: {{ prompt }}"), keys("Another poster: {{ prompt }}")
    assert before["one"] != after["one"]
    assert before["two"] == after["two"]


def test_the_judge_reads_the_template_of_the_case(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    options = {"key": "look", "type": "rubric", "metrics": METRICS, "template": "{{ case.metadata.kind }}.j2"}
    words = []
    for kind in ("poster", "banner"):
        judge = ScriptedJudge(GOOD)
        case = {"metadata": {"kind": kind}}
        asyncio.run(Rubric(RubricGrader.model_validate(options)).grade(context(tmp_path, judge, case)))
        words.append(judge.words()[0])
    assert words == ["A poster: a tree", "A banner: a tree"]


def test_two_graders_of_the_same_thing_stand_beside_the_same_raters() -> None:
    question = {"key": "usable", "ask": "Usable?", "type": "yes_no", "metric": ["good", "blank"]}
    cases = "abcdefgh"
    info = run_info(cases, [question])
    records = [record(test_id=case, scores={"good": case in "abcd", "blank": case in "ab"}) for case in cases]
    labels = [label(case, "ann", "usable", case in "abc") for case in cases]
    findings = agree([LabeledRun(info, records, labels)]).graders
    assert [(finding.metric, finding.question, finding.cells) for finding in findings] == [
        ("good", "usable", 8), ("blank", "usable", 8)
    ]  # fmt: skip
    assert findings[0].measures["accuracy"].value == 7 / 8
