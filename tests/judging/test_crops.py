from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scripted_judge import ScriptedJudge, context, saved_image

from visioneval import CaseFiles
from visioneval.judging.attachments import Attachment, cell_attachments
from visioneval.judging.crops import GRID, MAX_SIDE, CropTool
from visioneval.media.images import encode_png
from visioneval.providers.base import ImagePart

pytestmark = pytest.mark.slow


def squares(width: int, height: int, side: int) -> Image.Image:
    """Squares whose colour encodes their position: red is the column, green the row, blue always 200."""
    y, x = np.mgrid[0:height, 0:width] // side
    return Image.fromarray(np.dstack([x * 10, y * 10, np.full_like(x, 200)]).astype("uint8"))


def attachment(name: str, image: Image.Image, *aliases: str) -> Attachment:
    return Attachment(name, f"image {name}", ImagePart(encode_png(image), "image/png"), aliases)


class SavedCrops(list[bytes]):
    def __call__(self, number: int, data: bytes) -> str:
        assert number == len(self)
        self.append(data)
        return f"saved/{number}.png"


def tool_of(*shown: Attachment, max_crops: int = 6) -> CropTool:
    return CropTool(shown, max_crops, SavedCrops())


def crop(tool: CropTool, name: Any, x1: Any, y1: Any, x2: Any, y2: Any) -> tuple[str, Image.Image | None]:
    output = tool.tool.call({"image_id": name, "x1": x1, "y1": y1, "x2": x2, "y2": y2})
    assert isinstance(output[0], str)
    if len(output) == 1:
        return output[0], None
    assert isinstance(output[1], ImagePart)
    assert output[1].mime == "image/png"
    return output[0], Image.open(io.BytesIO(output[1].data)).convert("RGB")


def square_at(view: Image.Image | None, x: int, y: int) -> tuple[int, int]:
    """Column and row of the square at a point of a view, off its grid lines."""
    assert x % GRID
    assert y % GRID
    red, green, blue = view.getpixel((x, y))  # type: ignore[misc]
    assert blue == 200
    return round(red / 10), round(green / 10)


def test_crops_nest_in_the_pixels_of_the_current_view() -> None:
    tool = tool_of(attachment("output", squares(1600, 800, 100)))
    first = Image.open(io.BytesIO(tool.first_views[0].part.data))
    assert first.size == (1024, 512)
    assert tool.first_views[0].description == "image output; this view has 1024 x 512 pixels"

    words, view = crop(tool, "output", 512, 256, 1024, 512)
    assert words == "output: a crop, 1024 x 512 pixels, grid lines every 128 pixels"
    assert view.size == (1024, 512)
    assert square_at(view, 3, 3) == (8, 4)
    assert square_at(view, 1020, 509) == (15, 7)

    # A quarter of a quarter: 400 x 200 of the image's pixels from (1200, 400).
    _, view = crop(tool, "output", 512, 0, 1024, 256)
    assert [square_at(view, x, 5) for x in (5, 250, 260, 1020)] == [(12, 4), (12, 4), (13, 4), (15, 4)]
    assert square_at(view, 5, 509) == (12, 5)

    words, view = crop(tool, "output", 0, 0, 0, 0)
    assert words.startswith("output: the whole image, 1024 x 512 pixels")
    assert square_at(view, 3, 3) == (0, 0)
    assert square_at(view, 1020, 509) == (15, 7)
    assert [stored["rectangle"] for stored in tool.crops] == [[512, 256, 1024, 512], [512, 0, 1024, 256], [0, 0, 0, 0]]
    assert tool.crops[1] == {"image": "output", "rectangle": [512, 0, 1024, 256], "path": "saved/1.png"}


def test_a_rectangle_is_half_open() -> None:
    tool = tool_of(attachment("output", squares(200, 100, 50)))
    _, view = crop(tool, "output", 50, 0, 100, 50)
    assert view.size == (400, 400), "enlarged eight times and no more"
    off_grid = np.asarray(view)[1:127, 1:127]
    assert np.abs(off_grid.astype(int) - [10, 0, 200]).max() <= 4, "of the neighbours only what smoothing lends"
    _, view = crop(tool, "output", 399, 399, 400, 400)
    assert view is not None


def test_a_small_image_is_shown_as_it_is() -> None:
    image = squares(60, 40, 10)
    tool = tool_of(attachment("output", image))
    assert "60 x 40 pixels" in tool.first_views[0].description
    assert Image.open(io.BytesIO(tool.first_views[0].part.data)).tobytes() == image.tobytes()


def test_the_grid_is_light_and_at_its_places() -> None:
    tool = tool_of(attachment("output", Image.new("RGB", (512, 512), "white")))
    _, view = crop(tool, "output", 0, 0, 512, 512)
    pixels = np.asarray(view)
    assert pixels.shape == (1024, 1024, 3)
    darker = np.flatnonzero((pixels < 255).any(axis=2).all(axis=0))
    assert darker.tolist() == list(range(GRID, 1024, GRID))
    assert 180 < pixels[5, GRID, 0] < 230


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("nothing", 0, 0, 5, 5), "There is no image 'nothing'. There are: base, output, ref_1."),
        ((["output"], 0, 0, 5, 5), "There is no image ['output']."),
        (("output", 0, 0, 61, 40), "Bad rectangle (0, 0, 61, 40): the current view has 60 x 40 pixels, so 0 <= x1"),
        (("output", 5, 5, 5, 9), "0 <= x1 < x2 <= 60 and 0 <= y1 < y2 <= 40 must hold"),
        (("output", -1, 0, 5, 5), "Bad rectangle (-1, 0, 5, 5)"),
        (("output", 1.5, 0, 5, 5), "x1, y1, x2 and y2 must be whole numbers."),
        (("output", "0", 0, 5, 5), "must be whole numbers"),
        (("output", True, 0, 5, 5), "must be whole numbers"),
        (("output", None, 0, 5, 5), "must be whole numbers"),
        (("output", float("nan"), 0, float("inf"), 5), "must be whole numbers"),
    ],
)
def test_a_bad_rectangle_gets_words_to_act_on_and_costs_no_crop(asked: tuple[Any, ...], words: str) -> None:
    tool = tool_of(
        attachment("ref_1", squares(60, 40, 10), "base"), attachment("output", squares(60, 40, 10)), max_crops=1
    )
    output, view = crop(tool, *asked)
    assert words in output
    assert view is None
    assert tool.crops == ()
    assert crop(tool, "output", 0.0, 0.0, 5.0, 5.0)[1] is not None, "a judge may write 5 as 5.0"


def test_there_are_so_many_crops_and_no_more_until_the_judge_starts_over() -> None:
    tool = tool_of(attachment("output", squares(60, 40, 10)), max_crops=2)
    assert crop(tool, "output", 0, 0, 30, 20)[1] is not None
    assert crop(tool, "output", 0, 0, 30, 20)[1] is not None
    words, view = crop(tool, "output", 0, 0, 30, 20)
    assert (words, view) == ("No crop is left (2 were allowed): answer now.", None)
    tool.reset()
    assert crop(tool, "output", 0, 0, 61, 20)[0].startswith("Bad rectangle"), "the view is the whole image again"
    assert crop(tool, "output", 0, 0, 60, 20)[1] is not None
    assert len(tool.crops) == 3


def test_images_are_selected_by_id_or_unique_role(tmp_path: Path) -> None:
    roles = ("person", "garment", "garment", "ref_1")
    paths = [(role, saved_image(tmp_path / f"{at}.png", color=(at, 0, 0))) for at, role in enumerate(roles)]
    shown = cell_attachments(context(tmp_path, ScriptedJudge(""), files=CaseFiles(images=tuple(paths))))
    tool = tool_of(*shown)
    names = tool.tool.parameters["properties"]["image_id"]["enum"]
    assert names == ["output", "person", "ref_1", "ref_2", "ref_3", "ref_4"]
    assert crop(tool, "person", 0, 0, 9, 9)[0].startswith("ref_1: ")
    _, view = crop(tool, "ref_1", 0, 0, 9, 9)
    assert view.getpixel((1, 1)) == (0, 0, 0), "an id is never another image's role"


def test_the_tool_is_a_strict_schema() -> None:
    parameters = tool_of(attachment("output", squares(60, 40, 10))).tool.parameters
    assert parameters["additionalProperties"] is False
    assert parameters["required"] == list(parameters["properties"]) == ["image_id", "x1", "y1", "x2", "y2"]


@settings(max_examples=25)
@given(data=st.data(), width=st.integers(1, 1500), height=st.integers(1, 1500))
def test_nested_crops_are_bounded_and_inside_the_image(data: st.DataObject, width: int, height: int) -> None:
    tool = tool_of(attachment("output", Image.new("RGB", (width, height), (7, 8, 9))))
    size = Image.open(io.BytesIO(tool.first_views[0].part.data)).size
    for _ in range(4):
        x1, y1 = data.draw(st.integers(0, size[0] - 1)), data.draw(st.integers(0, size[1] - 1))
        x2, y2 = data.draw(st.integers(x1 + 1, size[0])), data.draw(st.integers(y1 + 1, size[1]))
        words, view = crop(tool, "output", x1, y1, x2, y2)
        assert view is not None, words
        assert max(view.size) <= MAX_SIDE
        assert f"{view.size[0]} x {view.size[1]} pixels" in words
        size = view.size
