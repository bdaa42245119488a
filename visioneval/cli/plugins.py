"""The command ``plugins``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visioneval.cli import options
from visioneval.errors import ExitCode

if TYPE_CHECKING:
    from visioneval.suite.plugins import CheckedPlugin


def plugins(
    as_json: Annotated[bool, options.flag("--json", "Print a list of objects as one line of JSON.")] = False,
) -> None:
    """List the graders, providers and judges that installed packages add.

    Imports each. Exits 1 if one cannot be used.
    """
    from visioneval.report.text import clean
    from visioneval.suite.plugins import checked_plugins

    with options.prints_on_stderr():
        checked = checked_plugins()
    if as_json:
        print(json.dumps([_plugin_data(entry) for entry in checked]))
    elif not checked:
        print("no installed package has plug-ins")
    else:
        rows = [("kind", "name", "version", "package")]
        rows += [(e.plugin.kind, e.plugin.name, e.version or "-", e.plugin.package) for e in checked]
        notes = ["", *(_plugin_note(entry) for entry in checked)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row, note in zip(rows, notes, strict=True):
            cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            print(clean("  ".join([*cells, note]).rstrip()))
    if any(entry.problem for entry in checked):
        raise typer.Exit(ExitCode.GATE_FAILED)


def _plugin_data(entry: CheckedPlugin) -> dict[str, Any]:
    plugin = entry.plugin
    return {
        "kind": plugin.kind,
        "name": plugin.name,
        "version": entry.version,
        "distribution": plugin.distribution,
        "distribution_version": plugin.version,
        "editable": plugin.is_editable,
        "class": plugin.target,
        "problem": entry.problem,
    }


def _plugin_note(entry: CheckedPlugin) -> str:
    return entry.problem or ("editable" if entry.plugin.is_editable else "")
