"""Copy in videos: required lines, typos, forbidden lines and other text over sampled frames, read by OCR."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grading
import pytest
from mock_outputs import request
from PIL import Image, ImageDraw

from visioneval import Grade, TaskType, TestCase
from visioneval.graders.text import TextGrader, ocr
from visioneval.graders.text.layout import Reading
from visioneval.providers.mock.generator import Mock

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("reduced_readings")]
LINES = ["Marrow & Pine", "Doors open Friday", "Join us"]
EXPECTED = {"required": LINES, "extra": "forbid"}


@pytest.fixture(scope="module")
def video_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``video_of(**params)`` is the file of mock's video of the lines, made once."""
    made: dict[str, Path] = {}

    def make(**params: Any) -> Path:
        name = "-".join(f"{key}-{value}" for key, value in params.items()) or "none"
        if name not in made:
            asked = request({"text": EXPECTED}, **params)
            case = asked.case.model_copy(update={"task": TaskType.VIDEO_GENERATION})
            asked = replace(asked, case=case, task_type=TaskType.VIDEO_GENERATION)
            made[name] = tmp_path_factory.mktemp("videos") / f"{name}.mp4"
            (data,) = asyncio.run(Mock(None).generate(asked)).outputs
            assert isinstance(data, bytes)
            made[name].write_bytes(data)
        return made[name]

    return make


def graded(path: Path, expected: dict[str, Any] | None = None, **options: Any) -> Grade:
    case = TestCase.model_validate(
        {"id": "c", "prompt": "p", "task": "video_generation", "expect": {"text": expected or EXPECTED}}
    )
    config = TextGrader(key="copy", type="text", **{"frames": 3, **options})
    grade = grading.grade(config, path, task="video_generation", expect={"text": expected or EXPECTED})
    assert set(grade.scores) == set(config.metrics(case))
    return grade


def test_all_lines_in_all_frames(video_of: Any) -> None:
    grade = graded(video_of(), measure=["word_accuracy", "complete"])
    assert grade.scores == {
        "copy": True,
        "copy.recall": 1.0,
        "copy.cer": 0.0,
        "copy.shown_s": 1.5,
        "copy.word_accuracy": 1.0,
        "copy.complete": True,
        "copy.doubtful_extra": 0,
    }
    assert grade.details["over_time"] == {"seconds": [0.25, 0.75, 1.25], "required_text": [1, 1, 1]}
    assert [line["frames"] for line in grade.details["required"]] == [3, 3, 3]


def test_a_typo_and_a_missing_line_fail_with_the_nearest_text(video_of: Any) -> None:
    grade = graded(video_of(flaw="typo"))
    assert (grade.scores["copy"], grade.scores["copy.recall"]) == (False, pytest.approx(2 / 3))
    assert 0 < float(grade.scores["copy.cer"] or 0) < 0.1
    assert "is in 0 of 3 sampled frames, at least 2 expected: the nearest text is" in grade.reasons["copy"]
    grade = graded(video_of(flaw="missing_line"))
    assert (grade.scores["copy"], grade.scores["copy.shown_s"]) == (False, 0)


@pytest.mark.parametrize(
    ("read", "instead"),
    [
        ([], ": no text was found in the sampled frames (curved, a logo, or a script that OCR cannot read?)"),
        ([Reading("JOIN US")], ': the nearest text is "JOIN US" (differs only in case)'),
        ([Reading("us"), Reading("x"), Reading("Join")], ': read in parts: "Join" and "us"'),
        ([Reading("Limited time offer")], ""),
    ],
)
def test_the_reason_says_what_was_read_instead(
    video_of: Any, monkeypatch: pytest.MonkeyPatch, read: list[Reading], instead: str
) -> None:
    monkeypatch.setattr(ocr, "read", lambda image: read)
    grade = graded(video_of(), {"required": ["Join us"]})
    assert grade.reasons["copy"] == f'"Join us" is in 0 of 3 sampled frames, at least 2 expected{instead}'


def test_other_and_forbidden_text_fails(video_of: Any) -> None:
    extra = graded(video_of(flaw="extra_text"))
    assert extra.scores["copy"] is False
    assert "extra text: Limited time offer (in 3 of 3 sampled frames, from 0.25 s)" in extra.reasons["copy"]
    forbidden = graded(video_of(), {"required": LINES[:1], "forbidden": ["Join us"]})
    assert forbidden.scores["copy"] is False
    assert forbidden.reasons["copy"].startswith('forbidden "Join us" is present at 0.25 s')
    assert forbidden.details["forbidden"][0]["seconds"] == [0.25, 0.75, 1.25]


@pytest.mark.parametrize(
    ("expected", "passed", "reason"),
    [
        ({"required": ["Join us ✓"]}, None, '"Join us ✓" may be "Join us": local OCR cannot read ✓'),
        ({"forbidden": ["Join us ✓"]}, None, 'forbidden "Join us ✓" may be present, read as "Join us"'),
        ({"required": LINES[:2], "allowed": ["Join us ✓"], "extra": "forbid"}, None, 'extra text "Join us" may be'),
    ],
)
def test_characters_that_ocr_cannot_read_leave_it_undecided(
    video_of: Any, expected: dict[str, Any], passed: bool | None, reason: str
) -> None:
    grade = graded(video_of(), {"required": [], **expected})
    assert grade.scores["copy"] is passed
    assert grade.reasons["copy"].startswith(reason)
    assert (grade.error is not None) is (passed is None)


def test_lines_that_vanish_count_where_they_were_read(video_of: Any) -> None:
    """The video is black from its second fifth on: one of three frames shows the copy."""
    grade = graded(video_of(flaw="black"))
    assert (grade.scores["copy"], grade.scores["copy.shown_s"], grade.scores["copy.cer"]) == (False, 0.5, 0)
    assert '"Join us" is in 1 of 3 sampled frames, at least 2 expected' in grade.reasons["copy"]
    assert graded(video_of(flaw="black"), min_frames=1).scores["copy"] is True
    forbidden = {"required": [], "forbidden": ["Join us"]}
    assert graded(video_of(flaw="black"), forbidden).scores["copy"] is False, "one frame is enough"


def test_a_line_is_not_shown_for_longer_than_the_video(video_of: Any) -> None:
    grade = graded(video_of(seconds=0.2), frames=8, min_frames=8)
    assert (grade.scores["copy"], grade.scores["copy.shown_s"]) == (True, 0.1667)
    fourteen = graded(video_of(seconds=1.2), frames=7)
    assert fourteen.scores["copy.shown_s"] == 1.1667


@pytest.mark.parametrize(("held_last", "is_shown"), [(True, True), (False, False)])
def test_a_line_is_shown_for_as_long_as_its_frame_is_held(tmp_path: Path, held_last: bool, is_shown: bool) -> None:
    plain, title = Image.new("RGB", (320, 120), "white"), Image.new("RGB", (320, 120), "white")
    ImageDraw.Draw(title).text((30, 40), "Sale ends", "black", font_size=40)
    images = [*[plain] * 11, title] if held_last else [plain, *[title] * 11]
    for number, image in enumerate(images):  # a GIF has no two equal frames in a row
        image = images[number] = image.copy()
        image.putpixel((number, 0), (0, 0, 0))
    durations = [20] * 11 + [5000] if held_last else [5000] + [20] * 11
    path = tmp_path / "sale.gif"
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0)
    grade = graded(path, {"required": ["Sale ends"]}, frames=8)
    assert grade.scores["copy"] is is_shown, grade.reasons
    assert grade.scores["copy.shown_s"] == (5.22 if is_shown else 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"frames": 1}, "greater than or equal to 2"), ({"frames": 3, "min_frames": 4}, "min_frames is 4, but only 3")],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextGrader(key="copy", type="text", **options)


def test_the_defaults_for_videos_leave_the_options_of_image_graders_as_they_were() -> None:
    assert not {"frames", "min_frames"} & TextGrader(key="copy", type="text").key_options.keys()
    assert TextGrader(key="copy", type="text", frames=4).key_options["frames"] == 4
