"""The video grader: what it measures, its limits, and videos that it cannot measure."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import grading
import moving_videos
import numpy as np
import pytest

from visioneval import Grade, GraderError, TestCase
from visioneval.graders.properties import VideoGrader
from visioneval.graders.properties.frames import MAX_POINTS, VideoFacts, flicker, measure_video


def graded(path: Path, *, expect: dict[str, Any] | None = None, requested: str | None = None, **options: Any) -> Grade:
    case = TestCase.model_validate({"id": "c", "prompt": "p", "task": "video_generation", "expect": expect or {}})
    config = VideoGrader(key="video", type="video", **options)
    grade = grading.grade(config, path, requested=requested, task="video_generation", expect=expect or {})
    assert set(grade.scores) == set(config.metrics(case))
    return grade


def written(path: Path, frames: Sequence[np.ndarray[Any, Any]], form: str, **stream_options: Any) -> Path:
    """A video in another format: ``form`` is the encoder and its pixel format."""
    codec, pixel_format = form.split()
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=Fraction(moving_videos.FPS))
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape, pixel_format
        for name, value in stream_options.items():
            setattr(stream.codec_context, name, value)
        for pixels in frames:
            rgb = av.VideoFrame.from_ndarray(np.repeat(pixels[:, :, None], 3, axis=2), format="rgb24")
            container.mux(stream.encode(rgb.reformat(format=pixel_format)))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def moving() -> moving_videos.Frames:
    return moving_videos.pan(1)


@pytest.fixture(scope="module")
def clean(moving: moving_videos.Frames, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return moving_videos.stored(tmp_path_factory.mktemp("videos") / "clean.mp4", moving)


def test_a_flawless_video_passes_with_all_numbers(clean: Path) -> None:
    grade = graded(
        clean, expect={"size": "requested", "aspect_ratio": "16:9"}, requested="320x180", duration=[1.9, 2.1]
    )
    assert grade.scores == {
        "video": True,
        "video.size": True,
        "video.duration_s": 2.0,
        "video.width": 320,
        "video.height": 180,
        "video.frame_rate": 24.0,
        "video.has_audio": False,
        "video.frozen_s": 0.0,
        "video.frozen_share": 0.0,
        "video.black_share": 0.0,
        "video.flicker": grade.scores["video.flicker"],
    }
    assert 0 <= float(grade.scores["video.flicker"] or 0) < 0.001
    assert (grade.error, grade.reasons) == (None, {})
    assert (grade.details["frames"], grade.details["codec"]) == (48, "h264")
    over_time = grade.details["over_time"]
    assert {name: len(values) for name, values in over_time.items()} == {"seconds": 48, "luminance": 48, "change": 48}
    assert over_time["seconds"][:2] == [0, 0.042]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"duration": [3, 4]}, "the video lasts 2 s, expected 3 to 4"),
        ({"duration": [1, 1]}, "the video lasts 2 s, expected 1"),
        ({"frame_rate": [30, 60]}, "it has 24 frames per second, expected 30 to 60"),
        ({"audio": True}, "the video has no soundtrack"),
        ({"expect": {"size": "640x360"}}, "the video is 320x180, expected 640x360"),
        ({"expect": {"aspect_ratio": "9:16"}}, "the video is 320x180, expected an aspect ratio of 9:16"),
    ],
)
def test_expectations_that_a_video_does_not_meet(clean: Path, options: dict[str, Any], reason: str) -> None:
    grade = graded(clean, **options)
    assert (grade.scores["video"], grade.reasons["video"], grade.error) == (False, reason, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        (lambda frames: moving_videos.frozen(frames, 1), "it stands still for"),
        (lambda frames: moving_videos.black(frames, 0.5), "of its duration is black from 0.75 s on"),
        (lambda frames: moving_videos.flickering(frames, 0.1), "it flickers by"),
        (lambda frames: moving_videos.flickering(frames, 0.2, period=4), "it flickers by"),
    ],
)
def test_each_flaw_is_caught_by_its_limit(moving: moving_videos.Frames, tmp_path: Path, flaw: Any, reason: str) -> None:
    path = moving_videos.stored(tmp_path / "a.mp4", flaw(moving))
    grade = graded(path)
    assert grade.scores["video"] is False
    assert reason in grade.reasons["video"]
    if reason == "it stands still for":
        relaxed = graded(path, max_frozen_s=None, max_black_share=None, max_flicker=None)
        assert relaxed.scores == {**grade.scores, "video": True}  # limits change no measure


def test_frozen_and_black_times_are_in_the_details(moving: moving_videos.Frames, tmp_path: Path) -> None:
    grade = graded(moving_videos.stored(tmp_path / "a.mp4", moving_videos.frozen(moving_videos.black(moving, 0.5), 0)))
    assert grade.details["black"] == [[0.75, 1.25]]
    assert grade.details["frozen"] == [[0.75, 1.25]]
    assert grade.scores["video.frozen_s"] == 0.5
    assert grade.scores["video.black_share"] == 0.25


def test_a_slow_change_is_no_standstill(moving: moving_videos.Frames, tmp_path: Path) -> None:
    """In each frame, half of the pixels get brighter by one level: hardly different from the frame before."""
    odd = np.indices(moving[0].shape).sum(axis=0) % 2
    brighter = [np.minimum(moving[0], 200) + ((number + odd) // 2).astype(np.uint8) for number in range(len(moving))]
    scores = graded(written(tmp_path / "slow.mkv", brighter, "ffv1 yuv420p")).scores
    assert scores["video.frozen_share"] == 0
    assert float(scores["video.frozen_s"] or 0) < 0.2


def means(*levels: float) -> np.ndarray[Any, Any]:
    return np.repeat(np.array(levels)[:, None], 8, axis=1)


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (means(*[0, 1] * 12), 1.0),
        (means(*[0.5, 0.6] * 12), 0.1),
        (means(*[0, 0, 1, 1] * 6), 1.0),  # a slower flicker
        (means(*np.linspace(0, 1, 24)), 0.0),  # a fade
        (means(*[0] * 12, *[1] * 12), 0.0),  # a cut
        (means(*[0] * 12, 1, *[0] * 11), 1 / 12),  # one flash
        (means(*[0] * 6, *[1] * 6, *[0] * 12), 0.0),  # a light that is on for a quarter of a second
    ],
)
def test_flicker_is_luminance_that_comes_back(series: np.ndarray[Any, Any], expected: float) -> None:
    assert flicker(series, 24) == pytest.approx(expected)


def test_flicker_needs_a_quarter_of_the_picture_in_one_direction() -> None:
    waves = np.tile([0.0, 1.0], 12)[:, None]

    def of_area(percent: int) -> np.ndarray[Any, Any]:
        return np.hstack([np.repeat(waves, percent, axis=1), np.zeros((24, 100 - percent))])

    assert flicker(of_area(30), 24) == pytest.approx(1)
    assert flicker(of_area(20), 24) == 0
    opposed = np.hstack([np.repeat(waves, 20, axis=1), np.repeat(1 - waves, 20, axis=1), np.zeros((24, 60))])
    assert flicker(opposed, 24) == 0
    assert flicker(means(0, 1), 24) is None


def test_a_video_of_one_frame_is_not_measured(moving: moving_videos.Frames, tmp_path: Path) -> None:
    grade = graded(moving_videos.stored(tmp_path / "a.mp4", moving[:1]))
    unmeasured = {
        "video",
        "video.frame_rate",
        "video.frozen_s",
        "video.frozen_share",
        "video.black_share",
        "video.flicker",
    }
    assert {name for name, score in grade.scores.items() if score is None} >= unmeasured
    assert grade.error is not None
    assert grade.error.endswith("the video has only one frame")


def test_of_two_frames_only_flicker_is_not_measured(moving: moving_videos.Frames, tmp_path: Path) -> None:
    grade = graded(moving_videos.stored(tmp_path / "a.mp4", moving[:2]))
    assert {name for name, score in grade.scores.items() if score is None} == {"video", "video.flicker"}
    assert grade.error == "flicker: the video has fewer than three frames"


def test_a_varying_frame_rate_is_undecided(moving: moving_videos.Frames, tmp_path: Path) -> None:
    times = [*range(0, 1000, 40), *range(1000, 1000 + 23 * 80, 80)]
    path = moving_videos.stored(tmp_path / "a.mp4", moving, times=times)
    grade = graded(path, frame_rate=[12, 20])
    assert grade.scores["video"] is None
    assert grade.error == "its frame rate varies from 12.5 to 25 frames per second"
    assert graded(path, frame_rate=[12, 26]).scores["video"] is True
    assert graded(path, frame_rate=[50, 60]).scores["video"] is False
    assert graded(path).scores["video"] is True


def test_rotation_turns_width_and_height(clean: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.mp4"
    with av.open(str(clean)) as source, av.open(str(turned), "w") as target:
        stream: Any = target.add_stream_from_template(source.streams.video[0])
        stream.set_display_rotation(90)
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    grade = graded(turned, expect={"aspect_ratio": "9:16"})
    assert (grade.scores["video.width"], grade.scores["video.height"], grade.scores["video"]) == (180, 320, True)
    assert grade.details["rotation"] in (90, 270)


def test_ten_bits_are_measured_like_eight_and_hdr_is_not(moving: moving_videos.Frames, tmp_path: Path) -> None:
    bright = [frame // 2 + 100 for frame in moving[:12]]
    eight = graded(written(tmp_path / "8.mkv", bright, "ffv1 yuv420p"))
    ten = graded(written(tmp_path / "10.mkv", bright, "ffv1 yuv420p10le"))
    gray = graded(written(tmp_path / "rgb.mkv", bright, "ffv1 bgr0"))
    for grade in (ten, gray):
        luminance = zip(grade.details["over_time"]["luminance"], eight.details["over_time"]["luminance"], strict=True)
        assert max(abs(a - b) for a, b in luminance) < 0.01
        assert grade.scores["video"] is True
    hdr = graded(written(tmp_path / "hdr.mkv", bright, "libx265 yuv420p10le", color_trc=16))
    assert {name for name, score in hdr.scores.items() if score is None} == {
        "video",
        "video.black_share",
        "video.flicker",
    }
    assert hdr.error == "black_share, flicker: the video is HDR (PQ), whose luminance is not comparable"


def test_a_video_that_is_cut_off_is_an_error(clean: Path, moving: moving_videos.Frames, tmp_path: Path) -> None:
    matroska = written(tmp_path / "whole.mkv", moving, "libx264 yuv420p")
    assert graded(matroska).scores["video"] is True
    data = matroska.read_bytes()
    (tmp_path / "cut.mkv").write_bytes(data[: len(data) * 2 // 3])
    fragments = clean.read_bytes()
    start = fragments.index(b"mdat") + 4
    damaged = fragments[: start + 3000] + bytes(6000) + fragments[start + 9000 :]
    (tmp_path / "damaged.mp4").write_bytes(damaged)
    for name in ("cut.mkv", "damaged.mp4"):
        with pytest.raises(GraderError, match=r"cut off|damaged|cannot be decoded") as error:
            graded(tmp_path / name)
        assert "\n" not in str(error.value)


def test_work_is_bounded_before_anything_is_decoded(
    clean: Path, monkeypatch: pytest.MonkeyPatch, moving: moving_videos.Frames, tmp_path: Path
) -> None:
    monkeypatch.setattr("visioneval.bounds.VIDEO_GIGAPIXELS.override", 0)
    with pytest.raises(GraderError, match=r"more than 0 gigapixels .*--max-video-gigapixels N or VISIONEVAL_MAX_VIDEO"):
        graded(clean)
    monkeypatch.undo()
    monkeypatch.setattr("visioneval.bounds.MAX_FRAMES", 40)
    with pytest.raises(GraderError, match="more than 40 frames"):
        graded(clean)


def test_series_have_a_bounded_number_of_points(moving: moving_videos.Frames, tmp_path: Path) -> None:
    frames = [frame[:32, :48] for frame in [*moving, *reversed(moving)] * 6]
    facts: VideoFacts = measure_video(moving_videos.stored(tmp_path / "a.mp4", frames))
    assert facts.over_time is not None
    assert facts.frames == 576
    assert len(facts.over_time.seconds) == len(facts.over_time.change) == MAX_POINTS
    assert list(facts.over_time.seconds) == sorted(facts.over_time.seconds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"duration": [2, 1]}, "the minimum 2 is above the maximum 1"),
        ({"duration": [1]}, "Field required"),
        ({"max_flicker": 2}, "less than or equal to 1"),
        ({"frame_rate": [-1, 2]}, "greater than or equal to 0"),
        ({"size": "1x1"}, "Extra inputs are not permitted"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VideoGrader(key="video", type="video", **options)


def test_no_metrics_for_images() -> None:
    config = VideoGrader(key="video", type="video")
    assert config.metrics(TestCase(id="a", prompt="x")) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in moving_videos.CLEAN if name != "grain, sigma 2"])
def test_a_flawless_video_is_no_false_alarm(name: str, tmp_path: Path) -> None:
    """Grain of sigma 2 is removed by this encoding, and the still that remains is frozen."""
    grade = graded(moving_videos.stored(tmp_path / "a.mp4", moving_videos.CLEAN[name](1), crf=28))
    assert (grade.scores["video"], grade.reasons) == (True, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda frames: moving_videos.frozen(frames, 1),
        lambda frames: moving_videos.black(frames, 0.04),
        lambda frames: moving_videos.flickering(frames, 0.08),
        lambda frames: moving_videos.flickering(frames, 0.08, period=4),
        lambda frames: moving_videos.shortened(frames, 0.05),
    ],
)
def test_damage_is_caught_from_the_strength_that_the_docs_state(damage: Any, tmp_path: Path) -> None:
    path = moving_videos.stored(tmp_path / "a.mp4", damage(moving_videos.handheld(1)), crf=35)
    assert graded(path, duration=[1.94, 2.06]).scores["video"] is False
