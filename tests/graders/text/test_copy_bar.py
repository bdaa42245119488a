"""The yardstick of the grader ``text``: every planted mistake is one, and every decision is counted as what it is."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.calibration import copy_bar
from tests.calibration.copy_cases import Case, copy_images, is_shown, look_alike
from visioneval import GraderError
from visioneval.graders.measures import Measure
from visioneval.probing.subject import CannotPerturbError
from visioneval.suite.case import ExpectText
from visioneval.types import Score


def test_each_wrong_case_of_a_card_has_one_mistake_that_the_card_does_not_excuse() -> None:
    planted = 0
    for copy_image in copy_images("cards"):
        for case in copy_image.cases:
            if case.group != "planted":
                continue
            right = copy_image.cases[0].expect.required
            changed = [(line, text) for line, text in zip(right, case.expect.required, strict=True) if line != text]
            assert len(changed) == 1, case
            assert not is_shown(changed[0][1], right), case
            assert case.is_alike == (case.mistake == "look_alike"), case
            assert not case.passes
            planted += 1
    assert planted > 500


def test_half_of_the_cards_are_drawn_right() -> None:
    groups = [copy_image.cases[0].group for copy_image in copy_images("cards")]
    assert (groups.count("right"), groups.count("in image")) == (59, 59)


def test_a_card_and_its_wrong_one_are_in_the_same_half_and_kinds_are_in_both() -> None:
    halves: dict[str, set[str]] = {}
    kinds: dict[str, set[str]] = {}
    for copy_image in copy_images("cards"):
        halves.setdefault(copy_image.name.removeprefix("wrong_"), set()).add(copy_image.half)
        kinds.setdefault(copy_image.kind, set()).add(copy_image.half)
    assert all(len(found) == 1 for found in halves.values())
    assert {kind for kind, found in kinds.items() if len(found) == 1} == {"pixel"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Tel", True), ("Tel.", True), ("Tel. 12", True), ("el", False), ("Tel. 1", False), ("Tel 12", False)],
)
def test_marks_around_a_text_are_no_part_of_it(text: str, shown: bool) -> None:
    assert is_shown(text, ["Call:", "Tel. 12"]) == shown


def test_a_text_over_two_lines_is_shown() -> None:
    assert is_shown("late night", ["Open late", "night and day"])


def test_a_look_alike_changes_one_sign_and_needs_one() -> None:
    assert look_alike("l", np.random.default_rng(1)) in ("I", "1", "|")
    with pytest.raises(CannotPerturbError):
        look_alike("Hat", np.random.default_rng(1))


class _Grader:
    """Decides what it is told."""

    def __init__(self, passed: Score | GraderError) -> None:
        self._passed = passed

    async def grade(self, context: Any) -> Any:
        if isinstance(self._passed, GraderError):
            raise self._passed
        return SimpleNamespace(scores={"copy": self._passed}, reasons={"copy": "a reason"})


@pytest.mark.parametrize(
    ("passed", "passes", "outcome"),
    [
        (True, True, "right"),
        (False, True, "wrong"),
        (True, False, "wrong"),
        (False, False, "right"),
        (None, True, "undecided"),
        (None, False, "undecided"),
        (GraderError("cannot read it"), True, "undecided"),
    ],
)
def test_a_decision_is_right_wrong_or_none(
    passed: Score | GraderError, passes: bool, outcome: str, tmp_path: Path
) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    copy_image = next(copy_images("cards"))
    case = Case("right", "right", ExpectText(required=("a",)), passes=passes)
    context = copy_bar.grading_context(tmp_path / "image.png")
    grader: Any = _Grader(passed)
    decision = asyncio.run(copy_bar._decide(grader, context, copy_image, case))
    assert decision.outcome == outcome
    assert decision.reason in ("a reason", "cannot read it")


def test_an_image_is_measured_once_for_all_its_cases(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(b"image")
    measured = copy_bar._Measured(path)
    calls: list[str] = []

    def measure(name: str) -> Measure[str]:
        return Measure(name, {"output": path}, lambda: calls.append(name) or name, str)

    results = [asyncio.run(measured(measure(name))) for name in ("one", "two", "one")]
    assert (results, calls) == (["one", "two", "one"], ["one", "two"])


def _run(monkeypatch: pytest.MonkeyPatch, passed: Score, *arguments: str) -> int:
    monkeypatch.setattr(copy_bar, "Text", lambda config: _Grader(passed))
    monkeypatch.setattr(sys, "argv", ["copy_bar", "--part", "words", "--images", "blank_1", *arguments])
    return copy_bar.main()


def test_two_runs_are_shown_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "before.json")
    assert _run(monkeypatch, True, "--out", file) == 0
    printed = capsys.readouterr().out
    assert "right cases that do not pass: 0" in printed
    assert len(json.loads(Path(file).read_text())["decisions"]) == 10
    assert _run(monkeypatch, False, "--before", file) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("no text"))
    assert "10 -> 0" in row
    assert "0 -> 10" in row
    assert "cases with another outcome: 10 of 10" in printed
    assert "blank_15.png, blank: right -> wrong" in printed


def test_the_halves_share_no_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = []
    for half in ("--fit", "--state"):
        assert _run(monkeypatch, True, half, "--out", str(tmp_path / "half.json")) == 0
        names += [item["image"] for item in json.loads((tmp_path / "half.json").read_text())["decisions"]]
    assert len(names) == len(set(names)) == 10


def test_a_filter_that_fits_no_image_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["copy_bar", "--part", "cards", "--images", "nothing"])
    assert copy_bar.main() == 2
    assert "no image" in capsys.readouterr().err


def test_without_the_shared_images_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(copy_bar, "SHARED", tmp_path)
    monkeypatch.setattr("tests.calibration.copy_cases.SHARED", tmp_path)
    monkeypatch.setattr(copy_bar, "Text", lambda config: _Grader(True))
    monkeypatch.setattr(sys, "argv", ["copy_bar", "--images", "blank_15"])
    assert copy_bar.main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("shared: skipped")
    assert "no text" in printed
