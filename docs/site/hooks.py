"""Hooks of MkDocs: pages from files at the top of the repository, and the references that are made from the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File

import visioneval
from visioneval.cli import app

ROOT = Path(__file__).parents[2]
TOP = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Pages outside docs/, and their names in the site."""


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are not files of docs/."""
    pages = {name: (ROOT / path).read_text(encoding="utf-8") for path, name in TOP.items()}
    pages |= {"cli.md": command_line(), "python.md": python_names()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=_with_links(text, is_top=name in TOP.values())))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to files at the top of the repository into links to their pages."""
    return markdown if page.file.generated_by else _with_links(markdown, is_top=False)


def _with_links(text: str, *, is_top: bool) -> str:
    prefix = "" if is_top else "../"
    for path, name in TOP.items():
        text = text.replace(f"]({prefix}{path})", f"]({name})")
    return re.sub(r"\]\(docs/", "](", text) if is_top else text


def command_line() -> str:
    """Every command with its arguments and options, from the code."""
    group = typer.main.get_command(app)
    lines = ["# Command line", "", "Made from the code. `visioneval COMMAND --help` prints the same."]
    lines += _commands(group, typer.Context(group, info_name="visioneval"))
    return "\n".join(lines) + "\n"


def _commands(group: Any, context: Any) -> list[str]:
    lines: list[str] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            lines += _commands(command, inner)
            continue
        lines += ["", f"## {inner.command_path}", "", _cell(command.help or "").replace("\f", ""), ""]
        lines += ["| | |", "|---|---|", *(_row(parameter) for parameter in command.get_params(inner))]
    return lines


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = ", ".join((*parameter.opts, *parameter.secondary_opts)) if is_option else ""
    value = "" if getattr(parameter, "is_flag", False) else parameter.metavar or ("" if is_option else parameter.name)
    return f"| `{f'{names} {value}'.strip()}` | {_cell(getattr(parameter, 'help', None) or '')} |"


def python_names() -> str:
    """Every public name with its signature and docstring."""
    lines = ["# Python names", "", "Made from the docstrings of `visioneval.__all__`."]
    for name in visioneval.__all__:
        value = getattr(visioneval, name)
        signature = ""
        if callable(value):
            try:
                signature = str(inspect.signature(value)).replace("visioneval.", "")
            except ValueError:
                signature = "(...)"
        lines += ["", f"## {name}", "", f"```python\n{name}{signature}\n```", "", inspect.getdoc(value) or ""]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
