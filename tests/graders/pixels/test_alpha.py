"""Transparency is part of an image: what is deleted, flattened or re-encoded, for each grader that measures pixels."""

from __future__ import annotations

import asyncio
import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from typer.testing import CliRunner

from visioneval import CaseFiles, Grade, GraderError, GradingContext, TestCase, read_records
from visioneval.cli import app
from visioneval.graders.pixels import LocalityGrader, ReferenceGrader
from visioneval.graders.pixels.color import comparable, on_backgrounds
from visioneval.graders.pixels.locality import Locality, measure_locality
from visioneval.graders.pixels.reference import Reference, measure_reference
from visioneval.graders.pixels.registration import align, read_pixels
from visioneval.graders.properties import PropertiesGrader
from visioneval.graders.properties.grader import Properties
from visioneval.judging.attachments import Attachment, shown
from visioneval.judging.crops import CropTool
from visioneval.media.images import image_at, load_image
from visioneval.providers.base import ImagePart

pytestmark = pytest.mark.slow

WHITE, BLACK, NOTHING = (255, 255, 255, 255), (0, 0, 0, 255), (0, 0, 0, 0)
SIZE = (240, 200)
EDITABLE = (150, 120, 220, 180)
LOGO = (20, 20, 120, 90)


def logo(color: tuple[int, ...] = WHITE, mark: tuple[int, ...] | None = (30, 90, 200, 255)) -> Image.Image:
    """A ring with a bar and a soft edge on transparency, and a mark in the mask, which is the edit; ``None``: no edit."""
    image = Image.new("RGBA", (SIZE[0] * 4, SIZE[1] * 4), (*color[:3], 0))
    pen = ImageDraw.Draw(image)
    left, top, right, bottom = (4 * side for side in LOGO)
    pen.ellipse((left, top, right, bottom), fill=color)
    pen.ellipse((left + 60, top + 60, right - 60, bottom - 60), fill=(*color[:3], 0))
    pen.rectangle((left, bottom + 40, right, bottom + 80), fill=color)
    image = image.resize(SIZE, Image.Resampling.BOX)
    if mark is not None:
        image.paste(mark, EDITABLE)
    return image


def without_logo() -> Image.Image:
    image = logo()
    image.paste(NOTHING, (0, 0, 130, 120))
    return image


def flattened(image: Image.Image, color: str = "white") -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", image.size, color), image).convert("RGB")


def png16(pixels: np.ndarray) -> bytes:
    """RGBA or LA pixels of 8 bits as a PNG of 16 bits per channel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + (row.astype(np.uint16) * 257).astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, {2: 4, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def with_pixels(change: Callable[[np.ndarray], None], image: Image.Image | None = None) -> bytes:
    pixels = np.array(image or logo())
    change(pixels)
    return encoded(Image.fromarray(pixels))


def hide_colors(pixels: np.ndarray) -> None:
    pixels[pixels[..., 3] == 0] = (200, 30, 90, 0)


def dim_alpha(pixels: np.ndarray) -> None:
    pixels[..., 3][pixels[..., 3] == 255] = 254


HARMLESS: dict[str, Callable[[], bytes]] = {
    "as it is": lambda: encoded(logo()),
    "webp": lambda: encoded(logo(), "WEBP", lossless=True),
    "lossy webp": lambda: encoded(logo(), "WEBP", quality=85),
    "tiff": lambda: encoded(logo(), "TIFF"),
    "palette": lambda: encoded(logo().quantize(64)),
    "16 bits": lambda: png16(np.array(logo())),
    "hidden colors": lambda: with_pixels(hide_colors),
    "alpha 254": lambda: with_pixels(dim_alpha),
    "half the size": lambda: encoded(logo().resize((120, 100), Image.Resampling.LANCZOS)),
    "twice the size": lambda: encoded(logo().resize((480, 400), Image.Resampling.LANCZOS)),
    "moved by 3 pixels": lambda: encoded(Image.fromarray(np.roll(np.array(logo()), (2, -3), (0, 1)))),
}
HARMFUL: dict[str, Callable[[], bytes]] = {
    "logo deleted": lambda: encoded(without_logo()),
    "flattened on white": lambda: encoded(flattened(logo())),
    "flattened on black": lambda: encoded(flattened(logo(), "black")),
    "flattened as jpeg": lambda: encoded(flattened(logo()), "JPEG", quality=95),
    "half transparent": lambda: with_pixels(lambda pixels: np.floor_divide(pixels[..., 3], 2, out=pixels[..., 3])),
    "black logo": lambda: encoded(logo(BLACK)),
    "fully transparent": lambda: encoded(Image.new("RGBA", SIZE, NOTHING)),
}


@pytest.fixture
def context(tmp_path: Path) -> Callable[..., GradingContext]:
    """``context(output, base=logo, **case)`` is a cell with a base without the edit, a mask, and a reference with it."""

    def make(output: bytes, base: Image.Image | None = None, **case: Any) -> GradingContext:
        base = base or logo(mark=None)
        base.save(tmp_path / "base.png")
        (base.copy() if base.mode == "RGB" else logo()).save(tmp_path / "reference.png")
        mask = Image.new("RGBA", base.size, BLACK)
        mask.paste(NOTHING, EDITABLE)
        mask.save(tmp_path / "mask.png")
        (tmp_path / "out").write_bytes(output)
        entries = {"id": "c", "prompt": "p", "images": ["base.png"], "mask": "mask.png", "reference": "reference.png"}
        model = TestCase.model_validate({**entries, **case})
        paths = [tmp_path / name for name in ("base.png", "mask.png", "reference.png")]
        files = CaseFiles((("base", paths[0]),) if model.images else (), {"editable": paths[1]}, paths[2])

        def save(name: str, data: bytes) -> str:
            (tmp_path / name).write_bytes(data)
            return name

        return GradingContext(model, model.task_type, "p", None, image_at(tmp_path / "out", output), files, save)

    return make


def locality(context: GradingContext, **options: Any) -> Grade:
    return asyncio.run(Locality(LocalityGrader(type="locality", key="local", **options)).grade(context))


def reference(context: GradingContext) -> Grade:
    return asyncio.run(Reference(ReferenceGrader(type="reference", key="ref")).grade(context))


def properties(context: GradingContext) -> Grade:
    config = PropertiesGrader(type="properties", key="file")
    grade = asyncio.run(Properties(config).grade(context))
    assert config.metrics(context.case).keys() - config.omissible(context.case) <= grade.scores.keys()
    assert grade.scores.keys() <= config.metrics(context.case).keys()
    return grade


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_form_of_a_transparent_image_passes(context: Any, name: str) -> None:
    cell = context(HARMLESS[name]())
    for grade in (locality(cell), reference(cell), properties(cell)):
        assert set(grade.reasons) == set()
        assert next(iter(grade.scores.values())) is True
    assert properties(cell).scores["file.alpha"] is True


@pytest.mark.parametrize("name", HARMFUL)
def test_damage_that_is_invisible_on_white_or_black_fails(context: Any, name: str) -> None:
    cell = context(HARMFUL[name]())
    assert locality(cell).scores["local"] is False
    assert locality(cell, tolerance="exact").scores["local"] is False
    assert reference(cell).scores["ref"] is False


@pytest.mark.parametrize("color", [WHITE, BLACK, (128, 128, 128, 255)])
def test_a_deleted_logo_of_any_color_is_found_and_explained(context: Any, color: tuple[int, ...]) -> None:
    cell = context(encoded(without_logo()), base=logo(color, mark=None))
    for options in ({}, {"tolerance": "exact"}):
        grade = locality(cell, **options)
        assert grade.scores["local.changed_outside"] > 0.05
        assert grade.scores["local.worst_window"] > 0.7
        assert grade.scores["local.ssim_outside"] < 0.95
        assert "of the pixels became more transparent" in grade.reasons["local"]
        assert grade.details["alpha_outside"]["more_opaque"] == 0


def test_a_flattened_logo_is_explained(context: Any) -> None:
    cell = context(HARMFUL["flattened as jpeg"]())
    assert "of the pixels became more opaque" in locality(cell).reasons["local"]
    assert "of the pixels became more opaque" in reference(cell).reasons["ref"]
    assert locality(cell).scores["local.changed_outside"] > 0.5
    grade = properties(cell)
    assert (grade.scores["file"], grade.scores["file.alpha"]) == (False, False)
    assert "expect: {alpha: any}" in grade.reasons["file.alpha"]


def test_the_similarity_of_a_deleted_logo_is_that_of_its_pixels(context: Any) -> None:
    """Pixels that are transparent in both images do not dilute it."""
    deleted = reference(context(encoded(Image.new("RGBA", SIZE, NOTHING)))).scores
    assert deleted["ref.delta_e"] > 50
    assert deleted["ref.ssim"] < 0.3


def test_images_without_any_visible_pixel_are_the_same() -> None:
    first, second = (np.full((60, 80, 4), (level, 9, 9, 0), np.uint8) for level in (0, 200))
    finding = measure_reference(first, second)
    assert (finding.ssim, finding.delta_e, finding.changed) == (1, 0, 0)
    editable = np.zeros((60, 80), bool)
    editable[20:40, 20:40] = True
    for exact in (False, True):
        local = measure_locality(first, second, editable, exact=exact, dilate=0)
        assert (local.changed_outside, local.changed_inside) == (0, 0)


def test_exact_counts_alpha_and_visible_colors_only() -> None:
    base = np.array(logo())
    output = base.copy()
    output[100, 200] = (9, 9, 9, 0)
    output[60, 25, 3] -= 1
    assert base[60, 25, 3] == 255
    assert base[100, 200, 3] == 0
    none = np.zeros(base.shape[:2], bool)
    finding = measure_locality(base, output, none, exact=True, dilate=0)
    assert finding.changed_outside == 1 / none.size
    faint = np.full((30, 30, 4), (100, 100, 100, 40), np.uint8)
    finding = measure_locality(faint, faint + np.uint8([1, 0, 0, 0]), none[:30, :30], exact=True, dilate=0)
    assert finding.changed_outside == 1


def test_opaque_pixels_measure_the_same_with_and_without_an_alpha_channel(tmp_path: Path) -> None:
    base, output = (np.array(flattened(image, "teal")) for image in (logo(), without_logo()))
    Image.fromarray(output).convert("RGBA").save(tmp_path / "out.png")
    assert np.array_equal(read_pixels(tmp_path / "out.png"), output)
    layered = (np.dstack([pixels, np.full(SIZE[::-1], 255, np.uint8)]) for pixels in (base, output))
    plain, alpha = measure_reference(base, output), measure_reference(*layered)
    assert (plain.ssim, plain.delta_e, plain.changed) == (alpha.ssim, alpha.delta_e, alpha.changed)
    assert plain.alpha == {}


def test_an_opaque_base_with_a_transparent_output_fails(context: Any) -> None:
    base = flattened(logo(), "white")
    cell = context(encoded(logo()), base=base)
    assert locality(cell).scores["local"] is False
    assert "more transparent" in locality(cell).reasons["local"]
    assert "file.alpha" not in properties(cell).scores


def test_a_moved_logo_of_black_and_white_is_registered() -> None:
    both = np.array(logo())
    both[:, :70, :3] = 0
    pair = align(both, np.roll(both, 4, 1))
    assert pair.registration.shift_x == pytest.approx(4, abs=0.2)


def test_the_backgrounds_are_the_image_on_black_and_on_white() -> None:
    pixels = np.array([[[255, 0, 100, 255], [255, 100, 0, 51], [7, 7, 7, 0]]], np.uint8)
    (on_black, _), (on_white, _) = on_backgrounds(*comparable(pixels, pixels))
    assert on_black.tolist() == [[[255, 0, 100], [51, 20, 0], [0, 0, 0]]]
    assert on_white.tolist() == [[[255, 0, 100], [255, 224, 204], [255, 255, 255]]]


def test_the_difference_map_shows_a_deleted_logo_and_what_is_left(context: Any, tmp_path: Path) -> None:
    grade = locality(context(encoded(without_logo())))
    shown_map = np.asarray(Image.open(tmp_path / grade.details["difference_map"]).convert("RGB")).astype(int)
    red = shown_map[60, 25]
    assert red[0] > 2 * max(red[1], red[2])
    board = shown_map[150:190, 20:100]
    assert len(np.unique(board.reshape(-1, 3), axis=0)) == 2


@pytest.mark.parametrize(
    ("expect", "base", "output", "score"),
    [
        ({}, "transparent", "transparent", True),
        ({}, "transparent", "opaque", False),
        ({}, "transparent", "alpha 254", False),
        ({}, "opaque", "opaque", None),
        ({}, "opaque", "transparent", None),
        ({}, "alpha 254", "opaque", None),
        ({"format": "jpeg"}, "transparent", "opaque", None),
        ({"alpha": "any"}, "transparent", "opaque", None),
        ({"alpha": "any"}, "transparent", "transparent", None),
        ({"alpha": False}, "transparent", "opaque", True),
        ({"alpha": False}, "transparent", "transparent", False),
        ({"alpha": False}, "opaque", "alpha 254", True),
        ({"alpha": True}, "opaque", "opaque", False),
        ({"alpha": True}, "opaque", "transparent", True),
    ],
)
def test_which_edits_must_keep_their_transparency(
    context: Any, expect: dict[str, Any], base: str, output: str, score: bool | None
) -> None:
    """``None``: the metric does not apply."""
    opaque = flattened(logo())
    alpha_254 = opaque.copy()
    alpha_254.putalpha(254)
    images = {"transparent": logo(mark=None), "opaque": opaque, "alpha 254": alpha_254}
    grade = properties(context(encoded(images[output]), base=images[base], expect=expect))
    assert grade.scores.get("file.alpha") is score
    assert ("file.alpha" in grade.reasons) is (score is False)
    assert grade.error is None


def test_an_input_of_a_generation_need_not_be_kept_transparent(context: Any) -> None:
    grade = properties(context(encoded(flattened(logo())), task="image_generation"))
    assert "file.alpha" not in grade.scores


def test_a_base_that_does_not_decode_is_an_error_that_names_it(context: Any, tmp_path: Path) -> None:
    cell = context(encoded(logo()))
    data = (tmp_path / "base.png").read_bytes()
    (tmp_path / "base.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(GraderError, match=r"base\.png"):
        properties(cell)


@pytest.mark.parametrize("data", [png16(np.array(logo().convert("LA"))), encoded(logo().convert("LA"))])
def test_grey_with_alpha_is_read_with_its_alpha(tmp_path: Path, data: bytes) -> None:
    image = load_image(data)
    assert image.mode == "RGBA"
    assert np.array_equal(np.asarray(image)[..., 3], np.asarray(logo())[..., 3])


def test_a_gif_keeps_its_transparency_in_comparisons(context: Any) -> None:
    """A GIF has no partial transparency: soft edges are lost, which is tolerated; the deleted logo is not."""
    gifs = {name: encoded(image, "GIF") for name, image in (("all", logo()), ("deleted", without_logo()))}
    assert locality(context(gifs["all"])).scores["local"] is True
    assert locality(context(gifs["deleted"])).scores["local"] is False
    assert properties(context(gifs["all"])).scores["file.alpha"] is True


def test_rotated_transparency_is_compared_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    logo().rotate(90, expand=True).save(tmp_path / "turned.png", exif=exif)
    assert np.array_equal(read_pixels(tmp_path / "turned.png"), np.asarray(logo()))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "GIF"])
def test_judges_get_the_transparency_of_an_image(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "image"
    path.write_bytes(encoded(logo(), kind))
    part = shown(path)
    assert part.mime == ("image/webp" if kind == "WEBP" else "image/png")
    alpha = np.asarray(Image.open(io.BytesIO(part.data)).convert("RGBA"))[..., 3]
    assert (alpha[60, 25], alpha[5, 5]) == (255, 0)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "GIF"])
def test_models_get_the_transparency_of_an_input(tmp_path: Path, kind: str) -> None:
    """A model can only keep what it gets."""
    from visioneval.providers.inputs import accepted_image

    path = tmp_path / "image"
    path.write_bytes(encoded(logo(), kind))
    alpha = np.asarray(Image.open(io.BytesIO(accepted_image(path)[1])).convert("RGBA"))[..., 3]
    assert (alpha[60, 25], alpha[5, 5]) == (255, 0)


def test_a_zoomed_view_has_the_transparency_of_the_image() -> None:
    tool = CropTool([Attachment("output", "image", ImagePart(encoded(logo()), "image/png"))], 2, lambda *_: "crop.png")
    _, crop = tool.tool.call({"image_id": "output", "x1": 0, "y1": 0, "x2": 60, "y2": 100})
    for data, factor in ((tool.first_views[0].part.data, 1), (crop.data, 8)):
        alpha = np.asarray(Image.open(io.BytesIO(data)))[..., 3]
        assert (alpha[60 * factor, 25 * factor], alpha[5 * factor, 5 * factor]) == (255, 0)


def test_ocr_reads_a_logo_of_each_color(recorded_readings: None) -> None:
    from visioneval.graders.text import ocr

    def sign(*lines: tuple[str, tuple[int, ...]]) -> Image.Image:
        image = Image.new("RGBA", (420, 90 * len(lines)), NOTHING)
        for row, (line, color) in enumerate(lines):
            ImageDraw.Draw(image).text((30, 15 + 90 * row), line, font=ImageFont.load_default(size=48), fill=color)
        return image

    signs = {
        ("black",): sign(("BUTTER", WHITE)),
        ("white",): sign(("BUTTER", BLACK)),
        ("white", "black"): sign(("BUTTER", WHITE), ("FLOUR", BLACK)),
    }
    for backgrounds, image in signs.items():
        assert ocr.backgrounds(image) == backgrounds
        texts = [reading.text for reading in ocr.read(image)]
        assert texts == (["BUTTER", "FLOUR"] if len(backgrounds) == 2 else ["BUTTER"])


def test_opaque_images_and_mid_tones_are_read_once() -> None:
    pytest.importorskip("rapidocr")
    from visioneval.graders.text import ocr

    for image in (flattened(logo()), logo((120, 130, 140, 255), mark=None), Image.new("RGBA", SIZE, NOTHING)):
        assert ocr.backgrounds(image) == ("white",)


def test_a_suite_fails_flattened_edits_until_it_accepts_any(tmp_path: Path) -> None:
    """The default, ``any`` from a dataset, an opaque base; and changed expectations re-grade without new outputs."""
    logo(mark=None).save(tmp_path / "clear.png")
    flattened(logo(mark=None)).save(tmp_path / "solid.png")
    flattened(logo()).save(tmp_path / "out.png")
    (tmp_path / "cases.csv").write_text("id,prompt,images,alpha\nlenient,p,clear.png,any\nstrict,p,clear.png,\n")
    suite = {
        "name": "alpha",
        "cases": [
            {
                "dataset": {
                    "path": "cases.csv",
                    "fields": {"id": "id", "prompt": "prompt", "images": "images", "expect.alpha": "alpha"},
                }
            },
            {"id": "solid", "prompt": "p", "images": ["solid.png"]},
        ],
        "models": [{"provider": "files", "label": "m", "path": "out.png"}],
        "graders": [{"key": "file", "type": "properties"}],
        "verdict": ["file"],
    }
    (tmp_path / "suite.yaml").write_text(json.dumps(suite))
    result = CliRunner().invoke(
        app, ["run", str(tmp_path / "suite.yaml"), "--runs", str(tmp_path / "runs"), "--run-id", "r"]
    )
    assert result.exit_code == 1, result.output
    records = {record.test_id: record for record in read_records(tmp_path / "runs" / "r")}
    assert {name: record.verdict for name, record in records.items()} == {
        "lenient": "PASS",
        "strict": "FAIL",
        "solid": "PASS",
    }
    assert records["strict"].scores["file.alpha"] is False
    assert all("file.alpha" not in records[name].scores for name in ("lenient", "solid"))
    assert records["strict"].graders[0].fingerprint.version == "3"
    assert "transparent pixels" in records["strict"].reasons["file.alpha"]


def test_graders_whose_results_changed_have_a_version() -> None:
    from visioneval.graders.text import TextGrader

    versions = [
        LocalityGrader(type="locality", key="k").version,
        ReferenceGrader(type="reference", key="k").version,
        PropertiesGrader(type="properties", key="k").version,
        TextGrader(type="text", key="k").version,
    ]
    assert versions == ["6", "5", "3", "7"]
    assert TextGrader(type="text", key="k", extract="judge").version is None
