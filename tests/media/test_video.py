"""Videos: detection, sampled frames, and hostile files."""

from __future__ import annotations

import io
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import pytest
from clips import clip, colour_of
from PIL import Image
from record_factory import generated_png
from typer.testing import CliRunner

from visioneval import ImageError, TaskType
from visioneval.cli import app
from visioneval.installation import needs
from visioneval.media.images import MAX_BYTES, encode_png
from visioneval.media.video import artifact, ending, sample_frames, sample_images, video_at, video_mime

VIDEO = TaskType.VIDEO_GENERATION
RED, GREEN, BLUE = (True, False, False), (False, True, False), (False, False, True)


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("a.mp4", "video/mp4"),
        ("a.mov", "video/quicktime"),
        ("a.webm", "video/webm"),
        ("a.mkv", "video/x-matroska"),
        ("a.avi", "video/x-msvideo"),
    ],
)
def test_a_video_is_known_by_how_it_begins(tmp_path: Path, name: str, mime: str) -> None:
    path = clip(tmp_path / name, ["red", "blue"])
    result = video_at(path, path.read_bytes())
    assert (result.mime, result.width, result.height, result.is_video) == (mime, 64, 48, True)
    assert ending(mime) == path.suffix
    assert [colour_of(frame.jpeg) for frame in sample_frames(path, 2)] == [RED, BLUE]


def test_frames_are_spread_evenly_and_know_their_times(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.mp4", ["red", "lime", "blue"], seconds_each=1)
    frames = sample_frames(path, 3)
    assert [round(frame.seconds, 2) for frame in frames] == [0.5, 1.5, 2.5]
    assert [colour_of(frame.jpeg) for frame in frames] == [RED, GREEN, BLUE]
    assert [round(frame.seconds, 2) for frame in sample_frames(path, 1)] == [1.5]


def test_a_short_video_gives_each_frame_once(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.mp4", ["red"], seconds_each=0.3)
    assert [round(frame.seconds, 2) for frame in sample_frames(path, 8)] == [0.0, 0.1, 0.2]


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_a_frame_that_is_held_counts_for_each_part_that_it_fills(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for pts, color in [(0, "red"), (1, "red"), (2, "lime"), (3, "lime"), (4, "blue"), (40, "red")]:
            frame = av.VideoFrame.from_image(Image.new("RGB", (64, 48), color))
            frame.pts, frame.time_base = pts, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    samples = sample_images(path, 8)
    assert [colour_of(encode_png(sample.image)) for sample in samples] == [GREEN] + [BLUE] * 7
    assert samples[-1].seconds < 4.1
    assert [round(frame.seconds, 2) for frame in sample_frames(path, 8)] == [0.2, 0.4]
    assert colour_of(sample_frames(path, 64)[-1].jpeg) == RED


def test_a_title_that_is_not_utf_8_is_no_obstacle(tmp_path: Path) -> None:
    path = clip(tmp_path / "plain.mkv", ["red"])
    with av.open(str(path)) as source, av.open(str(tmp_path / "titled.mkv"), "w") as copy:
        copy.metadata["title"] = "a title"
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                copy.mux(packet)
    data = (tmp_path / "titled.mkv").read_bytes()
    assert data.count(b"a title") == 1
    path.write_bytes(data.replace(b"a title", b"a t\xeftle"))
    assert [colour_of(frame.jpeg) for frame in sample_frames(path, 1)] == [RED]


@pytest.mark.parametrize("name", ["a.mkv", "a.webm"])
def test_no_frames_of_a_video_that_is_cut_off(tmp_path: Path, name: str) -> None:
    path = clip(tmp_path / name, ["red", "lime", "blue"], seconds_each=1)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 4 // 5])
    with pytest.raises(ImageError, match="the video is cut off"):
        sample_frames(path, 2)


def test_a_large_frame_is_scaled_down(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.mp4", ["red"], seconds_each=0.1, size=(2048, 1024))
    (frame,) = sample_frames(path, 1)
    assert Image.open(io.BytesIO(frame.jpeg)).size == (1536, 768)


def sound(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame(format="s16", layout="mono", samples=1024)
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def test_non_videos_are_rejected(tmp_path: Path) -> None:
    whole = clip(tmp_path / "a.mp4", ["red", "blue"]).read_bytes()
    for data, message in (
        (b"", "not a supported video"),
        (b"#EXTM3U\n/etc/passwd\n", "not a supported video"),
        (whole[:60], "the video cannot be decoded"),
        (whole[:8] + b"\0" * 4000, "the video cannot be decoded"),
        (sound(tmp_path / "s.mkv").read_bytes(), "the file has no video, only audio"),
    ):
        with pytest.raises(ImageError, match=message):
            artifact(data, VIDEO)


def test_a_video_without_frames(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        container.start_encoding()
    with pytest.raises(ImageError, match=r"the video has no frames|cannot be decoded"):
        artifact((tmp_path / "a.mkv").read_bytes(), VIDEO)


def test_images_and_videos_are_not_confused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="not a supported video"):
        artifact(generated_png("red"), VIDEO)
    with pytest.raises(ImageError, match="set 'task: video_generation' in its case"):
        artifact(clip(tmp_path / "a.mp4", ["red"]).read_bytes(), TaskType.IMAGE_GENERATION)
    assert artifact(generated_png("red"), TaskType.IMAGE_EDITING).mime == "image/png"


def test_a_video_over_the_limit_is_not_opened() -> None:
    head = b"\0\0\0\x18ftypisom"
    with pytest.raises(ImageError, match="over the limit"):
        video_at(Path(), head + bytes(MAX_BYTES))
    assert video_mime(head) == "video/mp4"
    assert video_mime(b"") is None
    assert video_mime(b"\0\0\0\x1cftypavif") is None, "a still image, which is not 'set task: video_generation'"


def test_without_the_extra_the_error_names_the_install_command(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.mp4", ["red"])
    code = (
        "import sys; sys.modules['av'] = None\n"
        "from pathlib import Path\nfrom visioneval.errors import ImageError\nfrom visioneval.media.video import sample_frames\n"
        "try: sample_frames(Path(sys.argv[1]), 1)\nexcept ImageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stdout.strip() == "videos need an extra: run pip install -e '.[video]' in a checkout of visioneval", (
        done.stderr
    )


def test_without_the_extra_no_video_is_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "av", None)
    Path("suite.yaml").write_text(
        "name: s\ntask: video_generation\ncases: [{id: a, prompt: hills}]\nmodels: [{provider: mock}]\n"
        "graders: [{key: film, type: video}]\nverdict: [film]\n"
    )
    result = CliRunner().invoke(app, ["run", "suite.yaml"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{needs('video')}\n"
    assert not Path("runs").exists()
