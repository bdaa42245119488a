"""Every option and every key has its default where users look it up: in the help, and in the reference."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from test_docs import ROOT

from visioneval import bounds
from visioneval.analysis.compare.gates import DEFAULT as DEFAULT_GATES
from visioneval.analysis.planning import DEFAULT_CORRELATION, DEFAULT_PASS_RATE
from visioneval.cli import app
from visioneval.cli.start import DEFAULT_TEMPLATE
from visioneval.serve.server import DEFAULT_PORT
from visioneval.suite.model import Suite, suite_schema
from visioneval.types import Frozen

NOTHING = {
    *("--thumbnails", "--code-quality"),
    *("--case", "--tag", "--model", "--grader", "--limit", "--shard", "--sample", "--verdict", "--experiment", "--last"),
    *("--kinds", "--keep", "--older-than", "--map", "--set", "--var", "--resume", "--baseline", "--run-id", "--note", "--suite", "--to", "--option"),
    *("--junit", "--markdown", "--code-quality", "--html", "--output", "--log-file", "--ci", "--pairs", "--confirm", "--ray-address"),
    *("--redact", "--metric", "--detect", "--gate", "--like", "--allow", "--min", "--min-point", "--min-detection", "--max-false-alarm"),
}  # fmt: skip
"""Options that do nothing unless they are given: their help says what they change."""
STATED: dict[str, tuple[object, ...]] = {
    "--port": (DEFAULT_PORT,),
    "--pass-rate": (DEFAULT_PASS_RATE,),
    "--case-correlation": (DEFAULT_CORRELATION,),
    "--template": (DEFAULT_TEMPLATE,),
    "--fail-on": DEFAULT_GATES,
    **{bound.setting.flag: (f"{bound.setting.default:,}", bound.setting.environment) for bound in bounds.ALL},
}
"""What the help of options whose default is computed must contain."""

IMPLIED = {("Suite", "graders"), ("Suite", "verdict"), ("Suite", "gates")}
"""Keys without a value that a suite could write for their default: the description says what follows."""


@cache
def reference() -> ModuleType:
    """docs/site/reference.py, which imports the modules beside it."""
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    try:
        return importlib.import_module("reference")
    finally:
        sys.path.pop(0)


def commands(group: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            yield from commands(command, inner)
        else:
            yield command, inner


GROUP = typer.main.get_command(app)
COMMANDS = {
    context.command_path: command for command, context in commands(GROUP, typer.Context(GROUP, info_name="visioneval"))
}


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_a_command_states_every_default(path: str) -> None:
    for parameter in COMMANDS[path].params:
        if parameter.param_type_name != "option" or parameter.name == "help":
            continue
        name = parameter.opts[0]
        if parameter.default is not None:
            assert parameter.show_default, f"{path} {name}"  # then the help ends with [default: ...]
            assert not parameter.is_flag or parameter.default is False, f"{path} {name}"
        elif name in STATED and not (name == "--max-cells" and "gallery" in parameter.help):
            assert "efault: " in parameter.help
            assert [value for value in STATED[name] if str(value) not in parameter.help] == [], f"{path} {name}"
        elif name not in NOTHING:
            assert re.search(r"default: |by default|instead of|override", parameter.help, re.IGNORECASE), (
                f"{path} {name}"
            )


def test_the_reference_of_the_command_line_has_a_default_for_each_option() -> None:
    text = reference().command_line()
    for path, command in COMMANDS.items():
        section = text.partition(f"\n## {path}\n")[2].partition("\n## ")[0]
        rows = [line.replace("\\|", "/").split(" | ") for line in section.splitlines() if line.startswith("| `")]
        shown = [cells[1] for cells in rows]
        parameters = [parameter for parameter in command.params if parameter.name != "help"]
        assert shown == [reference().option_default(parameter) for parameter in parameters]
        for parameter, cell in zip(parameters, shown, strict=True):
            default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
            if not parameter.required and default not in (None, False):
                assert str(default) in cell, f"{path} {parameter.name}"


def test_computed_defaults_are_in_the_column_of_defaults() -> None:
    text = reference().command_line()
    rows = {line.split(" | ")[0]: line.split(" | ")[1] for line in text.splitlines() if line.startswith("| `--")}
    assert rows["| `--port PORT`"] == "8377, or a free port if that is in use"
    assert rows["| `--pass-rate RATE`"] == "0.8"
    assert rows["| `--max-model-runs N`"] == "10,000, or VISIONEVAL_MAX_MODEL_RUNS"
    assert rows["| `--trust-suite`"] == "off"
    assert rows["| `--limit N`"] == ""


@cache
def key_rows() -> dict[str, dict[str, list[str]]]:
    """The cells of each key's row, by model."""
    names = ["Suite", *(name for name, model in suite_schema()["$defs"].items() if "properties" in model)]
    tables = {name: reference().keys(name, (), "", {}) for name in names}
    rows = {name: [line for line in table.splitlines() if line.startswith("| `")] for name, table in tables.items()}
    cells = {model: [re.split(r"(?<!\\) \| ", line[2:-2]) for line in lines] for model, lines in rows.items()}
    return {model: {row[0].strip("`"): row for row in table} for model, table in cells.items()}


def test_the_reference_of_keys_has_every_key_with_a_description() -> None:
    schema = suite_schema()
    models = {"Suite": schema, **{name: model for name, model in schema["$defs"].items() if "properties" in model}}
    assert {model: set(rows) for model, rows in key_rows().items()} == {
        name: set(model["properties"]) for name, model in models.items()
    }
    bare = [
        (model, key)
        for model, rows in key_rows().items()
        for key, row in rows.items()
        if not all((row[1], row[3].strip()))
    ]
    assert bare == []


def models_of_suites() -> dict[str, type[BaseModel]]:
    """The classes behind the models of the schema."""
    names, models, left = set(suite_schema()["$defs"]), {"Suite": Suite}, [Frozen]
    while left:
        model = left.pop()
        left += model.__subclasses__()
        if model.__name__ in names:
            models[model.__name__] = model
    return models


def test_the_reference_of_keys_has_the_defaults_of_the_code() -> None:
    models, checked = models_of_suites(), 0
    assert set(models) == set(key_rows())
    for name, model in models.items():
        for field, info in model.model_fields.items():
            key = info.alias or field
            if (row := key_rows()[name].get(key)) is None or (name, key) in IMPLIED:
                continue
            default = None if info.is_required() else to_jsonable_python(info.get_default(call_default_factory=True))
            if isinstance(info.default, BaseModel):  # whose own table has its defaults
                default = None
            expected = "required" if info.is_required() else "" if default is None else f"`{json.dumps(default)}`"
            assert row[2].replace("\\|", "|") == expected, f"{name}.{key}"
            checked += bool(expected)
    assert checked > 200
