"""Graders, providers and judges by name: the modules with their options, checks and implementations.

Modules are listed as text and imported on first use, so that the suite model depends on no grader or provider, and
reading a suite loads no implementation. A suite may also name a custom class, ``my_package.module:Class``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from visioneval.errors import UsageError

CUSTOM = "module:Class"
"""The name that represents every custom class."""


@dataclass(frozen=True, slots=True)
class Part:
    """One grader, provider or judge. ``config`` and ``work`` are ``module:Name``."""

    config: str
    """Its options: a pydantic model that does not import the implementation."""
    work: str
    """Its implementation, built from the options."""
    checks: str | None = None
    """A module with ``problems``, ``run_problems``, ``warnings`` or ``answer_problems`` of suites that use it; by
    default, that of its options."""


def _part(package: str, config: str, work: str, *, checks: bool = False) -> Part:
    checked = f"visioneval.{package}.checks" if checks else None
    return Part(f"visioneval.{package}.config:{config}", f"visioneval.{package}.{work}", checked)


GRADERS: Mapping[str, Part] = {
    "rubric": _part("graders.rubric", "RubricGrader", "grader:Rubric", checks=True),
    "alignment": _part("graders.alignment", "AlignmentGrader", "grader:Alignment"),
    "gecko": _part("graders.gecko", "GeckoGrader", "grader:Gecko", checks=True),
    "text": _part("graders.text", "TextGrader", "grader:Text", checks=True),
    "locality": _part("graders.pixels", "LocalityGrader", "locality:Locality"),
    "reference": _part("graders.pixels", "ReferenceGrader", "reference:Reference"),
    "properties": _part("graders.properties", "PropertiesGrader", "grader:Properties"),
    "video": _part("graders.video", "VideoGrader", "grader:Video"),
    "diversity": _part("graders.diversity", "DiversityGrader", "grader:Diversity"),
    "pairwise": _part("graders.pairwise", "PairwiseGrader", "grader:Pairwise", checks=True),
}
PROVIDERS: Mapping[str, Part] = {
    "openai": _part("providers.openai", "OpenAIProvider", "generator:OpenAIGenerator"),
    "gemini": _part("providers.gemini", "GeminiProvider", "generator:GeminiGenerator"),
    "litellm": _part("providers.litellm", "LiteLLMProvider", "generator:LiteLLMGenerator"),
    "files": _part("providers.files", "FilesProvider", "generator:Files"),
    "mock": _part("providers.mock", "MockProvider", "generator:Mock"),
    "command": _part("providers.command", "CommandProvider", "generator:Command"),
}
JUDGES: Mapping[str, Part] = {
    "openai": _part("providers.openai", "OpenAIJudge", "judge:open_judge"),
    "gemini": _part("providers.gemini", "GeminiJudge", "judge:GeminiJudgeClient"),
    "litellm": _part("providers.litellm", "LiteLLMJudge", "generator:open_judge"),
    "recorded": _part("providers.recorded", "RecordedJudge", "judge:Recorded", checks=True),
}


@cache
def load_object(target: str) -> Any:
    """Imports the object at ``module:Name``."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def config_of(table: Mapping[str, Part], name: str) -> Any:
    """The options class of ``name``. Raises ``KeyError`` if ``table`` has no such name."""
    return load_object(table[name].config)


def check_of(table: Mapping[str, Part], name: str, function: str) -> Any:
    """The check ``function`` of ``name``; ``None`` if it has none or ``table`` has no such name."""
    part = table.get(name)
    return part and getattr(import_module(part.checks or part.config.partition(":")[0]), function, None)


_SUITE_FOLDERS: dict[str, None] = {}
"""The folders of suites with custom classes; the last one is in use."""
_CUSTOM_PACKAGES: set[str] = set()
"""The top-level modules of custom classes, also of installed ones."""


def load_class(name: str, table: Mapping[str, Part], folder: Path) -> Any:
    """The class called ``name`` in ``table``, or the custom class at ``module:Class``.

    Custom modules may also be in the suite's folder (``folder``). Raises ``UsageError``.
    """
    if name in table:
        return load_object(table[name].work)
    module_name, _, class_name = name.partition(":")
    _CUSTOM_PACKAGES.add(module_name.partition(".")[0])
    try:
        _add_suite_folder(folder)
        module = import_module(module_name)
        cls = getattr(module, class_name, None)
    except (Exception, SystemExit) as error:
        imported = (error.name or "") if isinstance(error, ImportError) else ""
        problem = describe_user_error(error, first_line=True) + _name_conflict(imported, folder)
        raise UsageError(f"{name}: cannot be imported: {problem}") from error
    if cls is None:
        problem = _missing_class(module, class_name) + _name_conflict(module_name, folder)
        raise UsageError(f"{name}: cannot be imported: {problem}")
    if not callable(cls):
        raise UsageError(f"{name}: is not a class, but a value of the type {type(cls).__name__}")
    return cls


def _missing_class(module: ModuleType, name: str) -> str:
    """The message for a class that its module does not have, with the closest name of a class."""
    classes = [word for word, value in vars(module).items() if isinstance(value, type)]
    matches = get_close_matches(name, classes, n=1)
    hint = f" (did you mean {matches[0]!r}?)" if matches else ""
    return f"the module {module.__name__!r} has no {name!r}{hint}"


def _name_conflict(module: str, folder: Path) -> str:
    """What to do if an installed module hides the one of the same name in the suite's folder; else nothing."""
    top = module.partition(".")[0]
    beside = next((path for path in (f"{top}.py", f"{top}/") if top and (folder / path).exists()), None)
    loaded = sys.modules.get(top)
    if beside is None or loaded is None or _origin(loaded).startswith(f"{folder}{os.sep}"):
        return ""
    source = _origin(loaded) or "Python itself"
    return (
        f"; {top!r} was loaded from {source}, which takes precedence over {beside} next to the suite: rename {beside}"
    )


def _origin(module: ModuleType) -> str:
    """The file of a module, or a folder of its package; empty for a module in C."""
    return str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), ""))


def describe_user_error(error: BaseException, *, first_line: bool = False) -> str:
    """An exception of a custom class: its type, its message or the first line of it, and the line of the user's code.

    The file is relative to the suite's folder, or to the folder of an installed package.
    """
    message = _message(error)
    if first_line:
        message = message.strip().partition("\n")[0]
    place = "" if isinstance(error, SyntaxError) else _place(error)  # a syntax error's message has its place
    return (type(error).__name__ + (f": {message}" if message else "")) + (f" ({place})" if place else "")


def _message(error: BaseException) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    problems = (
        f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return f"{error.title}: {'; '.join(problems)}"


def _place(error: BaseException) -> str | None:
    """``file:line`` of the innermost frame in a custom class's code; ``None`` if the error comes from elsewhere."""
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        if (file := _user_file(str(frame.f_globals.get("__name__")), frame.f_code.co_filename)) is not None:
            return f"{file}:{line}"
    return None


def _user_file(module: str, file: str) -> str | None:
    """The short path of a file with the code of custom classes; ``None`` for other files."""
    top = module.partition(".")[0]
    if top == "visioneval":
        return None
    path = Path(file)
    folders = [folder for folder in _SUITE_FOLDERS if file.startswith(f"{folder}{os.sep}")]
    if folders and "site-packages" not in path.parts:
        return path.relative_to(max(folders, key=len)).as_posix()
    if top not in _CUSTOM_PACKAGES:
        return None
    depth = module.count(".") + (path.name == "__init__.py")
    return Path(*path.parts[-1 - depth :]).as_posix()


def _add_suite_folder(folder: Path) -> None:
    """Makes modules in ``folder`` importable, after installed ones.

    Unloads modules of another suite's folder that also exist in this folder, so that each suite uses its own modules.
    """
    current = str(folder)
    if current in sys.path and current == next(reversed(_SUITE_FOLDERS), None):
        return
    others = [path for path in _SUITE_FOLDERS if path != current]
    sys.path[:] = [path for path in sys.path if path not in _SUITE_FOLDERS] + [current, *others]
    _SUITE_FOLDERS.pop(current, None)
    _SUITE_FOLDERS[current] = None
    if not others:
        return
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        origin = _origin(module)
        owners = [path for path in (current, *others) if origin.startswith(f"{path}{os.sep}")]
        if (
            owners
            and max(owners, key=len) != current
            and "site-packages" not in Path(origin).parts
            and ((folder / f"{top}.py").is_file() or (folder / top).is_dir())
        ):
            del sys.modules[name]
