"""The worked examples in Gecko's templates, and how many malformed questions a judge that only copies writes with them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.bench import gecko_examples
from tests.bench.gecko_examples import COUNTS, Media, instructions, measure
from tests.bench.gecko_prompts import PROMPTS
from visioneval.graders.gecko.questions import ParsedQuestions, coverage, read_questions
from visioneval.suite.questions import TYPES, dependency_problems

MEDIA: tuple[Media, ...] = ("image", "video")


def examples(media: Media) -> list[tuple[str, Any]]:
    """Each worked example of a template: its prompt and its reply."""
    parts = instructions(media, 8).partition("## Your prompt")[0].split("## Example\n")[1:]
    return [(part.splitlines()[0].removeprefix("Prompt: "), json.loads(part[part.index("{") :])) for part in parts]


@pytest.mark.parametrize("media", MEDIA)
def test_every_example_is_a_reply_that_a_run_accepts_whole(media: Media) -> None:
    assert len(examples(media)) == 8
    for prompt, data in examples(media):
        parsed = read_questions(data, media)
        assert isinstance(parsed, ParsedQuestions), prompt
        assert parsed.dropped == ()
        assert coverage(parsed, parsed.questions) == 1
        assert list(dependency_problems(parsed.questions)) == []
        plain = data["keywords"]
        for item in parsed.items.values():
            plain = re.sub(r"\{\d+\}\[[^\]]+\]", lambda _, text=item.text: text, plain, count=1)
        assert plain == prompt


@pytest.mark.parametrize("media", MEDIA)
def test_the_examples_show_every_type_and_a_negation(media: Media) -> None:
    parsed = [read_questions(data, media) for _, data in examples(media)]
    questions = [question for item in parsed if isinstance(item, ParsedQuestions) for question in item.questions]
    assert {question.type for question in questions} == set(TYPES[media])
    negations = [question for question in questions if question.choices[question.expected] in ("no", "nobody")]
    assert len(negations) >= 2


@pytest.mark.parametrize("media", MEDIA)
def test_more_examples_leave_fewer_malformed_questions(media: Media) -> None:
    measured = [measure(media, count) for count in COUNTS[media]]
    rates = [item.rate for item in measured]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.7 * rates[0]
    assert measured[0].wrong_class > measured[-1].wrong_class == 0
    assert measured[-1].any > 0, "a judge that copies is never perfect"


@pytest.mark.parametrize("media", MEDIA)
def test_the_documented_numbers_are_measured(media: Media) -> None:
    for count in COUNTS[media]:
        item = measure(media, count)
        assert f"{media}  {count}  {item.rate:>4.1f} of 100" in (gecko_examples.__doc__ or "")


@pytest.mark.parametrize("media", MEDIA)
def test_no_measured_prompt_is_an_example(media: Media) -> None:
    plain = {re.sub(r"\[([^|\]]+)\|[^\]]+\]", r"\1", prompt) for prompt in PROMPTS[media]}
    assert plain.isdisjoint(prompt for prompt, _ in examples(media))
    assert len(plain) == len(PROMPTS[media])
