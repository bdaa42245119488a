"""Scores of rendered text that benchmarks report, on texts, through a judge and on LongText-Bench's lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval import TestCase
from visioneval.graders.text import TextGrader
from visioneval.graders.text.alphabet import words
from visioneval.graders.text.edits import levenshtein, normalized_edit_distance, word_accuracy

ALL = ("word_accuracy", "ned", "complete")
LONG_TEXT = Path(__file__).resolve().parents[4] / "shared" / "data" / "longtext" / "text_prompts.jsonl"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Fresh BREWS, every-morning!"], ["fresh", "brews", "every", "morning"]),
        (["Don\u2019t", "rock 'n' roll"], ["dont", "rock", "n", "roll"]),
        (["10\u201320 %", "\uff21\uff22"], ["10", "20", "ab"]),
        (["\u5927\u7279\u4ef7 Sale", "\u30b3\u30fc\u30d2\u30fc"], ["\u5927", "\u7279", "\u4ef7", "sale", *"\u30b3\u30fc\u30d2\u30fc"]),
        (["\u2605 \u2014 !"], []),
        ([], []),
    ],
)  # fmt: skip
def test_words(lines: list[str], expected: list[str]) -> None:
    assert words(lines) == expected


@pytest.mark.parametrize(
    ("expected", "read", "accuracy", "distance"),
    [
        (["SPRING SALE"], ["spring", "sale"], 1.0, 0.0),
        (["SPRING SALE"], ["sale spring"], 1.0, 8 / 10),  # the order counts for the distance alone
        (["SPRING SALE"], ["SPRNG SALE"], 0.5, 1 / 10),
        (["SPRING SALE"], ["SPRING SALE today"], 1.0, 5 / 15),
        (["SPRING SALE"], [], 0.0, 1.0),
        (["go go go"], ["go go"], 2 / 3, 2 / 6),
        (["go"], ["go go go"], 1.0, 4 / 6),
        (["abc"], ["xyz"], 0.0, 1.0),
    ],
)
def test_scores_of_texts(expected: list[str], read: list[str], accuracy: float, distance: float) -> None:
    assert word_accuracy(expected, read) == pytest.approx(accuracy)
    assert normalized_edit_distance(expected, read) == pytest.approx(distance)


def test_lines_without_words_have_no_word_accuracy() -> None:
    with pytest.raises(ValueError, match="no word"):
        word_accuracy(["***"], ["x"])
    assert normalized_edit_distance([], []) == 0


def _slow(a: str, b: str) -> int:
    rows = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, rows[0] = rows[0], i
        for j, y in enumerate(b, 1):
            before, rows[j] = rows[j], min(rows[j] + 1, rows[j - 1] + 1, before + (x != y))
    return rows[-1]


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_the_distance_is_levenshteins(a: str, b: str) -> None:
    assert levenshtein(a, b) == levenshtein(b, a) == _slow(a, b)


def case(text: dict[str, Any]) -> TestCase:
    return TestCase.model_validate({"id": "one", "prompt": "x", "expect": {"text": text}})


def test_only_cases_with_words_have_them() -> None:
    config = TextGrader.model_validate({"type": "text", "key": "copy", "measure": ALL})
    assert "copy.ned" in config.metrics(case({"required": ["SALE"]}))
    assert "copy.ned" not in config.metrics(case({"required": ["***"]}))
    assert "copy.ned" not in config.metrics(case({"forbidden": ["SALE"]}))


def test_a_grader_without_them_keeps_its_hash() -> None:
    plain = TextGrader.model_validate({"type": "text", "key": "copy"})
    assert "measure" not in plain.key_options
    assert "measure" in TextGrader.model_validate({"type": "text", "key": "copy", "measure": ["ned"]}).key_options


@pytest.mark.skipif(not LONG_TEXT.is_file(), reason="needs the shared data")
def test_the_lines_of_longtext_bench() -> None:
    rows = [json.loads(line) for line in LONG_TEXT.read_text().splitlines()]
    assert len(rows) == 40
    for row in rows:
        lines = row["text"]
        assert (word_accuracy(lines, lines), normalized_edit_distance(lines, lines)) == (1.0, 0.0)
        half = word_accuracy(lines, [" ".join(words(lines)[::2])])
        assert 0.4 < half < 0.7
