"""All that is printed and written about runs, in every form, as golden files: see ``studio/commands.sh``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import check_golden, check_no_others, html_lines, json_lines, stable
from label_server import Server
from report_studio import Studio, commands
from typer.testing import CliRunner
from view_server import view_server

from visioneval.cli import app

GOLDEN = Path(__file__).with_name("golden")
MADE, READ = commands()


def check_outputs(name: str, studio: Studio) -> None:
    """Compares what a command printed and wrote with its golden files, of which none is missing or left over."""
    texts = dict(studio.outputs(name))
    for file, text in texts.items():
        check_golden(GOLDEN / file, text)
    check_no_others(GOLDEN, f"{name}.*", texts)


@pytest.mark.parametrize("name", [name for name, *_ in MADE])
def test_a_command_that_makes_a_run(name: str, studio: Studio) -> None:
    check_outputs(name, studio)


@pytest.mark.parametrize(("name", "columns", "words"), READ, ids=[name for name, *_ in READ])
def test_a_command_about_runs(name: str, columns: int, words: str, studio: Studio) -> None:
    if "parquet" in words:
        pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    studio.run(name, columns, words)
    check_outputs(name, studio)


@pytest.mark.parametrize(
    ("name", "runs", "path"),
    [
        ("index", "old", ""),
        ("comparison", "old", "compare?run=quota-03&run=whole-05"),
        ("problem", "old", "compare?run=quota-03&run=absent"),
        ("agreement", "runs", "agreement/sale/"),
    ],
)
def test_a_page_of_the_viewer(name: str, runs: str, path: str, studio: Studio, tmp_path: Path) -> None:
    with view_server(studio.folder / runs, tmp_path / "rendered") as server:
        status, _, page = server.ask(path)
        text = f"{status}\n{html_lines(page)}".replace(server.token, "TOKEN")
    check_golden(GOLDEN / f"viewer.{name}.html", stable(text, studio.folder))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("edit", ["runs/plain", "--seed", "1"]),
        ("pair", ["runs/sale@old", "--pairs", "runs/sale@new", "--seed", "1"]),
        ("preset", ["runs/raters", "--seed", "1"]),
    ],
)
def test_an_item_of_the_label_page(name: str, words: list[str], studio: Studio, serve: Callable[..., Server]) -> None:
    item = json_lines(serve(*words).next_item("zoe"))
    check_golden(GOLDEN / f"label.{name}.json", stable(item, studio.folder))


def test_wrong_usage_is_one_line(studio: Studio) -> None:
    """A new mistake is a line ``$ visioneval ...`` of the golden file."""
    before, lines = sorted(studio.folder.rglob("*")), []
    for words in re.findall(r"^\$ visioneval (.+)$", (GOLDEN / "usage.txt").read_text(encoding="utf-8"), re.MULTILINE):
        result = CliRunner().invoke(app, shlex.split(words), env={"COLUMNS": "80"}, prog_name="visioneval")
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), (words, result.output)
        lines += [f"$ visioneval {words}", result.stderr]
    assert sorted(studio.folder.rglob("*")) == before
    check_golden(GOLDEN / "usage.txt", stable("\n".join(lines), studio.folder))


def test_every_golden_file_is_of_a_test() -> None:
    names = {name for name, *_ in (*MADE, *READ)} | {"viewer", "label", "usage"}
    check_no_others(GOLDEN, "*", {path.name for path in GOLDEN.iterdir() if path.name.partition(".")[0] in names})
