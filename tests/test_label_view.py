"""What the label page may read: the run's own pictures, and inputs that its suite may reach."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from labelled import picture, write_run

from visioneval import images
from visioneval.errors import ImageError
from visioneval.label.desk import Desk
from visioneval.label.work import Wish, prepare


def shown(folder: Path) -> tuple[Desk, dict[str, dict[str, Any]]]:
    """The desk, and the pictures of the first item by their titles."""
    desk = Desk(prepare(Wish(str(folder), folder.parent)))
    stages = desk.next("ann")["item"]["stages"]
    return desk, {each["title"]: each for stage in stages for each in stage["pictures"]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a suite, beside a picture that is nobody's business."""
    picture(3).save(tmp_path / "private.png")
    clear = picture(3).convert("RGBA")
    clear.putalpha(0)
    clear.save(tmp_path / "mask.png")
    (tmp_path / "suite").mkdir()
    picture(5).save(tmp_path / "suite" / "base.png")
    monkeypatch.chdir(tmp_path / "suite")
    return tmp_path / "suite"


@pytest.mark.parametrize("start", ["absolute", "..", "link"])
def test_inputs_outside_the_suites_folder_are_missing(home: Path, start: str) -> None:
    (home / "link").symlink_to(home.parent)
    top = str(home.parent) if start == "absolute" else start
    outside = f"{top}/private.png"
    case = {"id": "one", "images": [outside], "reference": outside, "masks": {"editable": f"{top}/mask.png"}}
    desk, found = shown(write_run(home, [case]))
    assert {title: each["kind"] for title, each in found.items()} == {
        "Result": "image", "Input": "missing", "Mask: may change": "missing", "Expected": "missing"
    }  # fmt: skip
    for title in ("Input", "Mask: may change", "Expected"):
        with pytest.raises(ImageError):
            desk.shelf.get(found[title]["id"])


def test_inputs_beside_the_suite_are_shown(home: Path) -> None:
    shutil.copy(home.parent / "mask.png", home / "mask.png")
    case = {"id": "one", "images": ["base.png"], "reference": "base.png", "masks": {"editable": "mask.png"}}
    desk, found = shown(write_run(home, [case]))
    assert {each["kind"] for each in found.values()} == {"image"}
    assert all(desk.shelf.get(each["id"]) for each in found.values())


@pytest.mark.parametrize("mime", ["image/png", "video/mp4"])
def test_a_runs_picture_outside_the_run_is_missing(home: Path, mime: str) -> None:
    run = write_run(home, change=lambda _: {"mime": mime})
    own = next(run.rglob("*.png"))
    own.unlink()
    own.symlink_to(home.parent / "private.png")
    desk, found = shown(run)
    assert found["Result"]["kind"] == "missing"
    with pytest.raises(ImageError):
        desk.shelf.get(found["Result"]["id"])


def test_a_film_has_a_limit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, found = shown(write_run(home, change=lambda _: {"mime": "video/mp4"}))
    assert found["Result"]["kind"] == "film"
    assert desk.shelf.get(found["Result"]["id"])
    monkeypatch.setattr(images, "MAX_BYTES", 10)
    with pytest.raises(ImageError, match="over the limit of 10"):
        desk.shelf.get(found["Result"]["id"])
