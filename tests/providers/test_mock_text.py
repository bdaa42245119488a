"""Text of the mock: glyphs, and unambiguous typos."""

from __future__ import annotations

from visioneval.providers.mock.text import _DIGIT_TYPOS, _LETTER_TYPOS, Dice, tidy, with_typo

LOOK_ALIKES = ("Il1|ij", "O0oQDC", "cCGeo", "sS5", "vVuUyY", "wW", "xXkK", "zZ2", "B8", "hbn", "rnm", "gq9")


def test_invisible_marks_and_unusual_spaces_are_no_glyphs():
    assert tidy(["Fresh\u00a0\u200bbread \n now", " ", "\ufe0f"]) == ("Fresh bread now",)


def test_typos_never_produce_look_alikes():
    for before, after in (_LETTER_TYPOS | _DIGIT_TYPOS).items():
        assert before.casefold() != after.casefold()
        assert not any(before in group and after in group for group in LOOK_ALIKES)
    letters = {char for char in map(chr, range(33, 127)) if char.isalnum()}
    assert letters == set(_LETTER_TYPOS) | set(_DIGIT_TYPOS)


def test_a_typo_never_produces_another_line():
    for seed in range(20):
        (wrong,) = with_typo(["A"], Dice(seed), excluded=["B"])
        assert wrong == "A"
        lines = with_typo(["42", "bread"], Dice(seed))
        assert lines[0] == "42"
        assert lines[1] != "bread"
    assert with_typo(["42"], Dice(0)) != ("42",)
    assert with_typo(["&"], Dice(0)) == ("&",)
