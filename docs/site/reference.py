"""Parts of pages that are made from the code: commands, keys of suites and records, and public names. And the notebook.

`make reference` fills them: a page has `<!-- keys: NAME -->` and `<!-- end of keys -->`, with a table between.
"""

from __future__ import annotations

import ast
import inspect
import json
import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import listings
import typer
from code_tables import TABLES, kinds_of_change, templates
from pydantic import BaseModel

import visioneval
from visioneval.analysis.agreement.graders import GraderAgreement
from visioneval.analysis.agreement.judges import AnchorMatch
from visioneval.analysis.preferences import RankedRun
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.judges import JudgeCard, PairCard
from visioneval.cli import app
from visioneval.cli.help import EXAMPLES
from visioneval.label.work import LabelSession, LabelStep
from visioneval.plugins import GRADERS, config_of
from visioneval.providers.gemini import OmniParams, VeoParams
from visioneval.providers.mock import MockParams
from visioneval.providers.openai import OpenAIVideoParams
from visioneval.records.baselines import BaselineHeader
from visioneval.records.between_cells import CaseDiversity, CellDuplicate, Preference
from visioneval.records.labels import CellDraw, DrawnCell, Label
from visioneval.records.model import GraderRecord, JudgeAnswer, RunInfo
from visioneval.records.questions import PromptQuestions
from visioneval.records.until import SampledGate, UntilDecided
from visioneval.settings import SETTINGS, Setting
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import PanelOptions
from visioneval.suite.model import suite_schema

RECORDS = (
    GraderRecord,
    visioneval.Record,
    JudgeAnswer,
    LabelSession,
    LabelStep,
    Label,
    CellDraw,
    DrawnCell,
    Preference,
    CaseDiversity,
    CellDuplicate,
    PromptQuestions,
    RunInfo,
    UntilDecided,
    SampledGate,
    visioneval.Summary,
    GateFinding,
    RankedRun,
    BaselineHeader,
    GraderAgreement,
    JudgeCard,
    PairCard,
    AnchorMatch,
)
"""The models of a run's files, as docs/reference describes them."""
PARAMETERS = (MockParams, VeoParams, OmniParams, OpenAIVideoParams)
"""The models of ``params`` that are checked."""
SHARED: tuple[type[BaseModel], ...] = (BaseGrader, PanelOptions)
"""The keys that several entries of a suite have in common."""


def command_line() -> str:
    """Every command with its arguments and options, from the code."""
    group = typer.main.get_command(app)
    return "\n".join(_commands(group, typer.Context(group, info_name="visioneval"))) + "\n"


def _commands(group: Any, context: Any) -> list[str]:
    lines: list[str] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            lines += _commands(command, inner)
            continue
        about, _, examples = (command.help or "").partition(EXAMPLES)
        lines += ["", f"## {inner.command_path}", "", about.strip(), ""]
        lines += ["```sh", *(line.strip() for line in examples.strip().splitlines()), "```", ""]
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


@cache
def models() -> dict[str, Mapping[str, Any]]:
    """The JSON Schema of each model that a page can list: those of a suite, and those of the files of a run."""
    schema = suite_schema()
    result = {"Suite": schema, **{name: model for name, model in schema["$defs"].items() if "properties" in model}}
    result |= {model.__name__: model.model_json_schema() for model in SHARED}
    return result | {model.__name__: _with_docstrings(model) for model in (*RECORDS, *PARAMETERS)}


def _with_docstrings(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON Schema of a record, with the text below each field in the code as its description."""
    schema = model.model_json_schema()
    (body,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(body, ast.ClassDef)
    for field, text in pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            schema["properties"][ast.unparse(field.target)]["description"] = text.value.value
    return schema


def keys(name: str, without: Collection[str], page: str, pages: Mapping[str, str]) -> str:
    """The table of a model's keys. ``pages`` has the page of each model and its heading, for links."""
    model = models()[name]
    if unknown := set(without) - set(model["properties"]):
        raise ValueError(f"{page}: {name} has no {', '.join(sorted(unknown))}")
    rows = [
        f"| `{key}` | {_linked(_type(entry), page, pages)} | {key_default(key, entry, model)} "
        f"| {listings.cell(entry.get('description', ''))} |"
        for key, entry in sorted(model["properties"].items(), key=lambda item: _is_optional(*item, model))
        if key not in without
    ]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def _linked(text: str, page: str, pages: Mapping[str, str]) -> str:
    """Puts the pages of models into links to them: ``[Expect](#expect)``. Models without a page have no link."""

    def link(match: re.Match[str]) -> str:
        path, _, heading = pages.get(match[1], "").partition("#")
        if not path:
            return match[1]
        up = posixpath.relpath(path, posixpath.dirname(page))
        return f"[{match[1]}]({'' if path == page else up}#{heading})"

    return re.sub(r"\[(\w+)\]\(#\w+\)", link, text)


BLOCK = re.compile(
    r"^<!-- (?P<kind>keys|commands|names|settings|kinds|metrics|table|templates|figures|members|functions|errors|"
    r"layers|source|action)"
    r"(?:: (?P<name>[\w. -]+?)(?: without (?P<without>[\w ]+))?)? -->\n"
    r"(?P<body>.*?)^<!-- end of (?P=kind) -->\n",
    re.MULTILINE | re.DOTALL,
)
"""A generated part of a page. Figures are measured by the program that the block names, and are kept as they are."""


def pages_of_models(texts: Mapping[str, str]) -> dict[str, str]:
    """The page and heading of each model that a page lists, by its name."""
    result = {}
    for page, text in texts.items():
        for block in BLOCK.finditer(text):
            if block["kind"] == "keys":
                title = re.findall(r"^#+ (.+)$", text[: block.start()], re.MULTILINE)[-1]
                result.setdefault(block["name"], f"{page}#{_anchor(title)}")
    return result


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def filled(page: str, texts: Mapping[str, str]) -> str:
    """A page with its generated parts as the code has them. ``texts``: all pages, by their path in docs/."""
    pages = pages_of_models(texts)

    def fill(block: re.Match[str]) -> str:
        if block["kind"] == "figures":
            return block[0]
        head = block[0].partition("\n")[0]
        if block["kind"] == "keys":
            body = keys(block["name"], (block["without"] or "").split(), page, pages)
        elif block["name"]:
            by_name = {
                "metrics": metrics,
                "members": listings.members,
                "action": listings.action,
                "source": listings.source,
                "table": lambda name: TABLES[name](),
            }
            body = by_name[block["kind"]](block["name"])
        else:
            makers = {
                "commands": command_line,
                "names": listings.python_names,
                "settings": settings,
                "kinds": kinds_of_change,
                "templates": templates,
                "functions": listings.functions,
                "errors": listings.errors,
                "layers": listings.layers,
            }
            body = makers[block["kind"]]()
        return f"{head}\n\n{body.strip()}\n\n<!-- end of {block['kind']} -->\n"

    return BLOCK.sub(fill, texts[page])


def _is_optional(key: str, entry: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    return key_default(key, entry, model) != "required"


def key_default(key: str, entry: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The default of a key as a cell of a table: what a suite would write, or nothing if the key is then unset.

    A key that holds a model has the defaults of that model's table.
    """
    if key in model.get("required", ()) or "const" in entry:
        return "required"
    if "$ref" in entry:
        return ""
    value = entry.get("default", {} if "object" in str(entry.get("type")) else None)
    return "" if value is None else f"`{_cell(json.dumps(value))}`"


_NAMES = {"string": "text", "boolean": "true or false", "integer": "whole number", "number": "number"}


def _type(entry: Mapping[str, Any]) -> str:
    """A short name of what a key takes, with links to the models that it can hold."""
    if "$ref" in entry:
        name = entry["$ref"].rpartition("/")[2]
        model = _definitions()[name]
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


@cache
def _definitions() -> Mapping[str, Mapping[str, Any]]:
    return {name: model for root in (*RECORDS, *SHARED, None) for name, model in _schema(root).get("$defs", {}).items()}


def _schema(model: type[BaseModel] | None) -> Mapping[str, Any]:
    return model.model_json_schema() if model else suite_schema()


def _collection(entry: Mapping[str, Any]) -> str:
    """The name of a list or mapping; empty for anything else."""
    if entry.get("type") == "array":
        return f"list of {_type(entry['items'])}" if "items" in entry else "list"
    if entry.get("type") != "object":
        return ""
    values = [*entry.get("patternProperties", {}).values(), entry.get("additionalProperties")]
    inner = next((_type(value) for value in values if isinstance(value, Mapping)), "")
    return f"mapping to {inner}" if inner else "mapping"


LARGEST = 2**62
"""Limits beyond this are those of numbers in files, not of a key."""


def _range(entry: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [
        f"{sign} {entry[name]:,}".removesuffix(".0")
        for name, sign in signs.items()
        if abs(entry.get(name, LARGEST)) < LARGEST
    ]
    return f" {' and '.join(limits)}" if limits else ""


def metrics(name: str) -> str:
    """The table of what a type of grader writes."""
    meanings: Mapping[str, str] = config_of(GRADERS, name).meanings
    rows = [f"| `<key>{suffix}` | {meaning} |" for suffix, meaning in meanings.items()]
    return "\n".join(["| metric | meaning |", "|---|---|", *rows])


def settings() -> str:
    """Every setting of the functions that run suites, with the flag that means the same."""
    rows = ["| setting | flag | values | default | of | meaning |", "|---|---|---|---|---|---|"]
    for name, setting in SETTINGS.items():
        functions = [function.__name__ for function in FUNCTIONS if name in _keywords(function)]
        if functions:
            default = "" if setting.default in (None, False) else f"`{setting.default}`"
            flag = _cell(f"{setting.flag} {setting.metavar}")
            cells = (f"`{name}`", f"`{flag}`", _values(setting), default, ", ".join(functions), setting.help)
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


FUNCTIONS = (
    visioneval.run,
    visioneval.plan,
    visioneval.grade,
    visioneval.probe,
    visioneval.compare,
    visioneval.pairwise,
)


def _keywords(function: Callable[..., Any]) -> set[str]:
    """The settings that a function takes, as its own parameters or with others."""
    (taken,) = get_args(get_type_hints(function)["settings"])
    return {*inspect.signature(function).parameters, *get_type_hints(taken)}


def _values(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    low, high = setting.minimum, setting.maximum
    if low is not None and setting.type is int:
        return f"at least {low}" if high is None else f"{low:,} to {high:,}"
    if setting.is_list or setting.is_mapping:
        return "list of strings" if setting.is_list else "dictionary"
    if setting.type is bool:
        return "`True`, `False`"
    forms = {"DIR|URL": "path or URL", "FILE": "path", "RUN": "a run, as for `load_run`", "USD": "number"}
    return forms.get(setting.metavar, "text")


def notebook(text: str) -> str:
    """The cells of a notebook as Markdown."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
