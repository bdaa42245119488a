"""Malformed questions by the number of worked examples in Gecko's templates: ``python -m tests.bench.gecko_examples``.

The judge here is a program that understands nothing and copies. It is told where the items of a prompt are, and the class
of each. For each item it looks for the most similar item of any worked example in the instructions, and copies that item's
question: other words of the example become the words at the same distance in the new prompt, and so do the dependencies.
Where nothing stands at that distance, the example's own word stays. A question goes wrong where no example shows its
class, or none shows it among similar neighbors. So this measures how much of the structure of ordinary prompts the
examples show. It does not measure a language model, which generalizes far beyond them, and may also be distracted by them.
The prompts are by the authors of the examples: 18 for images and 12 for videos, with 94 and 58 items, none in an example.

A question is malformed if a run would drop it or its dependency, if it names an object of the example, or if it asks for
another class of answer, such as yes instead of no for a negation. Hence 8 examples each, which cost about 2,500 more input
tokens than 2, once per prompt and run:

    media  examples  malformed     not usable  object of the example  other class
    image  2  34.0 of 100          17.0        17.0                   19.1
    image  5  16.0 of 100          12.8        12.8                    3.2
    image  8  10.6 of 100          10.6         9.6                    0.0
    video  2  31.0 of 100          17.2        20.7                    5.2
    video  5  24.1 of 100          17.2        12.1                    0.0
    video  8  19.0 of 100          13.8        10.3                    0.0
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.bench.gecko_prompts import PROMPTS
from visioneval.graders.gecko import making_context
from visioneval.graders.gecko.questions import read_questions
from visioneval.installation import builtin
from visioneval.suite.questions import dependency_problems
from visioneval.templates.render import Templates

Media = Literal["image", "video"]
COUNTS: Mapping[Media, tuple[int, ...]] = {"image": (2, 5, 8), "video": (2, 5, 8)}
NEGATION, TEXT = "negation", "text"
_MARKED = re.compile(r"\[([^|\]]+)\|([^\]]+)\]")
_NUMBERED = re.compile(r"\{(\d+)\}\[([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class Item:
    """A groundable item: its words, and its class: the type of its question, or else a negation or quoted text."""

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example: its items, and the first question about each, by position."""

    items: tuple[Item, ...]
    questions: Mapping[int, Mapping[str, Any]]


@dataclass(slots=True)
class Malformed:
    """Counts of questions: all, dropped by the reader or with a bad dependency, with a foreign word, of a wrong class."""

    asked: int = 0
    unusable: int = 0
    foreign: int = 0
    wrong_class: int = 0
    any: int = 0

    @property
    def rate(self) -> float:
        """Malformed questions per 100."""
        return 100 * self.any / self.asked


def main() -> None:
    """Prints a Markdown table."""
    print("| media | examples | characters | malformed per 100 | unusable | foreign word | wrong class |")
    print("|---|---|---|---|---|---|---|")
    for media, counts in COUNTS.items():
        for count in counts:
            found = measure(media, count)
            parts = (f"{100 * part / found.asked:.1f}" for part in (found.unusable, found.foreign, found.wrong_class))
            size = len(instructions(media, count))
            print(f"| {media} | {count} | {size:,} | {found.rate:.1f} of {found.asked} | {' | '.join(parts)} |")


def measure(media: Media, count: int) -> Malformed:
    """What the copying judge gets wrong on all prompts with the first ``count`` examples."""
    examples = examples_of(instructions(media, count), media)
    found = Malformed()
    for marked in PROMPTS[media]:
        _judge(marked, media, examples, found)
    return found


def instructions(media: Media, count: int) -> str:
    """The instructions that a judge gets, with only the first ``count`` worked examples."""
    name = f"gecko/{media}_questions.md.j2"
    text = Templates((Path(builtin("prompts")),)).render(name, making_context(media, "PROMPT"))
    head, *examples = text.split("## Example\n")
    last, _, end = examples[-1].partition("## Your prompt")
    return "## Example\n".join([head, *[*examples[:-1], last][:count]]) + "## Your prompt" + end


def examples_of(text: str, media: Media) -> list[Example]:
    """The worked examples in instructions."""
    return [_example(part, media) for part in text.partition("## Your prompt")[0].split("## Example\n")[1:]]


def _example(part: str, media: Media) -> Example:
    data = json.loads(part[part.index("{") :])
    by_keyword: dict[int, Mapping[str, Any]] = {}
    for question in data["questions"]:
        by_keyword.setdefault(question["keyword"] - 1, question)
    items = []
    for number, inner in _NUMBERED.findall(data["keywords"]):
        question = by_keyword[int(number) - 1]
        words, kind = (inner.rsplit(", ", 2)[:2]) if media == "video" else (inner, question["type"])
        items.append(Item(words, _class_of(words, kind, negative=_is_negative(question))))
    positions = {question["id"]: question["keyword"] - 1 for question in data["questions"]}
    questions = {
        position: {**question, "depends_on": [positions[name] for name in question["depends_on"]]}
        for position, question in by_keyword.items()
    }
    return Example(tuple(items), questions)


def _is_negative(question: Mapping[str, Any]) -> bool:
    return str(question["answer"]).split()[0].lower() in ("no", "nobody", "nothing", "none")


def _class_of(words: str, kind: str, *, negative: bool) -> str:
    if negative:
        return NEGATION
    return TEXT if words.startswith('"') or (len(words) > 1 and words.isupper()) else kind


def _judge(marked: str, media: Media, examples: Sequence[Example], found: Malformed) -> None:
    """Lets the copying judge write the questions of a prompt, reads them as a run does, and counts."""
    items = [Item(*match) for match in _MARKED.findall(marked)]
    prompt = _MARKED.sub(r"\1", marked)
    matches = [_nearest(items, position, examples) for position in range(len(items))]
    questions = [_copied(items, position, *match, media=media) for position, match in enumerate(matches)]
    kinds = [example.items[old].kind for example, old in matches]
    suffix = [f", {kind}, 1.0" if media == "video" else "" for kind in map(_type_of, kinds)]
    keywords = " ".join(f"{{{at}}}[{item.text}{suffix[at - 1]}]" for at, item in enumerate(items, 1))
    parsed = read_questions({"keywords": keywords, "questions": questions}, media)
    usable = set() if isinstance(parsed, str) else {question.id for question in parsed.questions}
    if not isinstance(parsed, str):
        for index, _ in dependency_problems(parsed.questions):
            usable.discard(parsed.questions[index].id)
    for position, question in enumerate(questions):
        unusable = question["id"] not in usable
        foreign = _has_foreign_word(question, prompt, matches[position][0])
        wrong = kinds[position] != items[position].kind
        found.asked += 1
        found.unusable += unusable
        found.foreign += foreign
        found.wrong_class += wrong
        found.any += unusable or foreign or wrong


def _type_of(kind: str) -> str:
    return {NEGATION: "attribute", TEXT: "attribute"}.get(kind, kind)


def _nearest(items: Sequence[Item], position: int, examples: Sequence[Example]) -> tuple[Example, int]:
    """The example and the position in it that fit best: the class first, then the neighbors, then the letters."""

    def fit(example: Example, old: int) -> tuple[float, ...]:
        same_class = example.items[old].kind == items[position].kind
        around = sum(_kind_at(example.items, old + step) == _kind_at(items, position + step) for step in (-2, -1, 1, 2))
        return same_class, around, _shared_letters(items[position].text, example.items[old].text)

    candidates = [(example, old) for example in examples for old in range(len(example.items))]
    return max(candidates, key=lambda candidate: fit(*candidate))


def _kind_at(items: Sequence[Item], position: int) -> str | None:
    return items[position].kind if 0 <= position < len(items) else None


def _shared_letters(first: str, second: str) -> float:
    """The share of three-letter sequences that two texts have in common, 0 to 1."""
    one, two = ({f" {text.lower()} "[at : at + 3] for at in range(len(text))} for text in (first, second))
    return len(one & two) / max(1, len(one | two))


def _copied(items: Sequence[Item], position: int, example: Example, old: int, *, media: Media) -> dict[str, Any]:
    """The example's question about ``old``, with the words and dependencies of the new prompt at the same distances."""
    question = example.questions[old]
    words = {
        item.text: items[other].text
        for at, item in enumerate(example.items)
        if 0 <= (other := position + at - old) < len(items)
    }
    depends_on = [f"q{other + position - old + 1}" for other in question["depends_on"]]
    copied = {
        "id": f"q{position + 1}",
        "keyword": position + 1,
        "question": _with_words(question["question"], words),
        "choices": [_with_words(choice, words) for choice in question["choices"]],
        "answer": _with_words(question["answer"], words),
        "justification": "",
        "depends_on": depends_on,
    }
    return copied if media == "video" else {**copied, "type": question["type"]}


def _with_words(text: str, words: Mapping[str, str]) -> str:
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    folded = {old.lower(): new for old, new in words.items()}
    return re.sub(rf"\b({pattern})\b", lambda match: folded[match[1].lower()], text, flags=re.IGNORECASE)


def _has_foreign_word(question: Mapping[str, Any], prompt: str, example: Example) -> bool:
    """Whether the question names an item of the example that the prompt does not have."""
    own = prompt.lower()
    return any(
        re.search(rf"\b{re.escape(item.text.lower())}\b", question["question"].lower()) and item.text.lower() not in own
        for item in example.items
    )


if __name__ == "__main__":
    main()
