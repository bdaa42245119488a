"""Draws the images of ``suites/try_on``: garments as a catalogue shows them, and the masks over the person.

Run it with the folder to write to, ``python tests/support/images/make_try_on.py suites/try_on/assets``. A test checks
that the images in the repository are what it draws. The person is scikit-image's astronaut, a photograph by NASA in the
public domain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFilter

SIDE = 512
"""Width and height of every image, in pixels."""

Colour = tuple[int, int, int]
Points = Sequence[tuple[float, float]]

_SCALE = 3  # shapes are drawn larger, for smooth edges
_GROUND: Colour = (238, 237, 234)

_EDITABLE: Points = (
    (8, 512), (14, 380), (24, 310), (60, 245), (104, 200), (112, 165), (150, 146), (186, 160), (190, 178), (222, 194),
    (250, 178), (262, 158), (306, 200), (312, 240), (345, 262), (368, 330), (366, 350), (330, 352), (296, 384),
    (278, 430), (278, 512),
)  # fmt: skip
_CLOTHING: Points = (
    (22, 512), (26, 400), (30, 335), (70, 250), (116, 214), (130, 260), (180, 290), (240, 298), (300, 262), (330, 262),
    (352, 300), (362, 345), (318, 362), (288, 410), (280, 512),
)  # fmt: skip
_HELMET = (278, 344, 502, 560)

_BODY: Points = (
    (170, 96), (206, 82), (256, 92), (306, 82), (342, 96), (366, 128), (370, 430), (352, 438), (160, 438), (142, 430),
    (146, 128),
)  # fmt: skip
_LEFT_SLEEVE: Points = ((172, 96), (132, 118), (98, 214), (70, 372), (112, 384), (140, 262), (160, 190))


def main(folder: Path) -> None:
    """Writes the person, three garments and three masks."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in all_images().items():
        image.save(folder / name, optimize=True)


def all_images() -> dict[str, Image.Image]:
    """Every image by its file name."""

    from skimage.data import astronaut

    return {
        "person.png": Image.fromarray(astronaut()),
        "rain-jacket.png": garment(_rain_jacket),
        "rugby-shirt.png": garment(_rugby_shirt),
        "cardigan.png": garment(_cardigan),
        "mask-editable.png": mask(lambda pen: pen.polygon(list(_EDITABLE), fill=0)),
        "mask-clothing.png": mask(lambda pen: pen.polygon(list(_CLOTHING), fill=0)),
        "mask-occluders.png": mask(lambda pen: pen.ellipse(_HELMET, fill=0)),
    }


def mask(cut: Callable[[ImageDraw.ImageDraw], None]) -> Image.Image:
    """A mask of the person's size: alpha is 0 inside."""
    alpha = Image.new("L", (SIDE, SIDE), 255)
    cut(ImageDraw.Draw(alpha))
    black = Image.new("L", (SIDE, SIDE), 0)
    return Image.merge("RGBA", (black, black, black, alpha))


class Sheet:
    """A large canvas with shapes in the coordinates of the small one."""

    def __init__(self) -> None:
        self.output = Image.new("RGB", (SIDE * _SCALE, SIDE * _SCALE), _GROUND)
        self.pen = ImageDraw.Draw(self.output)

    def shape(self, points: Points, fill: Colour) -> None:
        self.pen.polygon([(x * _SCALE, y * _SCALE) for x, y in points], fill=fill)

    def line(self, points: Points, fill: Colour, width: float = 1.0) -> None:
        drawn = [(x * _SCALE, y * _SCALE) for x, y in points]
        self.pen.line(drawn, fill=fill, width=round(width * _SCALE), joint="curve")

    def dot(self, x: float, y: float, radius: float, fill: Colour) -> None:
        box = [(x - radius) * _SCALE, (y - radius) * _SCALE, (x + radius) * _SCALE, (y + radius) * _SCALE]
        self.pen.ellipse(box, fill=fill)

    def inside(self, points: Points) -> Image.Image:
        """The area of a shape, to draw only inside it."""
        area = Image.new("L", self.output.size, 0)
        ImageDraw.Draw(area).polygon([(x * _SCALE, y * _SCALE) for x, y in points], fill=255)
        return area


def garment(draw: Callable[[Sheet], None]) -> Image.Image:
    """One garment, laid flat on a light ground with a soft shadow under it."""
    sheet = Sheet()
    draw(sheet)
    ground = Image.new("RGB", sheet.output.size, _GROUND)
    cloth = ImageChops.difference(sheet.output, ground).convert("L").point([0] + [255] * 255)
    shade = cloth.filter(ImageFilter.GaussianBlur(9 * _SCALE)).point([round(level * 0.28) for level in range(256)])
    shade = ImageChops.offset(shade, 3 * _SCALE, 7 * _SCALE)
    below = Image.composite(Image.new("RGB", ground.size, (70, 68, 64)), ground, shade)
    whole = Image.composite(sheet.output, below, cloth.filter(ImageFilter.GaussianBlur(_SCALE / 2)))
    return whole.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def mirrored(points: Points) -> Points:
    """The same shape on the other side of the garment."""
    return [(SIDE - x, y) for x, y in points]


def darker(colour: Colour, share: float) -> Colour:
    red, green, blue = (round(level * share) for level in colour)
    return red, green, blue


def _cut(sheet: Sheet, colour: Colour) -> None:
    """Sleeves, body and the seams between them."""
    for sleeve in (_LEFT_SLEEVE, mirrored(_LEFT_SLEEVE)):
        sheet.shape(sleeve, darker(colour, 0.93))
        sheet.line([*sleeve, sleeve[0]], darker(colour, 0.72), 1.2)
    sheet.shape(_BODY, colour)
    sheet.line([*_BODY, _BODY[0]], darker(colour, 0.72), 1.2)
    for seam in (((172, 97), (158, 190), (160, 250)), ((150, 424), (256, 430), (362, 424))):
        sheet.line(seam, darker(colour, 0.8), 1)
    sheet.line(mirrored(((172, 97), (158, 190), (160, 250))), darker(colour, 0.8), 1)


def _cuffs(sheet: Sheet, colour: Colour) -> None:
    cuff: Points = ((70, 372), (112, 384), (117, 362), (75, 350))
    for item in (cuff, mirrored(cuff)):
        sheet.shape(item, colour)
        sheet.line([*item, item[0]], darker(colour, 0.75), 1)


def _rain_jacket(sheet: Sheet) -> None:
    navy: Colour = (34, 52, 92)
    _cut(sheet, navy)
    _cuffs(sheet, darker(navy, 0.8))
    hood: Points = ((186, 96), (196, 58), (256, 44), (316, 58), (326, 96), (256, 122))
    sheet.shape(hood, darker(navy, 0.88))
    sheet.line([*hood, hood[0]], darker(navy, 0.6), 1.5)
    sheet.shape(((210, 92), (256, 70), (302, 92), (256, 114)), darker(navy, 0.5))
    sheet.line(((256, 116), (256, 436)), (222, 190, 96), 3)
    sheet.line(((251, 116), (251, 436)), darker(navy, 0.7), 1)
    sheet.line(((261, 116), (261, 436)), darker(navy, 0.7), 1)
    for flap in (
        ((172, 318), (236, 306), (238, 326), (174, 338)),
        mirrored(((172, 318), (236, 306), (238, 326), (174, 338))),
    ):
        sheet.shape(flap, darker(navy, 0.82))
        sheet.line([*flap, flap[0]], darker(navy, 0.6), 1)
    _wave_mark(sheet, 312, 190)


def _wave_mark(sheet: Sheet, x: float, y: float) -> None:
    """The woven mark of a brand that does not exist: three waves in a disc."""
    sheet.dot(x, y, 17, (232, 226, 210))
    for row in (-6, 0, 6):
        wave = [(x - 11 + step * 2.2, y + row + (2.4 if step % 4 in (1, 2) else -2.4)) for step in range(11)]
        sheet.line(wave, (190, 74, 52), 2)


def _rugby_shirt(sheet: Sheet) -> None:
    green: Colour = (44, 92, 70)
    cream: Colour = (240, 228, 200)
    _cut(sheet, green)
    plain, striped = sheet.output.copy(), Sheet()
    _cut(striped, cream)
    bands = Image.new("L", plain.size, 0)
    pen = ImageDraw.Draw(bands)
    for top in range(132, 440, 74):
        pen.rectangle([0, top * _SCALE, SIDE * _SCALE, (top + 37) * _SCALE], fill=255)
    sheet.output.paste(striped.output, mask=bands)
    _cuffs(sheet, cream)
    for half in (
        ((206, 82), (256, 96), (240, 142), (196, 104)),
        mirrored(((206, 82), (256, 96), (240, 142), (196, 104))),
    ):
        sheet.shape(half, (250, 246, 236))
        sheet.line([*half, half[0]], (190, 182, 164), 1.2)
    sheet.shape(((246, 100), (266, 100), (266, 196), (246, 196)), (250, 246, 236))
    sheet.line(((246, 104), (246, 196), (266, 196), (266, 104)), (190, 182, 164), 1.2)
    for height in (126, 152, 178):
        sheet.dot(256, height, 4.2, (120, 104, 84))


def _cardigan(sheet: Sheet) -> None:
    mustard: Colour = (206, 154, 52)
    _cut(sheet, mustard)
    _ribs(sheet, mustard)
    _cuffs(sheet, darker(mustard, 0.86))
    sheet.shape(((206, 82), (256, 92), (306, 82), (256, 258)), darker(_GROUND, 0.82))
    for band in (((200, 80), (214, 84), (262, 254), (262, 436), (248, 436), (248, 262)),):
        sheet.shape(band, darker(mustard, 0.84))
        sheet.line([*band, band[0]], darker(mustard, 0.62), 1.2)
        other = [(SIDE - x - 4, y) for x, y in band]
        sheet.shape(other, darker(mustard, 0.8))
        sheet.line([*other, other[0]], darker(mustard, 0.62), 1.2)
    for height in range(272, 430, 36):
        sheet.dot(255, height, 6, (88, 58, 34))
        sheet.dot(255, height, 2, (150, 112, 72))
    for pocket in (
        ((170, 336), (232, 336), (232, 400), (170, 400)),
        mirrored(((170, 336), (232, 336), (232, 400), (170, 400))),
    ):
        sheet.shape(pocket, darker(mustard, 0.94))
        sheet.line([*pocket, pocket[0]], darker(mustard, 0.68), 1.4)


def _ribs(sheet: Sheet, colour: Colour) -> None:
    """The texture of the knit, on the body and the sleeves alone."""
    ribs = Sheet()
    ribs.output.paste(sheet.output)
    for x in range(60, 460, 7):
        ribs.line(((x, 60), (x, 450)), darker(colour, 0.9), 1.4)
    for area in (_BODY, _LEFT_SLEEVE, mirrored(_LEFT_SLEEVE)):
        sheet.output.paste(ribs.output, mask=sheet.inside(area))
    sheet.line([*_BODY, _BODY[0]], darker(colour, 0.72), 1.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
