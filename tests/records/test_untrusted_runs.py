"""Untrusted runs: no outside file gets into a run or a report, and outside links are not followed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from record_factory import generated_png
from toys import Toy

from visioneval import StorageError, read_info
from visioneval.records.runs import resume_command
from visioneval.records.untrusted import is_inside
from visioneval.records.writer import RunWriter

pytestmark = pytest.mark.slow

SECRET = (12, 34, 56)
OUTSIDE = "is outside the working directory: run visioneval from the suite's folder, or pass --trust-suite"


@pytest.fixture
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private image somewhere else on the machine."""
    path = tmp_path_factory.mktemp("private") / "photo.png"
    Image.new("RGB", (32, 24), SECRET).save(path)
    return path


def finished(toy: Toy, image: str = "a.png", **case: Any) -> Path:
    """A run of a finished image."""
    if image == "a.png":
        toy.outputs("a.png")
    suite = {
        "name": "s",
        "cases": [{"id": "one", "prompt": "p", "outputs": {"m": [image]}, **case}],
        "models": [{"provider": "files"}],
        "graders": [{"key": "file", "type": "properties"}],
        "verdict": ["not file.blank"],
        "gates": ["pass_rate >= 0"],
    }
    path = toy.folder / "s.yaml"
    path.write_text(json.dumps(suite))
    assert toy("run", path, "--run-id", "r").exit_code == 0
    return toy.folder / "runs" / "r"


def change_info(run: Path, change: Callable[[str], str]) -> None:
    info = run / "run.json"
    info.write_text(change(info.read_text()))


def leaked(folder: Path, secret: Path) -> list[Path]:
    """The files that contain the private image."""
    result = []
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in (".png", ".webp", ".html", ".js"):
            data = path.read_bytes()
            result += [path] if data == secret.read_bytes() else []
    return result


def suite_at_root(secret: Path) -> Callable[[str], str]:
    """A suite recorded at the root of the disk, so that every file is in its folder."""

    def change(text: str) -> str:
        data = json.loads(text)
        data["suite_path"] = "/nothing.yaml"
        (case,) = data["suite"]["cases"]
        case["outputs"] = {"m": [{"path": str(secret).lstrip("/")}]}
        case["reference"] = str(secret).lstrip("/")
        return json.dumps(data)

    return change


@pytest.mark.parametrize("arguments", [["run", "--resume", "r"], ["grade", "r", "--run-id", "g"]])
def test_recorded_suite_path_grants_no_trust(toy: Toy, secret: Path, arguments: list[str]) -> None:
    run = finished(toy)
    change_info(run, suite_at_root(secret))
    (run / "results.jsonl").write_bytes(b"")
    result = toy(*arguments)
    assert (result.exit_code, OUTSIDE in result.stderr) == (2, True), result.output
    assert "Traceback" not in result.output
    assert leaked(toy.folder, secret) == []
    trusted = toy("run", "--resume", "r", "--trust-suite")
    assert trusted.exit_code == 0, trusted.output
    assert leaked(run, secret) != []


@pytest.mark.parametrize("arguments", [[], ["--single-file"]])
def test_report_shows_no_outside_input(toy: Toy, secret: Path, arguments: list[str]) -> None:
    run = finished(toy)
    change_info(run, suite_at_root(secret))
    assert toy("report", "r", *arguments).exit_code == 0
    pages = "".join(path.read_text() for path in run.rglob("*.js")) + "".join(p.read_text() for p in run.glob("*.html"))
    assert "is outside the working directory" in pages
    assert leaked(run, secret) == []
    assert not list(run.glob("report/images/*"))


def test_named_or_local_suite_is_trusted(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(toy, reference="a.png")
    elsewhere = toy.folder.parent / "elsewhere"
    elsewhere.mkdir()
    (run / "results.jsonl").write_bytes(b"")
    monkeypatch.chdir(elsewhere)
    refused = toy("run", "--resume", run)
    assert (refused.exit_code, OUTSIDE in refused.stderr) == (2, True), refused.output
    assert toy("run", toy.folder / "s.yaml", "--resume", run).exit_code == 0
    assert toy("grade", run, "--suite", toy.folder / "s.yaml", "--run-id", "g").exit_code == 0
    monkeypatch.chdir(toy.folder)
    (run / "results.jsonl").write_bytes(b"")
    assert toy("run", "--resume", "r").exit_code == 0
    assert toy("grade", "r", "--run-id", "h").exit_code == 0
    assert toy("report", "r").exit_code == 0
    assert list(run.glob("report/images/*.png"))


def test_resume_command_names_suite_in_another_folder(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = toy.folder / "sub" / "s.yaml"
    here = resume_command(Path("runs/r"), ["run", "s.yaml", "--var", "a=b"], suite)
    assert here == "visioneval run --resume runs/r"
    monkeypatch.chdir(toy.folder / "..")
    assert resume_command(Path("runs/r"), ["--var", "a=b"], suite) == here
    (toy.folder / "work").mkdir()
    monkeypatch.chdir(toy.folder / "work")
    arguments = [
        "run",
        "../sub/s.yaml",
        "--var",
        "a=b",
        "--judge=x=openai:m",
        "--samples",
        "3",
        "--trust-suite",
        "--tag",
        "t",
    ]
    assert resume_command(Path("runs/r"), arguments, suite) == (
        f"visioneval run {suite} --resume runs/r --var a=b --judge x=openai:m --samples 3 --trust-suite"
    )


def linked(run: Path, secret: Path, *, whole: bool) -> None:
    """Replaces an image, or the folder of images, by a link; the record has the hash."""
    (custom,) = (run / "artifacts").rglob("*.png")
    digest = hashlib.sha256(custom.read_bytes()).hexdigest()
    relative = custom.relative_to(run / "artifacts")
    results = run / "results.jsonl"
    results.write_text(results.read_text().replace(digest, hashlib.sha256(secret.read_bytes()).hexdigest()))
    if whole:
        target = secret.parent / "artifacts"
        shutil.copytree(run / "artifacts", target)
        shutil.copyfile(secret, target / relative)
        shutil.rmtree(run / "artifacts")
        (run / "artifacts").symlink_to(target)
    else:
        custom.unlink()
        custom.symlink_to(secret)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_grade_follows_no_outside_link(toy: Toy, secret: Path, depth: int) -> None:
    run = finished(toy)
    linked(run, secret, whole=False)
    (custom,) = (path for path in (run / "artifacts").rglob("*") if path.is_symlink())
    if depth:  # a link instead of a parent folder
        folder = custom.parents[depth - 1]
        other = secret.parent / "folder"
        folder.rename(other)
        folder.symlink_to(other)
    result = toy("grade", "r", "--run-id", "g")
    assert result.exit_code == 3, result.output
    (record,) = toy.records.values()
    assert record.error is not None
    assert record.error.kind == "bad_image"
    assert "is a link to a file outside the run" in record.error.message
    assert leaked(toy.folder / "runs" / "g", secret) == []
    assert not any(path.is_symlink() for path in (toy.folder / "runs" / "g").rglob("*"))


def test_linked_image_is_generated_again_without_writing_through_link(toy: Toy, secret: Path) -> None:
    run = finished(toy)
    linked(run, secret, whole=False)
    before = secret.read_bytes()
    result = toy("run", "--resume", "r")
    assert (result.exit_code, "without an image file" in result.stderr) == (0, True), result.output
    assert secret.read_bytes() == before
    (custom,) = (run / "artifacts").rglob("*.png")
    assert not custom.is_symlink()


def test_linked_cell_folder_is_not_written(toy: Toy, secret: Path) -> None:
    run = finished(toy)
    outside = secret.parent / "outside"
    outside.mkdir()
    shutil.rmtree(run / "artifacts" / "one")
    (run / "artifacts" / "one").symlink_to(outside)
    result = toy("run", "--resume", "r")
    assert (result.exit_code, "is a link to a folder outside the run" in result.stderr) == (3, True), result.output
    assert list(outside.iterdir()) == []


def test_a_link_to_the_folder_of_another_case_is_not_written(toy: Toy, tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "links", read_info(finished(toy)))
    other = writer.folder / writer.save("two", "m", "0.png", b"image of two")
    (writer.folder / "artifacts" / "one").symlink_to("two")
    with pytest.raises(StorageError, match="artifacts/one: is a link to a folder of the run: replace it"):
        writer.save("one", "m", "0.png", b"image of one")
    assert other.read_bytes() == b"image of two"
    writer.finish("complete", "")


READERS = [
    ["show", "r"], ["run", "--resume", "r"], ["grade", "r"], ["report", "r"], ["export", "r"],
    ["compare", "r", "r", "--html", "c.html"], ["pairwise", "r", "r"], ["agreement", "r"], ["label", "export", "r"],
]  # fmt: skip
FILES = ["questions.json", "labels.jsonl", "preferences.jsonl", "artifacts"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [*(("results.jsonl", arguments) for arguments in READERS), *((name, READERS[0]) for name in FILES)],
)
def test_rejects_run_files_that_link_outside(toy: Toy, secret: Path, name: str, arguments: list[str]) -> None:
    run = finished(toy)
    outside = secret.parent / "outside.jsonl"
    if name == "artifacts":
        linked(run, secret, whole=True)
    else:
        outside.write_bytes((run / name).read_bytes() if (run / name).exists() else b"")
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside)
    before = outside.read_bytes() if outside.exists() else b""
    result = toy(*arguments)
    assert result.exit_code == 2, result.output
    assert f"{name}: is a link to a file outside the run" in result.stderr
    assert (outside.read_bytes() if outside.exists() else b"") == before
    assert not (toy.folder / "c.html").exists()


@pytest.mark.parametrize("arguments", [["compare", "r", "r2", "--html", "c.html"], ["report", "r"], ["grade", "r2"]])
def test_image_readers_follow_no_outside_link(toy: Toy, secret: Path, arguments: list[str]) -> None:
    run = finished(toy)
    shutil.copytree(run, run.with_name("r2"))
    for item in (run, run.with_name("r2")):
        linked(item, secret, whole=False)
    toy(*arguments)
    page = toy.folder / "c.html"
    assert ";base64,UklGR" not in (page.read_text() if page.exists() else "")
    assert not list(run.glob("report/thumbs/*"))
    assert not list(run.glob("report/images/*"))


def test_files_provider_follows_no_outside_link(toy: Toy, secret: Path) -> None:
    linked(finished(toy), secret, whole=False)
    path = toy.folder / "s.yaml"
    path.write_text(path.read_text().replace('{"provider": "files"}', '{"provider": "files", "run": "r"}'))
    assert toy("run", path, "--run-id", "again").exit_code == 3
    assert leaked(toy.folder / "runs" / "again", secret) == []


@pytest.mark.parametrize("arguments", [["show", "r"], ["grade", "r"], ["run", "--resume", "r"], ["report", "r"]])
def test_rejects_record_images_outside_the_run(toy: Toy, arguments: list[str]) -> None:
    run = finished(toy)
    results = run / "results.jsonl"
    record = json.loads(results.read_text())
    record["artifact_path"] = "artifacts/../../../a.png"
    results.write_text(json.dumps(record) + "\n")
    result = toy(*arguments)
    assert (result.exit_code, "is not a path inside the run" in result.stderr) == (2, True), result.output
    assert "Traceback" not in result.output


def test_linked_report_folder_is_not_written(toy: Toy, secret: Path) -> None:
    run = finished(toy)
    outside = secret.parent / "site"
    outside.mkdir()
    (run / "report").symlink_to(outside)
    result = toy("report", "r")
    assert (result.exit_code, "report: is a symbolic link" in result.stderr) == (2, True), result.output
    assert list(outside.iterdir()) == []


def test_outside_anchors_are_not_read(toy: Toy, secret: Path) -> None:
    run = finished(toy)
    (secret.parent / "agreed.jsonl").write_bytes(b"")

    def change(text: str) -> str:
        data = json.loads(text)
        data["suite_path"] = "/nothing.yaml"
        data["suite"]["labels"] = {"preset": "ui", "anchors": str(secret.parent / "agreed.jsonl").lstrip("/")}
        return json.dumps(data)

    change_info(run, change)
    result = toy("agreement", "r")
    assert (result.exit_code, "is outside the working directory" in result.stderr) == (2, True), result.output


def test_bucket_in_record_is_not_read_without_trust(toy: Toy) -> None:
    """A record may name any address, which the judge would read with this machine's credentials."""
    run = finished(toy)
    results = run / "results.jsonl"
    record = json.loads(results.read_text())
    record.update(artifact_path=None, artifact_sha256=None, run_params={"path": "gs://private/x.png"})
    results.write_text(json.dumps(record) + "\n")
    assert toy("grade", "r", "--run-id", "g").exit_code == 3
    (graded,) = toy.records.values()
    assert graded.error is not None
    assert graded.error.message == "gs://private/x.png: is in a bucket: pass --trust-suite to read it"


def test_links_inside_a_run_are_allowed(toy: Toy) -> None:
    run = finished(toy)
    (custom,) = (run / "artifacts").rglob("*.png")
    os.link(custom, run / "artifacts" / "kept.png")
    custom.unlink()
    custom.symlink_to(run / "artifacts" / "kept.png")
    assert custom.read_bytes() == (toy.folder / "a.png").read_bytes()
    assert generated_png("white")
    assert toy("grade", "r", "--run-id", "g").exit_code == 0
    assert not any(path.is_symlink() for path in (toy.folder / "runs" / "g").rglob("*"))


@pytest.mark.parametrize(
    ("relative", "is_in"),
    [
        ("a", True),
        ("a/b/c.png", True),
        ("missing/x", True),
        ("in", True),
        ("in/b", True),
        ("out", False),
        ("out/x", False),
        ("a/../a", True),
        ("a/../../x", False),
        ("../r2/x", False),
        ("/etc/passwd", False),
        ("", False),
        ("a//b", True),
        ("loop/x", True),
        ("a\0b", False),
    ],
)
def test_a_path_leaves_a_run_only_through_a_link_or_dots(tmp_path: Path, relative: str, is_in: bool) -> None:
    run = tmp_path / "r"
    (run / "a" / "b").mkdir(parents=True)
    (run / "in").symlink_to("a")
    (run / "out").symlink_to(tmp_path)
    (run / "loop").symlink_to("loop")
    assert is_inside(run, relative) is is_in
    (tmp_path / "link").symlink_to(run)
    assert is_inside(tmp_path / "link", relative) is is_in
