"""Readings of several looks at one image: what is of the same text counts once."""

from __future__ import annotations

from visioneval.graders.text.layout import Reading, apart, bounds, follows, merged, overlap


def box(text: str, left: float, top: float, width: float, height: float = 20, confidence: float = 1.0) -> Reading:
    right, bottom = left + width, top + height
    return Reading(text, confidence, ((left, top), (right, top), (right, bottom), (left, bottom)))


def texts(*looks: list[Reading]) -> list[str]:
    return [reading.text for reading in merged(looks)]


def test_readings_apart_all_count_from_top_to_bottom() -> None:
    assert texts([box("c", 0, 90, 20), box("a", 5, 0, 20)], [box("b", 0, 50, 20)]) == ["a", "b", "c"]
    assert texts() == []
    assert texts([], [box("a", 0, 0, 20)], []) == ["a"]


def test_a_reading_cut_at_a_rim_is_not_doubled() -> None:
    whole, cut = box("Grand opening", 0, 0, 130), box("opening", 60, 0, 70)
    assert texts([cut], [whole]) == texts([whole], [cut]) == ["Grand opening"]
    unsure = box("Grand openirg", 0, 0, 130, confidence=0.3)
    assert texts([unsure], [box("opening", 60, 0, 70)]) == ["opening"], "more and surer characters"


def test_equal_looks_leave_the_first() -> None:
    first, second = box("SALE", 0, 0, 80), box("SAIE", 1, 1, 80)
    assert texts([first], [second]) == ["SALE"]
    assert texts([second], [first]) == ["SAIE"]


def test_one_looks_two_words_are_the_others_line() -> None:
    line, words = box("BIG SALE", 0, 0, 160), [box("BIG", 0, 0, 70), box("SALE", 80, 0, 80)]
    assert texts([line], words) == ["BIG SALE"]
    assert texts([box("BIG SALE", 0, 0, 160, confidence=0.5)], words) == ["BIG", "SALE"]


def test_what_overlaps_through_a_third_is_one_text() -> None:
    left, middle, right = box("ONE TWO", 0, 0, 100), box("TWO THREE", 45, 0, 110), box("THREE FOUR", 100, 0, 120)
    assert not overlap(left, right)
    assert texts([left, right], [middle]) == ["ONE TWO", "THREE FOUR"]


def test_half_of_the_smaller_box_is_the_same_text() -> None:
    line = box("line", 0, 0, 100)
    assert overlap(line, box("half", 90, 0, 20))
    assert not overlap(line, box("less", 91, 0, 20))
    assert overlap(line, box("half", 10, 10, 20))
    assert not overlap(line, box("below", 0, 20, 100)), "boxes that only touch"
    assert not overlap(line, Reading("nowhere"))


def test_what_is_apart_from_others_is_kept_in_order() -> None:
    known = [box("SALE", 0, 0, 80)]
    found = [box("b", 0, 300, 20), box("SALES", 0, 0, 90), box("a", 0, 100, 20)]
    assert [reading.text for reading in apart(found, known)] == ["b", "a"]
    assert apart(found, []) == found


def test_bounds_are_around_a_turned_text() -> None:
    turned = Reading("x", 1.0, ((30.0, 0.0), (60.0, 30.0), (30.0, 60.0), (0.0, 30.0)))
    assert bounds(turned) == (0, 0, 60, 60)
    assert bounds(Reading("x")) == (0, 0, 0, 0)


def test_a_tilted_row_is_one_row() -> None:
    # 10 degrees: the last word of the row is lower than the first word of the next row
    def tilted(text: str, x: float, y: float) -> Reading:
        turned = [(px * 0.985 - py * 0.174, px * 0.174 + py * 0.985) for px, py in
                  ((x, y), (x + 90, y), (x + 90, y + 20), (x, y + 20))]  # fmt: skip
        a, b, c, d = turned
        return Reading(text, 1.0, (a, b, c, d))

    readings = [tilted("GRAND", 0, 0), tilted("OPENING", 300, 0), tilted("FREE", 0, 30), tilted("ENTRY", 300, 30)]
    assert follows(readings)[0][0] == 1
    assert follows(readings)[2][0] == 3
