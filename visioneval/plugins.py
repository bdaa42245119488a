"""Graders, providers and judges by name: built-in ones, and classes of other people.

Built-in modules are listed as text and imported on first use, so that the suite model depends on no grader or provider,
and reading a suite loads no implementation. Other people's classes are plug-ins, which installed packages declare as
entry points, and those that a suite names as ``module:Class``. None is imported before something names it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import Distribution, entry_points
from numbers import Number
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from visioneval.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class Part:
    """One grader, provider or judge. ``config`` and ``work`` are ``module:Name``."""

    config: str
    """Its options: a pydantic model. Its module may have ``problems``, ``run_problems``, ``warnings`` or
    ``answer_problems`` of suites that use it."""
    work: str
    """Its implementation, built from the options."""


def _part(package: str, config: str, work: str) -> Part:
    """``work`` is relative to the package, whose own module has the options: ``.module:Name``, or ``:Name`` in it."""
    return Part(f"visioneval.{package}:{config}", f"visioneval.{package}{work}")


GRADERS: Mapping[str, Part] = {
    "rubric": _part("graders.rubric", "RubricGrader", ".grader:Rubric"),
    "alignment": _part("graders.alignment", "AlignmentGrader", ".grader:Alignment"),
    "gecko": _part("graders.gecko", "GeckoGrader", ".grader:Gecko"),
    "text": _part("graders.text", "TextGrader", ".grader:Text"),
    "layout": _part("graders.layout", "LayoutGrader", ".grader:Layout"),
    "contrast": _part("graders.layout", "ContrastGrader", ".contrast:Contrast"),
    "locality": _part("graders.pixels", "LocalityGrader", ".locality:Locality"),
    "reference": _part("graders.pixels", "ReferenceGrader", ".reference:Reference"),
    "properties": _part("graders.properties", "PropertiesGrader", ".grader:Properties"),
    "video": _part("graders.properties", "VideoGrader", ".video:Video"),
    "palette": _part("graders.palette", "PaletteGrader", ".grader:Palette"),
    "codes": _part("graders.codes", "CodesGrader", ".grader:Codes"),
    "diversity": _part("graders.pixels", "DiversityGrader", ".reference:Diversity"),
    "duplicates": _part("graders.duplicates", "DuplicatesGrader", ".grader:Duplicates"),
    "pairwise": _part("graders.pairwise", "PairwiseGrader", ".grader:Pairwise"),
}
PROVIDERS: Mapping[str, Part] = {
    "openai": _part("providers.openai", "OpenAIProvider", ".generator:OpenAIGenerator"),
    "gemini": _part("providers.gemini", "GeminiProvider", ".generator:GeminiGenerator"),
    "litellm": _part("providers.litellm", "LiteLLMProvider", ".generator:LiteLLMGenerator"),
    "files": _part("providers.files", "FilesProvider", ":Files"),
    "mock": _part("providers.mock", "MockProvider", ".generator:Mock"),
    "command": _part("providers.command", "CommandProvider", ":Command"),
}
JUDGES: Mapping[str, Part] = {
    "openai": _part("providers.openai", "OpenAIJudge", ".judge:open_judge"),
    "gemini": _part("providers.gemini", "GeminiJudge", ".generator:GeminiJudgeClient"),
    "litellm": _part("providers.litellm", "LiteLLMJudge", ".generator:open_judge"),
    "recorded": _part("providers.recorded", "RecordedJudge", ":Recorded"),
}
BUILT_IN_PARTS: Mapping[str, Mapping[str, Part]] = {
    "visioneval.graders": GRADERS,
    "visioneval.providers": PROVIDERS,
    "visioneval.judges": JUDGES,
}
"""By the group of entry points that adds to them."""


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
    return part and getattr(import_module(part.config.partition(":")[0]), function, None)


API_VERSION = 1
"""The version of what classes and visioneval expect of each other. A class may name it as ``visioneval_api``."""
KINDS: Mapping[str, str] = {
    "visioneval.graders": "grader",
    "visioneval.providers": "provider",
    "visioneval.judges": "judge",
}
"""What the entry points of each group are."""
MODULE_CLASS = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
NAME = r"[a-z][a-z0-9_-]{0,59}"
"""The names that plug-ins may have. None looks like ``module:Class``."""
_SUITE_FOLDERS: dict[str, None] = {}
"""The folders of suites with custom classes; the last one is in use."""
_CUSTOM_PACKAGES: set[str] = set()
"""The top-level modules of custom classes, also of installed ones."""


@dataclass(frozen=True, slots=True, order=True)
class Plugin:
    """One entry point of an installed package."""

    group: str
    name: str
    distribution: str
    version: str
    """That of the distribution."""
    target: str
    """Its ``module:Class``."""
    is_editable: bool
    """Whether its code can change while its version stays."""

    @property
    def kind(self) -> str:
        """``grader``, ``provider`` or ``judge``."""
        return KINDS[self.group]

    @property
    def package(self) -> str:
        """Its distribution with the version, for messages."""
        return f"{self.distribution} {self.version}"


def installed_plugins() -> tuple[Plugin, ...]:
    """All plug-ins, also those that cannot be used, by group and name."""
    return _plugins_on(tuple(sys.path))


@lru_cache(maxsize=1)
def _plugins_on(path: tuple[str, ...]) -> tuple[Plugin, ...]:  # noqa: ARG001 - what Python searches
    declared = entry_points()
    plugins = set()
    for entry in (entry for group in KINDS for entry in declared.select(group=group)):
        package = entry.dist
        if package is not None:
            names = (package.name or "unnamed", package.version or "unknown")
            plugins.add(Plugin(entry.group, entry.name, *names, entry.value, _is_editable(package)))
    return tuple(sorted(plugins))


def _is_editable(distribution: Distribution) -> bool:
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        return bool(origin["dir_info"]["editable"])
    except (ValueError, KeyError, TypeError):
        return False


def plugin_names(group: str) -> list[str]:
    """The names of a group that suites can use."""
    names = {plugin.name for plugin in installed_plugins() if plugin.group == group} - BUILT_IN_PARTS[group].keys()
    return sorted(name for name in names if re.fullmatch(NAME, name))


def find_plugin(group: str, name: str) -> Plugin:
    """The plug-in of this name. Raises ``UsageError`` unless exactly one package declares it."""
    plugins = [plugin for plugin in installed_plugins() if (plugin.group, plugin.name) == (group, name)]
    if not plugins:
        raise UsageError(
            f"{name}: no installed package has a {KINDS[group]} of this name: install its package"
            f"{did_you_mean(name, plugin_names(group))}"
        )
    if len(plugins) > 1:
        packages = " and ".join(f"{plugin.package} ({plugin.target})" for plugin in plugins)
        raise UsageError(f"{name}: several installed packages have a {KINDS[group]} of this name, {packages}: keep one")
    return plugins[0]


@dataclass(frozen=True, slots=True)
class CustomClass:
    """A class that is not visioneval's: of an installed plug-in, or named by a suite."""

    title: str
    """How messages name it."""
    cls: Any
    version: str | None
    """Its own, or else that of its package."""
    has_own_version: bool = False
    """Whether the class itself has a ``version``."""


def load_class(name: str, group: str, folder: Path) -> CustomClass:
    """Imports the class at ``module:Class``, which may be in the suite's ``folder``, or that of a plug-in.

    Raises ``UsageError``.
    """
    if ":" in name:
        cls = _imported(name, name, folder)
        loaded = CustomClass(name, cls, None)
    else:
        plugin = find_plugin(group, name)
        title = f"{name} ({plugin.package})"
        if not re.fullmatch(MODULE_CLASS, plugin.target):
            raise UsageError(f"{title}: its entry point {plugin.target!r} is not module:Class")
        loaded = CustomClass(title, _imported(plugin.target, title, None), plugin.version)
    api = read_attribute(loaded.title, loaded.cls, "visioneval_api", API_VERSION)
    if api != API_VERSION:
        raise UsageError(
            f"{loaded.title}: has visioneval_api = {api!r}, but this version of visioneval has {API_VERSION}:"
            " install versions of both that fit"
        )
    version = _version_of(loaded)
    return loaded if version is None else replace(loaded, version=version, has_own_version=True)


def read_attribute(title: str, owner: Any, name: str, default: Any = None) -> Any:
    """An attribute of a custom class or its instance. Raises ``UsageError`` if its code fails."""
    try:
        return getattr(owner, name, default)
    except Exception as error:
        raise UsageError(f"{title}: {name!r} cannot be read: {describe_user_error(error, first_line=True)}") from error


def _version_of(loaded: CustomClass) -> str | None:
    """The ``version`` of a class. Anything but text and numbers may be another text in each process."""
    version = read_attribute(loaded.title, loaded.cls, "version")
    if version is None:
        return None
    try:
        text = str(version) if isinstance(version, (str, Number)) else ""
    except Exception as error:
        problem = describe_user_error(error, first_line=True)
        raise UsageError(f"{loaded.title}: 'version' cannot be read: {problem}") from error
    if text.strip() and text.splitlines() == [text]:
        return text
    kind = "" if isinstance(version, (str, Number)) else f", not a {type(version).__name__}"
    raise UsageError(f"{loaded.title}: a 'version' must be a number or one line of text{kind}")


def _imported(target: str, title: str, folder: Path | None) -> Any:
    module_name, _, class_name = target.partition(":")
    _CUSTOM_PACKAGES.add(module_name.partition(".")[0])
    try:
        if folder is not None:
            _add_suite_folder(folder)
        module = import_module(module_name)
        cls = getattr(module, class_name, None)
    except (Exception, SystemExit) as error:
        imported = (error.name or "") if isinstance(error, ImportError) else ""
        problem = describe_user_error(error, first_line=True) + _name_conflict(imported, folder)
        raise UsageError(f"{title}: cannot be imported: {problem}") from error
    if cls is None:
        classes = [word for word, value in vars(module).items() if isinstance(value, type)]
        matches = get_close_matches(class_name, classes, n=1)
        hint = f" (did you mean {matches[0]!r}?)" if matches else ""
        problem = f"the module {module.__name__!r} has no {class_name!r}{hint}{_name_conflict(module_name, folder)}"
        raise UsageError(f"{title}: cannot be imported: {problem}")
    if not callable(cls):
        raise UsageError(f"{title}: is not a class, but a value of the type {type(cls).__name__}")
    return cls


def _name_conflict(module: str, folder: Path | None) -> str:
    """What to do if an installed module hides the one of the same name in the suite's folder; else nothing."""
    top = module.partition(".")[0]
    if not top or folder is None:
        return ""
    beside = next((path for path in (f"{top}.py", f"{top}/") if (folder / path).exists()), None)
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
    place = ""
    for frame, line in walk_tb(None if isinstance(error, SyntaxError) else error.__traceback__):  # whose message has it
        if (file := _user_file(str(frame.f_globals.get("__name__")), frame.f_code.co_filename)) is not None:
            place = f" ({file}:{line})"
    return type(error).__name__ + (f": {message}" if message else "") + place


def _message(error: BaseException) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    problems = (
        f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return f"{error.title}: {'; '.join(problems)}"


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
