"""The ink of a label on a button that is hardly higher than the label: its shape is no ink."""

from __future__ import annotations

import pytest
from drawn_lines import DrawnLines, box_around, ink_box
from PIL import Image, ImageDraw, ImageFont

from visioneval.graders.layout.ink import ink_of


@pytest.mark.parametrize("padding", [4, 8, 30])
@pytest.mark.parametrize(
    ("page", "button", "ink"), [("#ffffff", "#2e6c42", "#ffffff"), ("#f3f7ee", "#ffd000", "#1e2e22")]
)
def test_the_label_of_a_button(page: str, button: str, ink: str, padding: int) -> None:
    font = ImageFont.load_default(30)
    image = Image.new("RGB", (400, 200), page)
    pen = ImageDraw.Draw(image)
    left, top, right, bottom = ink_box("Reserve a stall", font)
    x, y = 90, 80
    box = (x + left, y + top, x + right, y + bottom)
    frame = (box[0] - 2 * padding, box[1] - padding, box[2] + 2 * padding, box[3] + padding)
    pen.rounded_rectangle(frame, (frame[3] - frame[1]) / 2, button)
    pen.text((x, y), "Reserve a stall", ink, font)
    found = ink_of(image, "Reserve a stall", box_around(*box))
    assert found is not None
    assert (found.color, found.background) == (ink.upper(), button.upper())
    assert found.size == pytest.approx(30, rel=0.1)
    assert found.box == pytest.approx(box, abs=1.5)


def test_heavy_letters_are_no_background() -> None:
    page = DrawnLines.on("white", (700, 200))
    font = ImageFont.load_default(90)
    ImageDraw.Draw(page.image).text((40, 40), "MMMM", "#1e2e22", font, stroke_width=4, stroke_fill="#1e2e22")
    ink = page.image.convert("L").point(lambda level: 255 * (level < 128)).getbbox()
    assert ink is not None
    found = ink_of(page.image, "MMMM", box_around(*ink))
    assert found is not None
    assert (found.color, found.background) == ("#1E2E22", "#FFFFFF")


def test_a_border_that_touches_the_box_is_no_ink() -> None:
    page = DrawnLines.on("white").write("Total", (60, 100), 40)
    ImageDraw.Draw(page.image).rectangle((20, 150, 580, 156), "black")
    (reading,) = page.readings
    assert reading.corners is not None
    (left, top), (right, _), _, _ = reading.corners
    found = ink_of(page.image, "Total", ((left, top), (right, top), (right, 155), (left, 155)))
    assert found is not None
    assert found.box is not None
    assert found.box[3] <= 140
