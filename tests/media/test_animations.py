"""An animated GIF, WebP or APNG is measured as a video: never its first frame alone."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_runner import FileRunner
from PIL import Image
from typer.testing import CliRunner

from visioneval import CaseFiles, ImageError, TaskType, bounds
from visioneval.cli import app
from visioneval.errors import WrongTaskError
from visioneval.graders.properties.frames import opened_luma
from visioneval.judging.attachments import output_attachments, shown
from visioneval.label.items import load_animation
from visioneval.media.animation import AnimationFrame, animation_frames, animation_of
from visioneval.media.video import artifact, sample_frames, sample_images
from visioneval.providers.base import ImagePart
from visioneval.report.html.images import FolderImages

KINDS = ("GIF", "WEBP", "PNG")
LEVELS = (40, 90, 140, 190, 240)


def frames(count: int = 5, size: tuple[int, int] = (96, 64)) -> list[Image.Image]:
    """Flat gray frames, each brighter than the one before."""
    return [Image.new("RGB", size, (LEVELS[number % 5],) * 3) for number in range(count)]


def animated(kind: str, images: list[Image.Image], duration: int | list[int] = 100, **options: Any) -> bytes:
    target = io.BytesIO()
    lossless = {"lossless": True} if kind == "WEBP" else {}
    images[0].save(
        target, kind, save_all=True, append_images=images[1:], duration=duration, loop=0, **lossless, **options
    )
    return target.getvalue()


@pytest.fixture
def runner(tmp_path: Path) -> FileRunner:
    case = {"id": "spin", "prompt": "x", "task": "video_generation"}
    return FileRunner(tmp_path, case, {"key": "motion", "type": "video", "max_frozen_s": None, "max_flicker": None})


@pytest.mark.parametrize("kind", KINDS)
def test_an_animation_is_measured_as_the_video_that_it_is(runner: FileRunner, kind: str) -> None:
    result = runner(animated(kind, frames(), 200))
    assert result.exit_code == 0, result.output
    record = runner.record()
    scores = {name.removeprefix("motion."): score for name, score in record.scores.items()}
    assert (scores["duration_s"], scores["frame_rate"], scores["width"], scores["height"]) == (1.0, 5.0, 96, 64)
    assert (scores["has_audio"], scores["frozen_s"], scores["black_share"]) == (False, 0, 0)
    assert record.mime == {"GIF": "video/gif", "WEBP": "video/webp", "PNG": "video/apng"}[kind]
    assert Path(record.artifact_path or "").suffix == {"GIF": ".gif", "WEBP": ".webp", "PNG": ".png"}[kind]
    again = runner(animated(kind, frames(), 200), "--offline", run_id="again")
    assert again.exit_code == 0, again.output
    assert runner.record("again").scores == record.scores


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grader", [{"key": "file", "type": "properties"}, {"key": "like", "type": "reference"}])
def test_graders_of_images_do_not_see_its_first_frame(runner: FileRunner, kind: str, grader: dict[str, Any]) -> None:
    runner.case = {"id": "spin", "prompt": "x", "reference": "right.png"}
    runner.graders = [grader]
    frames()[0].save(runner.folder / "right.png")
    assert runner(animated(kind, frames())).exit_code == 3
    error = runner.record().error
    assert error is not None
    assert (error.stage, error.kind) == ("generate", "wrong_task")
    assert "an animation, which is measured as a video: set 'task: video_generation' in its case" in error.message


def test_without_the_extra_the_error_names_it(runner: FileRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visioneval.media.video.has_extra", lambda _: False)
    with pytest.raises(ImageError, match=r"videos need an extra: run pip install .*\[video\]"):
        artifact(animated("GIF", frames()), TaskType.IMAGE_GENERATION)


@pytest.mark.parametrize("kind", KINDS)
def test_one_frame_is_an_image(runner: FileRunner, kind: str) -> None:
    one = animated(kind, frames(1))
    runner.case, runner.graders = {"id": "spin", "prompt": "x"}, [{"key": "file", "type": "properties"}]
    textured = np.random.default_rng(1).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    result = runner(animated(kind, [Image.fromarray(textured)]))
    assert result.exit_code == 0, result.output
    with pytest.raises(ImageError, match=f"not a supported video: the {kind} has only one frame"):
        artifact(one, TaskType.VIDEO_GENERATION)


@pytest.mark.parametrize("field", ["images", "reference"])
def test_an_animated_input_is_a_problem_of_the_suite(runner: FileRunner, field: str) -> None:
    (runner.folder / "loop.gif").write_bytes(animated("GIF", frames()))
    runner.case = {"id": "spin", "prompt": "x", field: ["loop.gif"] if field == "images" else "loop.gif"}
    runner.graders = [{"key": "file", "type": "properties"}]
    result = runner(animated("GIF", frames(1)))
    assert result.exit_code == 2
    assert "loop.gif: it is an animation, which only graders of videos measure" in result.output


def test_frames_last_as_long_as_browsers_show_them() -> None:
    starts = [frame.start for frame in animation_frames(animated("GIF", frames(3), 0))]
    assert starts == pytest.approx([0, 0.1, 0.2])
    starts = [frame.start for frame in animation_frames(animated("GIF", frames(3), 20))]
    assert starts == pytest.approx([0, 0.02, 0.04])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_off_animation_is_an_error(runner: FileRunner, kind: str) -> None:
    noise = np.random.default_rng(3).integers(0, 256, (5, 64, 96, 3), dtype=np.uint8)
    whole = animated(kind, [Image.fromarray(pixels) for pixels in noise])
    for share in (0.5, 0.9, 0.999):
        cut = whole[: int(len(whole) * share)]
        result = runner(cut, run_id=f"cut{share}")
        assert result.exit_code == 3, (share, result.output)


def test_a_gif_that_ends_between_two_frames_is_cut_off(tmp_path: Path) -> None:
    data = animated("GIF", frames())
    with pytest.raises(ImageError, match="the animation is cut off"):
        list(animation_frames(data[:-1]))
    path = tmp_path / "a.gif"
    for trailing in (bytes(3), b"\n", b"trailing; text", b"\x21"):
        path.write_bytes(data + trailing)
        assert len(list(animation_frames(data + trailing))) == len(list(animation_frames(path))) == 5
        with pytest.raises(ImageError, match=r"cut off|damaged"):
            list(animation_frames(data[:-1] + trailing.replace(b";", b"")))


@pytest.mark.parametrize("colors", ["global", "local"])
def test_a_gif_with_color_tables_ends_where_its_blocks_end(colors: str) -> None:
    noise = np.random.default_rng(4).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)
    images = [Image.fromarray(pixels).quantize(64) for pixels in (noise[[0, 0, 0]] if colors == "global" else noise)]
    for number, image in enumerate(images):
        image.putpixel((number, 0), 5)
    data = animated("GIF", images, comment=b"a;b")
    assert len(list(animation_frames(data + b"\n"))) == 3
    with pytest.raises(ImageError, match="the animation is cut off"):
        list(animation_frames(data[:-1]))


def test_an_apng_of_one_frame_is_not_its_hidden_image(runner: FileRunner) -> None:
    data = animated("PNG", frames(2), default_image=True)
    (frame,) = animation_frames(data)
    assert frame.image.getpixel((0, 0)) == (LEVELS[1],) * 3
    runner(data)
    assert runner.record().mime == "video/apng", runner.record()
    assert runner.record().scores["motion.duration_s"] == 0.1, runner.record()
    with pytest.raises(WrongTaskError, match="this is an animation"):
        artifact(data, TaskType.IMAGE_GENERATION)


def test_transparent_pixels_are_white() -> None:
    clear = [Image.new("RGBA", (8, 8), (0, 0, 0, 0)) for _ in range(2)]
    clear[1].putpixel((0, 0), (255, 0, 0, 255))
    first, second = animation_frames(animated("PNG", clear))
    assert first.image.getpixel((0, 0)) == (255, 255, 255)
    assert (second.image.getpixel((0, 0)), second.image.getpixel((4, 4))) == ((255, 0, 0), (255, 255, 255))


def test_frames_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = animated("GIF", frames(8))
    monkeypatch.setattr(bounds, "MAX_FRAMES", 7)
    with pytest.raises(ImageError, match="more than 7 frames"):
        list(animation_frames(data))
    monkeypatch.setattr(bounds, "MAX_FRAMES", 8)
    assert len(list(animation_frames(data))) == 8
    monkeypatch.undo()
    monkeypatch.setattr(bounds.VIDEO_GIGAPIXELS, "override", 0)
    with pytest.raises(ImageError, match="more than 0 gigapixels in all its frames"):
        list(animation_frames(data))


@pytest.mark.parametrize("kind", KINDS)
def test_every_judge_gets_frames_with_their_times(tmp_path: Path, kind: str) -> None:
    data = animated(kind, frames(5), 200)
    path = tmp_path / "output"
    path.write_bytes(data)

    class Context:
        task_type = TaskType.VIDEO_GENERATION
        output = artifact(data, TaskType.VIDEO_GENERATION)
        files = CaseFiles()
        show = staticmethod(shown)
        watching = frozenset({"watcher"})

    object.__setattr__(Context.output, "path", path)
    attachments = output_attachments(Context(), "watcher", 5)  # no judge takes an animation as a video
    assert [type(attachment.part) for attachment in attachments] == [ImagePart] * 5
    assert attachments[1].description == "frame 2 of 5 of the video to judge, at 0.20 s"
    levels = [np.asarray(image).mean() for image in (sample.image for sample in sample_images(path, 5))]
    assert levels == pytest.approx(LEVELS, abs=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([20] * 4 + [3920], [4] * 8),
        ([1000, 1000, 1000, 1000], [0, 0, 1, 1, 2, 2, 3, 3]),
        ([2000, 20, 20, 1960], [0, 0, 0, 0, 3, 3, 3, 3]),
    ],
)
def test_a_frame_counts_for_each_part_that_it_fills(
    tmp_path: Path, kind: str, durations: list[int], expected: list[int]
) -> None:
    path = tmp_path / "output"
    path.write_bytes(animated(kind, frames(len(durations)), durations))
    samples = sample_images(path, 8)
    assert [np.asarray(sample.image).mean() for sample in samples] == pytest.approx(
        [LEVELS[number] for number in expected], abs=2
    )
    assert [sample.seconds for sample in samples] == pytest.approx(
        [(part + 0.5) * sum(durations) / 8000 for part in range(8)]
    )
    for_judges = sample_frames(path, 8)
    assert [frame.seconds for frame in for_judges] == pytest.approx(
        [sum(durations[:number]) / 1000 for number in sorted(set(expected))]
    )


def test_sampled_frames_are_scaled_before_the_next_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sizes = tmp_path / "output", []

    def watched(source: Path) -> Iterator[AnimationFrame]:
        known: list[AnimationFrame] = []
        for frame in animation_frames(source):
            sizes.extend(before.image.size for before in known)
            known = [frame]
            yield frame

    path.write_bytes(animated("GIF", frames(4, (3000, 20))))
    monkeypatch.setattr("visioneval.media.animation.animation_frames", watched)
    assert [sample.image.size for sample in sample_images(path, 4)] == [(1536, 10)] * 4
    assert sizes == [(3000, 20)] * 3 + [(1536, 10)] * 3, "the first reading only looks at times"


def test_raters_see_the_animation_without_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(animated("GIF", frames(), comment=b"model-x"))
    served = load_animation(path)
    assert served.mime == "image/webp"
    assert b"model-x" not in served.data
    assert animation_of(served.data) == ("video/webp", 96, 64)
    with opened_luma(path) as (frames_of_file, _):
        assert len(list(frames_of_file)) == 5


def test_a_large_animation_is_scaled_for_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(animated("GIF", [image.resize((3000, 30)) for image in frames()]))
    assert animation_of(load_animation(path).data) == ("video/webp", 1024, 10)
    monkeypatch.setattr(bounds.MEGAPIXELS, "override", 1)
    path.write_bytes(animated("GIF", [image.resize((1000, 1000)) for image in frames()]))
    kind, width, height = animation_of(load_animation(path).data) or ("", 0, 0)
    assert (kind, width) == ("video/webp", height)
    assert 400_000 < 5 * width * height <= 500_000
    monkeypatch.setattr(bounds, "MAX_FRAMES", 4)
    path.write_bytes(animated("GIF", frames()))
    with pytest.raises(ImageError, match="more than 4 frames"):
        load_animation(path)
    path.unlink()
    with pytest.raises(ImageError, match="cannot read: No such file"):
        load_animation(path)


def test_an_animation_is_encoded_once_for_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(animated("GIF", frames()))
    encoded = iter((b"first", b"changed"))
    monkeypatch.setattr("visioneval.media.animation.as_webp", lambda _: next(encoded))
    assert [load_animation(path).data for _ in range(2)] == [b"first"] * 2
    os.utime(path, ns=(1, 1))
    assert load_animation(path).data == b"changed"


@pytest.mark.parametrize("zeros", [0, 1, 65_535, 65_536, 200_000])
def test_a_gif_may_be_padded(tmp_path: Path, zeros: int) -> None:
    path = tmp_path / "a.gif"
    data = animated("GIF", frames())
    for source in (data + bytes(zeros), data[:-1] + bytes(zeros)):
        path.write_bytes(source)
        if source.startswith(data):
            assert len(list(animation_frames(path))) == len(list(animation_frames(source))) == 5
        else:
            with pytest.raises(ImageError, match="cut off"):
                list(animation_frames(path))


def test_a_report_shows_the_file_itself(runner: FileRunner) -> None:
    assert runner(animated("GIF", frames())).exit_code == 0
    result = CliRunner().invoke(app, ["report", "r", "--runs", str(runner.folder / "runs")])
    assert result.exit_code == 0, result.output
    images = FolderImages(
        runner.folder / "runs" / "r", runner.folder, runner.folder / "runs" / "r" / "report", trust=False
    )
    entry = images.run_image(runner.record().artifact_path or "")
    assert entry["src"].endswith(".gif")
    assert "kind" not in entry  # not a <video>, which plays no GIF
