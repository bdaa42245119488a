"""The command ``init``: writes a shipped suite with its files, or a CI workflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from visioneval.cli import completion, options
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.suite.model import Suite

DEFAULT_TEMPLATE = "quickstart"
SUITE_FILE, SCHEMA_FILE = Path("suite.yaml"), Path("visioneval.schema.json")
MODELINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n".encode()
"""Editors with a YAML language server check and complete the suite by this schema."""


class Ci(StrEnum):
    """The values of ``init --ci``."""

    github = "github"
    gitlab = "gitlab"


_CLI = Path(__file__).parents[1]
WORKFLOWS = {
    Ci.github: (_CLI / "github.yml", Path(".github/workflows/visioneval.yml")),
    Ci.gitlab: (_CLI / "gitlab.yml", Path(".gitlab-ci.yml")),
}


def init(
    folder: Annotated[
        Path, options.argument("DIR", "The folder to write to; default: the working directory.")
    ] = Path(),
    template: Annotated[
        str | None,
        options.value(
            "--template",
            "NAME",
            "The suite to write; default: quickstart. --list shows all of them.",
            autocompletion=completion.template_names,
        ),
    ] = None,
    list_templates: Annotated[
        bool, options.flag("--list", "List the templates, one line each, and write nothing.")
    ] = False,
    ci: Annotated[
        Ci | None,
        options.value(
            "--ci", "NAME", "github or gitlab: also write its workflow; without --template, write only the workflow."
        ),
    ] = None,
) -> None:
    """Write a runnable, commented suite with its images and a schema for editors, or a CI workflow."""
    from visioneval.suite.model import json_schema

    if list_templates:
        if template is not None or ci is not None:
            raise UsageError("--list writes nothing: leave out --template and --ci")
        _print_templates()
        return
    files: dict[Path, bytes] = {}
    if template is not None or ci is None:
        source = _template_folder(DEFAULT_TEMPLATE if template is None else template)
        paths = (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        files = {path.relative_to(source): path.read_bytes() for path in sorted(paths)}
        files[SUITE_FILE] = MODELINE + files[SUITE_FILE]
        files[SCHEMA_FILE] = (json.dumps(json_schema(), indent=2) + "\n").encode()
    if ci is not None:
        source_file, target = WORKFLOWS[ci]
        files[target] = source_file.read_bytes()
    _write(files, folder)
    if SUITE_FILE not in files:
        print(
            "next: set SUITE in the workflow and the variable VISIONEVAL_SOURCE (docs/ci.md), then run the"
            "\n  suite with --cache visioneval-cache, call 'visioneval baseline set latest', and commit the workflow,"
            "\n  the suite and its files, baselines/ and visioneval-cache/, not runs/"
        )
        return
    print(f"next: visioneval run {folder / SUITE_FILE}")


def _template_folder(name: str) -> Path:
    """The folder of a template. Raises ``UsageError``."""
    from visioneval.resources import suite_folders
    from visioneval.suite.loading.messages import did_you_mean

    folders = suite_folders()
    if name not in folders:
        raise UsageError(
            f"--template {name}: there is no such template{did_you_mean(name, folders)}. "
            "List all: visioneval init --list"
        )
    return folders[name]


def _print_templates() -> None:
    """One line for each template: its name, what it is for, and the keys that it needs."""
    from visioneval.resources import suite_folders
    from visioneval.suite.load import load_suite

    folders = suite_folders()
    width = max(map(len, folders))
    for name, folder in folders.items():
        suite = load_suite(folder / SUITE_FILE, run_labels=lambda _: []).suite
        description, keys = suite.description or "", _needed_keys(suite)
        print(f"{name:{width}}  {description} Needs {' and '.join(keys) or 'no key'}.")


def _needed_keys(suite: Suite) -> list[str]:
    """The environment variables with keys that a suite needs."""
    keys = [entry.needs_keys for entry in suite.models] + [judge.needs_keys for judge in suite.judges.values()]
    return sorted({key for entry_keys in keys for key in entry_keys})


def _write(files: Mapping[Path, bytes], folder: Path) -> None:
    """Writes all files, or none if one exists already or cannot be written. Raises ``UsageError``."""
    written: list[Path] = []
    try:
        existing = [str(folder / name) for name in files if (folder / name).exists()]
        if existing:
            raise UsageError(
                f"{existing[0]}: already exists; nothing was written. Delete or rename it, or choose another folder:"
                " visioneval init DIR"
            )
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            written.append(folder / name)
            (folder / name).write_bytes(content)
    except OSError as error:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise UsageError(f"{folder}: cannot write: {error.strerror or error}; nothing was written") from None
    for path in written:
        print(f"wrote {path}")
