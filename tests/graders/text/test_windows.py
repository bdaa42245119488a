"""The closer looks at an image: where windows and tiles are, and the places of what is read in them."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw

from visioneval.graders.text import networks, ocr
from visioneval.graders.text.layout import Corners, Reading

Rectangle = tuple[int, int, int, int]


def canvas(size: tuple[int, int], *blocks: Rectangle, paper: str = "white") -> Image.Image:
    image = Image.new("RGB", size, paper)
    for left, top, right, bottom in blocks:
        ImageDraw.Draw(image).rectangle((left, top, right - 1, bottom - 1), fill="black")
    return image


def dark(image: Image.Image) -> list[Corners]:
    """The box of each dark block in an image."""
    ink = (np.asarray(image.convert("L")) < 128).astype(np.uint8)
    boxes = []
    for left, top, width, height, _ in cv2.connectedComponentsWithStats(ink)[2][1:].tolist():
        x0, y0, x1, y1 = float(left), float(top), float(left + width), float(top + height)
        boxes.append(((x0, y0), (x1, y0), (x1, y1), (x0, y1)))
    return boxes


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The sizes of the images in which text was looked for; the networks find what is dark."""
    sizes: list[tuple[int, int]] = []
    monkeypatch.setattr(networks, "detect", lambda image: sizes.append(image.size) or dark(image))
    monkeypatch.setattr(networks, "crop", lambda image, box: image.crop((*map(round, box[0]), *map(round, box[2]))))
    monkeypatch.setattr(networks, "read_line", lambda line: networks.Line("x" * max(1, line.width // 4), 0.99, (0.5,)))
    return sizes


def places(readings: Sequence[Reading]) -> list[list[float]]:
    assert all(reading.corners is not None for reading in readings)
    return [[*corners[0], *corners[2]] for reading in readings if (corners := reading.corners)]


@pytest.mark.parametrize("left", [0, 480, 944])
@pytest.mark.parametrize("top", [0, 500, 1000])
def test_what_stands_out_is_read_in_a_window_with_its_place_in_the_image(
    seen: list[tuple[int, int]], left: int, top: int
) -> None:
    block = left, top, left + 80, top + 24
    readings = ocr.read_windows(canvas((1024, 1024), block), [])
    assert places(readings) == [pytest.approx(block, abs=2)]
    assert len(seen) == 1, "one window"
    assert max(seen[0]) <= 720


def test_the_places_of_a_large_canvas_are_those_of_its_pixels(seen: list[tuple[int, int]]) -> None:
    blocks = (300, 400, 700, 460), (3000, 3500, 3300, 3560)
    readings = ocr.read_windows(canvas((4096, 4096), *blocks), [])
    assert places(readings) == [pytest.approx(block, abs=4) for block in blocks]
    assert len(seen) == 2


def test_a_flat_image_has_no_windows(seen: list[tuple[int, int]]) -> None:
    assert ocr.read_windows(canvas((1024, 1024)), []) == []
    assert ocr.read_windows(canvas((1, 1)), []) == []
    assert seen == []


def test_known_text_has_no_window(seen: list[tuple[int, int]]) -> None:
    block = (100, 100, 180, 124)
    left, top, right, bottom = (float(side) for side in (90, 90, 190, 134))
    known = Reading("known", 1.0, ((left, top), (right, top), (right, bottom), (left, bottom)))
    assert ocr.read_windows(canvas((1024, 1024), block), [known]) == []
    assert seen == []
    assert len(ocr.read_windows(canvas((1024, 1024), block, (600, 600, 680, 624)), [known])) == 1


def test_dots_and_hairlines_are_no_text(seen: list[tuple[int, int]]) -> None:
    assert ocr.read_windows(canvas((1024, 1024), (100, 100, 101, 101), (0, 500, 1024, 501)), []) == []
    assert seen == []


def test_a_photo_has_no_windows(seen: list[tuple[int, int]]) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (2100, 2100, 3), dtype=np.uint8)
    assert ocr.read_windows(Image.fromarray(noise), []) == []
    grid = [(x, y, x + 60, y + 24) for x in range(50, 2000, 400) for y in range(50, 2000, 400)]
    assert ocr.read_windows(canvas((2000, 2000), *grid), []) == [], "more windows than a photo's worth"
    assert seen == []
    assert len(ocr.read_windows(canvas((2000, 2000), *grid[:9]), [])) == 9


@pytest.mark.parametrize(("size", "tiles"), [((700, 500), 1), ((1500, 1200), 4), ((4000, 1000), 5)])
def test_an_enlarged_image_is_read_in_tiles_with_places_in_the_image(
    seen: list[tuple[int, int]], size: tuple[int, int], tiles: int
) -> None:
    block = (size[0] // 2 - 30, size[1] // 2 - 12, size[0] // 2 + 30, size[1] // 2 + 12)
    readings = ocr.read_enlarged(canvas(size, block))
    assert places(readings) == [pytest.approx(block, abs=2)]
    assert len(seen) == tiles
    assert all(width * height <= ocr.MAX_AREA for width, height in seen)


@pytest.mark.parametrize("left", range(660, 841, 20))
def test_a_text_at_the_seam_of_tiles_is_read_once(seen: list[tuple[int, int]], left: int) -> None:
    block = (left, 200, left + 60, 224)
    assert places(ocr.read_enlarged(canvas((1500, 500), block))) == [pytest.approx(block, abs=2)]


def test_a_text_that_the_tiles_cut_is_not_read(seen: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "MAX_AREA", 1_000_000)  # a quarter of all areas
    monkeypatch.setattr(ocr, "_MAX_ENLARGED_AREA", 4_000_000)
    whole = (50, 50, 250, 62)
    readings = ocr.read_enlarged(canvas((1200, 1200), (350, 150, 750, 170), (50, 350, 62, 750), whole))
    assert places(readings) == [pytest.approx(whole, abs=2)]
    at_the_sides = [(0, 0, 30, 12), (1170, 1188, 1200, 1200)]
    assert places(ocr.read_enlarged(canvas((1200, 1200), *at_the_sides))) == [
        pytest.approx(block, abs=2) for block in at_the_sides
    ]
    assert len(seen) == 18, "nine tiles each"
