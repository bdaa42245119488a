"""Paths on the command line are local: a URL is refused, and never becomes a folder named s3:.

The folder of runs and the cache can be in an object store: see ``tests/scale/stores``.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from caches import named
from toys import Toy

from visioneval.cli import app, options

pytestmark = pytest.mark.slow

URLS = ("s3://bucket/x", "gs://bucket/x.html", "S3://b", "abfs+x://b/c", "https://example.org/a.csv", "file:///tmp/x")


LOCATIONS = (options.runs_location, options.cache_location)
"""What parses the options that can also be s3:// or gs:// URLs."""


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


def paths() -> Iterator[tuple[list[str], str]]:
    """A command line for each path of each command, up to that path."""
    for words, command in commands(typer.main.get_command(app)):
        arguments = [item for item in command.params if item.param_type_name == "argument" and item.required]
        for item in command.params:
            names_a_run = "RUN" in str(item.metavar)  # a run has a message of its own
            if not names_a_run and any(name in str(item.metavar) for name in ("DIR", "FILE", "PATH", "SUITE")):
                if item.param_type_name == "option":
                    yield [*words, *("x" for _ in arguments), item.opts[0]], item.opts[0]
                else:
                    before = arguments.index(item) if item in arguments else 0
                    yield [*words, *("x" for _ in range(before))], item.name


PATHS = list(paths())


def test_all_kinds_of_paths_are_checked() -> None:
    result = {(words[0], name) for words, name in PATHS}
    assert {
        ("run", "--runs"),
        ("run", "--cache"),
        ("run", "--junit"),
        ("run", "--markdown"),
        ("run", "--log-file"),
    } < result
    assert {("compare", "--html"), ("export", "--output"), ("label", "--output"), ("report", "--output")} < result
    assert {("cache", "--cache"), ("init", "folder"), ("validate", "suites"), ("questions", "--output")} < result
    for _, command in commands(typer.main.get_command(app)):
        for item in command.params:
            if item.type_descriptor and "Path" in str(item.type_descriptor.annotation):
                parsers = LOCATIONS if "URL" in str(item.metavar) else (options.local_path,)
                assert item.type_descriptor.parameter_info.parser in parsers, item.opts


@pytest.mark.parametrize(("words", "name"), PATHS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_a_url_is_refused_in_one_line(toy: Toy, words: list[str], name: str) -> None:
    before = sorted(toy.folder.rglob("*"))
    is_location = name in ("--runs", "--cache")
    for url in URLS[2:4] if is_location else URLS[:2]:
        result = toy(*words, url)
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.splitlines()
        stores = "runs and caches can be in a local folder, or at an s3:// or gs:// URL"
        expected = stores if is_location else "is a URL, but this must be a path on this machine"
        assert line.removesuffix(f": write {url.lower()}") == f"{url}: {expected}", name
    assert sorted(toy.folder.rglob("*")) == before


@pytest.mark.parametrize("url", [*URLS, "s3:/bucket", "GS:/bucket/runs"])
def test_no_run_is_written_into_a_folder_named_like_a_scheme(toy: Toy, url: str) -> None:
    before = sorted(toy.folder.rglob("*"))
    suite = toy.write({})
    locations = (["--runs", url], [f"--runs={url}"], ["--cache", url])
    for words in (["--junit", url], *(() if url in URLS[:2] else locations)):
        assert toy("run", suite, "--trust-suite", *words).exit_code == 2
    assert toy("--env-file", url, "run", suite).exit_code == 2
    assert sorted(toy.folder.rglob("*")) == sorted([*before, suite])


def test_a_run_is_not_named_by_a_url(toy: Toy) -> None:
    for name, message in (
        ("https://example.org/runs/r", "is a URL: only runs in local folders and below --runs can be read"),
        ("s3://user:key@bucket/runs/r", "is not the URL of a run: write s3://BUCKET/RUNS/ID or gs://BUCKET/RUNS/ID"),
        ("s3://bucket", "is not the URL of a run: write s3://BUCKET/RUNS/ID or gs://BUCKET/RUNS/ID"),
    ):
        result = toy("show", name)
        shown = "s3://..." if "key" in name else name
        assert (result.exit_code, result.stderr) == (2, f"{shown}: {message}\n")


def test_other_names_are_paths_as_before(toy: Toy) -> None:
    for name in ("a:b", "x/y:z", "s3:x"):
        assert toy.run({}, arguments=("--runs", name, "--run-id", "r")).exit_code == 0
        assert (toy.folder / name / "r" / "run.json").is_file()


def filled(folder: Path) -> Path:
    from visioneval.running.calls.cache import Cache

    cache = Cache(folder)
    cache.put("generate:1", "generate", {}, named(b"an image"))
    return folder


def test_clear_asks_first_and_needs_a_yes_without_a_terminal(toy: Toy) -> None:
    cache = filled(toy.folder / "kept")
    result = toy("cache", "clear", "--cache", cache)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"this would delete all answers (1) in {cache}: add --yes, or --older-than DAYS for old answers only\n"
    )
    assert toy("cache", "clear", "--cache", cache, "--older-than", "0").exit_code == 2
    assert "deleted 0 answers" in toy("cache", "clear", "--cache", cache, "--older-than", "1").stdout
    assert "deleted 1 answers" in toy("cache", "clear", "--cache", cache, "--yes").stdout


@pytest.mark.parametrize(
    ("typed", "dropped"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_clear_at_a_terminal(toy: Toy, typed: str, dropped: bool) -> None:
    cache = filled(toy.folder / "kept")
    outer, inner = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "visioneval", "cache", "clear", "--cache", str(cache)],
        stdin=inner, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.write(outer, typed.encode() or b"\x04")
    stdout, stderr = program.communicate(timeout=60)
    os.close(inner)
    os.close(outer)
    assert f"Delete all answers (1) in {cache}?" in stderr
    assert (program.returncode, "deleted 1 answers" in stdout, "nothing was deleted" in stdout) == (
        0,
        dropped,
        not dropped,
    )


def test_the_url_of_a_run_is_refused_in_one_line(toy: Toy) -> None:
    message = f"{URLS[4]}: is a URL: only runs in local folders and below --runs can be read\n"
    for command in ("probe", "show", "report", "grade"):
        result = toy(command, URLS[4])
        assert (result.exit_code, result.stderr) == (2, message), command
