"""``compare --thumbnails``: the outputs of the cells that broke, as files that the Markdown shows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from clips import clip, colour_of
from compared_runs import compared_run
from PIL import Image
from report_runs import png
from typer.testing import CliRunner, Result

from visioneval.bounds import MEGAPIXELS
from visioneval.cli import app
from visioneval.report.compare import MAX_ROWS
from visioneval.report.thumbnails import SIDE

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="48"><rect width="64" height="48" fill="#00f"/></svg>'
RED, BLUE = (True, False, False), (False, False, True)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of two runs: one of four cells is red in A, and blue and broken in B."""
    monkeypatch.chdir(tmp_path)
    compared_run(tmp_path / "runs", "before", "PPFF", "red")
    compared_run(tmp_path / "runs", "after", "PFPF", "blue")
    return tmp_path / "runs"


def compared(words: str = "before after", thumbnails: str = "thumbs", markdown: str = "comment.md") -> Result:
    words = f"compare {words} --markdown {markdown} --thumbnails {thumbnails}"
    result = CliRunner().invoke(app, words.split())
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def column(markdown: str = "comment.md") -> list[str]:
    """What the table of broken cells shows of their outputs."""
    table = Path(markdown).read_text(encoding="utf-8").partition("### Broken")[2].partition("\n\n###")[0]
    return [line.split(" | ")[-1].removesuffix(" |") for line in table.splitlines() if line.startswith("| **")]


def shown(cell: str) -> tuple[str, Image.Image, str]:
    """The description of an image, the image, and the text below it."""
    match = re.fullmatch(r"!\[(.+?)\]\((\S+?)\)(?:<br>(.+))?", cell)
    assert match is not None, cell
    return match[1], Image.open(io.BytesIO(Path(match[2]).read_bytes())), match[3] or ""


def colours(image: Image.Image) -> list[tuple[bool, bool, bool]]:
    """Those of the halves of an image."""
    middle = image.width // 2
    halves = [image.crop((left, 0, left + middle, image.height)) for left in (0, middle)]
    parts = [io.BytesIO() for _ in halves]
    for half, part in zip(halves, parts, strict=True):
        half.save(part, "PNG")
    return [colour_of(part.getvalue()) for part in parts]


@pytest.mark.usefixtures("runs")
def test_a_broken_cell_is_shown_with_both_outputs() -> None:
    result = compared()
    (cell,) = column()
    description, image, text = shown(cell)
    assert (description, text) == ("broke: A, B", "")
    assert image.width == 2 * 96 + 8
    assert colours(image) == [RED, BLUE]
    assert [path.name for path in Path("thumbs").iterdir()] == [cell.partition("thumbs/")[2].rstrip(")")]
    assert "thumbs" not in result.stdout, "the terminal shows no images"
    markdown = Path("comment.md").read_text(encoding="utf-8")
    assert markdown.count("![") == 1, "cells that were fixed are not shown"


def cached(data: bytes) -> str:
    """Stores an output in a cache, without a suffix. Returns its hash."""
    digest = sha256(data).hexdigest()
    stored = Path("cache", "files", digest[:2], digest)
    stored.parent.mkdir(parents=True)
    stored.write_bytes(data)
    return digest


@pytest.fixture
def baseline(runs: Path) -> Path:
    """The baseline of the first run, whose output a cache has."""
    digest = cached((runs / "before" / "artifacts" / "broke.png").read_bytes())
    results = runs / "before" / "results.jsonl"
    text = results.read_text().replace('"artifact_sha256":"red"', f'"artifact_sha256":"{digest}"')
    assert digest in text
    results.write_text(text)
    result = CliRunner().invoke(app, ["baseline", "set", "before", "--partial"])
    assert result.exit_code == 0, result.output
    return Path("baselines/main.jsonl")


@pytest.mark.usefixtures("baseline")
def test_outputs_of_a_baseline_are_those_of_the_cache() -> None:
    compared("baseline after")
    assert shown(column()[0])[::2] == ("broke: B", "A: baseline has no images")
    compared("baseline after --cache cache")
    description, image, text = shown(column()[0])
    assert (description, text) == ("broke: A, B", "")
    assert colours(image) == [RED, BLUE]


def with_old_output(baseline: Path, digest: str) -> None:
    """Replaces the hash of the output in a baseline."""
    text, replacements = re.subn(
        '"artifact_sha256": "[0-9a-f]{64}"', f'"artifact_sha256": "{digest}"', baseline.read_text()
    )
    assert replacements
    baseline.write_text(text)


def test_a_cached_video_is_shown_by_the_frame_in_its_middle(baseline: Path, tmp_path: Path) -> None:
    with_old_output(baseline, cached(_clip(tmp_path)))
    compared("baseline after --cache cache")
    description, image, text = shown(column()[0])
    assert (description, text) == ("broke: A, B", "")
    assert colours(image)[0] == BLUE, "the clip is red at both ends"


def test_a_cached_file_that_is_no_image_says_so(baseline: Path) -> None:
    with_old_output(baseline, cached(b"no image"))
    compared("baseline after --cache cache")
    description, _, text = shown(column()[0])
    assert description == "broke: B"
    assert "not a supported image" in text


def test_a_baseline_names_no_file_outside_of_the_cache(baseline: Path) -> None:
    Path("secret").write_bytes(png("red", (9, 9)))
    with_old_output(baseline, "../secret")
    compared("baseline after --cache cache")
    assert shown(column()[0])[::2] == ("broke: B", "A: baseline has no images")


def test_cached_outputs_of_redacted_cases_are_not_shown(baseline: Path) -> None:
    """Also where only A has the tag, and B has no output."""
    baseline.write_text(baseline.read_text().replace('"test_id": "broke"', '"tags": ["person"], "test_id": "broke"'))
    results = Path("runs/after/results.jsonl")
    results.write_text(results.read_text().replace('"artifact_path":"artifacts/broke.png"', '"artifact_path":null'))
    compared("baseline after --cache cache --redact person")
    (cell,) = column()
    assert "![" not in cell
    assert list(Path("thumbs").iterdir()) == []


def test_an_earlier_image_of_a_case_that_is_redacted_now_stays(baseline: Path) -> None:
    """As compare.md says: the folder may be that of several comparisons, with other cases of this name."""
    baseline.write_text(baseline.read_text().replace('"test_id": "broke"', '"tags": ["person"], "test_id": "broke"'))
    compared("baseline after --cache cache")
    (image,) = Path("thumbs").iterdir()
    compared("baseline after --cache cache --redact person")
    assert "![" not in column()[0]
    assert list(Path("thumbs").iterdir()) == [image]


def images_of_page(*flags: str) -> dict[str, list[int | str]]:
    """Both images of each pair in the page of a comparison: their numbers, or why they are missing."""
    result = CliRunner().invoke(app, ["compare", "baseline", "after", "--html", "page.html", *flags])
    assert result.exit_code in (0, 1, 3), result.output
    text = Path("page.html").read_text(encoding="utf-8")
    (data,) = re.findall('<script type="application/json"[^>]*>(.+)</script>', text)
    return {pair["case"]: pair["images"] for pair in json.loads(data)["list"]}


def test_the_page_shows_outputs_of_a_baseline_from_the_cache(baseline: Path) -> None:
    missing = "baseline has no images"
    assert images_of_page()["broke"] == [missing, 0]
    assert images_of_page("--cache", "cache")["broke"] == [0, 1]
    with_old_output(baseline, "0" * 64)
    assert images_of_page("--cache", "cache")["broke"] == [missing, 0]


def test_the_page_shows_the_same_output_of_a_baseline_without_a_cache(baseline: Path) -> None:
    with_old_output(baseline, cached(b"another"))
    results = Path("runs/after/results.jsonl")
    digest = re.findall('"artifact_sha256": "([0-9a-f]{64})"', baseline.read_text())[0]
    results.write_text(results.read_text().replace('"artifact_sha256":"blue"', f'"artifact_sha256":"{digest}"'))
    a, b = images_of_page()["broke"]
    assert isinstance(b, int)
    assert a == b


def test_the_page_shows_no_cached_output_of_a_redacted_case(baseline: Path) -> None:
    baseline.write_text(baseline.read_text().replace('"test_id": "broke"', '"tags": ["person"], "test_id": "broke"'))
    left_out = "left out by --redact"
    assert images_of_page("--cache", "cache", "--redact", "person")["broke"] == [left_out, left_out]


@pytest.mark.usefixtures("runs")
def test_a_cache_is_only_for_images_and_new_samples() -> None:
    result = CliRunner().invoke(app, ["compare", "before", "after", "--cache", "cache"])
    message = "--cache: only for new samples or images, so only with --confirm, --html or --thumbnails\n"
    assert (result.exit_code, result.stderr) == (2, message)
    result = CliRunner().invoke(app, ["compare", "before", "after", "--cache", "cache", "--offline", "--html", "x"])
    assert (result.exit_code, result.stderr) == (2, "--offline: only for new samples, so only with --confirm\n")


@pytest.mark.parametrize(
    ("markdown", "thumbnails", "address"),
    [("out/c.md", "out/small", "small/"), ("out/c.md", "small", "../small/"), ("c.md", "new/a%20b", "new/a%2520b/")],
)
@pytest.mark.usefixtures("runs")
def test_addresses_are_relative_to_the_markdown(markdown: str, thumbnails: str, address: str) -> None:
    compared(markdown=markdown, thumbnails=thumbnails)
    (cell,) = column(markdown)
    assert re.search(rf"\({re.escape(address)}broke-[0-9a-f]{{12}}\.webp\)", cell)


def replaced(path: Path, data: bytes | None, suffix: str = ".png") -> None:
    """Replaces the output of the broken cell in a run."""
    (path / "artifacts" / "broke.png").unlink()
    if data is not None:
        (path / "artifacts" / f"broke{suffix}").write_bytes(data)
    results = path / "results.jsonl"
    results.write_text(results.read_text().replace("artifacts/broke.png", f"artifacts/broke{suffix}"))


def _clip(folder: Path) -> bytes:
    return clip(folder / "clip.mp4", ["red", "blue", "red"]).read_bytes()


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        (".svg", lambda folder: SVG),
        (".mp4", _clip),
        (".png", lambda folder: png("blue", (3000, 2250))),
        (".png", lambda folder: png((0, 0, 255, 255), (96, 72), "RGBA")),
        (".png", lambda folder: png("blue", (12, 8))),
    ],
    ids=["svg", "video", "large", "transparent", "tiny"],
)
def test_every_form_of_an_output(suffix: str, data: Callable[[Path], bytes], runs: Path, tmp_path: Path) -> None:
    replaced(runs / "before", data(tmp_path), suffix)
    replaced(runs / "after", data(tmp_path), suffix)
    compared()
    description, image, text = shown(column()[0])
    assert (description, text) == ("broke: A, B", "")
    assert image.width <= 2 * SIDE + 8
    assert image.height <= SIDE
    assert colours(image) == [BLUE, BLUE]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "there is no such file"),
        (b"no image", "not a supported image"),
        (png()[:60], "image"),
        (b"", "the file is empty"),
    ],
    ids=["missing", "text", "cut", "empty"],
)
@pytest.mark.parametrize(("run", "lost", "left", "colour"), [("before", "A", "B", BLUE), ("after", "B", "A", RED)])
def test_an_output_that_cannot_be_read_is_named(
    run: str, lost: str, left: str, colour: tuple[bool, bool, bool], data: bytes | None, why: str, runs: Path
) -> None:
    replaced(runs / run, data)
    compared()
    description, image, text = shown(column()[0])
    assert (description, image.width) == (f"broke: {left}", 96)
    assert colours(image) == [colour, colour]
    assert text.startswith(f"{lost}: ")
    assert why in text


def test_without_any_output_there_is_no_file(runs: Path) -> None:
    for run in ("before", "after"):
        replaced(runs / run, None)
    compared()
    assert column() == ["A: there is no such file<br>B: there is no such file"]
    assert list(Path("thumbs").iterdir()) == []


def test_an_image_above_the_limit_is_not_decoded(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(runs / "after", png("blue", (2000, 1000)))
    monkeypatch.setattr(MEGAPIXELS, "override", 1)
    compared()
    description, _, text = shown(column()[0])
    assert description == "broke: A"
    assert text.startswith("B: ")
    assert "pixels" in text


def test_an_output_outside_of_the_run_is_not_read(runs: Path) -> None:
    Image.new("RGB", (9, 9)).save("secret.png")
    results = runs / "after" / "results.jsonl"
    (runs / "after" / "artifacts" / "broke.png").unlink()
    (runs / "after" / "artifacts" / "broke.png").symlink_to(Path("secret.png").resolve())
    assert "broke.png" in results.read_text()
    compared()
    assert shown(column()[0])[2] == "B: it is outside the run"


def test_the_same_output_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, verdicts in (("before", "PPFF"), ("after", "PFPF")):
        compared_run(tmp_path / "runs", name, verdicts, "red")
    compared()
    description, image, text = shown(column()[0])
    assert (description, image.width, text) == ("broke: A, B", 96, "A and B have the same output")


@pytest.mark.usefixtures("runs")
def test_of_a_baseline_only_b_has_an_output() -> None:
    assert CliRunner().invoke(app, ["baseline", "set", "before", "--partial"]).exit_code == 0
    compared("baseline:main after")
    description, image, text = shown(column()[0])
    assert description == "broke: B"
    assert colours(image) == [BLUE, BLUE]
    assert text == "A: baseline:main has no images"


def test_as_many_as_the_table_lists_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cases = [f"Case_{number}" for number in range(MAX_ROWS + 2)]
    monkeypatch.setattr("compared_runs.CASES", cases)
    for name, verdict, colour in (("before", "P", "red"), ("after", "F", "blue")):
        compared_run(tmp_path / "runs", name, verdict * len(cases), colour)
    compared()
    assert [shown(cell)[0] for cell in column()] == [f"{case}: A, B" for case in cases[:MAX_ROWS]]
    names = sorted(path.name.rpartition("-")[0] for path in Path("thumbs").iterdir())
    assert names == sorted(f"case-{number}" for number in range(MAX_ROWS))


@pytest.mark.usefixtures("runs")
def test_older_files_stay_and_a_second_comparison_writes_the_same_names() -> None:
    Path("thumbs").mkdir()
    Path("thumbs/notes.txt").write_text("mine")
    compared()
    first = {path.name: path.read_bytes() for path in Path("thumbs").iterdir()}
    assert len(first) == 2
    compared()
    assert {path.name: path.read_bytes() for path in Path("thumbs").iterdir()} == first


@pytest.mark.usefixtures("runs")
def test_nothing_broke() -> None:
    compared("before before")
    assert column() == []
    assert list(Path("thumbs").iterdir()) == []


@pytest.mark.usefixtures("runs")
def test_a_folder_that_cannot_be_written_is_one_line() -> None:
    Path("thumbs").write_text("")
    result = compared()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("thumbs/")
    assert "cannot write" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("runs")
def test_images_need_the_markdown_that_shows_them() -> None:
    result = CliRunner().invoke(app, ["compare", "before", "after", "--thumbnails", "thumbs"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "--thumbnails: the images are for --markdown FILE, which is missing\n"
    assert not Path("thumbs").exists()
