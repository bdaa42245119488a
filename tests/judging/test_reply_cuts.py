"""A truncated reply is no answer, even if its server reports it complete: every truncation of each reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
from replies import ALIGNED, ANSWERS, KINDS, PAIR, RUBRIC, broken_forms, cuts, item


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_truncated_reply_is_unanswered_or_unchanged(kind: str) -> None:
    read, complete = KINDS[kind].scored, KINDS[kind].complete
    answers = {repr(read(whole)) for whole in complete}
    assert "None" not in answers, [whole for whole in complete if read(whole) is None]
    for whole in complete:
        answer = read(whole)
        others = [(cut, read(cut)) for cut in cuts(whole) if read(cut) not in (None, answer)]
        assert others == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("gecko answer", "zoom")])
def test_all_forms_of_a_reply_give_the_same_answer(kind: str) -> None:
    result = {repr(KINDS[kind].scored(whole)) for whole in KINDS[kind].complete}
    assert len(result) == 1


@pytest.mark.parametrize(
    ("kind", "answer"), [("rubric", RUBRIC), ("alignment", ALIGNED), ("gecko answers", ANSWERS), ("pairwise", PAIR)]
)
def test_what_would_have_to_be_guessed_is_no_answer(kind: str, answer: dict[str, Any]) -> None:
    assert {text: KINDS[kind].scored(text) for text in broken_forms(answer)} == dict.fromkeys(broken_forms(answer))


@pytest.mark.parametrize("inserted", ["]}", ",]}", "]},", "]} ", "]}\n```\n", "]},]}"])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_that_is_closed_in_its_middle_is_not_read_as_its_beginning(inserted: str, indent: int | None) -> None:
    text = json.dumps({"requirements": [item("a bun", met=True), item("snow", met=False)]}, indent=indent)
    end = text.index("}", text.index('"gap"')) + 1
    for at in (end, end + 1):
        assert KINDS["alignment"].scored(text[:at] + inserted + text[at:]) is None


@pytest.mark.parametrize("text", ["b", "n", "no", "none", "None of", "B"])
def test_a_prefix_of_another_choice_is_no_answer(text: str) -> None:
    assert KINDS["gecko answer"].scored(text) is None
