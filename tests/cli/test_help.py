"""The help of every command, as it is printed at 100 columns. ``UPDATE_GOLDEN=1`` writes it anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from golden import check_golden
from typer.testing import CliRunner

from visioneval.cli import app

GOLDEN = Path(__file__).with_name("help.txt")


def command_lines(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name in getattr(group, "commands", ()):
        yield from command_lines(group.commands[name], (*words, name))


def printed(*words: str, columns: int = 100) -> str:
    result = CliRunner().invoke(app, words, prog_name="visioneval", env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.stdout.splitlines()) + "\n"


def test_the_help_of_every_command_is_the_golden_one() -> None:
    commands = [*command_lines(typer.main.get_command(app))]
    text = "".join((*(printed(*words, "--help") for words in commands), printed("run", "--help-all")))
    check_golden(GOLDEN, text)
    assert not re.search(r"<[a-z]", text), "values are named by what they are, not by types"
    assert max(len(line) for words in commands for line in printed(*words, "--help", columns=80).splitlines()) <= 80
