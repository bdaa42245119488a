"""The folder of the golden runs, and the commands that are run in it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from golden import html_lines, json_lines, stable
from typer.testing import CliRunner

from visioneval.cli import app

STUDIO = Path(__file__).parents[2] / "report" / "studio"
_COMMAND = re.compile(r"(?P<name>[\w-]+)(?: \[(?P<columns>\d+)\])?: visioneval (?P<words>.+)")
_DATA = re.compile(r'visioneval\.take\("[^"]+",(.*)\);\n', re.DOTALL)


def commands() -> tuple[list[tuple[str, int, str]], list[tuple[str, int, str]]]:
    """Name, columns and words of the commands that make runs, and of those that read them."""
    parts = (STUDIO / "commands.sh").read_text(encoding="utf-8").split("\n---")
    making, reading = ([match for line in part.splitlines() if (match := _COMMAND.fullmatch(line))] for part in parts)
    made, read = (
        [(match["name"], int(match["columns"] or 80), match["words"]) for match in part] for part in (making, reading)
    )
    return made, read


class Studio:
    """A folder with suites and runs, which is the working directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, name: str, columns: int, words: str) -> None:
        """Runs a command and writes what it prints, and its exit code, beside the files that it writes."""
        arguments = shlex.split(words)
        with patch.object(sys, "argv", ["visioneval", *arguments]):  # as run.json records it
            result = CliRunner().invoke(app, arguments, env={"COLUMNS": str(columns)}, prog_name="visioneval")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        printed = result.stdout
        if "--json" in words and printed:
            printed = json_lines(json.loads(printed))
        errors = f"--- standard error\n{result.stderr}" * bool(result.stderr)
        text = f"$ visioneval {words}\n{printed.rstrip()}\n{errors}--- exit code {result.exit_code}\n"
        (self.folder / "out" / f"{name}.txt").write_text(text, encoding="utf-8")

    def outputs(self, name: str) -> Iterator[tuple[str, str]]:
        """Names of golden files, and texts, of a command that was run."""
        out = self.folder / "out"
        for path in sorted([*out.glob(f"{name}.*"), *(out / name).rglob("*")]):
            parts = path.relative_to(out).parts
            is_code = path.suffix == ".js" and path.parent.name != "data"
            if path.suffix not in _FORMS or is_code or "run" in parts:  # the reports of a site
                continue
            yield ".".join(parts), stable(_FORMS[path.suffix](path), self.folder)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _page_data(path: Path) -> str:
    match = _DATA.fullmatch(_text(path))
    assert match is not None
    return json_lines(json.loads(match[1]))


def _rows(path: Path) -> str:
    """The columns of a Parquet file, and its rows."""
    from pyarrow import parquet  # an extra

    table = parquet.read_table(path)
    return f"{table.schema.to_string()}\n{json_lines(table.to_pylist())}"


_FORMS = {
    **dict.fromkeys((".txt", ".md", ".xml", ".csv"), _text),
    ".html": lambda path: html_lines(_text(path)),
    ".js": _page_data,
    ".parquet": _rows,
}
