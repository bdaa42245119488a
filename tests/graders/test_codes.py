"""The grader of QR codes and bar codes, on codes that the test draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import grading
import numpy as np
import pytest
from codes import ean13, on_page, qr, with_check_digit
from PIL import Image

from visioneval import Grade, GraderError
from visioneval.graders.codes import CodesGrader

pytest.importorskip("zxingcpp")

ADDRESS = "https://example.com/menu"
EAN, UPC = "4006381333931", with_check_digit("003600029145")
PAGE = np.full((600, 600, 3), 235, np.uint8)
CONFIG = CodesGrader(type="codes", key="codes")


def graded(folder: Path, image: np.ndarray, codes: Any) -> Grade:
    Image.fromarray(image).save(folder / "a.png")
    return grading.grade(CONFIG, folder / "a.png", expect={"codes": codes})


def garbled(code: np.ndarray, module: int = 6) -> np.ndarray:
    """A QR code as models paint it: its three corners, and no content."""
    painted, random = code.copy(), np.random.default_rng(1)
    side = code.shape[0] // module
    for row in range(4, side - 4):
        for column in range(4, side - 4):
            if not ((row < 12 or row > side - 13) and (column < 12 or column > side - 13)):
                dark = random.random() < 0.5
                painted[row * module : (row + 1) * module, column * module : (column + 1) * module] = 0 if dark else 255
    low = side - 12
    painted[low * module : -4 * module, low * module : -4 * module] = 255
    return painted


@pytest.mark.parametrize(
    ("image", "codes", "count"),
    [
        (PAGE, "none", 0),
        (on_page(qr(ADDRESS), PAGE, 40, 50), [ADDRESS], 1),
        (on_page(qr(ADDRESS, 3), PAGE, 40, 50), [ADDRESS], 1),
        (255 - on_page(qr(ADDRESS), PAGE, 40, 50), [ADDRESS], 1),
        (on_page(ean13(EAN), PAGE, 40, 50), [EAN], 1),
        (np.rot90(on_page(ean13(EAN), PAGE, 40, 50)).copy(), [EAN], 1),
        (on_page(ean13(EAN), on_page(qr(ADDRESS), PAGE, 40, 50), 50, 400), [EAN, ADDRESS], 2),
        (on_page(qr(ADDRESS), on_page(qr(ADDRESS), PAGE, 20, 20), 320, 320), [ADDRESS, ADDRESS], 2),
    ],
    ids=["none", "QR", "small", "inverted", "EAN", "a quarter turn", "two kinds", "twice, as asked"],
)
def test_exactly_the_expected_codes_pass(tmp_path: Path, image: np.ndarray, codes: Any, count: int) -> None:
    grade = graded(tmp_path, image, codes)
    assert grade.scores == {"codes": True, "codes.count": count}
    assert (grade.reasons, grade.error) == ({}, None)


@pytest.mark.parametrize(
    ("image", "codes", "reason"),
    [
        (on_page(qr(ADDRESS), PAGE, 40, 50), "none", f"there is a code at x 64, y 74 with '{ADDRESS}'"),
        (PAGE, [ADDRESS], f"no code has '{ADDRESS}'"),
        (
            on_page(qr(ADDRESS), on_page(qr(ADDRESS), PAGE, 20, 20), 320, 320),
            [ADDRESS],
            f"'{ADDRESS}' is there 2 times, expected once",
        ),
        (on_page(qr(ADDRESS), PAGE, 20, 20), [ADDRESS, ADDRESS], f"no code has '{ADDRESS}'"),
        (
            on_page(qr("https://example.com/Menu"), PAGE, 40, 50),
            [ADDRESS],
            "there is a code at x 64, y 74 with 'https://example.com/Menu', which differs from"
            f" '{ADDRESS}' in upper and lower case; no code has '{ADDRESS}'",
        ),
        (on_page(ean13(EAN), PAGE, 40, 50), ["4006381333932"], "no code has '4006381333932'"),
    ],
    ids=["none", "missing", "twice", "once of two", "case", "another number"],
)
def test_other_codes_fail_with_what_is_there(tmp_path: Path, image: np.ndarray, codes: Any, reason: str) -> None:
    grade = graded(tmp_path, image, codes)
    assert grade.scores["codes"] is False
    assert reason in grade.reasons["codes"]
    assert grade.error is None


def test_a_upc_is_the_same_with_and_without_its_leading_zero(tmp_path: Path) -> None:
    page = on_page(ean13(UPC), PAGE, 40, 50)
    assert graded(tmp_path, page, [UPC]).scores["codes"] is True
    assert graded(tmp_path, page, [UPC[1:]]).scores["codes"] is True
    assert graded(tmp_path, on_page(qr(UPC), PAGE, 40, 50), [UPC[1:]]).scores["codes"] is False, "a QR code is exact"


@pytest.mark.parametrize("degrees", [15, 30, 45, 60, 135])
def test_codes_are_read_in_any_direction(tmp_path: Path, degrees: int) -> None:
    matrix = cv2.getRotationMatrix2D((300, 300), degrees, 1)
    for code, content in ((qr(ADDRESS), ADDRESS), (ean13(EAN), EAN)):
        page = on_page(code, PAGE, 180, 200)
        turned = cv2.warpAffine(page, matrix, (600, 600), flags=cv2.INTER_CUBIC, borderValue=(235, 235, 235))
        assert graded(tmp_path, turned, [content]).scores == {"codes": True, "codes.count": 1}


def test_more_missing_contents_than_codes_that_cannot_be_read_fail(tmp_path: Path) -> None:
    page = on_page(garbled(qr(ADDRESS)), PAGE, 40, 50)
    grade = graded(tmp_path, page, [ADDRESS, EAN])
    assert (grade.scores, grade.error) == ({"codes": False, "codes.count": 1}, None)
    assert grade.reasons["codes"] == (
        f"there is a code at x 64, y 74 that cannot be read; no code that can be read has '{ADDRESS}'; "
        f"no code that can be read has '{EAN}'"
    )


@pytest.mark.parametrize("flaw", ["garbled", "cut"])
def test_a_code_that_cannot_be_read_is_no_clean_pass(tmp_path: Path, flaw: str) -> None:
    code = garbled(qr(ADDRESS)) if flaw == "garbled" else qr(ADDRESS)[:, :130]
    page = on_page(code, PAGE, 40, 50)
    grade = graded(tmp_path, page, "none")
    assert grade.scores == {"codes": False, "codes.count": 1}
    assert "that cannot be read" in grade.reasons["codes"]
    unknown = graded(tmp_path, page, [ADDRESS])
    assert unknown.scores == {"codes": None, "codes.count": 1}
    assert unknown.error is not None
    assert unknown.error.endswith(f"cannot be read, so it is not known whether it has '{ADDRESS}'")
    extra = graded(tmp_path, on_page(ean13(EAN), page, 50, 450), [EAN])
    assert extra.scores == {"codes": False, "codes.count": 2}


def test_a_wrong_code_fails_whatever_another_one_has(tmp_path: Path) -> None:
    page = on_page(garbled(qr(ADDRESS)), on_page(ean13(EAN), PAGE, 50, 450), 40, 50)
    grade = graded(tmp_path, page, [ADDRESS])
    assert grade.scores["codes"] is False
    assert grade.error is None


def test_two_corners_are_no_code(tmp_path: Path) -> None:
    code = garbled(qr(ADDRESS))
    code[-90:, :90] = 255
    assert graded(tmp_path, on_page(code, PAGE, 40, 50), "none").scores == {"codes": True, "codes.count": 0}


def test_a_code_on_transparency_must_be_there_on_white_and_on_black(tmp_path: Path) -> None:
    ink = qr(ADDRESS)[..., 0] < 128
    solid = np.dstack([on_page(qr(ADDRESS), PAGE, 40, 50), np.full((600, 600), 255, np.uint8)])
    solid[:20, :, 3] = 0
    assert graded(tmp_path, solid, [ADDRESS]).scores == {"codes": True, "codes.count": 1}
    clear = np.zeros((600, 600, 4), np.uint8)
    clear[50 : 50 + len(ink), 40 : 40 + len(ink), 3] = 255 * ink
    grade = graded(tmp_path, clear, [ADDRESS])
    assert grade.scores == {"codes": False, "codes.count": 1}
    assert grade.reasons["codes"] == f"'{ADDRESS}' can be read on white only: the code has transparent parts"
    assert graded(tmp_path, clear, "none").scores["codes"] is False


def test_a_file_that_does_not_decode_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    with pytest.raises(GraderError, match=r"a\.png"):
        grading.grade(CONFIG, tmp_path / "a.png", expect={"codes": "none"})


def test_the_record_has_each_code_with_its_place(tmp_path: Path) -> None:
    grade = graded(tmp_path, on_page(qr(ADDRESS), PAGE, 40, 50), "none")
    (row,) = grade.details["codes"]
    assert (row["format"], row["content"]) == ("QRCode", ADDRESS)
    assert row["box"][0] == pytest.approx([64, 74], abs=3)
    assert row["box"][2] == pytest.approx([40 + 33 * 6 - 24, 50 + 33 * 6 - 24], abs=3)
