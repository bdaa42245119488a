"""Every change of an output, of its image or of its prompt, in the order of kinds and strengths.

A counter-prompt is a case's prompt with one word exchanged, so that its output no longer matches. A judge that likes
everything passes the output against the changed prompt too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from visioneval.probing.kinds import YES, Kind, Level, planted
from visioneval.probing.subject import CannotPlantError, PlantedFile, Random, Subject, seeded
from visioneval.running.plan import Call
from visioneval.suite.case import TestCase

_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_COLORS = ("red", "blue", "green", "yellow", "purple", "orange", "pink", "brown", "black", "white", "gray", "turquoise")
_PLACES = {
    "left": "right",
    "above": "below",
    "top": "bottom",
    "inside": "outside",
    "behind": "in front of",
    "under": "above",
    "foreground": "background",
    "indoors": "outdoors",
    "upper": "lower",
}
_PLACES |= {there: here for here, there in _PLACES.items() if there not in _PLACES}
_OBJECTS = (
    *("cat", "dog", "horse", "bird", "elephant", "car", "bicycle", "boat", "train", "airplane", "tree", "flower"),
    *("house", "bridge", "mountain", "beach", "table", "chair", "lamp", "sofa", "cup", "bottle", "apple", "pizza"),
    *("cake", "clock", "book", "guitar", "umbrella", "hat", "shoe", "robot", "castle", "lighthouse", "man", "woman"),
    *("bowl", "vase", "backpack", "camera", "phone", "kite", "snowman", "sandwich", "banana", "giraffe", "penguin"),
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A word of a text and what replaces it."""

    old: str
    new: str

    def applied(self, text: str) -> str:
        """The text with every occurrence of the word replaced, and its capital kept."""

        def replaced(match: re.Match[str]) -> str:
            return self.new[:1].upper() + self.new[1:] if match[0][:1].isupper() else self.new

        return re.sub(rf"(?<!\w){re.escape(self.old)}(?!\w)", replaced, text, flags=re.IGNORECASE)


def exchange_of(kind: str, case: TestCase, prompt: str, random: Random) -> Exchange:
    """The exchange of a kind for a case: ``number``, ``color``, ``place``, ``object`` or ``copy``.

    Raises ``CannotPlantError`` if the prompt has nothing to exchange, or its questions are pinned.
    """
    if case.questions is not None:
        raise CannotPlantError("its questions are pinned, so the prompt is not asked about")
    exchange = _MAKERS[kind](case, prompt, random)
    if exchange.applied(prompt) == prompt:
        raise CannotPlantError(f"its prompt names no {kind} to exchange")
    return exchange


def _number(_case: TestCase, prompt: str, random: Random) -> Exchange:
    digits = re.search(r"(?<![\w.,$:-])([2-9])(?![\w.,:%-])", prompt)
    if digits is not None:
        return Exchange(digits[1], str(int(digits[1]) + 3))
    return _of_list("number", _NUMBERS)(_case, prompt, random)


def _of_list(kind: str, words: Collection[str]) -> Callable[[TestCase, str, Random], Exchange]:
    """Exchanges one of these words by another, or a place by its opposite."""

    def make(_case: TestCase, prompt: str, random: Random) -> Exchange:
        present = sorted(word for word in words if re.search(rf"(?<!\w){word}(?!\w)", prompt, re.IGNORECASE))
        if not present:
            raise CannotPlantError(f"its prompt names no {kind} to exchange")
        old = present[int(random.integers(len(present)))]
        if old in _PLACES:
            return Exchange(old, _PLACES[old])
        absent = [word for word in words if word not in present]
        return Exchange(old, absent[int(random.integers(len(absent)))])

    return make


def _word_of_copy(case: TestCase, prompt: str, random: Random) -> Exchange:
    lines = case.expect.text.required if case.expect.text else ()
    words = sorted({word for line in lines for word in re.findall(r"[^\W\d_]{3,}", line) if word in prompt})
    if not words:
        raise CannotPlantError("its prompt names no word of its copy")
    old = words[int(random.integers(len(words)))]
    return Exchange(old, old[::-1].capitalize() if old[0].isupper() else old[::-1])


_MAKERS: Mapping[str, Callable[[TestCase, str, Random], Exchange]] = {
    "number": _number,
    "color": _of_list("color", _COLORS),
    "place": _of_list("place", _PLACES),
    "object": _of_list("object", _OBJECTS),
    "copy": _word_of_copy,
}
PROMPT_KINDS = tuple(f"prompt.{kind}" for kind in _MAKERS)


@dataclass(frozen=True, slots=True)
class Change:
    """A kind with a strength. ``image`` is the kind of image change; ``None`` for a counter-prompt."""

    name: str
    image: Kind | None = None
    level: Level = YES


def changes_of(kinds: Sequence[Kind], prompt_kinds: Sequence[str]) -> Iterator[Change]:
    """All changes: of the image, then of the prompt."""
    for kind in kinds:
        yield from (Change(kind.name, kind, level) for level in kind.levels)
    yield from (Change(name) for name in prompt_kinds)


def plant(change: Change, subject: Subject, call: Call, seed: str) -> tuple[PlantedFile, Call, str]:
    """The changed file, the call that grades it, and what changed in a prompt. Raises ``CannotPlantError``."""
    if change.image is not None:
        return planted(change.image, change.level, subject, seed), call, ""
    kind = change.name.partition(".")[2]
    exchange = exchange_of(kind, call.case, call.graded_prompt, seeded(seed, change.name))
    criteria = None if call.case.criteria is None else exchange.applied(call.case.criteria)
    prompt = exchange.applied(call.graded_prompt)
    case = call.case.model_copy(update={"prompt": prompt, "criteria": criteria})
    counter = replace(call, case=case, graded_prompt=prompt)
    return PlantedFile(subject.data, subject.mime), counter, f"{exchange.old} -> {exchange.new}"
