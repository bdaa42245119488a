"""Pages that are made from the code: the command line, the keys of a suite, public names, and the notebook."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import typer

import visioneval
from visioneval.cli import app
from visioneval.suite.model import suite_schema


def command_line() -> str:
    """Every command with its arguments and options, from the code."""
    group = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "Made from the code. `visioneval COMMAND --help-all` prints the same. An option without a default is off.",
    ]
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
        parameters = [parameter for parameter in command.get_params(inner) if parameter.name != "help"]
        lines += ["| argument or option | default | meaning |", "|---|---|---|", *map(_row, parameters)]
    return lines


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = (
        " / ".join(", ".join(form) for form in (parameter.opts, parameter.secondary_opts) if form) if is_option else ""
    )
    value = "" if getattr(parameter, "is_flag", False) else parameter.metavar or ("" if is_option else parameter.name)
    meaning = _cell(getattr(parameter, "help", None) or "")
    return f"| `{_cell(f'{names} {value}')}` | {option_default(parameter)} | {meaning} |"


def option_default(parameter: Any) -> str:
    """The default of an argument or option as a cell of a table."""
    if parameter.required:
        return "required"
    if isinstance(parameter.default, bool):
        return "on" if parameter.default else "off"
    if parameter.default is None:
        stated = re.search(r"[Dd]efault: ((?:[^.]|\.(?=\S))+)", getattr(parameter, "help", None) or "")
        return stated[1].partition("; ")[0] if stated else ""
    return f"`{parameter.default.value if isinstance(parameter.default, Enum) else parameter.default}`"


def suite_keys() -> str:
    """Every key of a suite with its type, its default and its description, from the JSON Schema."""
    schema = suite_schema()
    lines = [
        "# Keys of a suite",
        "",
        "Made from the schema that `visioneval schema` prints. [The suite](suite.md) says how the keys work together.",
    ]
    lines += _model("Suite", schema)
    for name, model in sorted(schema["$defs"].items()):
        if "properties" in model:
            lines += _model(name, model)
    return "\n".join(lines) + "\n"


def _model(name: str, model: Mapping[str, Any]) -> list[str]:
    rows = [
        f"| `{key}` | {_type(entry)} | {key_default(key, entry, model)} | {_sentences(entry.get('description', ''))} |"
        for key, entry in model["properties"].items()
    ]
    return [
        "",
        f"## {name}",
        "",
        _sentences(model.get("description", "")),
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        *rows,
    ]


def key_default(key: str, entry: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The default of a key as a cell of a table: what a suite would write, or nothing if the key is then unset."""
    if key in model.get("required", ()) or "const" in entry:
        return "required"
    value = entry.get("default", {} if "object" in str(entry.get("type")) else None)
    return "" if value is None else f"`{_cell(json.dumps(value))}`"


_NAMES = {"string": "text", "boolean": "true or false", "integer": "whole number", "number": "number"}


def _type(entry: Mapping[str, Any]) -> str:
    """A short name of what a key takes, with links to the models that it can hold."""
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        model = _definition(name)
        return f"[{name}](#{name.lower()})" if "properties" in model else _type(model)
    parts = entry.get("anyOf") or entry.get("oneOf")
    if parts:
        return " or ".join(dict.fromkeys(_type(part) for part in parts if part.get("type") != "null"))
    values = [entry["const"]] if "const" in entry else entry.get("enum")
    if values:
        return " or ".join(f"`{value if isinstance(value, str) else json.dumps(value)}`" for value in values)
    if isinstance(entry.get("type"), list):
        return " or ".join(_NAMES[name] for name in entry["type"] if name != "null")
    return _collection(entry) or _NAMES.get(entry.get("type", ""), "any value") + _range(entry)


def _definition(name: str) -> Mapping[str, Any]:
    definition: Mapping[str, Any] = suite_schema()["$defs"][name]
    return definition


def _collection(entry: Mapping[str, Any]) -> str:
    """The name of a list or mapping; empty for anything else."""
    if entry.get("type") == "array":
        return f"list of {_type(entry['items'])}" if "items" in entry else "list"
    if entry.get("type") != "object":
        return ""
    values = [*entry.get("patternProperties", {}).values(), entry.get("additionalProperties")]
    inner = next((_type(value) for value in values if isinstance(value, Mapping)), "")
    return f"mapping to {inner}" if inner else "mapping"


def _range(entry: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {entry[name]:,}" for name, sign in signs.items() if name in entry]
    return f" {' and '.join(limits)}" if limits else ""


def _sentences(text: str) -> str:
    """A docstring or description as Markdown."""
    return _cell(text).replace("``", "`")


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


def notebook(text: str) -> str:
    """The cells of a notebook as Markdown."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
