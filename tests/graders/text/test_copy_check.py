# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from visioneval.graders.text.check import CopyCheck, Extra, check
from visioneval.graders.text.layout import Reading, follows
from visioneval.graders.text.match import copy_of, skeleton
from visioneval.suite.case import ExpectText


def compare(read: list[str], *, fold: bool = True, **expected: object) -> CopyCheck:
    return check([Reading(text) for text in read], ExpectText.model_validate(expected), fold=fold)


def labels(extras: Iterable[Extra]) -> list[str]:
    return [extra.label for extra in extras]


def box(text: str, left: float, top: float, width: float, height: float = 20) -> Reading:
    right, bottom = left + width, top + height
    return Reading(text, 1.0, ((left, top), (right, top), (right, bottom), (left, bottom)))


@pytest.mark.parametrize(
    ("required", "read"),
    [
        (["THE"], ["THE"]),
        (["THE"], ["IN THE SNOW"]),
        (["BOSTON AND"], ["BOSTONAND"]),
        (["BOSTON AND"], ["BOSTONAND MAINE RAILROAD"]),
        (["BOSTON AND MAINE RAILROAD"], ["BOSTONAND", "MAINE RAILROAD"]),
        (["BOSTON AND", "MAINE RAILROAD"], ["BOSTONANDMAINERAILROAD"]),
        (["BOSTON AND", "MAINE RAILROAD"], ["BOSTON ANDMAINE RAILROAD"]),
        (["NEW ENGLAND!", "MAINE"], ["NEWENGLAND!MAINE"]),
        (["SUMMER"], ["SUM MER"]),
        (["20% OFF"], ["GET20% OFF", "20%OFF"]),
        (["SALE"], ["SALE!"]),
        (["SALE"], ["“SALE”"]),
        (["OPEN"], ["OPEN•DAILY•FREE"]),
        (["$4.50"], ["Latte $4.50"]),
        (["Aug 12-14"], ["Aug 12 – 14"]),
        (["Don't miss"], ["Don’t miss it"]),
        (["Wait..."], ["Wait…"]),
        (["Wait…"], ["Wait..."]),
        (["A — B"], ["A -- B"]),
        (["• Fresh"], ["· Fresh"]),
        (["ＳＡＬＥ"], ["SALE"]),
        (["cafe\u0301"], ["café"]),
        (["SALE", "SALE"], ["SALE", "BIG SALE"]),
        (["BIG SALE", "SALE"], ["SALE", "BIG SALE"]),
        (["営業中"], ["本日営業中です"]),
        (["3"], ["3月"]),
        (["-20°"], ["-20°"]),
        (["8:43:13 PM"], ["8:43:13 PM— 1 min"]),
    ],
)
def test_required_lines_that_are_there(required: list[str], read: list[str]) -> None:
    result = compare(read, required=required)
    assert (result.passed, result.recall, result.cer, result.missing) == (True, 1.0, 0.0, ())


@pytest.mark.parametrize(
    ("required", "read"),
    [
        ("THE", "OTHER"),
        ("PLANE", "PLANET"),
        ("TRAIN", "TRAINING"),
        ("4.50", "$4.50"),
        ("$4.50", "$14.50"),
        ("$4.50", "$4.500"),
        ("4", "4.50"),
        ("1", "1,000"),
        ("7", "7:30"),
        ("20", "20%"),
        ("20", "-20"),
        ("can", "can't"),
        ("well", "well-known"),
        ("Aug 12", "Aug 12-14"),
        ("Aug 12", "Aug 12—14"),
        ("well", "well—known"),
        ("pre", "pre- and post-war"),
        ("SALE!", "SALE"),
        ("Sale", "SALE"),
        ("BIG SALE", "SALE BIG"),
        ("café", "cafe"),
    ],
)
def test_required_lines_that_are_not_there(required: str, read: str) -> None:
    result = compare([read], required=[required])
    assert result.passed is False
    assert result.recall == 0
    assert result.cer is not None
    assert 0 < result.cer <= 1


@pytest.mark.parametrize(
    ("forbidden", "read", "there"),
    [
        ("TRAIN", ["THE TRAIN"], True),
        ("TRAIN", ["TRAIN!"], True),
        ("TRAIN", ["TRAINING"], False),
        ("TRAIN", ["STRAIN"], False),
        ("SALE", ["SALE", "NOT FOR SALE"], True),
        ("SALE", ["NOT FOR SALE"], False),
        ("PAST SALE", ["PASTSALE"], True),
    ],
)
def test_forbidden_lines(forbidden: str, read: list[str], there: bool) -> None:
    result = compare(read, forbidden=[forbidden], allowed=["NOT FOR SALE"])
    assert result.passed is not there
    assert [pair.line for pair in result.forbidden] == [forbidden] * there


def test_a_line_required_twice_must_appear_twice() -> None:
    result = compare(["SALE", "NOW"], required=["SALE", "SALE"])
    assert result.passed is False
    assert result.recall == 0.5
    (miss,) = result.missing
    assert (miss.have, miss.want) == (1, 2)


def test_a_line_inside_another_required_line_must_appear_separately() -> None:
    assert compare(["BIG SALE"], required=["SALE", "BIG SALE"]).recall == 0.5


def test_the_choice_that_loses_a_line_is_not_taken() -> None:
    result = compare(["RED RED BLUE", "BLUE GREEN"], required=["RED", "RED BLUE", "BLUE GREEN"])
    assert result.passed is True
    result = compare(["AA BB", "CC", "BB CC DD"], required=["AA BB CC", "BB CC", "DD"])
    assert result.passed is True


@pytest.mark.parametrize(
    ("required", "read", "differences"),
    [
        ("BUTTER & FLOUR", "BUTER & FLOUR", ("missing T at 4",)),
        ("BUTTER & FLOUR", "BUTTTER & FLOUR", ("extra T at 5",)),
        ("BUTTER & FLOUR", "BUTTER & FLOOR", ("O instead of U at 13",)),
        ("BUTTER & FLOUR", "BUTTER FLOUR", ("missing & at 8",)),
        ("SALE", "SALES", ("extra S at 5",)),
    ],
)
def test_a_near_miss_reports_the_different_characters(required: str, read: str, differences: tuple[str, ...]) -> None:
    result = compare(["Grand opening", read, "Free entry"], required=[required])
    (miss,) = result.missing
    assert (miss.nearest, miss.differences, miss.edits) == (read, differences, 1)
    assert result.cer == pytest.approx(1 / len(required.replace(" ", "")))


def test_a_miss_without_a_similar_reading_names_none() -> None:
    result = compare(["XYZ"], required=["BUTTER"])
    (miss,) = result.missing
    assert (miss.nearest, miss.edits, result.cer) == (None, 6, 1.0)


def test_the_reading_of_another_line_is_not_the_nearest() -> None:
    (miss,) = compare(["SALE NOW"], required=["SALE NOW", "SALE HOW"]).missing
    assert miss.nearest is None


@pytest.mark.parametrize(
    ("required", "read"),
    [("Illinois", "lllinois"), ("20% OFF", "20% 0FF"), ("OFF 1l", "OFF Il"), ("NOW", "NoW")],
)
def test_look_alikes_leave_the_result_open(required: str, read: str) -> None:
    result = compare([read], required=[required])
    assert (result.passed, result.recall, result.cer, result.missing) == (None, None, None, ())
    assert [(pair.line, pair.read) for pair in result.unsettled] == [(required, read)]


def test_a_real_miss_outweighs_a_look_alike() -> None:
    result = compare(["20% 0FF"], required=["20% OFF", "TODAY"])
    assert (result.passed, result.recall) == (False, None)


def test_a_possible_forbidden_line_leaves_the_result_open() -> None:
    result = compare(["0IL"], forbidden=["OIL"])
    assert result.passed is None
    assert [pair.read for pair in result.unsettled_forbidden] == ["0IL"]


@pytest.mark.parametrize(
    ("forbidden", "read", "passed"),
    [
        ("into", ["log in to"], None),
        ("into", ["log in to", "go into"], False),
        ("TRAIN", ["T R A I N"], False),
        ("BIG SALE", ["BIGSALE"], False),
        ("BIG SALE", ["BIG", "SALE"], False),
    ],
)
def test_a_forbidden_line_in_other_spaces(forbidden: str, read: list[str], passed: bool | None) -> None:
    assert compare(read, forbidden=[forbidden]).passed is passed


def test_the_nearest_reading_may_run_over_several() -> None:
    (miss,) = compare(["Join our", "Saturdy class", "today"], required=["our Saturday class"]).missing
    assert (miss.nearest, miss.differences) == ("our Saturdy class", ("missing a at 11",))


def test_a_look_alike_of_a_required_line_is_not_forbidden() -> None:
    assert compare(["OIL"], required=["OIL"], forbidden=["0IL"]).passed is True


def test_without_folding_similar_characters_differ() -> None:
    assert compare(["0IL"], forbidden=["OIL"], fold=False).passed is True
    assert compare(["20% 0FF"], required=["20% OFF"], fold=False).passed is False
    assert compare(["A - B"], required=["A — B"], fold=False).passed is False
    assert compare(["A — B"], required=["A — B"], fold=False).passed is True
    assert compare(["A — B"], required=["A — B"], fold=False).folded == {}


def test_folded_characters_are_named() -> None:
    assert compare(["A - B..."], required=["A — B…", "A-B"]).folded == {"—": "-"}


def test_extra_text_is_text_outside_all_lines() -> None:
    expected = {"required": ["SALE"], "allowed": ["Acme", "20% OFF"], "extra": "forbid"}
    assert compare(["SALE", "Acme Acme", "20% 0FF", "•", "—"], **expected).passed is True
    assert compare(["SALE", "Acme"], required=["SALE"]).passed is True
    result = compare(["SALE SALE", "Acme Inc", "Lorem ipsum"], **expected)
    assert result.passed is False
    assert labels(result.extra) == ["SALE (in SALE SALE)", "Inc (in Acme Inc)", "Lorem ipsum"]
    assert labels(compare(["SALE!"], **expected).extra) == ["! (in SALE!)"]


def test_a_low_confidence_reading_is_in_doubt_if_required_and_else_not_counted() -> None:
    readings = [Reading("SALE", 0.3), Reading("JUNK", 0.2), Reading("NOW", 0.9)]
    expected = ExpectText(required=("SALE", "NOW"), forbidden=("JUNK",), extra="forbid")
    result = check(readings, expected, fold=True, min_confidence=0.5)
    assert (result.passed, result.missing, result.forbidden, result.extra) == (None, (), (), ())
    assert [(pair.line, pair.doubt, pair.readings) for pair in result.unsettled] == [("SALE", "faint", (0,))]
    assert [pair.readings for pair in result.matched] == [(2,)]


def test_a_blank_image_misses_all_lines() -> None:
    result = compare([], required=["SALE", "NOW"], forbidden=["X"])
    assert (result.passed, result.recall, result.cer) == (False, 0.0, 1.0)


def test_rates_need_required_lines() -> None:
    result = compare(["NOW"], forbidden=["SALE"])
    assert (result.passed, result.recall, result.cer) == (True, None, None)


def test_lines_wrap_within_their_column() -> None:
    readings = [
        box("Every loaf", 0, 0, 100),
        box("Join our", 300, 0, 100),
        box("is shaped", 0, 30, 100),
        box("Saturday", 300, 30, 60),
        box("class", 364, 30, 40),
    ]
    expected = ExpectText(required=("Every loaf is shaped", "Join our Saturday class"))
    assert check(readings, expected, fold=True).passed is True


def test_a_price_at_the_end_of_its_row_belongs_to_the_dish() -> None:
    readings = [box("Latte", 0, 0, 60), box("$4", 500, 2, 30), box("Mocha", 0, 30, 60), box("$5", 500, 32, 30)]
    good, bad = (ExpectText(required=lines) for lines in (("Latte $4", "Mocha $5"), ("Latte $5",)))
    assert check(readings, good, fold=True).passed is True
    assert check(readings, bad, fold=True).passed is False


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


WORDS = st.text(alphabet="ABDEFGHJKLMN", min_size=2, max_size=7)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=5)


def clear_of_words(lines: list[str]) -> bool:
    """No word is a prefix or suffix of another, so that only line breaks are tested."""
    words = sorted({word for line in lines for word in line.split()})
    return not any(a != b and (a in b or b in a) for a in words for b in words)


@given(LINES, st.data())
def test_cutting_readings_anywhere_loses_no_line(lines: list[str], data: st.DataObject) -> None:
    read: list[str] = []
    for line in lines:
        places = st.integers(0, len(line))
        cuts = sorted(data.draw(st.sets(places, max_size=3)) | {0, len(line)})
        read.extend(part for a, b in pairwise(cuts) if (part := line[a:b].strip()))
    assert compare(read, required=lines).recall == 1.0


@given(LINES, st.data())
def test_joining_readings_and_dropping_spaces_loses_no_line(lines: list[str], data: st.DataObject) -> None:
    text = "".join(line + data.draw(st.sampled_from(["", " "])) for line in lines)
    read = "".join(char for char in text if char != " " or data.draw(st.booleans()))
    assert compare([read], required=lines).recall == 1.0


@given(LINES, st.data())
def test_a_lost_character_is_always_a_near_miss(lines: list[str], data: st.DataObject) -> None:
    line = lines[0]
    at = data.draw(st.sampled_from([position for position, char in enumerate(line) if char != " "]))
    broken = line[:at] + line[at + 1 :]
    result = compare([broken], required=[line])
    assert result.passed is False
    assert result.missing[0].edits == 1
    assert result.missing[0].nearest is not None
    assert result.missing[0].differences[0].startswith(f"missing {line[at]} at ")


@given(LINES, st.lists(st.text(alphabet="PQRSTUVWXYZ 0123456789-!", max_size=12), max_size=4), st.randoms())
def test_more_text_breaks_no_line(lines: list[str], more: list[str], random: object) -> None:
    read = [*lines, *more]
    random.shuffle(read)  # type: ignore[attr-defined]
    assert compare(read, required=lines).recall == 1.0


@given(LINES)
def test_the_exact_copy_passes_with_and_without_folding(lines: list[str]) -> None:
    assume(clear_of_words(lines))
    for fold in (True, False):
        result = compare(lines, fold=fold, required=lines, extra="forbid")
        assert (result.passed, result.cer, result.extra) == (True, 0.0, ())


@given(st.text(alphabet="AB ", max_size=12), st.text(alphabet="AB", min_size=1, max_size=6))
def test_the_nearest_reading_has_the_fewest_edits_of_all_stretches(read: str, line: str) -> None:
    def distance(single: str, other: str) -> int:
        if not single or not other:
            return len(single) + len(other)
        changed = distance(single[1:], other[1:]) + (single[0] != other[0])
        return changed if single[0] == other[0] else min(changed, *(1 + distance(*p) for p in
            ((single[1:], other), (single, other[1:]))))  # fmt: skip

    words = read.split()
    stretches = ["".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1)]
    assume(line not in stretches)
    result = compare([read], fold=False, required=[line])
    assume(result.missing)
    assert result.missing[0].edits == min([len(line), *(distance(line, item) for item in stretches)])


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"])))
def test_any_text_matches_itself(text: str) -> None:
    for fold in (True, False):
        copy = copy_of(text, fold=fold)
        assert len(copy.chars) == len(copy.source) == len(skeleton(copy.chars))
        if copy.chars:
            assert compare([text], fold=fold, required=[text], extra="forbid").passed is True


@given(st.lists(st.text(alphabet="AaOo0Il1 -", max_size=8), max_size=6), st.text(alphabet="AaOo0Il1 -", min_size=1))
def test_scores_keep_their_ranges(read: list[str], line: str) -> None:
    result = compare(read, required=[line], forbidden=["O0"], extra="forbid")
    for rate in (result.recall, result.cer):
        assert rate is None or 0 <= rate <= 1
    if result.passed:
        assert (result.missing, result.forbidden, result.extra, result.unsettled) == ((), (), (), ())
