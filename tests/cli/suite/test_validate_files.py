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
        (0, "m.png is fully transparent: mark what must not change with opaque pixels"),
        (255, "m.png has no transparent pixel (alpha 0): mark what may change"),
        (1, "m.png has no transparent pixel (alpha 0): mark what may change"),
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
