"""The command ``plugins``."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    from visioneval.running.sanitize import Sanitizer
    from visioneval.suite.plugins import checked_plugins

    with options.prints_on_stderr():
        checked = checked_plugins()
    lines = [json.dumps([_plugin_data(entry) for entry in checked])] if as_json else _table(checked)
    hidden = Sanitizer.around()  # an error of a package may have a key in its message
    for line in lines:
        print(clean(hidden.text(line)))
    if any(entry.problem for entry in checked):
        raise typer.Exit(ExitCode.GATE_FAILED)


def _table(checked: Sequence[CheckedPlugin]) -> list[str]:
    if not checked:
        return ["no installed package has plug-ins"]
    rows = [("kind", "name", "version", "package")]
    rows += [(e.plugin.kind, e.plugin.name, e.version or "-", e.plugin.package) for e in checked]
    notes = ["", *(entry.problem or ("editable" if entry.plugin.is_editable else "") for entry in checked)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return [f"{row}  {note}".rstrip() for row, note in zip(cells, notes, strict=True)]


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
