"""The mock generator: its text is readable, and each flaw is visible."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from make_assets import MASK, SHOP, WORD, storefront
from mock_outputs import generated, output, request, text
from PIL import Image

from visioneval import CaseFiles, Editor, Generator, ProviderError, TaskType
from visioneval.graders.text import ocr
from visioneval.media.images import load_image
from visioneval.providers.mock import SEEN_BY, Flaw, MockParams
from visioneval.providers.mock.generator import SOFTWARE, Mock

pytestmark = pytest.mark.slow

ASSETS = Path(__file__).parents[2] / "suites" / "quickstart" / "assets"
COPY = (
    "Grand Opening",
    "Saturday 9 May, 8 am to 4 pm",
    "Fresh bread and free coffee",
    "12 Mill Lane",
    "Reserve a table",
)
ROLLS = ("Butter", "Honey", "Walnut", "Sesame", "Cheese", "Garlic", "Pepper", "Raisin", "Carrot", "Olive", "Tomato")
ROLLS += ("Potato", "Almond", "Ginger", "Cherry")
MENU = tuple(f"{name} roll, ${price}.50" for price, name in enumerate(ROLLS, 2))


def shop(base: str = "storefront.png", folder: Path = ASSETS) -> CaseFiles:
    return CaseFiles(images=(("base", folder / base),), masks={"editable": ASSETS / "storefront-mask.png"})


def changed(image: Image.Image, base: Image.Image) -> np.ndarray[Any, Any]:
    return (np.asarray(image.convert("RGB")) != np.asarray(base.convert("RGB"))).any(axis=2)


def outside() -> np.ndarray[Any, Any]:
    region = np.ones((768, 768), bool)
    region[MASK[1] : MASK[3], MASK[0] : MASK[2]] = False
    return region


@pytest.fixture
def read(recorded_readings: None):
    """Reads an image's lines, top to bottom, without their spaces."""

    def lines(image: Image.Image) -> list[str]:
        readings = ocr.read_flat(image.convert("RGB"))
        return [reading.text.replace(" ", "") for reading in readings if reading.confidence >= 0.5]

    return lines


def squeezed(*lines: str) -> list[str]:
    return [line.replace(" ", "") for line in lines]


def test_speaks_both_protocols():
    assert isinstance(Mock(object()), Generator)
    assert isinstance(Mock(object()), Editor)


def test_exactly_the_required_lines_are_read(read):
    assert read(output(request(text(*COPY, allowed=[SHOP]), size="768x768"))) == squeezed(SHOP, *COPY)


def test_fifteen_lines_in_the_smallest_square_are_read(read):
    page = output(request(text(*MENU), size="256x256")).resize((768, 768), Image.Resampling.LANCZOS)
    assert read(page) == squeezed(*MENU)


def test_long_lines_are_wrapped_and_read_in_full(read):
    slogan = "Every loaf is baked before sunrise by people who know your name"
    assert "".join(read(output(request(text(slogan), size="512x768")))) == slogan.replace(" ", "")


def test_a_typo_is_read_as_one_other_letter(read):
    lines = read(output(request(text(*COPY), flaw="typo", size="768x768")))
    wrong = [(a, b) for a, b in zip(lines, squeezed(*COPY), strict=True) if a != b]
    assert len(wrong) == 1
    assert sum(a != b for a, b in zip(*wrong[0], strict=True)) == 1


def test_a_missing_line_is_not_read(read):
    lines = read(output(request(text(*COPY), flaw="missing_line", size="768x768")))
    assert len(lines) == len(COPY) - 1
    assert set(lines) < set(squeezed(*COPY))


def test_extra_text_is_read_with_all_required_text(read):
    lines = read(output(request(text(*COPY), flaw="extra_text", size="768x768")))
    assert len(lines) == len(COPY) + 1
    assert set(lines) > set(squeezed(*COPY))


def test_an_edit_is_read_in_place_of_the_old_word(read):
    assert read(output(request(text("BUTTER"), files=shop()))) == squeezed(SHOP, "BUTTER")


def test_extra_text_in_an_edit_is_a_forbidden_line_outside_the_mask(read):
    lines = read(output(request(text("BUTTER", forbidden=[WORD]), files=shop(), flaw="extra_text")))
    assert sorted(lines) == sorted(squeezed(SHOP, "BUTTER", WORD))


@pytest.mark.parametrize("size", ["256x256", "256x4096", "4096x256", "1536x1024", "1024x1536"])
def test_a_page_has_the_size_asked_for(size: str):
    image = output(request(text(*MENU), size=size))
    assert f"{image.width}x{image.height}" == size


def test_the_size_parameter_overrides_the_expected_size():
    generation = generated(request({"size": "512x512"}, size="300x200"))
    assert load_image(generation.outputs[0]).size == (300, 200)
    assert generation.run_params == {"model": "mock", "flaw": "none", "size": "300x200", "seed": 0}


@pytest.mark.parametrize("size", ["1x1", "2x90", "90x3", "20000x30"])
def test_without_copy_any_size_can_be_generated(size: str):
    image = output(request(size=size))
    assert f"{image.width}x{image.height}" == size


def test_a_page_without_copy_is_not_blank_and_follows_the_prompt():
    prompts = ("a quiet hill", "a loud harbour")
    single, other = (np.asarray(output(request(prompt=prompt, size="256x256")), int) for prompt in prompts)
    for page in (single, other):
        assert (abs(page - np.median(page, axis=(0, 1))).max(axis=2) > 15).mean() > 0.1
    assert (single != other).any(axis=2).mean() > 0.05


def test_a_page_without_copy_has_no_readable_text(read):
    assert read(output(request(text(extra="forbid"), prompt="a quiet hill"))) == []


def test_the_same_request_gives_the_same_bytes():
    asked = [request(text(*COPY), flaw=flaw, size="512x512") for flaw in get_args(Flaw)]
    asked += [request(text("BUTTER"), flaw=flaw, files=shop()) for flaw in ("none", "typo", "extra_text", "spill")]
    first = [generated(item).outputs for item in asked]
    assert [generated(item).outputs for item in asked] == first
    assert len(set(first)) == len(asked) - 4, "flaws of videos are none in an image"


def test_samples_and_seeds_differ():
    asked = request(text(*COPY), size="512x512")
    both = generated(replace(asked, samples=(3, 4))).outputs
    assert len(both) == 2
    assert both[0] != both[1]
    assert generated(replace(asked, samples=(4,))).outputs == both[1:]
    assert generated(request(text(*COPY), size="512x512", seed=1)).outputs != generated(asked).outputs


@pytest.mark.parametrize(
    ("kind", "form"),
    [("png", "PNG"), ("jpeg", "JPEG"), ("webp", "WEBP"), ("gif", "GIF"), ("tiff", "TIFF"), ("bmp", "BMP")],
)
def test_the_format_is_the_expected_format(kind: str, form: str):
    assert output(request({"format": kind}, size="64x64")).format == form


def test_every_format_with_metadata_names_the_mock():
    assert output(request(size="64x64")).info["Software"] == SOFTWARE
    for kind in ("jpeg", "webp"):
        assert output(request({"format": kind}, size="64x64")).getexif()[0x0131] == SOFTWARE


def test_alpha_leaves_a_transparent_rim_and_the_copy_opaque():
    page = output(request({**text(*COPY), "alpha": True}, size="512x512"))
    alpha = np.asarray(page.getchannel("A"))
    assert (alpha[0] == 0).all()
    assert (alpha[30:-30, 30:-30] == 255).all()
    assert output(request(text(*COPY), size="512x512")).mode == "RGB"


def test_alpha_in_a_format_without_it_is_an_error():
    with pytest.raises(ProviderError, match="requires transparency, which bmp does not support") as caught:
        generated(request({"alpha": True, "format": "bmp"}))
    assert caught.value.kind == "invalid"


def test_an_edit_changes_only_the_mask():
    difference = changed(output(request(text("BUTTER"), files=shop())), storefront())
    assert not (difference & outside()).any()
    assert difference[~outside()].mean() > 0.1


@pytest.mark.parametrize("flaw", ["typo", "missing_line"])
def test_flaws_of_the_text_are_inside_the_mask(flaw: str):
    flawed = output(request(text("BUTTER"), files=shop(), flaw=flaw))
    assert not (changed(flawed, storefront()) & outside()).any()
    assert changed(flawed, output(request(text("BUTTER"), files=shop()))).any()


def test_a_missing_line_leaves_a_plain_mask_area():
    inside = np.asarray(output(request(text("BUTTER"), files=shop(), flaw="missing_line")).crop(MASK), int)
    assert np.ptp(inside, axis=(0, 1)).max() <= 20


@pytest.mark.parametrize(("flaw", "least"), [("extra_text", 0.002), ("spill", 0.06), ("drift", 0.9)])
def test_flaws_of_locality_show_outside_the_mask(flaw: str, least: float):
    flawed = np.asarray(output(request(text("BUTTER"), files=shop(), flaw=flaw)), int)
    difference = abs(flawed - np.asarray(storefront(), int)).max(axis=2) >= 8
    assert difference[outside()].mean() > least


def test_a_spill_hides_neither_the_shop_nor_the_word():
    difference = changed(output(request(text("BUTTER"), files=shop(), flaw="spill")), storefront())
    difference[MASK[1] : MASK[3], MASK[0] : MASK[2]] = False
    assert not difference[60:150, 150:620].any()
    assert not difference[320:400, 480:690].any()


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (120, 80, 150)])
def test_drift_shows_on_every_ground(tmp_path: Path, colour: tuple[int, int, int]):
    Image.new("RGB", (768, 768), colour).save(tmp_path / "flat.png")
    flawed = np.asarray(output(request(files=shop("flat.png", tmp_path), flaw="drift")), int)
    assert np.median(abs(flawed - np.array(colour)).sum(axis=2)) > 15


@pytest.mark.parametrize("files", [None, shop()])
@pytest.mark.parametrize("alpha", [None, True])
def test_blank_is_one_colour(files: CaseFiles | None, alpha: bool | None):
    flat = output(request({**text("BUTTER"), "alpha": alpha}, files=files, flaw="blank", size="256x256"))
    assert len(flat.getcolors() or ()) == 1


@pytest.mark.parametrize("size", ["1024x1024", "1024x768", "600x800", "1x1", "2x1", "3x1"])
def test_the_wrong_size_is_of_another_shape_too(size: str):
    image = output(request(size=size, flaw="wrong_size"))
    width, height = map(int, size.split("x"))
    assert image.width * height != image.height * width


def test_an_edit_has_the_base_size_and_reports_it():
    assert generated(request(text("BUTTER"), files=shop(), size="512x512")).run_params["size"] == "768x768"
    assert output(request(text("BUTTER"), files=shop(), flaw="wrong_size")).size == (768, 576)


def test_metadata_selects_the_drawing():
    stated = output(request(text(SHOP, "BUTTER"), files=shop(), draw="BUTTER"))
    assert not changed(stated, output(request(text("BUTTER"), files=shop()))).any()
    assert changed(stated, output(request(text(SHOP, "BUTTER"), files=shop()))).any()


def test_without_copy_an_ellipse_is_drawn_in_the_mask():
    difference = changed(output(request(files=shop())), output(request(files=shop(), draw="X", flaw="missing_line")))
    left, top, right, bottom = MASK
    assert difference[(top + bottom) // 2, (left + right) // 2]
    assert not difference[top + 2, left + 2]
    assert not (difference & outside()).any()


def test_without_a_mask_the_middle_is_edited():
    files = CaseFiles(images=(("base", ASSETS / "storefront.png"),))
    rows = changed(output(request(text("BUTTER"), files=files)), storefront()).any(axis=1)
    assert rows[256:512].all()
    assert not rows[:256].any()
    assert not rows[512:].any()


def test_an_edit_preserves_format_and_transparency_of_its_base(tmp_path: Path):
    storefront().save(tmp_path / "base.jpg", quality=90)
    assert output(request(files=shop("base.jpg", tmp_path))).format == "JPEG"
    assert output(request({"format": "gif"}, files=shop("base.jpg", tmp_path))).format == "GIF"
    base = storefront().convert("RGBA")
    base.paste((10, 20, 30, 77), (0, 0, 200, 768))
    base.save(tmp_path / "base.png")
    edited = np.asarray(output(request(text("BUTTER"), files=shop("base.png", tmp_path))))
    assert (edited == np.asarray(base))[outside()].all()
    assert (edited[MASK[1] : MASK[3], MASK[0] : MASK[2], 3] == 255).all()
    assert output(request({"alpha": False}, files=shop("base.png", tmp_path))).mode == "RGB"


def test_transparency_asked_of_an_opaque_base_is_cut_into_the_mask():
    edited = output(request({**text("BUTTER"), "alpha": True}, files=shop()))
    clear = np.asarray(edited.getchannel("A")) == 0
    assert clear.any()
    assert not (clear & outside()).any()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"flaw": "typos"}, "mock: flaw: Input should be 'none', 'typo'"),
        ({"colour": "red"}, "mock: colour: Extra inputs are not permitted"),
        ({"size": "big"}, "mock: size: String should match pattern"),
        ({"size": "99999x99999"}, "mock: it declares 99999 x 99999 pixels, over the limit of 50 million pixels"),
        ({"model": "other"}, "mock: model: Input should be 'mock'"),
    ],
)
def test_bad_parameters_are_reported_in_one_line(params: dict[str, Any], message: str):
    with pytest.raises(ProviderError) as caught:
        generated(request(**params))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.kind == "invalid"


@pytest.mark.parametrize(
    ("line", "named"),
    [("Café", "E WITH ACUTE"), ("\u00d7 Bread", "MULTIPLICATION"), ("9 \u20ac", "EURO"), ("麦\n", "CJK")],
)
def test_a_missing_glyph_is_an_error(line: str, named: str):
    with pytest.raises(ProviderError, match=named) as caught:
        generated(request(text("Open", line)))
    assert repr(line) in str(caught.value)
    assert caught.value.kind == "invalid"


def test_copy_that_does_not_fit_is_an_error():
    with pytest.raises(ProviderError, match="15 lines of text do not fit 64x64"):
        generated(request(text(*MENU), size="64x64"))
    with pytest.raises(ProviderError, match=r"outside the mask|does not fit the mask"):
        generated(request(text("far too long " * 60), files=shop()))


def test_an_edit_needs_a_base_and_a_mask_that_fits(tmp_path: Path):
    with pytest.raises(ProviderError, match="no image to edit"):
        asyncio.run(Mock(None).edit(request()))
    Image.new("RGB", (90, 90)).save(tmp_path / "small.png")
    with pytest.raises(ProviderError, match="the mask and the base image have different sizes"):
        generated(request(files=shop("small.png", tmp_path)))
    Image.new("RGBA", (768, 768)).save(tmp_path / "all.png")
    whole = CaseFiles(images=shop().images, masks={"editable": tmp_path / "all.png"})
    with pytest.raises(ProviderError, match="no space for a spill"):
        generated(request(files=whole, flaw="spill"))
    Image.new("RGBA", (768, 768), (0, 0, 0, 255)).save(tmp_path / "none.png")
    with pytest.raises(ProviderError, match="no transparent pixel"):
        generated(request(files=CaseFiles(images=shop().images, masks={"editable": tmp_path / "none.png"})))


def test_a_round_mask_fits_the_complete_word(tmp_path: Path):
    disc = Image.new("RGBA", (768, 768), (0, 0, 0, 255))
    ys, xs = np.mgrid[:768, :768]
    alpha = np.where((xs - 384) ** 2 + (ys - 384) ** 2 < 150**2, 0, 255).astype(np.uint8)
    disc.putalpha(Image.fromarray(alpha))
    disc.save(tmp_path / "disc.png")
    Image.new("RGB", (768, 768), (240, 240, 240)).save(tmp_path / "grey.png")
    files = CaseFiles(images=(("base", tmp_path / "grey.png"),), masks={"editable": tmp_path / "disc.png"})
    ink = changed(output(request(text("BUTTER"), files=files)), Image.open(tmp_path / "grey.png"))
    assert ink.any()
    # Were a letter cut by the mask's edge, ink would reach the edge.
    assert not (ink & ((xs - 384) ** 2 + (ys - 384) ** 2 > 145**2)).any()


def test_the_table_of_flaws_is_complete():
    assert set(SEEN_BY) == set(TaskType)
    for table in SEEN_BY.values():
        assert tuple(table) == get_args(Flaw)
        assert not table["none"]
    assert MockParams().of_images == {"model": "mock", "flaw": "none", "size": "1024x1024", "seed": 0}
