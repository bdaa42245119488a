"""O and 0: what the glyph shows decides, and what it does not show stays open."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from visioneval.graders.text.check import check
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.ocr import needs_glyphs, shown_characters
from visioneval.suite.case import ExpectText

SCREENS = Path(__file__).resolve().parents[4] / "shared" / "data" / "screens"
STEP, HEIGHT = 24, 40


def glyphs(text: str, *, marked: str = "", steps: dict[str, int] | None = None) -> tuple[Image.Image, list[float]]:
    """A line in a made-up font, and the columns of its characters: rings for O, o and 0, bars for the rest.

    ``marked`` has "x" where a ring has a dot. ``steps`` are the widths of characters that are not as wide as others.
    """
    widths = [(steps or {}).get(char, STEP) for char in text]
    image = Image.new("RGB", (sum(widths) + 40, HEIGHT + 20), "white")
    pen, left = ImageDraw.Draw(image), 20
    columns = []
    for char, width, mark in zip(text, widths, marked.ljust(len(text)), strict=True):
        top = 10 + (HEIGHT // 3 if char == "o" else 0)
        middle = left + width / 2
        if char in "O0o":
            pen.ellipse((middle - 8, top, middle + 8, 10 + HEIGHT), outline="black", width=3)
        elif char != " ":
            pen.rectangle((middle - 2, top, middle + 2, 10 + HEIGHT), fill="black")
        if mark == "x":
            pen.ellipse((middle - 4, HEIGHT / 2 + 5, middle + 4, HEIGHT / 2 + 15), fill="black")
        if char != " ":
            columns.append(middle / image.width)
        left += width
    return image, columns


@pytest.mark.parametrize("text", ["Box 0ffice", "20% 0FF", "0ct 14", "1O15", "l0bby", "2O%"])
def test_only_mixed_words_need_their_glyphs(text: str) -> None:
    assert needs_glyphs(text)


@pytest.mark.parametrize("text", ["Box Office", "20% OFF", "1015", "0", "O", "A 0 B", "B2O1", "", "Oct l4"])
def test_other_words_are_taken_as_read(text: str) -> None:
    assert not needs_glyphs(text)


@pytest.mark.parametrize(
    ("drawn", "read", "marked", "shown"),
    [
        ("Box Office", "Box 0ffice", "", ((4, "O"),)),  # monospaced
        ("Box 0ffice", "Box 0ffice", "    x", ()),  # a zero with a dot is a zero
        ("20% OFF", "20% 0FF", " x", ((4, "O"),)),  # this font marks its zeros
        ("20% OFF", "20% 0FF", "", ()),  # this one does not
        ("20% 0FF", "20% 0FF", " x  x", ()),
        ("Sold", "S0ld i", "", ()),  # not the text of these columns
        ("Sold in", "S0ld in", "", ((1, "o"),)),  # lowercase by its height
        ("1015", "1O15", " x", ((1, "0"),)),
        ("1O15", "1O15", "", ()),
        ("LOBBY", "L0BBY", "", ()),  # capitals stand in equal steps in proportional fonts too
        ("Oil", "0il", "", ()),  # too short to see the steps
    ],
)
def test_the_glyph_decides(drawn: str, read: str, marked: str, shown: tuple[tuple[int, str], ...]) -> None:
    assert shown_characters(*glyphs(drawn, marked=marked)[:1], read, glyphs(drawn)[1]) == shown


def test_a_proportional_font_leaves_the_zero_open() -> None:
    image, columns = glyphs("Box Office", steps={"f": 14, "i": 10})
    assert shown_characters(image, "Box 0ffice", columns) == ()


def test_tiny_and_blank_images_show_nothing() -> None:
    columns = [0.1 * position for position in range(9)]
    for size in ((1, 1), (90, 6)):
        assert shown_characters(Image.new("RGB", size, "white"), "Box 0ffice", columns) == ()


def compare(reading: Reading, **expected: object) -> bool | None:
    return check([reading], ExpectText.model_validate(expected), fold=True).passed


@pytest.fixture(scope="module")
def header(recorded_readings: None) -> Image.Image:
    """The heading of a real terminal's table: Box Office, in a font with dotted zeros."""
    if not SCREENS.is_dir():
        pytest.skip("../shared/data is not here")
    with Image.open(SCREENS / "rich_table.png") as image:
        return image.convert("RGB").crop((1300, 212, 1536, 272))


def reading_of(image: Image.Image) -> Reading:
    from visioneval.graders.text import ocr

    (reading,) = ocr.read_flat(image)
    return reading


def test_the_heading_of_a_real_terminal_is_read(header: Image.Image) -> None:
    assert compare(reading_of(header), required=["Box Office"], extra="forbid") is True


def test_a_dotted_zero_in_its_place_does_not_pass(header: Image.Image) -> None:
    planted = header.copy()
    color = max(planted.crop((110, 10, 140, 50)).getcolors(10_000), key=lambda entry: sum(entry[1]))[1]
    ImageDraw.Draw(planted).ellipse((124, 25, 129, 34), fill=color)
    assert compare(reading_of(planted), required=["Box Office"]) is not True
