"""A judge's side of Gecko by script: it makes questions from a prompt's own words, and answers them as told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fake_api import JudgeRequest

VIDEO_TYPES = {"rolls": "action", "red": "color"}
_ASKED = re.compile(r"^(\S+): .*\n((?:  [a-z]\) .*\n)+)", re.MULTILINE)


def prompt_of(request: JudgeRequest) -> str:
    """The prompt at the end of the instructions that make questions."""
    return request.text.rsplit("## Your prompt\n", 1)[1].split("\n", 1)[0]


def made(request: JudgeRequest) -> dict[str, Any]:
    """One question for each word of the prompt, in the form that the schema asks for."""
    is_video = "whether a video shows" in request.text
    words = re.findall(r"[A-Za-z]{3,}", prompt_of(request))
    types = [VIDEO_TYPES.get(word, "object") for word in words]
    parts = [
        f"{{{at}}}[{word}, {kind}, 1.0]" if is_video else f"{{{at}}}[{word}]"
        for at, (word, kind) in enumerate(zip(words, types, strict=True), 1)
    ]
    return {
        "keywords": " ".join(parts),
        "questions": [_question(at, word, is_video=is_video) for at, word in enumerate(words, 1)],
    }


def _question(at: int, word: str, *, is_video: bool) -> dict[str, Any]:
    choices = [f"left of {word}", word, f"right of {word}", f"no {word}"] if is_video else ["yes", "no"]
    return {
        "id": f"q{at}",
        "keyword": at,
        "question": f"What about {word}?" if is_video else f"Is there {word}?",
        "choices": choices,
        "answer": word if is_video else "yes",
        "justification": f'"{word}" is in the prompt',
        "depends_on": [] if at == 1 else ["q1"],
        **({} if is_video else {"type": "color" if word == "red" else "object"}),
    }


def asked(request: JudgeRequest) -> dict[str, list[str]]:
    """The questions in a request: for each id its choices, by the line they stand on."""
    return {name: re.findall(r"  ([a-z]\) .*)", choices) for name, choices in _ASKED.findall(request.text)}


def judge(say: Callable[[str, JudgeRequest], str]) -> Callable[[JudgeRequest], Mapping[str, Any]]:
    """A judge that makes questions and, asked one, says what ``say(id, request)`` gives."""

    def answer(request: JudgeRequest) -> Mapping[str, Any]:
        assert request.schema is not None
        if "keywords" in request.schema["properties"]:
            return made(request)
        return {"answers": [{"id": name, "reason": "seen", "answer": say(name, request)} for name in asked(request)]}

    return answer
