"""Perturbations: pure, bounded to their place, and what their name says."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageDraw

from visioneval import UsageError
from visioneval.graders.layout.ink import ink_of
from visioneval.media.images import identify
from visioneval.probing import copy, pixels
from visioneval.probing.kinds import KINDS, Kind, matching, perturbed
from visioneval.probing.subject import CannotPerturbError, PerturbedFile, Subject, TextLine, decode, encode
from visioneval.providers.mock.text import font
from visioneval.suite.case import Expect, ExpectText

TEXT = "Slow Mornings, daily"
BOX = ((28.0, 18.0), (196.0, 18.0), (196.0, 44.0), (28.0, 44.0))
BY_NAME = {kind.name: kind for kind in KINDS}


def scene(size: tuple[int, int] = (240, 180)) -> np.ndarray:
    """A plain background with a line of text, a disc and a textured square."""
    image = Image.new("RGB", size, (200, 180, 120))
    pen = ImageDraw.Draw(image)
    pen.text((30, 40), TEXT, (40, 30, 90), font(16), "ls")
    pen.ellipse((140, 90, 200, 150), (180, 40, 40))
    for at in (40, 43, 48, 55, 64, 75, 88):
        pen.line((at, 90, at, 150), (20, 90, 60), 2)
    return np.asarray(image)


def subject(image: np.ndarray | None = None, mime: str = "image/png", **changes: object) -> Subject:
    shown = scene() if image is None else image
    whole = Subject(
        shown,
        encode(shown, mime),
        mime,
        np.ones(shown.shape[:2], bool),
        Expect(text=ExpectText(required=(TEXT,), extra="forbid"), format=mime.split("/")[1]),
        TextLine(TEXT, BOX),
        lines=(BOX,),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def branded() -> Subject:
    """A larger scene, whose case has a palette and forbids codes."""
    expect = Expect(palette=("#C8B478", "#281E5A", "#B42828", "#145A3C"), codes="none")  # type: ignore[arg-type]
    return subject(scene((600, 540)), expect=expect)


def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def changed(kind: str, level: int = -1, seed: str = "s", of: Subject | None = None) -> np.ndarray:
    return decode(perturbed(BY_NAME[kind], BY_NAME[kind].levels[level], of or subject(), seed).data)


def difference(image: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
    base = scene() if other is None else other
    return np.abs(image.astype(int) - base).max(axis=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_same_seed_gives_the_same_file_and_a_valid_image(kind: Kind) -> None:
    unrestricted = subject(expect=Expect(text=ExpectText(required=(TEXT,), extra="forbid")))
    for level in kind.levels:
        for before in (unrestricted, subject(), branded()):
            try:
                files = [perturbed(kind, level, before, "seed") for _ in range(2)]
            except CannotPerturbError:
                continue
            assert files[0] == files[1]
            assert identify(files[0].data)[0] == files[0].mime
            break
        else:
            assert kind.name in ("pixels.alpha", "copy.swapped")  # the scene is opaque, and has one line


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.group == "pixels"], ids=lambda kind: kind.name)
def test_damage_grows_with_its_strength(kind: Kind) -> None:
    if kind.name in ("pixels.alpha", "pixels.size", "pixels.format"):
        return
    of = branded() if kind.name in ("pixels.off_palette", "pixels.code", "pixels.painted_code") else subject()
    images = [changed(kind.name, at, of=of) for at in range(len(kind.levels))]
    sums = [difference(image, of.image).astype(float).sum() for image in images]
    assert all(weak < strong * 1.2 for weak, strong in pairwise(sums)), sums
    assert sums[-1] > 0


@pytest.mark.parametrize(
    "name", ["patch", "stroke", "recolor", "erased", "moved", "background", "watermark", "warped", "letter"]
)
def test_local_damage_stays_in_the_region(name: str) -> None:
    region = np.zeros((180, 240), bool)
    region[80:, :] = True
    image = changed(f"pixels.{name}", of=subject(region=region))
    assert difference(image)[region].any()
    assert not difference(image)[:80].any()


def test_a_patch_has_its_size_and_contrast() -> None:
    patched = pixels.patch(scene(), 12, generator(), np.ones((180, 240), bool))
    left, top, width, height = patched.box or (0, 0, 0, 0)
    assert (width, height) == (12, 12)
    inside = difference(patched.image)[top : top + 12, left : left + 12]
    assert difference(patched.image).astype(bool).sum() == inside.astype(bool).sum() > 0


def test_a_shift_moves_the_image_by_its_share() -> None:
    moved = pixels.shift(scene(), 0.05, generator(), np.ones((180, 240), bool)).image
    steps = [(9, 0), (-9, 0), (0, 9), (0, -9)]
    assert any(not difference(np.roll(scene(), step, axis=(1, 0)), moved)[12:-12, 12:-12].any() for step in steps)


def test_a_color_changes_by_its_delta_e() -> None:
    import cv2

    image = np.full((60, 60, 3), (120, 140, 90), np.uint8)
    for delta_e in (5.0, 20.0):
        part = pixels.recolor(image, delta_e, generator(), np.ones((60, 60), bool))
        lab = [cv2.cvtColor(shown.astype(np.float32) / 255, cv2.COLOR_RGB2LAB) for shown in (image, part.image)]
        assert np.sqrt(((lab[0] - lab[1]) ** 2).sum(axis=2)).max() == pytest.approx(delta_e, rel=0.12)


def test_an_object_with_transparency_is_erased_to_transparency() -> None:
    rgba = np.dstack([scene(), np.full((180, 240), 255, np.uint8)])
    rgba[:60, :, 3] = 0
    erased = changed("pixels.erased", of=subject(rgba))
    assert (erased[..., 3] < rgba[..., 3]).any()
    flat = changed("pixels.alpha", of=subject(rgba))
    assert flat.shape[2] == 3
    assert (flat[:60] == 255).all()


def test_size_format_and_blank() -> None:
    assert changed("pixels.size", of=subject()).shape[:2] == (90, 120)
    kind = BY_NAME["pixels.format"]
    assert perturbed(kind, kind.levels[0], subject(), "s").mime == "image/webp"
    assert changed("pixels.blank").std(axis=(0, 1)).max() == 0


@pytest.mark.parametrize(
    ("edit", "lengthens"),
    [
        (copy.letter_replaced, 0),
        (copy.letter_dropped, -1),
        (copy.letter_doubled, 1),
        (copy.letters_swapped, 0),
        (copy.case_changed, 0),
        (copy.punctuation_changed, -1),
    ],
)
def test_a_mistake_in_a_line(edit: object, lengthens: int) -> None:
    for seed in range(20):
        wrong = edit(TEXT, np.random.default_rng(seed))  # type: ignore[operator]
        assert wrong != TEXT
        assert len(wrong) == len(TEXT) + lengthens
        if edit is copy.letters_swapped:
            assert sorted(wrong) == sorted(TEXT)
        if edit is copy.case_changed:
            assert wrong.lower() == TEXT.lower()


def test_a_line_without_marks_gets_one() -> None:
    assert copy.punctuation_changed("Sale", generator()) == "Sale!"


@pytest.mark.parametrize("edit", [copy.letter_dropped, copy.letters_swapped, copy.case_changed])
def test_a_line_without_letters_cannot_be_misspelled(edit: object) -> None:
    with pytest.raises(CannotPerturbError, match="letter"):
        edit("2024 - 12", generator())  # type: ignore[operator]


def test_a_line_is_set_again_in_its_place_size_and_color() -> None:
    before = scene()
    again = copy.set_line(subject(), TEXT).image
    ink = [
        np.argwhere(difference(image, np.full_like(image, (200, 180, 120)))[15:48] > 60) for image in (before, again)
    ]
    assert np.abs(ink[0].min(axis=0) - ink[1].min(axis=0)).max() <= 2
    assert np.abs(ink[0].max(axis=0) - ink[1].max(axis=0)).max() <= 2
    darkest = [image[18:44, 28:196].reshape(-1, 3).min(axis=0).astype(int) for image in (before, again)]
    assert np.abs(darkest[0] - darkest[1]).max() <= 30
    assert not difference(again)[48:].any()


def test_an_erased_line_leaves_its_background() -> None:
    erased = changed("copy.erased")
    assert (erased[15:48] == (200, 180, 120)).all()


@pytest.mark.parametrize("level", range(4))
def test_a_faded_line_has_its_contrast(level: int) -> None:
    kind = BY_NAME["copy.faded"]
    image = changed("copy.faded", level)
    ink = ink_of(Image.fromarray(image), TEXT, BOX)
    assert ink is not None
    assert ink.ratio == pytest.approx(kind.levels[level].value, rel=0.12)
    assert not difference(image)[48:].any()


def test_a_line_fades_only_from_more_contrast_and_on_a_flat_background() -> None:
    faint = replace(subject(), image=changed("copy.faded", -1))
    with pytest.raises(CannotPerturbError, match="no more contrast"):
        copy.faded_line(faint, 2)
    with pytest.raises(CannotPerturbError, match="flat background"):
        copy.faded_line(subject(line=TextLine("x", ((35, 95), (95, 95), (95, 140), (35, 140)))), 2)


def test_a_smaller_line_is_set_in_smaller_letters_in_its_place() -> None:
    widths = []
    for level in range(3):
        ink = np.argwhere(np.abs(changed("copy.smaller", level)[15:48].astype(int) - (200, 180, 120)).max(axis=2) > 60)
        widths.append(ink[:, 1].max() - ink[:, 1].min())
        assert abs(ink[:, 1].min() - 30) <= 3
    assert 160 > widths[0] > widths[1] > widths[2] > 60


def test_two_lines_change_places() -> None:
    image = Image.fromarray(scene())
    ImageDraw.Draw(image).text((100, 170), "Open", (40, 30, 90), font(16), "ls")
    other = ((98.0, 152.0), (142.0, 152.0), (142.0, 176.0), (98.0, 176.0))
    lines = subject(np.asarray(image), others=(TextLine("Open", other),), lines=(BOX, other))
    swapped = copy.swapped_lines(lines, generator()).image
    assert swapped[15:48, :28].std(axis=(0, 1)).max() == 0, "in the middle of its place"
    wide = [
        np.argwhere(np.abs(part.astype(int) - (200, 180, 120)).max(axis=2) > 60)
        for part in (swapped[15:48], swapped[152:178])
    ]
    assert 90 < wide[0][:, 1].min() < wide[0][:, 1].max() < 140, (
        "the short line is in the middle of the long one's place"
    )
    assert wide[1][:, 1].max() > 150
    with pytest.raises(CannotPerturbError, match="no other line"):
        copy.swapped_lines(subject(), generator())
    blocked = replace(lines, lines=(BOX, other, ((150, 152), (200, 152), (200, 176), (150, 176))))
    with pytest.raises(CannotPerturbError, match="fit in the place"):
        copy.swapped_lines(blocked, generator())


def test_an_added_line_overlaps_no_text_and_needs_a_case_that_forbids_it() -> None:
    added = copy.added_line(subject(), generator())
    assert added.box is not None
    assert added.box[1] >= 44 or added.box[0] >= 196
    assert difference(added.image).any()
    with pytest.raises(CannotPerturbError, match="allows extra text"):
        copy.added_line(subject(expect=Expect(text=ExpectText(required=(TEXT,)))), generator())


@pytest.mark.parametrize(
    "name", ["jpeg", "webp", "resized", "half_pixel", "gamma", "metadata", "png", "sharpened", "grain", "redrawn"]
)
def test_harmless_changes_are_small(name: str) -> None:
    mime = {"jpeg": "image/jpeg", "webp": "image/webp"}.get(name, "image/png")
    for level in range(len(BY_NAME[f"harmless.{name}"].levels)):
        image = changed(f"harmless.{name}", level, of=subject(mime=mime))
        assert image.shape == scene().shape
        assert difference(image).mean() < (12 if name == "redrawn" else 9)  # a redraw has another tone by up to 8
    if name in ("png", "metadata"):
        assert not difference(image).any()


def test_a_jpeg_loses_its_metadata_and_no_pixel() -> None:
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[0x010E] = "a secret"
    Image.fromarray(scene()).save(buffer, "JPEG", exif=exif, comment=b"a note")
    data = buffer.getvalue()
    kind = BY_NAME["harmless.metadata"]
    stripped = perturbed(kind, kind.levels[0], subject(data=data, image=decode(data), mime="image/jpeg"), "s").data
    assert b"a secret" in data
    assert b"a secret" not in stripped
    assert b"a note" not in stripped
    assert (decode(stripped) == decode(data)).all()


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("pixels.patch", {"region": np.zeros((180, 240), bool)}, "mask covers all"),
        ("pixels.blur", {"region": np.zeros((180, 240), bool)}, "mask covers all"),
        ("pixels.alpha", {}, "no transparent pixels"),
        ("pixels.format", {"expect": Expect()}, "expects no format"),
        ("harmless.jpeg", {}, "expects the format png"),
        ("copy.letter.dropped", {"line": None}, "no text grader read a line"),
        ("copy.erased", {"line": None, "no_line": "why not"}, "why not"),
    ],
)
def test_what_cannot_be_planted_says_why(kind: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(CannotPerturbError, match=message):
        perturbed(BY_NAME[kind], BY_NAME[kind].levels[0], subject(**changes), "s")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (9, 9)])
def test_tiny_images_are_changed_or_refused(kind: Kind, size: tuple[int, int]) -> None:
    image = np.asarray(Image.fromarray(scene()).resize(size))
    try:
        result = perturbed(kind, kind.levels[-1], subject(image), "s")
    except CannotPerturbError:
        return
    assert isinstance(result, PerturbedFile)
    identify(result.data)


def test_flat_images_have_no_objects_and_no_mirror_image() -> None:
    flat = np.full((90, 90, 3), 128, np.uint8)
    for name, message in (("erased", "no object"), ("moved", "no object"), ("flip", "look the same")):
        with pytest.raises(CannotPerturbError, match=message):
            changed(f"pixels.{name}", of=subject(flat))


def test_kinds_are_named_by_prefix() -> None:
    assert {kind.name for kind in matching(["copy.letter"])} == {
        f"copy.letter.{name}" for name in ("replaced", "dropped", "doubled", "swapped")
    }
    assert matching([]) == KINDS
    assert matching(["pixels.patch", "pixels"]) == tuple(kind for kind in KINDS if kind.group == "pixels")
    with pytest.raises(UsageError, match=r"no kind of change 'copy.leter' \(did you mean 'copy.letter'\?\)"):
        matching(["copy.leter"])


def test_a_transparent_image_is_not_encoded_as_jpeg() -> None:
    glass = np.dstack([scene(), np.full(scene().shape[:2], 128, np.uint8)])
    kind = BY_NAME["harmless.jpeg"]
    with pytest.raises(CannotPerturbError, match=r"^JPEG would drop its transparency$"):
        perturbed(kind, kind.levels[0], subject(glass, expect=Expect()), "s")
    opaque = perturbed(kind, kind.levels[0], subject(expect=Expect()), "s")
    assert identify(opaque.data)[0] == "image/jpeg"
