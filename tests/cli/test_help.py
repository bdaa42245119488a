"""The help of every command, as it is printed at 100 columns. ``UPDATE_GOLDEN=1`` writes it anew."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from golden import check_golden
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.cli.help import EXAMPLES

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


def leaves(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for path in command_lines(group, words):
        if path and not hasattr(_command(path), "commands"):
            yield path


def _command(path: tuple[str, ...]) -> Any:
    command = typer.main.get_command(app)
    for name in path:
        command = command.get_command(typer.Context(command), name)  # type: ignore[attr-defined]
    return command


@pytest.mark.parametrize("path", [*leaves(typer.main.get_command(app))], ids=" ".join)
def test_the_help_of_a_command_is_a_line_and_examples_that_parse(path: tuple[str, ...]) -> None:
    command = _command(path)
    summary, *_, examples = command.help.split("\n\n")
    assert len(summary) <= 76
    heading, *lines = examples.splitlines()
    assert heading == EXAMPLES
    assert 1 <= len(lines) <= 3
    assert len(lines) == 3 or len(command.params) < 4
    for line in lines:
        program, *words = shlex.split(line.partition(" > ")[0])
        assert program == "visioneval"
        assert len(line) <= 76
        skipped = 1 if path == ("label", "page") else len(path)  # the page is the default of the group
        assert tuple(words[:skipped]) == path[:skipped]
        command.make_context(" ".join(path), words[skipped:])


@pytest.mark.parametrize("columns", [60, 76, 100])
@pytest.mark.parametrize("path", [*leaves(typer.main.get_command(app))], ids=" ".join)
def test_an_example_is_one_command_to_copy_at_any_width(path: tuple[str, ...], columns: int) -> None:
    """The lines of one end with a backslash, but the last."""
    *_, examples = _command(path).help.split("\n\n")
    _, *lines = examples.splitlines()
    after = printed(*path, "--help", columns=columns).partition(EXAMPLES)[2].partition("\n\n")[0]
    copied = [line.strip() for line in after.replace(" \\\n", " ").strip().splitlines()]
    assert [" ".join(line.split()) for line in copied] == [line.strip() for line in lines]
    assert all(len(line) <= columns for line in after.splitlines())
    assert ("\\\n" in after) == any(len(line) > columns - 2 for line in lines)
