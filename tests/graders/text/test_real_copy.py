"""Copy on images that nobody in this project drew: right copy is not failed, and misspelled copy does not pass."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from visioneval.graders.text import ocr, second_look
from visioneval.graders.text.check import CopyCheck, check
from visioneval.graders.text.reasons import doubts_of
from visioneval.suite.case import ExpectText

COPY = Path(__file__).resolve().parents[4] / "shared" / "data" / "copy"
LIMIT = 0.5

pytest.importorskip("rapidocr")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("recorded_readings"),
    pytest.mark.skipif(not COPY.is_dir(), reason="the images of shared/data/copy are not here"),
]


def seen(name: str, expected: ExpectText) -> CopyCheck:
    """The comparison after a first look and, where it is needed, a second."""
    with Image.open(COPY / "images" / name) as file:
        image = file.convert("RGB")
    readings = ocr.read(image)
    compared = check(readings, expected, fold=True, min_confidence=LIMIT)
    if second_look.is_needed(readings, expected, passed=compared.passed, size=image.size):
        readings = second_look.look_again([image], readings, expected, LIMIT)
    return check(readings, expected, fold=True, min_confidence=LIMIT)


def truth(name: str, key: str) -> list[str]:
    entries = json.loads((COPY / "truth.json").read_text(encoding="utf-8"))
    lines: list[str] = next(entry[key] for entry in entries if entry["file"] == name)
    return lines


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("any_ref13.jpg", None),
        ("drawn_font_caveat.png", None),
        ("drawn_small_11_light.png", None),  # a full stop of a pixel
        ("drawn_sym_1_5.png", None),  # 5°C is read as 5°℃
        ("drawn_rot_180.png", None),
        ("gpt2_case191.jpg", None),  # letters with wide spacing, one of which the detector left out
        ("drawn_arc_400.png", "curved"),
        ("drawn_lang_cz.png", "cannot read ť"),
        ("drawn_lang_he.png", "cannot read"),
    ],
)
def test_right_copy_passes_or_is_undecided_for_a_reason(name: str, reason: str | None) -> None:
    compared = seen(name, ExpectText(required=tuple(truth(name, "lines"))))
    assert compared.passed is (True if reason is None else None)
    assert reason is None or re.search(reason, "; ".join(doubts_of(compared)))


@pytest.mark.parametrize("name", ["drawn_fontbad_caveat.png", "drawn_fontbad_press-start-2p.png"])
def test_misspelled_copy_does_not_pass(name: str) -> None:
    for line in truth(name, "not_on_it"):
        assert seen(name, ExpectText(required=(line,))).passed is False


def test_a_letter_of_another_line_does_not_pass() -> None:
    name = "drawn_font_caveat.png"
    first, *others = truth(name, "lines")
    assert seen(name, ExpectText(required=(first.replace("Grand", "Brand"), *others))).passed is False
