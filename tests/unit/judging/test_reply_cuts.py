"""A truncated reply is no answer, even if its server reports it complete: every truncation of each reply."""

from __future__ import annotations

import pytest
from replies import KINDS, cuts


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


@pytest.mark.parametrize("text", ["b", "n", "no", "none", "None of", "B"])
def test_a_prefix_of_another_choice_is_no_answer(text: str) -> None:
    assert KINDS["gecko answer"].scored(text) is None
