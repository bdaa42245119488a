"""A scripted judge for Gecko: it generates questions from the words of a prompt and answers them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fake_api import JudgeRequest

VIDEO_TYPES = {"rolls": "action", "red": "color"}
_QUESTION_LINE = re.compile(r"^(\S+): .*\n((?:  [a-z]\) .*\n)+)", re.MULTILINE)


def prompt_of(request: JudgeRequest) -> str:
    """The prompt at the end of the instructions for question generation."""
    return request.text.rsplit("## Your prompt\n", 1)[1].split("\n", 1)[0]


def generated_questions(request: JudgeRequest) -> dict[str, Any]:
    """One question for each word of the prompt, in the form of the schema."""
    is_video = "whether a video shows" in request.text
    names = re.findall(r"[A-Za-z]{3,}", prompt_of(request))
    types = [VIDEO_TYPES.get(name_word, "object") for name_word in names]
    parts = [
        f"{{{at}}}[{name_word}, {kind}, 1.0]" if is_video else f"{{{at}}}[{name_word}]"
        for at, (name_word, kind) in enumerate(zip(names, types, strict=True), 1)
    ]
    return {
        "keywords": " ".join(parts),
        "questions": [_question(at, name_word, is_video=is_video) for at, name_word in enumerate(names, 1)],
    }


def _question(at: int, name_word: str, *, is_video: bool) -> dict[str, Any]:
    choices = (
        [f"left of {name_word}", name_word, f"right of {name_word}", f"no {name_word}"] if is_video else ["yes", "no"]
    )
    return {
        "id": f"q{at}",
        "keyword": at,
        "question": f"What about {name_word}?" if is_video else f"Is there {name_word}?",
        "choices": choices,
        "answer": name_word if is_video else "yes",
        "justification": f'"{name_word}" is in the prompt',
        "depends_on": [] if at == 1 else ["q1"],
        **({} if is_video else {"type": "color" if name_word == "red" else "object"}),
    }


def asked_questions(request: JudgeRequest) -> dict[str, list[str]]:
    """The questions in a request: the lines of the choices by id."""
    return {name: re.findall(r"  ([a-z]\) .*)", choices) for name, choices in _QUESTION_LINE.findall(request.text)}


def judge(answer_for: Callable[[str, JudgeRequest], str]) -> Callable[[JudgeRequest], Mapping[str, Any]]:
    """A judge that generates questions and answers them with ``answer_for(id, request)``."""

    def answer(request: JudgeRequest) -> Mapping[str, Any]:
        assert request.schema is not None
        if "keywords" in request.schema["properties"]:
            return generated_questions(request)
        return {
            "answers": [
                {"id": name, "reason": "seen", "answer": answer_for(name, request)} for name in asked_questions(request)
            ]
        }

    return answer
