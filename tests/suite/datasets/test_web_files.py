"""Files behind web addresses: where redirects may lead, and how much is read."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result
from web_pages import Page, web

from visioneval import read_records
from visioneval.cli import app
from visioneval.providers import files
from visioneval.suite.loading import tables

pytestmark = pytest.mark.slow

ROWS = b"id,prompt\none,a tree\n"
SUITE = """\
name: far
cases: [{{dataset: {{path: '{url}', fields: {{id: id, prompt: prompt}}}}}}]
models: [{{provider: mock}}]
graders: [{{key: image, type: properties}}]
verdict: [not image.blank]
"""


@pytest.fixture(autouse=True)
def _in_tmp_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def validate(url: str, *flags: str) -> Result:
    Path("suite.yaml").write_text(SUITE.format(url=url))
    return CliRunner().invoke(app, ["validate", "suite.yaml", *flags], catch_exceptions=False)


def to(location: str, status: int = 302) -> Page:
    return Page(status=status, headers={"location": location, "set-cookie": "session=secret"})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_on_the_same_server_is_followed(status: int) -> None:
    with web(a=to("/b.csv?x=1", status), b=Page(ROWS)) as server:
        result = validate(f"{server.url}/a.csv", "--trust-suite")
        assert result.exit_code == 0, result.stderr
        assert len(server.seen) == 2


def test_a_redirect_to_another_server_must_be_public(monkeypatch: pytest.MonkeyPatch) -> None:
    with web(b=Page(ROWS)) as other, web(a=to(f"{other.url}/b.csv?signature=abc")) as server:
        result = validate(f"{server.url}/a.csv", "--trust-suite")
        assert (result.exit_code, other.seen, "signature" in result.stderr) == (2, [], False)
        assert (
            f"it redirects to '{other.url}', which is not public over https: to read it, add its host to VISIONEVAL_TRUSTED_HOSTS"
            in result.stderr
        )
        monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
        result = validate(f"{server.url}/a.csv")
        assert result.exit_code == 0, result.stderr
        (asked,) = other.seen
        assert not {"authorization", "cookie", "referer"} & set(asked)


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://localhost/x",
        "http://example.org/x",
        "https://10.0.0.1/x",
        "file:///etc/passwd",
        "gs://bucket/x",
        "https://[x/",
    ],
)
def test_a_listed_server_cannot_redirect_to_a_private_address(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    with web(a=to(location)) as server:
        result = validate(f"{server.url}/a.csv")
        assert (result.exit_code, len(server.seen)) == (2, 1)
        assert ("it redirects to '" in result.stderr) == ("[" not in location)
        (line,) = [line for line in result.stderr.splitlines() if "a.csv" in line]
        assert line.startswith("suite.yaml:2:")


def test_a_redirect_in_a_circle_ends() -> None:
    with web(a=to("/a.csv")) as server:
        result = validate(f"{server.url}/a.csv", "--trust-suite")
        assert (result.exit_code, len(server.seen)) == (2, 6)
        assert "it redirects more than 5 times" in result.stderr


def spaces() -> Iterator[bytes]:
    part = b" " * 100_000
    while True:
        yield part


@pytest.mark.parametrize("coding", ["gzip", "deflate", "x-gzip"])
def test_a_compressed_file_is_read_up_to_the_limit(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import zlib

    packed = zlib.compress(ROWS) if coding == "deflate" else gzip.compress(ROWS)
    with web(a=Page(packed, headers={"content-encoding": coding})) as server:
        result = validate(f"{server.url}/a.csv", "--trust-suite")
        assert result.exit_code == 0, result.stderr
    monkeypatch.setattr(tables, "MAX_BYTES", len(ROWS) - 1)
    with web(a=Page(packed, headers={"content-encoding": coding})) as server:
        result = validate(f"{server.url}/a.csv", "--trust-suite")
        assert (result.exit_code, f"over the limit of {len(ROWS) - 1} bytes" in result.stderr) == (2, True)


def test_a_dataset_that_grows_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_BYTES", 1_000_000)
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb") as packer:
        for _ in range(400):
            packer.write(b" " * 1_000_000)
    bomb = Page(out.getvalue(), headers={"content-encoding": "gzip"})
    with web(a=bomb, b=Page(spaces()), c=Page(out.getvalue(), headers={"content-encoding": "br"})) as server:
        tracemalloc.start()
        try:
            for name in "ab":
                result = validate(f"{server.url}/{name}.csv", "--trust-suite")
                assert (result.exit_code, "over the limit of 1,000,000 bytes" in result.stderr) == (2, True)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 60_000_000
        result = validate(f"{server.url}/c.csv", "--trust-suite")
        assert "it is encoded as 'br', which was not requested" in result.stderr


def test_an_image_that_grows_is_an_error_of_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 100_000)
    out = io.BytesIO()
    Image.new("RGB", (32, 24), "red").save(out, "PNG")
    grown = gzip.compress(out.getvalue() + b" " * 1_000_000)
    with web(a=Page(out.getvalue()), b=Page(grown, headers={"content-encoding": "gzip"})) as server:
        Path("suite.yaml").write_text(
            "name: far\ncases: [{id: a, prompt: x}, {id: b, prompt: x}]\n"
            f"models: [{{provider: files, label: m, path: '{server.url}/{{case}}.png'}}]\n"
            "graders: [{key: image, type: properties}]\nverdict: [not image.blank]\n"
        )
        result = CliRunner().invoke(app, ["run", "suite.yaml", "--trust-suite", "--run-id", "r", "--quiet"])
    assert result.exit_code == 3, result.output
    expected_message = {
        record.test_id: record.error and record.error.message for record in read_records(Path("runs/r"))
    }
    assert expected_message["a"] is None
    assert str(expected_message["b"]).endswith("over the limit of 100,000 bytes")


def test_signatures_are_in_no_message_export_or_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a dataset and of outputs at signed addresses. The run's own two files have them, to read the outputs again."""
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    image = io.BytesIO()
    Image.linear_gradient("L").save(image, "PNG")
    good, gone = Page(image.getvalue()), Page(status=403)
    with web(a=good, b=gone) as server:
        rows = [f"{name},a tree,{server.url}/{name}.png?sig=s3cr3t&x=1" for name in "ab"]
        server.pages["/d"] = Page("\n".join(["id,prompt,file", *rows]).encode())
        table = (
            f"{{dataset: {{path: '{server.url}/d.csv?sig=s3cr3t', fields: {{id: id, prompt: prompt, output: file}}}}}}"
        )
        Path("suite.yaml").write_text(
            f"name: far\ncases: [{table}]\nmodels: [{{provider: files}}]\n"
            "graders: [{key: image, type: properties}]\nverdict: [not image.blank]\n"
        )
        said = run_command(
            "run", "suite.yaml", "--run-id", "r", "--junit", "j.xml", "--markdown", "m.md", "--log-file", "l"
        )
        assert "1 cell ended in an error" in said
        records = {record.test_id: record for record in read_records(Path("runs/r"))}
        assert (records["a"].verdict, records["b"].verdict) == ("PASS", "ERROR")
        assert f"/d.csv:3: {server.url}/b.png: access denied: 403" in str(records["b"].error)
        for name in ("cells.csv", "cells.jsonl", "cells.parquet"):
            said += run_command("export", "r", "-o", name)
        for command in (("report", "r"), ("show", "r"), ("show", "r", "a"), ("show", "r", "b")):
            said += run_command(*command)
        server.pages["/d"] = Page(b"id,prompt\n")
        said += run_command("validate", "suite.yaml")
        server.pages["/d"] = gone
        said += run_command("validate", "suite.yaml")
    assert f"{server.url}/d.csv" in said
    assert "s3cr3t" not in said
    written = [path for path in Path().rglob("*") if path.is_file() and path.name != "suite.yaml"]
    assert len(written) > 8
    assert {path.name for path in written if b"s3cr3t" in path.read_bytes()} == {"run.json", "results.jsonl"}


def run_command(*words: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    return result.stdout + result.stderr
