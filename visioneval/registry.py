"""Classes by name, imported when they are first needed. A suite may also name ``my_package.module:Class``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from visioneval.errors import UsageError

_BESIDE: dict[str, None] = {}


def load_class(name: str, table: Mapping[str, str], folder: Path) -> Any:
    """The class that ``name`` stands for in ``table``, or the one at ``module:Class``.

    Modules of the user's own are looked for beside the suite (``folder``) too. Raises ``UsageError`` in one line.
    """
    target = table.get(name, name)
    module_name, _, class_name = target.partition(":")
    own = name not in table
    try:
        if own:
            _look_beside(folder, module_name.partition(".")[0])
        found = getattr(import_module(module_name), class_name)
    except (Exception, SystemExit) as error:
        if not own:
            raise
        raise UsageError(f"{name}: cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _look_beside(folder: Path, top: str) -> None:
    """Lets modules be found in ``folder``, after installed ones.

    A module of the same name that was loaded from another suite's folder is forgotten: each suite has its own.
    """
    here = str(folder)
    others = [path for path in _BESIDE if path != here]
    sys.path[:] = [path for path in sys.path if path not in _BESIDE] + [here, *others]
    _BESIDE.update({here: None})
    loaded = sys.modules.get(top)
    origin = str(getattr(loaded, "__file__", None) or next(iter(getattr(loaded, "__path__", [])), ""))
    is_here = (folder / f"{top}.py").is_file() or (folder / top).is_dir()
    if (
        is_here
        and any(Path(origin).is_relative_to(other) for other in others)
        and not Path(origin).is_relative_to(here)
    ):
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
