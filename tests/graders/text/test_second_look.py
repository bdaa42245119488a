"""The second look: when there is one, how closely it looks, and what the weighed lines count as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from PIL import Image

from visioneval.graders.text import networks, ocr
from visioneval.graders.text.check import CopyCheck, check
from visioneval.graders.text.layout import Corners, Reading
from visioneval.graders.text.second_look import FEW, POSSIBLE, SURE, SURE_IN_ONE, is_needed, look_again
from visioneval.suite.case import ExpectText

MIN_CONFIDENCE = 0.5
LITTLE = 0.001
NO = POSSIBLE - 1
SMALL, LARGE = (1024, 1024), (2001, 2000)


def box(text: str, left: float = 0, top: float = 0, width: float = 100, height: float = 20, **options: Any) -> Reading:
    right, bottom = left + width, top + height
    return Reading(text, **{"corners": ((left, top), (right, top), (right, bottom), (left, bottom)), **options})


def rows(*texts: str) -> list[Reading]:
    """Readings that are far from each other."""
    return [box(text, top=200 * row) for row, text in enumerate(texts)]


@dataclass
class Looks:
    """What was looked at more closely, and which texts were weighed in views of which sizes."""

    closer: list[str] = field(default_factory=list)
    weighed: list[str] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, int]] = field(default_factory=list)
    """The sizes of the rows that were read in one piece."""


Look = Callable[..., tuple[list[Reading], CopyCheck, Looks]]


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Look:
    """Looks again at readings, with networks that say ``likely``: for a text, its log-likelihood in one view after the other."""

    def run(
        read: Sequence[Reading],
        likely: dict[str, tuple[float, ...]] | None = None,
        *,
        windows: Sequence[Reading] = (),
        enlarged: Sequence[Reading] = (),
        whole: tuple[str, float] = ("", 0.0),
        images: int = 1,
        size: tuple[int, int] = SMALL,
        **expected: Any,
    ) -> tuple[list[Reading], CopyCheck, Looks]:
        looks = Looks()

        def crop(image: Image.Image, corners: Corners) -> Image.Image:
            (left, top), _, (right, bottom), _ = corners
            return Image.new("RGB", (round(right - left), round(bottom - top)))

        def log_likelihood(line: Image.Image, text: str) -> float:
            views = (likely or {}).get(text, (NO,))
            view = looks.weighed.count(text) % len(views)
            looks.weighed.append(text)
            looks.sizes.append(line.size)
            return views[view]

        def closer(name: str, found: Sequence[Reading]) -> Callable[..., list[Reading]]:
            return lambda *arguments: looks.closer.append(name) or list(found)  # type: ignore[func-returns-value]

        def read_line(line: Image.Image) -> networks.Line:
            looks.rows.append(line.size)
            text, confidence = whole
            return networks.Line(text, confidence, (0.5,) * len(text.replace(" ", "")))

        monkeypatch.setattr(networks, "crop", crop)
        monkeypatch.setattr(networks, "read_line", read_line)
        monkeypatch.setattr(networks, "log_likelihood", log_likelihood)
        monkeypatch.setattr(ocr, "read_windows", closer("windows", windows))
        monkeypatch.setattr(ocr, "read_enlarged", closer("enlarged", enlarged))
        wanted = ExpectText.model_validate(expected)
        seen = look_again([Image.new("RGB", size)] * images, read, wanted, MIN_CONFIDENCE)
        return seen, check(seen, wanted, fold=True, min_confidence=MIN_CONFIDENCE), looks

    return run


def texts(readings: Sequence[Reading]) -> list[str]:
    return [reading.text for reading in readings]


@pytest.mark.parametrize(
    ("expected", "passed", "count", "size", "needed"),
    [
        ({"required": ["SALE"]}, True, 0, LARGE, False),
        ({"required": ["SALE"]}, False, 50, SMALL, True),
        ({"required": ["SALE"]}, None, 50, SMALL, True),
        ({"forbidden": ["SALE"]}, True, FEW, SMALL, True),
        ({"forbidden": ["SALE"]}, True, FEW + 1, SMALL, False),
        ({"forbidden": ["SALE"]}, True, FEW + 1, LARGE, True),
        ({"forbidden": ["SALE"]}, False, FEW + 1, SMALL, False),
        ({"forbidden": ["SALE"]}, True, FEW + 1, (2000, 2000), False),
        ({"extra": "forbid"}, True, 0, SMALL, True),
        ({"extra": "forbid"}, True, FEW + 1, SMALL, False),
        ({"extra": "forbid"}, False, FEW + 1, SMALL, False),
        ({"required": ["SALE"], "extra": "forbid"}, True, FEW, SMALL, True),
        ({"required": ["SALE"], "forbidden": ["NOW"]}, True, FEW + 1, SMALL, False),
        ({"required": ["SALE"], "allowed": ["NOW"]}, True, 0, SMALL, False),
    ],
)
def test_a_second_look_where_it_may_change_the_verdict(
    expected: dict[str, Any], passed: bool | None, count: int, size: tuple[int, int], needed: bool
) -> None:
    assert is_needed(rows(*["Hey"] * count), ExpectText.model_validate(expected), passed=passed, size=size) is needed


def test_a_line_that_nothing_is_similar_to_is_looked_for_more_and_more_closely(look: Look) -> None:
    _, result, looks = look(rows("Bakery"), required=["SALE"])
    assert (result.passed, looks.closer, looks.weighed) == (False, ["windows", "enlarged"], [])
    seen, result, looks = look(rows("Bakery"), windows=[box("SALE", top=90)], required=["SALE"])
    assert (result.passed, looks.closer, texts(seen)) == (True, ["windows"], ["Bakery", "SALE"])
    seen, result, looks = look(rows("Bakery"), enlarged=[box("SALE", top=90)], required=["SALE"])
    assert (result.passed, looks.closer, texts(seen)) == (True, ["windows", "enlarged"], ["Bakery", "SALE"])


def test_text_that_was_not_surely_read_is_looked_at_more_closely(look: Look) -> None:
    unsure = box("Qxzv", confidence=0.4)
    _, result, looks = look([unsure], required=["SALE"])
    assert (result.passed, looks.closer) == (None, ["windows", "enlarged"])
    _, result, looks = look([unsure], enlarged=[box("SALE", confidence=0.9)], required=["SALE"])
    assert (result.passed, looks.closer) == (True, ["windows", "enlarged"])


@pytest.mark.parametrize(
    ("read", "others", "closer"),
    [
        ("SUMMFR SAIE", 0, ["windows"]),
        ("SUMMFR SAIE", FEW - 1, ["windows"]),
        ("SUMMFR SAIE", FEW, []),
        ("SVMMFR SAIE", FEW, ["windows", "enlarged"]),
    ],
)
def test_a_misspelled_line_is_weighed_and_looked_for_where_there_is_little_else(
    look: Look, read: str, others: int, closer: list[str]
) -> None:
    _, result, looks = look(rows(read, *["Hey"] * others), required=["SUMMER SALE"])
    assert (result.passed, looks.closer, set(looks.weighed)) == (False, closer, {"SUMMERSALE"})
    sure = {"SUMMERSALE": (0.0,) * 4}
    _, result, looks = look(rows(read, *["Hey"] * others), sure, required=["SUMMER SALE"])
    assert (result.passed, looks.closer) == (True, []), "it is weighed first"
    found = box("SUMMER SALE", top=7777)
    assert look(rows(read, *["Hey"] * others), windows=[found], required=["SUMMER SALE"])[1].passed is bool(closer)


def test_a_line_that_may_be_there_is_not_looked_for(look: Look) -> None:
    _, result, looks = look(rows("SALF"), {"SALE": (POSSIBLE,) * 4}, required=["SALE"])
    assert (result.passed, looks.closer) == (None, [])


def test_what_a_closer_look_nearly_reads_is_weighed(look: Look) -> None:
    _, result, looks = look([], {"SALE": (0.0,) * 4}, windows=[box("SALF")], required=["SALE"])
    assert (result.passed, looks.closer) == (True, ["windows"])
    _, result, looks = look([], {"SALE": (0.0,) * 4}, enlarged=[box("SALF")], required=["SALE"])
    assert (result.passed, looks.closer) == (True, ["windows", "enlarged"])


@pytest.mark.parametrize(("confidence", "passed"), [(0.4, None), (0.6, True)])
def test_a_faint_line_is_looked_for_in_windows(look: Look, confidence: float, passed: bool | None) -> None:
    faint, again = (box("SALE", confidence=given) for given in (0.3, confidence))
    _, result, looks = look([faint], windows=[again], required=["SALE"])
    assert (result.passed, looks.closer) == (passed, ["windows"])


def test_what_may_hide_is_looked_for_in_windows_alone(look: Look) -> None:
    for expected in ({"forbidden": ["SALE"]}, {"extra": "forbid"}):
        _, result, looks = look([], windows=[box("SALE")], **expected)
        assert (result.passed, looks.closer) == (False, ["windows"])
        _, result, looks = look([], **expected)
        assert (result.passed, looks.closer) == (True, ["windows"])
    many = rows(*["Hey"] * (FEW + 1))
    assert look(many, required=["Hey"], forbidden=["SALE"])[2].closer == []
    assert look(many, required=["Hey"], forbidden=["SALE"], size=LARGE)[2].closer == ["windows"]


@pytest.mark.parametrize(
    ("text", "confidence", "passed"),
    [("111", 0.55, True), ("I|l1", 0.89, True), ("111", 0.9, False), ("112", 0.55, False), ("Hey", 0.55, False)],
)
def test_bars_that_a_closer_look_reads_are_no_sure_extra(
    look: Look, text: str, confidence: float, passed: bool
) -> None:
    shape = box(text, top=500, confidence=confidence)
    seen, result, _ = look(rows("SALE"), windows=[shape], required=["SALE"], extra="forbid")
    assert (result.passed, len(result.doubtful_extra), shape in seen) == (passed, passed, True)
    for kind in ("forbidden", "required"):
        seen, _, _ = look(rows("SALE"), windows=[shape], **{kind: [text]}, extra="forbid")
        assert shape in seen, "it is a line"


def test_a_forbidden_line_is_neither_weighed_as_a_required_one_nor_read_again(look: Look) -> None:
    sure = {"SALE50%": (0.0,) * 4}
    wanted = {"required": ["SALE 50%"], "forbidden": ["SALE 60%"]}
    seen, result, looks = look(rows("SALE 60%"), sure, **wanted)
    assert (result.passed, looks.weighed, texts(seen)) == (False, [], ["SALE 60%"])
    assert [pair.line for pair in result.forbidden] == ["SALE 60%"]
    assert look(rows("SALE 60%"), sure, required=["SALE 50%"])[1].passed is True
    forbidden = box("Soup", confidence=0.6)
    other = box("S0up!", confidence=1.0)
    seen, result, _ = look([forbidden], windows=[other], enlarged=[other], required=["NOWHERE"], forbidden=["Soup"])
    assert (seen, len(result.forbidden)) == ([forbidden], 1)


def test_what_a_closer_look_does_not_change_is_weighed_once(look: Look) -> None:
    _, _, looks = look(rows("SALF"), required=["SALE"])
    assert (looks.closer, len(looks.weighed)) == (["windows"], 4)


def test_each_background_is_looked_at(look: Look) -> None:
    _, _, looks = look([], images=2, required=["SALE"])
    assert looks.closer == ["windows"] * 2 + ["enlarged"] * 2
    _, result, looks = look(rows("SALF"), {"SALE": (NO, NO, NO, NO)}, images=2, required=["SALE"])
    assert (result.passed, looks.closer, len(looks.weighed)) == (False, ["windows"] * 2, 8)


def test_a_reading_of_a_required_line_stays_as_it_is(look: Look) -> None:
    settled = box("SALE", confidence=0.6)
    seen, result, _ = look([settled], windows=[box("SALEZZZZ", confidence=1.0)], required=["SALE", "NOW"])
    assert seen == [settled]
    assert [pair.line for pair in result.matched] == ["SALE"]
    other = box("Bahery", top=400, confidence=0.6)
    better = replace(other, text="Bakery", confidence=0.9)
    seen, result, _ = look([settled, other], enlarged=[better], required=["SALE", "NOWHERE"])
    assert seen == [settled, better], "what no line explains may be read better"


@pytest.mark.parametrize(
    ("likely", "passed"),
    [
        ((SURE, SURE, NO, NO), True),
        ((SURE, SURE - LITTLE, NO, NO), None),
        ((SURE - LITTLE, SURE, NO, NO), None),
        ((0.0, NO, NO, NO), None),
        ((NO, 0.0, NO, NO), None),
        ((POSSIBLE, NO, NO, NO), None),
        ((NO, POSSIBLE, NO, NO), None),
        ((POSSIBLE - LITTLE, POSSIBLE - LITTLE, NO, NO), False),
        ((POSSIBLE, NO, SURE_IN_ONE, NO), True),
        ((POSSIBLE, NO, NO, SURE_IN_ONE), True),
        ((POSSIBLE, NO, SURE_IN_ONE - LITTLE, SURE_IN_ONE - LITTLE), None),
        ((POSSIBLE - LITTLE, POSSIBLE - LITTLE, 0.0, 0.0), False),
        ((float("-inf"),) * 4, False),
    ],
)
def test_how_likely_a_line_is_decides(look: Look, likely: tuple[float, ...], passed: bool | None) -> None:
    seen, result, _ = look(rows("BIG SALF"), {"BIGSALE": likely}, required=["BIG SALE"])
    assert result.passed is passed
    (reading,) = seen
    if passed:
        assert (reading.text, reading.read_as, reading.possible) == ("BIG SALE", "BIG SALF", None)
    else:
        assert (reading.text, reading.read_as) == ("BIG SALF", None)
        assert reading.possible == ("BIG SALE" if passed is None else None)


def test_a_line_is_weighed_in_its_box_in_a_wider_one_and_at_two_other_sizes(look: Look) -> None:
    _, _, looks = look([box("SALF", 50, 50, 100, 20), *rows(*["Oh"] * FEW)], required=["SALE"])
    assert looks.sizes[:4] == [(100, 20), (110, 23), (50, 10), (200, 40)]


def test_the_background_on_which_a_line_is_likelier_counts(look: Look) -> None:
    on_first, on_second = (NO,) * 4, (0.0,) * 4
    for views in (on_first + on_second, on_second + on_first):
        assert look(rows("SALF"), {"SALE": views}, images=2, required=["SALE"])[1].passed is True
    half_on_each = (0.0, NO, NO, NO, NO, 0.0, NO, NO)
    assert look(rows("SALF"), {"SALE": half_on_each}, images=2, required=["SALE"])[1].passed is None


def test_two_lines_that_share_a_reading(look: Look) -> None:
    sure = (0.0,) * 4
    read, required = rows("OPEM DAILV"), ["OPEN", "DAILY"]
    # While the other line is as it was read, neither is likely; a mistake in one is none in the other.
    seen, result, _ = look(read, {"OPENDAILV": sure, "OPENDAILY": sure}, required=required)
    assert (result.passed, texts(seen), seen[0].read_as) == (True, ["OPEN DAILY"], "OPEM DAILV")
    seen, result, _ = look(read, {"OPENDAILV": sure}, required=required)
    assert (result.passed, texts(seen)) == (False, ["OPEN DAILV"])
    seen, result, _ = look(read, {}, required=required)
    assert (result.passed, texts(seen)) == (False, ["OPEM DAILV"])


def test_a_line_over_two_readings_is_weighed_in_the_one_that_differs(look: Look) -> None:
    read = [box("Join onr", 0, 0), box("Saturday class", 0, 24, 140)]
    seen, result, looks = look(read, {"Joinour": (0.0,) * 4}, required=["Join our Saturday class"])
    assert (result.passed, texts(seen), set(looks.weighed)) == (True, ["Join our", "Saturday class"], {"Joinour"})
    read = [box("Join onr", 0, 0), box("Saturdav class", 0, 24, 140)]
    both = {"Joinour": (0.0,) * 4, "Saturdayclass": (POSSIBLE, NO, NO, NO)}
    _, result, _ = look(read, both, required=["Join our Saturday class"])
    assert (result.passed, [pair.doubt for pair in result.unsettled]) == (None, ["weak"])
    _, result, _ = look(read, {"Joinour": (0.0,) * 4}, required=["Join our Saturday class"])
    assert result.passed is False


def test_a_line_that_stands_twice_needs_two_places(look: Look) -> None:
    sure = {"SALE": (0.0,) * 4}
    assert look(rows("SALE", "SALF"), sure, required=["SALE"] * 2)[1].passed is True
    assert look(rows("SALF", "SAIE"), sure, required=["SALE"] * 2)[1].passed is True
    _, result, looks = look(rows("SALE"), sure, required=["SALE"] * 2)
    assert (result.passed, result.recall, looks.weighed) == (False, 0.5, [])
    assert look(rows("SALF"), sure, required=["SALE"] * 2)[1].passed is False


def test_only_required_lines_are_weighed(look: Look) -> None:
    sure = {"SALE": (0.0,) * 4, "NOW": (0.0,) * 4}
    for expected in ({"forbidden": ["SALE"]}, {"allowed": ["SALE"], "extra": "forbid"}):
        seen, _, looks = look(rows("NOW", "SALF"), sure, required=["NOW"], **expected)
        assert (looks.weighed, texts(seen)) == ([], ["NOW", "SALF"])
    seen, result, looks = look(rows("NDW", "SALF"), sure, required=["NOW"], forbidden=["SALE"])
    assert (result.passed, set(looks.weighed), texts(seen)) == (True, {"NOW"}, ["NOW", "SALF"])


def test_what_was_weighed_is_not_extra_and_the_rest_of_its_reading_is(look: Look) -> None:
    assert look(rows("SALF"), {"SALE": (0.0,) * 4}, required=["SALE"], extra="forbid")[1].passed is True
    possible = look(rows("SALF"), {"SALE": (POSSIBLE,) * 4}, required=["SALE"], extra="forbid")[1]
    assert (possible.passed, possible.extra) == (None, ())
    more = look(rows("SALF TODAY"), {"SALETODAY": (0.0,) * 4}, required=["SALE"], extra="forbid")[1]
    assert (more.passed, [extra.label for extra in more.extra]) == (False, ["TODAY (in SALE TODAY)"])


def test_a_reading_without_a_place_is_not_weighed(look: Look) -> None:
    seen, result, looks = look([Reading("SALF")], {"SALE": (0.0,) * 4}, required=["SALE"])
    assert (result.passed, looks.weighed, texts(seen)) == (False, [], ["SALF"])


def test_what_glyphs_showed_of_the_text_as_read_is_dropped(look: Look) -> None:
    (reading,), result, _ = look([box("0PEM", shown=((0, "O"),))], {"0PEN": (0.0,) * 4}, required=["0PEN"])
    assert (result.passed, reading.shown, reading.shown_text) == (True, (), "0PEN")


TORN = [
    box("OP", 0, 0, 60, confidence=0.8),
    box("N", 120, 0, 20, confidence=0.8),
    box("DA", 200, 0, 50, confidence=0.8),
    box("LY", 300, 0, 50, confidence=0.8),
]
"""Letters with wide spacing, of which the narrow ones were not seen."""


def test_a_line_with_wide_spacing_is_read_in_one_piece(look: Look) -> None:
    seen, result, looks = look(TORN, whole=("OPEN DAILY", 0.9), required=["OPEN DAILY"])
    assert (result.passed, texts(seen), looks.rows[0]) == (True, ["OPEN DAILY"], (350, 20))
    _, result, _ = look(TORN, whole=("OPEN BAILY", 0.9), required=["OPEN DAILY"])
    assert result.passed is False


@pytest.mark.parametrize(
    ("read", "whole", "is_read"),
    [
        (TORN, ("OPEN DAILY", 0.9), True),
        (TORN, ("O", 0.99), False),  # fewer letters than the pieces have
        ([*TORN[:3], replace(TORN[3], confidence=0.7)], ("OPEN DAILY", 0.7), True),
        ([*TORN[:3], replace(TORN[3], confidence=0.7)], ("OPEN DAILY", 0.69), False),
        ([*TORN[:3], replace(TORN[3], corners=None)], ("OPEN DAILY", 0.9), False),
        ([*TORN[:2], box("DA", 200, 30, 50), box("LY", 300, 30, 50)], ("OPEN DAILY", 0.9), False),  # two rows
        ([*TORN, box("Soup", 0, -5, 350, 25, confidence=0.4)], ("OPEN DAILY", 0.9), False),  # something else there
    ],
)
def test_which_pieces_are_one_line(look: Look, read: list[Reading], whole: tuple[str, float], is_read: bool) -> None:
    seen, result, _ = look(read, whole=whole, required=["OPEN DAILY"])
    assert (result.passed is True) is is_read
    assert sorted(texts(seen)) == (["OPEN DAILY"] if is_read else sorted(texts(read)))


def test_pieces_of_other_lines_are_not_read_again(look: Look) -> None:
    _, result, looks = look(TORN, whole=("OPEN DAILY", 0.9), required=["OPEN DAILY"], forbidden=["LY"])
    assert (result.passed, [size[0] for size in looks.rows]) == (False, [250] * len(looks.rows))
    shared = [*TORN[:3], replace(TORN[3], text="LY SALE")]
    seen, result, looks = look(shared, whole=("OPEN DAILY SALF", 0.9), required=["OPEN DAILY"], forbidden=["SALE"])
    assert (result.passed, looks.rows, texts(seen)) == (False, [], texts(shared))
    _, result, looks = look(TORN, whole=("OPEN DAILY", 0.9), required=["NOWHERE"])
    assert (result.passed, looks.rows) == (False, [])


@pytest.mark.parametrize(
    ("read", "required", "passed"),
    [
        ("Big SAle", "Big Sale", False),  # another case
        ("BIG SALLE", "BIG SALE", False),  # a letter too many
        ("COFEE", "COFFEE", None),  # one of two equal letters is easily overlooked
        ("BIG SALF", "BIG SALE", None),
    ],
)
def test_what_is_only_possible_does_not_excuse_what_is_rarely_misread(
    look: Look, read: str, required: str, passed: bool | None
) -> None:
    chars = required.replace(" ", "")
    assert look(rows(read), {chars: (POSSIBLE,) * 4}, required=[required])[1].passed is passed
    assert look(rows(read), {chars: (SURE,) * 4}, required=[required])[1].passed is True
