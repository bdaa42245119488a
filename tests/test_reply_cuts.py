"""A reply that was cut off anywhere is no answer, whatever its server says: each beginning of each reply, by function."""

from __future__ import annotations

import pytest
from replies import KINDS, cuts


@pytest.mark.parametrize("kind", KINDS)
def test_each_beginning_of_each_reply_is_no_answer_or_the_same(kind: str) -> None:
    read, wholes = KINDS[kind].scored, KINDS[kind].wholes
    answers = {repr(read(whole)) for whole in wholes}
    assert "None" not in answers, [whole for whole in wholes if read(whole) is None]
    for whole in wholes:
        answer = read(whole)
        others = [(cut, read(cut)) for cut in cuts(whole) if read(cut) not in (None, answer)]
        assert others == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("gecko answer", "zoom")])
def test_all_forms_of_a_reply_give_one_answer(kind: str) -> None:
    result = {repr(KINDS[kind].scored(whole)) for whole in KINDS[kind].wholes}
    assert len(result) == 1


@pytest.mark.parametrize("text", ["b", "n", "no", "none", "None of", "B"])
def test_words_alone_that_another_choice_begins_with_are_no_answer(text: str) -> None:
    assert KINDS["gecko answer"].scored(text) is None
