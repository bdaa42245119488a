"""The mock's edits of masks with several regions, and the characters that it draws as shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mock_outputs import generated, output, request, text
from PIL import Image

from visioneval import CaseFiles, ProviderError


def two_regions(tmp_path: Path) -> CaseFiles:
    base = Image.new("RGB", (400, 300), "white")
    mask = Image.new("RGBA", base.size, (255, 255, 255, 255))
    for box in ((40, 20, 360, 120), (40, 180, 360, 280)):
        mask.paste((0, 0, 0, 0), box)
    base.save(tmp_path / "base.png")
    mask.save(tmp_path / "mask.png")
    return CaseFiles(images=(("base", tmp_path / "base.png"),), masks={"editable": tmp_path / "mask.png"})


def test_each_region_of_a_mask_gets_its_line(tmp_path: Path):
    files = two_regions(tmp_path)

    def ink(lines: Any) -> list[int]:
        pixels = np.asarray(output(request(text("x"), files=files, draw=lines)).convert("L"))
        return [int((part < 128).sum()) for part in (pixels[:150], pixels[150:])]

    top, bottom = ink(["I", "WWWW"])
    assert 0 < top < bottom
    assert ink(["WWWW", "I"])[0] > ink(["WWWW", "I"])[1] > 0
    assert sum(ink([])) > 0, "an empty list is an ellipse in the mask"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a", "b", "c"], "metadata.text has 3 lines, but the mask has 2 separate regions"),
        (["a", 1], "metadata.text must be a string, the text to render in the mask, or a list of strings"),
        (["a", ""], "metadata.text must be a string, the text to render in the mask, or a list of strings"),
    ],
)
def test_invalid_lines_for_a_mask_are_reported(lines: Any, message: str, tmp_path: Path):
    with pytest.raises(ProviderError, match=message) as caught:
        generated(request(text("x"), files=two_regions(tmp_path), draw=lines))
    assert caught.value.kind == "invalid"


def test_dashes_and_bullets_are_drawn_as_shapes():
    plain = output(request(text("10 am to 6 pm")))
    dashed = output(request(text("10 am–6 pm • tea")))  # noqa: RUF001 - the dash is the subject
    assert plain.size == dashed.size
    assert plain.tobytes() != dashed.tobytes()
