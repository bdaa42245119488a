"""Images that the label page may read: those of the run, and inputs that its suite may read."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import pytest
from clips import clip, colour_of
from label_server import SECRET_A, make_image, write_run
from PIL import Image, ImageDraw

from visioneval import ImageError
from visioneval.label import items as outputs
from visioneval.label import work
from visioneval.label.labeling import Labeling
from visioneval.label.work import LabelRequest, prepare
from visioneval.media import video as video_module
from visioneval.media.video import sample_frames


def first_images(folder: Path) -> tuple[Labeling, dict[str, dict[str, Any]]]:
    """The labeling session, and the images of the first item by title."""
    labeling = Labeling(prepare(LabelRequest(str(folder), folder.parent)))
    stages = labeling.next("ann")["item"]["stages"]
    return labeling, {entry["title"]: entry for stage in stages for entry in stage["images"]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a suite, beside a private image."""
    make_image(3).save(tmp_path / "private.png")
    clear = make_image(3).convert("RGBA")
    clear.putalpha(0)
    clear.save(tmp_path / "mask.png")
    (tmp_path / "suite").mkdir()
    make_image(5).save(tmp_path / "suite" / "base.png")
    monkeypatch.chdir(tmp_path / "suite")
    return tmp_path / "suite"


@pytest.mark.parametrize("start", ["absolute", "..", "link"])
def test_inputs_outside_the_suites_folder_are_missing(home: Path, start: str) -> None:
    (home / "link").symlink_to(home.parent)
    top = str(home.parent) if start == "absolute" else start
    outside = f"{top}/private.png"
    case = {"id": "one", "images": [outside], "reference": outside, "masks": {"editable": f"{top}/mask.png"}}
    labeling, result = first_images(write_run(home, [case]))
    assert {title: entry["kind"] for title, entry in result.items()} == {
        "Result": "image", "Input": "missing", "Mask: may change": "missing", "Expected": "missing"
    }  # fmt: skip
    for title in ("Input", "Mask: may change", "Expected"):
        with pytest.raises(ImageError):
            labeling.media.get(result[title]["id"])


def test_inputs_in_the_folder_that_a_run_names_are_missing(home: Path) -> None:
    """The run may be a stranger's: only the working directory is trusted, not the folder of its suite."""
    case = {"id": "one", "images": ["private.png"], "reference": "suite/base.png"}
    labeling, result = first_images(write_run(home.parent, [case]))
    assert {title: entry["kind"] for title, entry in result.items()} == {
        "Result": "image", "Input": "missing", "Expected": "image"
    }  # fmt: skip
    with pytest.raises(ImageError):
        labeling.media.get(result["Input"]["id"])


def test_inputs_beside_the_suite_are_shown(home: Path) -> None:
    shutil.copy(home.parent / "mask.png", home / "mask.png")
    case = {"id": "one", "images": ["base.png"], "reference": "base.png", "masks": {"editable": "mask.png"}}
    labeling, result = first_images(write_run(home, [case]))
    assert {entry["kind"] for entry in result.values()} == {"image"}
    assert all(labeling.media.get(entry["id"]) for entry in result.values())


@pytest.mark.parametrize("mime", ["image/png", "video/mp4"])
def test_a_runs_image_outside_the_run_is_missing(home: Path, mime: str) -> None:
    run = write_run(home, change=lambda _: {"mime": mime})
    custom = next(run.rglob("*.png"))
    custom.unlink()
    custom.symlink_to(home.parent / "private.png")
    labeling, result = first_images(run)
    assert result["Result"]["kind"] == "missing"
    with pytest.raises(ImageError):
        labeling.media.get(result["Result"]["id"])


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_image_metadata_is_removed(home: Path, form: str) -> None:
    run = write_run(home)
    custom = next(run.rglob("*.png"))
    exif = Image.Exif()
    exif[0x0131] = exif[0x010E] = SECRET_A
    words = SECRET_A.encode()
    make_image(3).save(custom, form, exif=exif, xmp=words, icc_profile=words, comment=words)
    assert custom.read_bytes().count(words) >= 2
    before = custom.read_bytes()
    labeling, result = first_images(run)
    exposure = labeling.media.get(result["Result"]["id"])
    assert exposure is not None
    assert exposure.mime == "image/png"
    assert words not in exposure.data
    assert custom.read_bytes() == before
    second = Image.open(BytesIO(exposure.data))
    second.load()
    assert second.info == {}
    assert second.getexif() == {}


@pytest.fixture
def video(home: Path) -> Path:
    """A run whose only image is a video that names its model."""
    run = write_run(home, change=lambda _: {"mime": "video/mp4"})
    custom = next(run.rglob("*.png"))
    clip(home / "made.mp4", ["red", "blue"])
    with av.open(str(home / "made.mp4")) as source, av.open(str(custom), "w", format="mp4") as copy:
        copy.metadata["comment"] = SECRET_A
        stream = copy.add_stream_from_template(source.streams.video[0])
        stream.metadata["handler_name"] = SECRET_A
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                copy.mux(packet)
    assert custom.read_bytes().count(SECRET_A.encode()) == 2
    return run


def test_video_metadata_is_removed(video: Path, tmp_path: Path) -> None:
    labeling, result = first_images(video)
    stored = next(video.rglob("*.png"))
    before = stored.read_bytes()
    exposure = labeling.media.get(result["Result"]["id"])
    assert exposure is not None
    assert exposure.mime == "video/mp4"
    assert SECRET_A.encode() not in exposure.data
    assert stored.read_bytes() == before
    (tmp_path / "copy.mp4").write_bytes(exposure.data)
    frames = sample_frames(tmp_path / "copy.mp4", 2)
    assert [colour_of(frame.jpeg) for frame in frames] == [(True, False, False), (False, False, True)]


def test_a_video_has_a_limit(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labeling, result = first_images(video)
    assert result["Result"]["kind"] == "video"
    monkeypatch.setattr(video_module, "MAX_BYTES", 10)
    with pytest.raises(ImageError, match="over the limit of 10"):
        labeling.media.get(result["Result"]["id"])


def test_deleted_video_is_missing(video: Path) -> None:
    labeling, result = first_images(video)
    next(video.rglob("*.png")).unlink()
    with pytest.raises(ImageError):
        labeling.media.get(result["Result"]["id"])


def test_invalid_video_is_not_shown(video: Path) -> None:
    labeling, result = first_images(video)
    next(video.rglob("*.png")).write_bytes(b"#EXTM3U\n/etc/passwd\n")
    with pytest.raises(ImageError):
        labeling.media.get(result["Result"]["id"])


def test_without_pyav_videos_are_unchanged_with_a_note(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "can_read_videos", lambda: False)
    monkeypatch.setattr(work, "can_read_videos", lambda: False)
    labeling, result = first_images(video)
    exposure = labeling.media.get(result["Result"]["id"])
    assert exposure is not None
    assert exposure.data == next(video.rglob("*.png")).read_bytes()
    (note,) = prepare(LabelRequest(str(video), video.parent)).notes
    assert "pip install -e '.[video]'" in note


RED = (230, 20, 20)


def text_run(
    home: Path, *boxes: Any, under: str | None = None, size: tuple[int, int] = (160, 120), **more: Any
) -> Path:
    """A run whose output has a red patch in each place where OCR read a text that is not the required one."""
    found = {
        "lines": [{"text": "PRIVATE READING", "confidence": 0.9, "box": box} for box in boxes],
        "missing": [{"line": "SALE", "nearest": "PRIVATE READING"}],
    }
    details = found if under is None else {"lines": [{"text": "SALE", "box": []}], under: found}
    grader = {"key": "copy", "type": "text", "details": details, "fingerprint": {"config_sha256": "0"}}
    case = {"id": "one", "expect": {"text": {"required": ["SALE", "NOW"]}}}
    run = write_run(home, [case], change=lambda _: {"graders": (grader,), **more})
    output = Image.new("RGB", size, "navy")
    for box in boxes:
        if box in (UPRIGHT, UPWARDS):
            ImageDraw.Draw(output).polygon([tuple(corner) for corner in box], fill=RED)
    (path,) = run.rglob("*.png")
    output.save(path)
    return run


def opened(labeling: Labeling, entry: dict[str, Any]) -> Image.Image:
    media = labeling.media.get(entry["id"])
    assert media is not None
    return Image.open(BytesIO(media.data))


UPRIGHT = [[20, 20], [100, 20], [100, 40], [20, 40]]
UPWARDS = [[120, 100], [120, 20], [140, 20], [140, 100]]


@pytest.mark.parametrize("under", [None, "ocr"])
def test_the_places_with_text_are_upright_below_each_other(home: Path, under: str | None) -> None:
    labeling, result = first_images(text_run(home, UPRIGHT, UPWARDS, under=under))
    sheet = opened(labeling, result["Text"])
    high = (sheet.height - 12) // 2  # of each place: 80 x 20 pixels, and 10 around it
    scale = high / 40
    assert sheet.width == pytest.approx(100 * scale, abs=2)
    for top in (0, high + 12):
        for x, y, color in (
            (14, 14, RED),
            (86, 26, RED),
            (5, 20, (0, 0, 128)),
            (95, 20, (0, 0, 128)),
            (50, 5, (0, 0, 128)),
        ):
            assert sheet.getpixel((round(x * scale), top + round(y * scale))) == color


def test_raters_see_the_required_text_and_nothing_of_what_was_read(home: Path) -> None:
    labeling, result = first_images(text_run(home, UPRIGHT))
    item = labeling.next("ann")["item"]
    assert item["text"] == "SALE\nNOW"
    assert list(result) == ["Result", "Text"]
    assert "PRIVATE" not in str(item)
    assert "nearest" not in str(item)


def test_an_item_without_required_text_has_none(home: Path) -> None:
    assert Labeling(prepare(LabelRequest(str(write_run(home)), home))).next("ann")["item"]["text"] is None


@pytest.mark.parametrize(
    "box",
    [[], None, "no", [[1, 2]] * 3, [[1, 2], [3, 4], [5, 6], [7, float("inf")]], [[1e9, 2]] * 4, [[1, 2], [3], [], [4]]],
)
def test_an_odd_place_is_left_out(home: Path, box: Any) -> None:
    assert "Text" not in first_images(text_run(home, box))[1]
    labeling, result = first_images(text_run(home / "two", UPRIGHT, box))
    assert opened(labeling, result["Text"]).height < 200


@pytest.mark.parametrize("lines", [5, True, "no", {"box": UPRIGHT}])
def test_lines_that_are_no_list_have_no_places(home: Path, lines: Any) -> None:
    grader = {"key": "copy", "type": "text", "details": {"lines": lines}, "fingerprint": {"config_sha256": "0"}}
    assert "Text" not in first_images(write_run(home, change=lambda _: {"graders": (grader,)}))[1]


def test_a_place_outside_the_image_and_a_large_one_are_bounded(home: Path) -> None:
    huge = [[-50, -50], [99_000, -50], [99_000, 90_000], [-50, 90_000]]
    flat = [[5, 5], [5, 5], [5, 5], [5, 5]]
    labeling, result = first_images(text_run(home, huge, flat, *[UPRIGHT] * 60))
    sheet = opened(labeling, result["Text"])
    assert sheet.width <= 1200
    assert sheet.height <= 40 * 412


def test_the_places_of_a_transparent_output_have_squares_behind_them(home: Path) -> None:
    run = text_run(home, UPRIGHT)
    (path,) = run.rglob("*.png")
    Image.new("RGBA", (160, 120), (255, 255, 255, 0)).save(path)
    labeling, result = first_images(run)
    colors = {color for _, color in opened(labeling, result["Text"]).getcolors(100_000) or []}
    assert {(160, 160, 160), (220, 220, 220)} <= colors


def test_a_missing_output_has_no_places(home: Path) -> None:
    labeling, result = first_images(text_run(home, UPRIGHT))
    (path,) = (home / "r").rglob("*.png")
    path.unlink()
    with pytest.raises(ImageError):
        labeling.media.get(result["Text"]["id"])
