"""Tables that list what the code has: values with their meanings, functions, errors, inputs of the action.

Each sentence of a table is the docstring or description of what it is about.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

import visioneval

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
FUNCTIONS = (
    *("run", "run_async", "grade", "merge", "load_run", "read_info", "read_records", "validate", "plan", "compare"),
    *("agreement", "probe", "rank", "pairwise", "track", "grading_context"),
)
"""What users call, in the order in which they need it."""
OF_PLUGINS = ("ProviderError", "GraderError")
"""Errors that classes of users raise: each becomes part of a record."""
LISTED = re.compile(r"^- ((?:``[^`\n]+``|`[^`\n]+`|[^:`\n])+): (.+?)(?=^- |^$|\Z)", re.MULTILINE | re.DOTALL)
"""An item of a list in a docstring: what it is about, which may have colons in code, and its meaning."""


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*head, *(f"| {' | '.join(map(cell, row))} |" for row in rows)])


def cell(text: str) -> str:
    """A docstring or description as the cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("``", "`").strip()


def members(path: str) -> str:
    """The values of an enumeration, of a ``Literal`` or of a tuple of names, each with its meaning.

    Those of an enumeration have a docstring each, others a list in the docstring below: ``- ``name``: its meaning``.
    """
    module, _, name = path.rpartition(".")
    value = getattr(import_module(module), name)
    if inspect.isclass(value) and issubclass(value, Enum):
        texts = dict(_docstrings(inspect.getsource(value), inside=True))
        meanings = {str(member.value): texts.get(member.name, "") for member in value}
    else:
        below = dict(_docstrings(inspect.getsource(import_module(module)), inside=False)).get(name, "")
        meanings = dict(re.findall(r"^- ``(.+?)``: (.+?)(?=^- |^$|\Z)", below, re.MULTILINE | re.DOTALL))
        known = [str(item) for item in get_args(value) or value]
        # one in capitals that is no value stands for many: METRIC:NUMBER
        if [text for text in meanings if text in known or text.islower()] != known:
            raise ValueError(f"{path}: its docstring has {list(meanings)}, and its values are {known}")
    if bare := [text for text, meaning in meanings.items() if not meaning]:
        raise ValueError(f"{path}: no docstring below {', '.join(bare)}")
    return markdown(("value", "meaning"), [(f"`{text}`", meaning) for text, meaning in meanings.items()])


def listed(columns: Sequence[str], *objects: Any) -> str:
    """The lists in the docstrings of modules, functions and classes, as one table.

    - what: its meaning, which may have several lines
    """
    items = [LISTED.findall(inspect.getdoc(of) or "") for of in objects]
    if bare := [of.__name__ for of, found in zip(objects, items, strict=True) if not found]:
        raise ValueError(f"no list in the docstring of {', '.join(bare)}")
    return markdown(columns, [row for found in items for row in found])


def _docstrings(source: str, *, inside: bool) -> Iterator[tuple[str, str]]:
    """The docstrings below assignments, by each name that is assigned: of a module, or ``inside`` its class."""
    body: list[Any] = ast.parse(source).body
    for statement, text in pairwise(body[0].body if inside else body):
        docstring = text.value.value if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) else None
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and isinstance(docstring, str):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
            yield from ((name, inspect.cleandoc(docstring)) for name in names)


def functions() -> str:
    """What each function of the Python API does and returns, with a link to its signature."""
    return markdown(("function", "does", "returns"), list(map(_function, FUNCTIONS)))


def _function(name: str) -> tuple[str, str, str]:
    function: Callable[..., Any] = getattr(visioneval, name)
    (does,) = re.findall(r"\A.+?\.(?=\s|$)", inspect.getdoc(function) or "", re.DOTALL)
    returned = str(inspect.signature(function).return_annotation)
    return f"[`{'await ' * inspect.iscoroutinefunction(function)}{name}(...)`](python.md#{name})", does, f"`{returned}`"


def python_names() -> str:
    """Every public name with its signature and docstring; of a record or a part of a suite, its fields.

    Of a dataclass, also the attributes and methods that have a docstring.
    """
    lines: list[str] = []
    for name in visioneval.__all__:
        value = getattr(visioneval, name)
        lines += ["", f"## {name}", "", f"```python\n{name}{_signature(value)}\n```", "", inspect.getdoc(value) or ""]
        if attributes := list(_attributes(value)):
            lines += ["", *(f"- `{attribute}`: {cell(text)}" for attribute, text in attributes)]
    return "\n".join(lines) + "\n"


def _attributes(value: Any) -> Iterator[tuple[str, str]]:
    """The attributes and methods of a dataclass that have a docstring."""
    if not is_dataclass(value) or not inspect.isclass(value):
        return
    yield from _docstrings(inspect.getsource(value), inside=True)
    for name, member in vars(value).items():
        function = member.fget if isinstance(member, property) else getattr(member, "func", member)
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            own = inspect.signature(function)
            taken = own.replace(parameters=list(own.parameters.values())[1:], return_annotation=own.empty)
            call = f"{'await ' * inspect.iscoroutinefunction(function)}{name}{taken}" if member is function else name
            yield call.replace("'", ""), function.__doc__


def _signature(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, BaseModel):
        return f"({', '.join(info.alias or field for field, info in value.model_fields.items())})"
    if not callable(value):
        return ""
    try:
        text = str(inspect.signature(value))
    except ValueError:
        return "(...)"
    text = re.sub(r"<function [\w.]*?(\w+|<lambda>) at 0x\w+>", r"\1", text)  # an address differs in each process
    return text.replace("visioneval.", "").replace("'", "").replace("<lambda>", "...")


def errors() -> str:
    """The errors that functions raise, the more general ones first."""
    found = [getattr(visioneval, name) for name in visioneval.__all__ if name not in OF_PLUGINS]
    classes = [value for value in found if inspect.isclass(value) and issubclass(value, visioneval.VisionEvalError)]
    classes.sort(key=lambda error: (error.exit_code, len(error.__mro__), error.__name__))
    rows = [(f"`{error.__name__}`", inspect.getdoc(error) or "", str(int(error.exit_code))) for error in classes]
    return markdown(("error", "raised for", "`exit_code`"), rows)


def source(name: str) -> str:
    """A class of an example, as its file has it: ``acme_circles.CountGrader``."""
    module, _, of = name.partition(".")
    text = (ROOT / "docs" / "examples" / module / f"{module}.py").read_text(encoding="utf-8")
    (found,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == of)
    return f"```python\nimport visioneval as ve\n\n\n{ast.get_source_segment(text, found)}\n```"


def layers() -> str:
    """The layers that import-linter enforces, from the top, each package with the first paragraph of its docstring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (item for item in project["tool"]["importlinter"]["contracts"] if item["type"] == "layers")
    packages = [(str(at), name) for at, layer in enumerate(contract["layers"], 1) for name in layer.split(" | ")]
    return markdown(("layer", "package", "what it has"), [(at, f"`{name}`", _about(name)) for at, name in packages])


def _about(name: str) -> str:
    path = ROOT / name.replace(".", "/")
    source = module if (module := path.with_suffix(".py")).is_file() else path / "__init__.py"
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0]


def action(part: str) -> str:
    """The inputs or outputs of the GitHub action."""
    entries = yaml.safe_load(ACTION.read_text(encoding="utf-8"))[part]
    if part == "outputs":
        return markdown(("output", "meaning"), [(f"`{name}`", entry["description"]) for name, entry in entries.items()])
    rows = [(f"`{name}`", _default_of(entry), entry["description"]) for name, entry in entries.items()]
    return markdown(("input", "default", "meaning"), rows)


def _default_of(entry: dict[str, Any]) -> str:
    return "required" if entry.get("required") else entry["default"] and f"`{entry['default']}`"
