"""A white logo on transparency is visible on every page: squares of two grays lie behind it, and only there."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from label_server import Server
from PIL import Image, ImageDraw
from toys import Toy

from visioneval.media.images import load_image, on_checkerboard

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from browser import OpenPage
    from playwright.sync_api import Locator, Page

SQUARES = {(160, 160, 160), (220, 220, 220)}
SIZE = (320, 120)
_IN_STEPS = [255 if level > 244 else round(level / 10) * 10 for level in range(256)] * 3


def logo(path: Path, background: tuple[int, int, int, int] = (255, 255, 255, 0)) -> Path:
    """A white disk; its corners are transparent."""
    image = Image.new("RGBA", SIZE, background)
    ImageDraw.Draw(image).ellipse((100, 10, 220, 110), fill="white")
    image.save(path)
    return path


def common_colors(data: bytes) -> set[tuple[int, ...]]:
    """The colors of at least 2 % of the pixels, in steps of 10 levels: a lossy image is not exact."""
    image = Image.open(io.BytesIO(data)).convert("RGB").point(_IN_STEPS)
    counts = image.getcolors(image.width * image.height) or []
    return {color for count, color in counts if count > image.width * image.height / 50}  # type: ignore[misc]


@pytest.fixture
def run(toy: Toy) -> Path:
    """A run of one transparent and one opaque output, with the transparent one as their reference."""
    for label, background in (("clear", (255, 255, 255, 0)), ("solid", (20, 40, 160, 255))):
        logo(toy.folder / f"{label}.png", background)
    models = [{"provider": "files", "label": label, "path": f"{label}.png"} for label in ("clear", "solid")]
    labels = {"questions": [{"key": "q", "ask": "Is it?", "type": "yes_no"}]}
    graders = {"graders": [{"key": "file", "type": "properties"}], "verdict": ["file"]}
    suite = toy.write({"reference": "clear.png"}, models=models, labels=labels, **graders)
    result = toy("run", suite, "--run-id", "r")
    assert result.exit_code == 0, result.output
    return toy.folder / "runs/r"


def test_only_transparency_shows_squares(tmp_path: Path) -> None:
    shown = on_checkerboard(load_image(logo(tmp_path / "a.png")))
    assert (shown.mode, shown.size) == ("RGB", SIZE)
    assert {shown.getpixel((0, 0)), shown.getpixel((8, 0))} == SQUARES
    assert shown.getpixel((0, 0)) == shown.getpixel((8, 8)) == shown.getpixel((16, 0))
    assert shown.getpixel((160, 60)) == (255, 255, 255)
    opaque = load_image(logo(tmp_path / "b.png", (0, 0, 0, 255)))
    assert on_checkerboard(opaque) is opaque


def test_half_transparent_pixels_are_mixed_with_the_squares() -> None:
    shown = on_checkerboard(Image.new("RGBA", (32, 32), (255, 0, 0, 128)))
    assert {color[0] > color[1] > 0 for _, color in shown.getcolors() or []} == {True}  # type: ignore[index,misc]


def colors(part: Locator) -> set[tuple[int, ...]]:
    part.wait_for()
    return common_colors(part.screenshot())


@pytest.mark.parametrize(("single_file", "scheme"), [(False, "light"), (True, "dark")])
def test_the_report_shows_squares(toy: Toy, run: Path, open_page: OpenPage, single_file: bool, scheme: Any) -> None:
    toy("report", "r", "-o", "page", *(["--single-file"] if single_file else []))
    url = (toy.folder / "page" / ("report.html" if single_file else "index.html")).as_uri()
    page = open_page(f"{url}#cell?case=case0&at=clear&sample=0", color_scheme=scheme)
    assert colors(page.locator(".sheet img").first) == {*SQUARES, (255, 255, 255)}
    page.goto(f"{url}#cell?case=case0&at=solid&sample=0")
    assert colors(page.locator(".sheet img").first) == {(20, 40, 160), (255, 255, 255)}
    page.goto(f"{url}#gallery")
    assert {*SQUARES, (255, 255, 255)} <= colors(page.locator(".thumb img").first)
    assert not SQUARES & colors(page.locator(".thumb img").nth(1))


def test_the_labeling_page_shows_squares_that_zoom_does_not_enlarge(
    toy: Toy, run: Path, serve: Callable[..., Server], rate: Callable[..., Page]
) -> None:
    page = rate(serve(run), "ann")
    image = page.locator(".frame img")
    assert image.evaluate("image => image.style.backgroundSize") == "16px 16px"
    page.locator(".frame").click()
    zoom = image.evaluate("image => new DOMMatrix(getComputedStyle(image).transform).a")
    assert zoom > 1
    assert image.evaluate("image => parseFloat(image.style.backgroundSize)") == pytest.approx(16 / zoom, rel=1e-3)
    page.locator(".frame").click()
    seen = []
    for _ in range(2):
        seen.append(common_colors(page.locator(".frame").screenshot()))
        page.keyboard.press("y")
        page.keyboard.press("Enter")
        page.wait_for_timeout(300)
    clear, solid = sorted(seen, key=len, reverse=True)
    assert {*SQUARES, (255, 255, 255)} <= clear
    assert (20, 40, 160) in solid
    assert not SQUARES & solid
