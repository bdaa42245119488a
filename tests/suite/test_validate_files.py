"""What ``validate`` finds in the files that a suite names: outputs that do not exist, and masks that separate nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from toys import Toy

SUITE = """\
name: files
cases: [{id: a, prompt: a tree}, {id: b, prompt: a boat}, {id: c, prompt: a bun}, {id: d, prompt: a bee}]
models:
  - {provider: mock}
  - {provider: files, label: old, path: "out/{case}.png"}
  - {provider: files, label: new, path: "new/{case}.png"}
graders: [{key: file, type: properties}]
verdict: [not file.blank]
"""


def test_missing_outputs_are_found_with_the_position_of_their_entry(toy: Toy, save_image: Callable[..., Path]) -> None:
    (toy.folder / "suite.yaml").write_text(SUITE)
    for name in "abcd":
        save_image(f"out/{name}.png")
    save_image("new/a.png")
    result = toy("validate", "suite.yaml")
    message = "suite.yaml:6:5: outputs that do not exist: new/b.png, new/c.png, new/d.png"
    assert (result.exit_code, result.stderr.splitlines()) == (2, [message]), result.output
    refused = toy("run", "suite.yaml")
    assert (refused.exit_code, refused.stderr.splitlines()) == (2, [message]), refused.output
    assert not (toy.folder / "runs").exists()
    assert toy("run", "suite.yaml", "--model", "old").exit_code == 1  # blank, as the test images are
    for name in "bcd":
        save_image(f"new/{name}.png")
    assert toy("validate", "suite.yaml").exit_code == 0


def test_missing_outputs_of_a_dataset_are_warnings(toy: Toy, save_image: Callable[..., Path]) -> None:
    save_image("out/a.png")
    (toy.folder / "d.csv").write_text("id,file\na,out/a.png\nb,gone.png\n")
    table = "dataset: {path: d.csv, fields: {id: id, output: file}}"
    (toy.folder / "suite.yaml").write_text(
        "name: files\ncases: [{id: a, prompt: a tree}, {id: b, prompt: a boat}]\n"
        f"models:\n  - {{provider: files, label: old, {table}}}\n"
        "graders: [{key: file, type: properties}]\nverdict: [file.blank]\n"
    )
    result = toy("validate", "suite.yaml")
    warning = "suite.yaml:4:5: warning: outputs that do not exist, whose cells are errors: gone.png"
    assert (result.exit_code, result.stdout.splitlines()[1]) == (0, warning), result.output
    assert toy("run", "suite.yaml").exit_code == 3
    assert {case: record.verdict for case, record in toy.records.items()} == {"a": "PASS", "b": "ERROR"}


def test_many_missing_outputs_are_counted(toy: Toy) -> None:
    (toy.folder / "suite.yaml").write_text(SUITE)
    result = toy("validate", "suite.yaml")
    assert [line.rpartition(" and ")[2] for line in result.stderr.splitlines()] == ["1 more", "1 more"]


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        (0, "m.png has no opaque pixel: mark what must not change with opaque pixels"),
        (255, "m.png has no transparent pixel (alpha 0): mark what may change"),
        (1, "m.png has no opaque pixel: mark what must not change with opaque pixels"),
        (250, "m.png has no transparent pixel (alpha 0): mark what may change"),
    ],
)
def test_a_mask_without_two_sides(toy: Toy, save_image: Callable[..., Path], alpha: int, message: str) -> None:
    save_image("base.png")
    Image.new("RGBA", (64, 48), (0, 0, 0, alpha)).save(toy.folder / "m.png")
    toy.write({"images": [{"path": "base.png"}], "mask": "m.png"})
    result = toy("validate", "suite.yaml", "--trust-suite")
    assert (result.exit_code, message in result.stderr) == (2, True), result.output
    assert result.stderr.startswith("suite.yaml:1:")


@pytest.mark.parametrize(("inside", "is_reported"), [(0.8, True), (0.7, False)])
def test_a_mask_that_may_be_inverted(
    toy: Toy, save_image: Callable[..., Path], inside: float, is_reported: bool
) -> None:
    save_image("base.png", size=(10, 10))
    mask = Image.new("RGBA", (10, 10), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (0, 0, 10, round(10 * inside)))
    mask.save(toy.folder / "m.png")
    toy.write({"images": [{"path": "base.png"}], "mask": "m.png"})
    result = toy("validate", "suite.yaml", "--trust-suite")
    assert result.exit_code == 0, result.output
    assert ("warning: m.png lets 80% of the image change" in result.output) == is_reported


def _alpha_mask(path: Path, *bands: tuple[int, int]) -> None:
    """A mask of 100 rows: so many of each alpha, from the top."""
    alpha = [value for value, rows in bands for _ in range(rows)]
    mask = Image.new("RGBA", (10, 100), (0, 0, 0, 255))
    for row, value in enumerate(alpha):
        mask.paste((0, 0, 0, value), (0, row, 10, row + 1))
    mask.save(path)


READ = {
    "hard edge": (((0, 30), (255, 70)), "30% of its pixels are transparent"),
    "soft edge": (((0, 30), (128, 5), (255, 65)), "30% of its pixels are transparent and 5% partly (its edge)"),
    "almost clear": (((0, 1), (1, 9), (255, 90)), "1% of its pixels are transparent and 9% partly (its edge)"),
    "noise of an encoder": (((0, 30), (254, 35), (250, 35)), "30% of its pixels are transparent"),
    "soft up to the border": (((0, 30), (120, 20), (249, 40), (251, 10)),
                              "30% of its pixels are transparent and 60% partly (its edge)"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_validate_says_how_a_mask_is_read(toy: Toy, save_image: Callable[..., Path], name: str) -> None:
    bands, shares = READ[name]
    save_image("base.png", size=(10, 100))
    _alpha_mask(toy.folder / "m.png", *bands)
    toy.write({"images": [{"path": "base.png"}], "mask": "m.png"})
    result = toy(
        "validate", "suite.yaml", "--trust-suite", "--strict" if name != "soft up to the border" else "--trust-suite"
    )
    line = f" note: m.png: {shares}: they may change, opaque ones must not"
    assert result.exit_code == 0, result.output
    assert [text.endswith(line) for text in result.stdout.splitlines() if "of its pixels" in text] == [True]
    assert "of its pixels" not in toy("plan", "suite.yaml", "--trust-suite").output  # only validate says it


def test_each_mask_is_noted_once_and_many_are_counted(toy: Toy, save_image: Callable[..., Path]) -> None:
    save_image("base.png", size=(10, 100))
    for number in range(5):
        _alpha_mask(toy.folder / f"m{number}.png", (0, 10 + number), (100, number), (255, 90 - 2 * number))
    shared = "prompt: x, images: [base.png]"
    cases = [f"{{id: a{number}, {shared}, mask: m{number}.png}}" for number in (0, 0, 1, 2, 3, 4)]
    cases[1] = f"{{id: again, {shared}, masks: {{editable: m0.png, clothing: m1.png}}}}"
    (toy.folder / "suite.yaml").write_text(
        "name: x\ncases:\n" + "".join(f"  - {case}\n" for case in cases) + "models: [{provider: mock}]\n"
        "graders: [{key: place, type: locality}]\nverdict: [place]\n"
    )
    result = toy("validate", "suite.yaml")
    assert result.exit_code == 0, result.output
    assert [
        line.partition(": note: ")[2] for line in result.stdout.splitlines() if ": note: m" in line or "more" in line
    ] == [
        "m0.png: 10% of its pixels are transparent: they may change, opaque ones must not",
        "m1.png: 11% of its pixels are transparent and 1% partly (its edge): they are inside, opaque ones not",
        "m2.png: 12% of its pixels are transparent and 2% partly (its edge): they may change, opaque ones must not",
        "2 more masks: 16% to 18% inside, 2 with a soft edge",
    ]
    assert "suite.yaml:3:51: note: m0.png" in result.stdout


@pytest.mark.parametrize(
    ("save", "shares"),
    [
        (lambda image, path: image.convert("P", palette=Image.Palette.ADAPTIVE).save(path, transparency=0), None),
        (lambda image, path: image.convert("L").save(path, transparency=0), "30%"),
        (lambda image, path: image.convert("1").save(path, transparency=0), "30%"),
        (lambda image, path: image.convert("I;16").save(path, transparency=0), "30%"),
        (lambda image, path: image.convert("RGB").save(path, transparency=(0, 0, 0)), "30%"),
        (lambda image, path: image.save(path), "no alpha channel"),
        (lambda image, path: image.convert("RGB").save(path.with_suffix(".jpg"), "JPEG"), "no alpha channel"),
    ],
)  # fmt: skip
def test_masks_of_other_forms(
    toy: Toy, save_image: Callable[..., Path], save: Callable[[Image.Image, Path], None], shares: str | None
) -> None:
    save_image("base.png", size=(10, 100))
    image = Image.new("L", (10, 100), 255)
    image.paste(0, (0, 0, 10, 30))
    save(image, toy.folder / "m.png")
    name = "m.png" if (toy.folder / "m.png").exists() else "m.jpg"
    toy.write({"images": [{"path": "base.png"}], "mask": name})
    result = toy("validate", "suite.yaml", "--trust-suite")
    if shares == "no alpha channel":
        assert (result.exit_code, f"{name} has no alpha channel" in result.stderr) == (2, True), result.output
    else:
        assert result.exit_code == 0, result.output
        assert f"{name}: {shares or ''}" in result.stdout
