"""The choices of a question, and which of them an answer names: a letter or the exact text of a choice."""

from __future__ import annotations

import re
from typing import Any

from visioneval.suite.questions import GeckoQuestion, folded_text

NONE = "none of them"
_LETTER = re.compile(r"\(?([a-z])[).:\]]?", re.ASCII)
_LETTER_AND_TEXT = re.compile(r"\(?([a-z])[).:\]]\s*(.+)", re.ASCII)
NONE_OF_THEM = {"none", "none of them", "none of these", "none of the above", "none of the choices"}


def lettered_choices(question: GeckoQuestion) -> dict[str, str]:
    """The possible answers by letter; ``none of them`` is last, except for yes/no questions."""
    texts = list(question.choices)
    if offers_none(question):
        texts.append(NONE)
    return dict(zip("abcdefghijklmnopqrstuvwxyz", texts, strict=False))


def offers_none(question: GeckoQuestion) -> bool:
    """Whether ``none of them`` is one of the possible answers."""
    folded = {folded_text(choice) for choice in question.choices}
    return folded != {"yes", "no"} and NONE not in folded


def choice_of(question: GeckoQuestion, answer: str) -> int | None:
    """The index of the choice that an answer names; the index after the last choice means ``none of them``.

    Accepts a letter, a choice's text, or both if they agree; never a part of a sentence.
    """
    offered = {letter: folded_text(text) for letter, text in lettered_choices(question).items()}
    texts = list(offered.values())
    folded = folded_text(answer)
    if folded in texts:
        return texts.index(folded)
    if offers_none(question) and folded in NONE_OF_THEM:
        return len(texts) - 1
    plain = " ".join(answer.casefold().split()).strip("\"'`* ")
    letter_match = _LETTER.fullmatch(plain)
    if letter_match and letter_match[1] in offered:
        return list(offered).index(letter_match[1])
    full_match = _LETTER_AND_TEXT.fullmatch(plain)
    if full_match and offered.get(full_match[1]) == folded_text(full_match[2]):
        return list(offered).index(full_match[1])
    return None


def answer_text(value: Any) -> str:
    """The text of an answer, also of one that was recorded as true or false."""
    return ("yes" if value else "no") if isinstance(value, bool) else "" if value is None else str(value).strip()


def names_choice(question: GeckoQuestion, answer: Any) -> bool:
    """Whether an answer names a choice."""
    return choice_of(question, answer_text(answer)) is not None
