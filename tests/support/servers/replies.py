"""Complete replies of judges to each kind of question, and how each grader reads a complete or truncated reply."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from visioneval import Reply
from visioneval.graders.alignment import grader as alignment
from visioneval.graders.gecko.answers import answer_as_json, answer_faults, read_answers
from visioneval.graders.gecko.questions import ParsedQuestions, read_json, read_questions
from visioneval.graders.pairwise import grader as pairwise
from visioneval.graders.rubric import PassFail, ScaleScore
from visioneval.graders.rubric import grader as rubric
from visioneval.graders.text import grader as text_judge
from visioneval.judging.ask import Check, read_reply
from visioneval.providers.base import Tool, ToolCall
from visioneval.providers.questions import run_tool
from visioneval.providers.reply_json import UnreadableReplyError
from visioneval.suite.questions import GeckoQuestion

METRICS = {
    "clear": PassFail(type="pass_fail", description="Is it clear?"),
    "layout": ScaleScore(type="score", scale=(0, 100), description="How is the layout?"),
    "style": ScaleScore(type="score", scale=(0, 5), step=0.5, description="How is the style?"),
}
TAGS = ("blurry", "cut_off")
QUESTIONS = (
    GeckoQuestion(id="dog", question="Is there a dog?"),
    GeckoQuestion(id="red", question="Which colour?", choices=("blue", "red", "green"), answer="red", type="color"),
)
PREFIX_QUESTION = GeckoQuestion(
    id="q", question="What?", choices=("no", "none left", "blue"), answer="no", type="other"
)


def item(what: str, *, met: bool) -> dict[str, Any]:
    return {"requirement": what, "question": f"Is there {what}?", "analysis": "I {looked}.", "answer": met, "gap": ""}


def question(name: str, words: str, *parents: str) -> dict[str, Any]:
    known = {"choices": ["yes", "no"], "answer": "yes", "type": "animal", "justification": "dogs"}
    return {"id": name, "keyword": 2, "question": words, **known, "depends_on": list(parents)}


RUBRIC = {"reason": 'It says "A {1}" \\ well', "clear": True, "layout": 90, "style": 4.5, "failure_tags": ["blurry"],
          "verdict": "PASS"}  # fmt: skip
LINES = {"lines": ["SPRING SALE", "10\u201320 % OFF", "{1} only"]}
CHECKED = {"lines": ["SPRING SALE", "OFF"], "criteria_met": True, "reason": "the lamp is red"}
ALIGNED = {"requirements": [item("a bun", met=True), item("snow", met=False), item("a plate", met=True)], "score": 66}
ANSWERS = {"answers": [{"id": "dog", "reason": "seen", "answer": "yes"}, {"id": "red", "reason": "", "answer": "b"}]}
GENERATED_QUESTIONS = {
    "keywords": "{1}[Two] {2}[dogs] on a {3}[boat]",
    "questions": [question("q1", "Are there dogs?"), question("q2", "Are there two?", "q1"), question("q3", "Boat?")],
}
PAIR = {"reason": "A is calm, B is not", "answer": "B"}
CROP = {"image_id": "output", "x1": 10, "y1": 20, "x2": 130, "y2": 240}


def read(check: Check, scored: Callable[[Any], Any], text: str) -> Any:
    """The scored part of a reply; ``None`` if it is no answer."""
    result = read_reply(Reply(text, "m"), check)
    return None if result.how is None else scored(result.data)


def read_generated_questions(text: str) -> Any:
    try:
        result = read_questions(read_json(text), "image")
    except UnreadableReplyError:
        return None
    return (result.keywords, result.questions) if isinstance(result, ParsedQuestions) else None


def cropped(text: str) -> Any:
    """The arguments that the tool was called with."""
    seen: list[Mapping[str, Any]] = []
    tool = Tool("crop", "", {}, lambda asked: [seen.append(asked) or ""])  # type: ignore[func-returns-value]
    run_tool([tool], ToolCall("crop", text or " ", "1"))
    return [dict(entry) for entry in seen] or None


def keys(*names: str) -> Callable[[Any], Any]:
    return lambda data: {name: data.get(name) for name in names}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of reply: its reader, and complete examples."""

    scored: Callable[[str], Any]
    complete: tuple[str, ...]


def reply_forms(output: Mapping[str, Any]) -> tuple[str, ...]:
    """One answer in many formats."""
    plain, wide = json.dumps(output), json.dumps(output, indent=1, ensure_ascii=False)
    return (
        plain,
        wide,
        f"```json\n{wide}\n```",
        f"Here {{it}} is:\n\n```\n{plain}\n```\nAnything {{else}}?",
        f"I looked {{closely}}. {plain} Is that clear?",
        f'<think>Perhaps {{"layout": 3}} or {{"score": 1, </think>\n{wide}',
        re.sub(r"(\n *[\]}])", r",\1", wide),
        json.dumps({"note": {"mood": ["calm"]}, **output, "confidence": 0.5}),
    )


def broken_forms(output: Mapping[str, Any]) -> tuple[str, ...]:
    """One answer in formats of which a part would have to be guessed."""
    plain, wide = json.dumps(output), json.dumps(output, indent=1, ensure_ascii=False)
    first_name = next(iter(output))
    return (
        re.sub(r"([\"\]}e]),\n", r"\1\n", wide),
        plain.replace(f'"{first_name}":', f"{first_name}:"),
        plain.replace(f'"{first_name}"', f"'{first_name}'"),
        repr(output),
        f"{plain}}}",
        f"{plain}]",
        f'{plain}, {{"more": 1}}',
        f"[{plain}]",
        f"{plain[:-1]},}} {{}}",
        f"{plain[:-1]},,}}",
        plain.replace(":", ":,", 1),
    )


KINDS: dict[str, Kind] = {
    "rubric": Kind(
        partial(
            read, partial(rubric.reply_problems, METRICS, TAGS), keys(*METRICS, "failure_tags", "verdict", "reason")
        ),
        reply_forms(RUBRIC),
    ),
    "text": Kind(partial(read, partial(text_judge._reply_problems, ["lines"]), keys("lines")), reply_forms(LINES)),
    "checked text": Kind(
        partial(read, partial(text_judge._reply_problems, [*CHECKED]), keys("lines", "criteria_met")),
        reply_forms(CHECKED),
    ),
    "description": Kind(
        partial(read, text_judge._description_problems, keys("description")),
        reply_forms({"description": 'A red lamp.\nIt says "SALE {1}".'}),
    ),
    "alignment": Kind(
        partial(read, alignment.reply_problems, lambda data: [entry["answer"] for entry in data["requirements"]]),
        reply_forms(ALIGNED),
    ),
    "gecko answers": Kind(
        partial(read, partial(answer_faults, QUESTIONS), lambda data: choices(data)),
        (*reply_forms(ANSWERS), *reply_forms({"dog": "yes", "red": "b"})),
    ),
    "gecko answer": Kind(
        lambda text: read(
            partial(answer_faults, [PREFIX_QUESTION]), choice_of_prefix_question, answer_as_json(PREFIX_QUESTION, text)
        ),
        (
            *reply_forms({"answers": [{"id": "q", "reason": "", "answer": "none of them"}]}),
            "c",
            "a) no",
            "blue",
            "Blue.",
            "none left",
            "none of them",
        ),
    ),
    "gecko questions": Kind(read_generated_questions, reply_forms(GENERATED_QUESTIONS)),
    "pairwise": Kind(partial(read, pairwise.reply_problems, keys("answer")), reply_forms(PAIR)),
    "zoom": Kind(cropped, (json.dumps(CROP), json.dumps(CROP, indent=1))),
}


def choices(data: Mapping[str, Any]) -> Any:
    return {name: output.choice for name, output in read_answers(QUESTIONS, data)[0].items()}


def choice_of_prefix_question(data: Mapping[str, Any]) -> Any:
    output, _ = read_answers([PREFIX_QUESTION], data)
    return output["q"].choice


def cuts(text: str) -> list[str]:
    """All truncations of a text, by character: JSON cannot contain half a character."""
    return [text[:end] for end in range(len(text))]
