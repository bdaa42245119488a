"""Spaces of required lines: what a gap shows, when it counts, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grading
import pytest
from PIL import Image, ImageDraw

from visioneval import Grade
from visioneval.graders.measures import Measure, measure_directly
from visioneval.graders.text import TextGrader, grader, ocr
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.spaces import Gap, LineLook, LineLooks, gaps

HEIGHT, BAR = 60, 16


def row(*steps: float, slant: float = 0.0, light: bool = False) -> tuple[Image.Image, list[float]]:
    """A line of bars, with these gaps between them in heights of a bar, and the columns of their middles."""
    ground, ink = ("black", "white") if light else ("white", "black")
    image = Image.new("RGB", (round(sum(steps) * HEIGHT) + (len(steps) + 1) * BAR + 60, HEIGHT + 20), ground)
    pen, left, columns = ImageDraw.Draw(image), 30.0, []
    for step in (*steps, 0):
        lean = slant * HEIGHT / 2
        corners = [
            (left + lean, 10),
            (left + BAR + lean, 10),
            (left + BAR - lean, 10 + HEIGHT),
            (left - lean, 10 + HEIGHT),
        ]
        pen.polygon(corners, fill=ink)
        columns.append((left + BAR / 2) / image.width)
        left += BAR + step * HEIGHT
    return image, columns


def seen(text: str, *steps: float, **look: Any) -> str:
    """A letter for each gap between the bars that are read as ``text``: s, n or u."""
    image, columns = row(*steps, **look)
    return "".join(gap[0] for gap in gaps(image, text, columns))


@pytest.mark.parametrize(
    ("text", "steps", "shown"),
    [
        ("abc de", (0.1, 0.1, 0.55, 0.1), "nnsn"),
        ("abcde", (0.1, 0.1, 0.55, 0.1), "nnsn"),  # whatever was read
        ("abc de", (0.1, 0.1, 0.1, 0.1), "nnnn"),
        ("abcde", (0.1, 0.1, 0.33, 0.1), "nnun"),  # between a letter gap and a space
        ("abc d ef", (0.1, 0.1, 0.3, 0.3, 0.1), "nnssn"),  # tight setting: the other space is as narrow
        ("abcd ef", (0.5, 0.5, 0.5, 1.1, 0.5), "nnnsn"),  # letter-spaced
        ("abcdef", (0.5, 0.5, 0.5, 0.5, 0.5), "uuuuu"),  # letter-spaced, or single letters
        ("a b c d", (0.5, 0.5, 0.5), "uuu"),
        ("ab.cde", (0.1, 0.1, 0.45, 0.1, 0.1), "nnunn"),  # loose beside a mark
        ("ab.cde", (0.1, 0.1, 0.6, 0.1, 0.1), "nnsnn"),
    ],
)
def test_a_gap_is_a_space_relative_to_the_line(text: str, steps: tuple[float, ...], shown: str) -> None:
    assert seen(text, *steps) == shown
    assert seen(text, *steps, light=True) == shown


def test_slanted_letters_have_gaps() -> None:
    assert seen("abc de", 0.12, 0.12, 0.6, 0.12, slant=0.25) == "nnsn"


def test_joined_letters_have_no_gap_and_small_lines_are_measured() -> None:
    assert seen("abc de", 0, 0, 0.55, 0) == "nnsn"
    image, columns = row(0.1, 0.1, 0.55, 0.1)
    small = image.resize((image.width // 5, image.height // 5), Image.Resampling.LANCZOS)
    assert "".join(gap[0] for gap in gaps(small, "abc de", columns)) == "nnsn"


def test_what_does_not_fit_is_unclear() -> None:
    image, columns = row(0.1, 0.1, 0.55)
    assert gaps(image, "abc", columns) == ("unclear",) * 2, "other characters than columns"
    assert gaps(Image.new("RGB", (200, 60), "white"), "abc d", columns) == ("unclear",) * 3, "no glyphs"
    assert gaps(image, "abcd", [0.01, 0.02, 0.03, 0.04]) == ("unclear",) * 3, "columns beside the glyphs"
    assert gaps(image, "a", columns[:1]) == ()


def looked(text: str, gap: Gap, *texts: str) -> LineLook:
    """Second looks that read these texts, or ``text``, with this gap everywhere."""
    count = sum(not char.isspace() for char in text)
    return LineLook(texts or (text,), (gap,) * (count - 1))


def graded(
    path: Path,
    read: str,
    expected: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    look: LineLook | None = None,
    **options: Any,
) -> tuple[Grade, list[str]]:
    """The grade of an image in which OCR reads this, and the names of what was measured."""
    Image.new("RGB", (60, 30), "white").save(path)
    monkeypatch.setattr(ocr, "read_flat", lambda image: [Reading(read, 0.99, ((0, 0), (50, 0), (50, 20), (0, 20)))])
    monkeypatch.setattr(ocr, "tool_versions", dict)
    monkeypatch.setattr(grader, "look_at_lines", lambda path, readings: LineLooks((look,) * len(readings)))
    measured: list[str] = []

    async def measure(task: Measure[Any]) -> Any:
        measured.append(task.name)
        return await measure_directly(task)

    config = TextGrader(type="text", key="copy", **{"spaces": "exact", **options})
    return grading.grade(config, path, measure=measure, expect={"text": expected}), measured


LINE = "Fresh bread from 7 am"


def test_missing_and_added_spaces_fail_with_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = "Freshbread from 7 am"
    grade, measured = graded(tmp_path / "a.png", read, {"required": [LINE]}, monkeypatch, looked(read, "none"))
    assert grade.scores == {"copy": False, "copy.recall": 0.0, "copy.cer": 0.0}
    assert grade.reasons["copy"] == f'"{LINE}": the space between "Fresh" and "bread" is missing'
    assert grade.error is None
    assert measured[-1] == "spaces of lines"
    assert json.loads(json.dumps(grade.details))["spaces"] == [
        {"line": LINE, "kind": "missing", "words": ["Fresh", "bread"], "checked": True}
    ]
    grade, _ = graded(tmp_path / "b.png", "br ead", {"required": ["bread"]}, monkeypatch, looked("br ead", "space"))
    assert grade.reasons["copy"] == 'a space stands within "bread"'


def test_a_space_that_cannot_be_told_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grade, _ = graded(tmp_path / "a.png", "Freshbread from 7 am", {"required": [LINE]}, monkeypatch)
    assert grade.scores == {"copy": None, "copy.recall": None, "copy.cer": 0.0}
    doubt = f'"{LINE}": whether a space stands between "Fresh" and "bread" cannot be told'
    assert grade.error == f"OCR cannot decide: {doubt}; 'extract: [ocr, judge]' lets a judge decide"


def test_spaces_as_read_need_no_second_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grade, measured = graded(tmp_path / "a.png", LINE, {"required": [LINE]}, monkeypatch)
    assert (grade.scores["copy"], grade.reasons["copy"]) == (True, "required line found")
    assert "spaces of lines" not in measured
    assert "spaces" not in grade.details


def test_loose_spaces_pass_and_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = "Freshbread from 7 am"
    grade, measured = graded(tmp_path / "a.png", read, {"required": [LINE]}, monkeypatch, spaces="loose")
    assert grade.scores == {"copy": True, "copy.recall": 1.0, "copy.cer": 0.0}
    assert grade.reasons["copy"] == f'required line found; spaces not checked in "{read}"'
    assert [item["checked"] for item in grade.details["spaces"]] == [False]
    assert "spaces of lines" not in measured
    grade, _ = graded(tmp_path / "b.png", LINE, {"required": [LINE]}, monkeypatch, spaces="loose")
    assert grade.reasons["copy"] == "required line found"


def test_a_tolerated_mark_is_in_the_reason_and_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grade, _ = graded(tmp_path / "a.png", "Coffee! Tea.", {"required": ["Coffee", "Tea"]}, monkeypatch)
    assert grade.reasons["copy"] == (
        'all 2 required lines found; "Coffee" is followed by "!" and "Tea" is followed by ".", '
        "which is tolerated unless extra: forbid"
    )
    assert [pair["followed_by"] for pair in grade.details["found"]] == ["!", "."]
    grade, _ = graded(tmp_path / "b.png", "Coffee!", {"required": ["Coffee"], "extra": "forbid"}, monkeypatch)
    assert grade.scores["copy"] is False


def test_the_default_is_no_part_of_the_hash() -> None:
    assert "spaces" not in TextGrader(type="text", key="copy", spaces="loose").model_dump()
    assert TextGrader(type="text", key="copy", spaces="exact").model_dump()["spaces"] == "exact"
