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
    assert toy("run", "suite.yaml", "--model", "old").exit_code == 1  # blank, as the test images are
    for name in "bcd":
        save_image(f"new/{name}.png")
    assert toy("validate", "suite.yaml").exit_code == 0


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
