"""Trust: how far a suite may reach, and what its paths are relative to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from suite_text import suite

from visioneval.suite.files import Trust, rebased, rebased_case

Problems = Callable[..., list[str]]
OUTSIDE = "is outside the suite's folder and the working directory: pass --trust-suite if you trust this suite"
CODE = "runs code from the suite: pass --trust-suite if you trust it"


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    for name in ("suite/sub", "work", "other", "suite-2"):
        (tmp_path / name).mkdir(parents=True)
    return Trust(tmp_path / "suite", tmp_path / "work")


@pytest.mark.parametrize(
    "path", ["a.png", "sub/../a.png", "./sub/a.png", "../work/a.png", "../suite/a.png", "..a/b", "gone/x"]
)
def test_inside(trust: Trust, path: str) -> None:
    assert trust.refusal(path, trust.folder) is None


@pytest.mark.parametrize(
    "path", ["../other/a.png", "..", "sub/../../other/a", "/etc/passwd", "gone/../../other", "../suite-2/a"]
)
def test_outside(trust: Trust, path: str) -> None:
    assert trust.refusal(path, trust.folder) == f"{path!r} {OUTSIDE}"
    assert Trust(trust.folder, trust.working, everything=True).refusal(path, trust.folder) is None


def test_links_are_followed(trust: Trust, tmp_path: Path) -> None:
    (trust.folder / "file").symlink_to(tmp_path / "other" / "a.png")
    (trust.folder / "folder").symlink_to(tmp_path / "other")
    (trust.folder / "round").symlink_to(trust.folder / "round")
    (trust.folder / "fine").symlink_to(tmp_path / "work")
    assert trust.refusal("file", trust.folder) == f"'file' {OUTSIDE}"
    assert trust.refusal("folder/a.png", trust.folder) == f"'folder/a.png' {OUTSIDE}"
    assert trust.refusal("fine/a.png", trust.folder) is None
    assert trust.refusal("round/a.png", trust.folder) is None  # a broken link, reported when it is read


def test_a_linked_suite_may_read_its_own_folder(trust: Trust, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(trust.folder)
    assert Trust(tmp_path / "link", tmp_path / "work").refusal("a.png", tmp_path / "link") is None


@pytest.mark.parametrize("path", ["https://x.org/a.png", "file:///etc/passwd", "gs://b/a.png", "S3://b/a"])
def test_urls_are_refused_even_with_trust(trust: Trust, path: str) -> None:
    for item in (trust, Trust(trust.folder, trust.working, everything=True)):
        assert (
            item.refusal(path, trust.folder)
            == f"{path!r} is a URL: only datasets and existing outputs can be read from URLs"
        )


def test_a_nul_is_in_no_path(trust: Trust) -> None:
    assert trust.refusal("a\0b", trust.folder) == "a path cannot contain a NUL character"


def test_rebasing() -> None:
    folder = Path("/s")
    assert rebased("a.png", folder, folder) == "a.png"
    assert rebased("a.png", folder / "sub", folder) == "sub/a.png"
    assert rebased("../a.png", folder / "sub", folder) == "a.png"
    assert rebased("../../a.png", folder / "sub", folder) == "../a.png"
    assert rebased("/a.png", folder / "sub", folder) == "/a.png"
    assert rebased("https://x/a.png", folder / "sub", folder) == "https://x/a.png"


def test_only_the_paths_of_a_case_are_rebased() -> None:
    case = {
        "id": "a.png",
        "images": ["a.png", {"path": "b.png", "role": "base"}],
        "mask": "m.png",
        "masks": {"editable": "m.png", "clothing": 5},
        "reference": "r.png",
        "outputs": {"a.png": ["p.png"]},
        "metadata": {"path": "a.png"},
        "prompt": "a.png",
    }
    assert rebased_case(case, Path("/s/sub"), Path("/s")) == {
        "id": "a.png",
        "images": ["sub/a.png", {"path": "sub/b.png", "role": "base"}],
        "mask": "sub/m.png",
        "masks": {"editable": "sub/m.png", "clothing": 5},
        "reference": "sub/r.png",
        "outputs": {"a.png": ["sub/p.png"]},
        "metadata": {"path": "a.png"},
        "prompt": "a.png",
    }


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        (suite(cases="cases: [{id: a, prompt: x, images: [../a.png]}]"), "2:37", f"'../a.png' {OUTSIDE}"),
        (suite(cases="cases: [{id: a, prompt: x, images: [{path: /a.png}]}]"), "2:44", f"'/a.png' {OUTSIDE}"),
        (suite(cases="cases: [{id: a, prompt: x, reference: ../a.png}]"), "2:39", f"'../a.png' {OUTSIDE}"),
        (suite(cases="cases: [{id: a, prompt: x, images: [a.png], mask: ../a.png}]"), "2:51", f"'../a.png' {OUTSIDE}"),
        (suite(cases="cases: [{id: a, prompt: x, outputs: {m: [a.png, ../b.png]}}]"), "2:49", f"'../b.png' {OUTSIDE}"),
        (suite(cases="cases: [{file: ../c.yaml}]"), "2:16", f"file: '../c.yaml' {OUTSIDE}"),
        (
            suite(cases="cases: [{dataset: {path: ../d.csv, fields: {id: id}}}]"),
            "2:26",
            f"dataset: '../d.csv' {OUTSIDE}",
        ),
        (suite(models="models: [{provider: files, path: '../{case}.png'}]"), "3:34", f"'../' {OUTSIDE}"),
        (suite(models="models: [{provider: files, run: ../r@m}]"), "3:33", f"'../r' {OUTSIDE}"),
        (suite(models="models: [{provider: files, run: ..}]"), "3:33", f"'..' {OUTSIDE}"),
        (
            suite(models="models: [{provider: files, dataset: {path: ../d.csv, fields: {output: i, id: d}}}]"),
            "3:44",
            f"'../d.csv' {OUTSIDE}",
        ),
        (suite(models="models: [{provider: command, argv: [sh]}]"), "3:21", f"'command' {CODE}"),
        (suite(models="models: [{provider: 'my.module:Class'}]"), "3:21", f"'my.module:Class' {CODE}"),
        (
            suite(graders="graders: [{key: g, type: 'm:C', writes: {image.blank: {}}}]"),
            "4:26",
            f"'m:C' {CODE}",
        ),
    ],
)
def test_untrusted_suites_are_restricted(
    problems: Problems, save_image: Callable[..., Path], text: str, position: str, message: str
) -> None:
    save_image("a.png")
    assert problems(text) == [f"suite.yaml:{position}: {message}"]
    assert not any("--trust-suite" in line for line in problems(text, trust=True))


def test_a_link_to_an_outside_file_is_refused(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "link.png").symlink_to("/etc/hostname")
    (tmp_path / "cases.yaml").symlink_to("/etc/hostname")
    text = suite(cases="cases: [{id: a, prompt: x, images: [link.png]}, {file: cases.yaml}]")
    assert problems(text) == [
        f"suite.yaml:2:37: 'link.png' {OUTSIDE}",
        f"suite.yaml:2:56: file: 'cases.yaml' {OUTSIDE}",
    ]
