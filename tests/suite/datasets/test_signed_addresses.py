"""Signatures of addresses, in every form in which somebody may write one, are shown nowhere."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from visioneval import read_records
from visioneval.cli import app
from visioneval.media.urls import public_address

pytestmark = pytest.mark.slow

REFUSED = (
    "https://ann:pa55word@host.example/ok.png?sig=s3cr3t",
    "az://acc/ok.png?sig=s3cr3t",
    "azure://acc/ok.png?sig=s3cr3t",
    "ftp://host.example/ok.png#s3cr3t",
    "http://[::1/ok.png?sig=a@s3cr3t",
    "hf://datasets/ok.png?sig=s3cr3t",
)
"""Addresses that no suite can read."""
BROKEN = (
    "http:/host.example/ok.png?sig=s3cr3t",
    "//host.example/ok.png?sig=s3cr3t",
    r"https:\\host.example\ok.png?sig=s3cr3t",
    "'http://127.0.0.1:9/ok.png?sig=s3cr3t'",
    "see http://127.0.0.1:9/ok.png?sig=s3cr3t",
)
"""Addresses that are taken for paths."""
DEAD = ("http://127.0.0.1:9/ok.png?sig=s3cr3t", "  http://127.0.0.1:9/ok.png?sig=s3cr3t ")
"""Addresses of a server that does not answer."""


@pytest.fixture(autouse=True)
def _in_tmp_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")


def said(*words: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    return result.stdout + result.stderr


def write_suite(addresses: tuple[str, ...]) -> None:
    """A suite whose dataset, in another folder, names a good image and these outputs."""
    Path("rows").mkdir()
    Image.linear_gradient("L").save("ok.png")
    with Path("rows/d.csv").open("w", newline="") as file:
        rows = [["good", "a cup", "../ok.png"], *([f"c{at}", "a cup", name] for at, name in enumerate(addresses))]
        csv.writer(file).writerows([["id", "prompt", "file"], *rows])
    Path("suite.yaml").write_text(
        "name: far\ncases: [{dataset: {path: rows/d.csv, fields: {id: id, prompt: prompt, output: file}}}]\n"
        "models: [{provider: files}]\ngraders: [{key: image, type: properties}]\nverdict: [not image.blank]\n"
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *((name, name) for name in ("a?b#c.png", "C:/a?b.png", "./x/?y", "/tmp/a#b.png", "s3://b/m@v1/a.png", "s3://")),
        ("https://u:pw@host/a.png?sig=s", "https://***@host/a.png"),
        ("https://u:p@ss/w@host/a.png", "https://***@host/a.png"),
        ("https://u:p?w@host/a.png", "https://***"),
        ("https://u:pw@host/a.png?sig=a@s", "https://***"),
        ("http://localhost:90/m@v1/a.png?x=a@s", "http://localhost:90/m@v1/a.png"),
        ("http://[::1]:90/a.png#s", "http://[::1]:90/a.png"),
        ("HTTPS:host?s", "HTTPS:host"),
        (" //host/a?s", " //host/a"),
        ("rows/http:/host/a?s", "rows/http:/host/a"),
    ],
)
def test_an_address_is_shown_without_its_secrets_and_a_path_as_it_is(name: str, shown: str) -> None:
    assert public_address(name) == shown


@pytest.mark.parametrize("flags", [(), ("--trust-suite",)])
@pytest.mark.parametrize("name", [*REFUSED, *BROKEN, *DEAD])
def test_no_message_of_a_suite_has_a_signature(name: str, flags: tuple[str, ...]) -> None:
    Image.linear_gradient("L").save("ok.png")
    text, table = (name.replace("'", "''"), name.replace("'", "''").replace(".png", ".csv"))
    for cases, models in (
        (f"{{id: a, prompt: x, images: ['{text}'], reference: '{text}', mask: '{text}'}}", "{provider: mock}"),
        (f"{{file: '{text}'}}, {{file: '{table}'}}", "{provider: mock}"),
        (f"'{text}', '{table}'", "{provider: mock}"),
        (f"{{dataset: {{path: '{text}', fields: {{id: id, prompt: p}}}}}}", "{provider: mock}"),
        (f"{{dataset: {{path: '{table}', fields: {{id: id, prompt: p}}}}}}", "{provider: mock}"),
        ("{id: a, prompt: x}", f"{{provider: files, path: '{text}'}}"),
        ("{id: a, prompt: x}", f"{{provider: files, run: '{text}'}}"),
        ("{id: a, prompt: x}", f"{{provider: files, dataset: {{path: '{table}', fields: {{id: id, output: o}}}}}}"),
        ("{id: a, prompt: x}", f"{{provider: openai, base_url: '{text}', params: {{model: m}}}}"),
    ):
        Path("suite.yaml").write_text(
            f"name: far\ncases: [{cases}]\nmodels: [{models}]\n"
            "graders: [{key: image, type: properties}]\nverdict: [not image.blank]\n"
        )
        message = said("validate", "suite.yaml", *flags) + said("run", "suite.yaml", "--run-id", "r", "--quiet", *flags)
        assert message
        assert "s3cr3t" not in message
        assert "pa55" not in message
    assert "s3cr3t" not in said("show", name)


def test_outputs_at_refused_addresses_are_named_without_signatures() -> None:
    write_suite(REFUSED)
    for command in ("validate", "plan", "run"):
        message = said(command, "suite.yaml", "--trust-suite")
        assert message.count("rows/d.csv:") == len(REFUSED)
        assert "s3cr3t" not in message
        assert "pa55word" not in message


def test_no_export_report_or_site_has_a_signature() -> None:
    write_suite((*BROKEN, *DEAD))
    message = said("validate", "suite.yaml", "--trust-suite") + said("plan", "suite.yaml", "--trust-suite")
    assert "outputs that do not exist, whose cells are errors: rows/http:/host.example/ok.png, //host" in message
    files = ("--junit", "j.xml", "--markdown", "m.md", "--log-file", "l")
    message += said("run", "suite.yaml", "--trust-suite", "--run-id", "r", *files)
    errors = {record.test_id: str(record.error and record.error.message) for record in read_records(Path("runs/r"))}
    dead = f"c{len(BROKEN)}"
    assert errors[dead].split(": ", 1)[1] == errors[f"c{len(BROKEN) + 1}"].split(": ", 1)[1]  # without the spaces
    assert "Cannot connect to host 127.0.0.1:9 [" in errors[dead]
    message += said("show", "r", "--json") + "".join(said("show", "r", case) for case in errors)
    for name in ("cells.csv", "cells.jsonl", "cells.parquet"):
        message += said("export", "r", "-o", name)
    message += said("report", "r") + said("report", "r", "-o", "one.html") + said("site", "-o", "site")
    assert "s3cr3t" not in message
    written = [path for path in Path().rglob("*") if path.is_file() and path.name not in ("suite.yaml", "d.csv")]
    assert {"j.xml", "m.md", "cells.parquet", "index.html", "texts.js", "details-0.js", "summary.json"} <= {
        path.name for path in written
    }
    assert {path.name for path in written if b"s3cr3t" in path.read_bytes()} == {"run.json", "results.jsonl"}
