"""Classes by name, imported when they are first needed. A suite may also name ``my_package.module:Class``."""

from __future__ import annotations

import os
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
            _look_beside(folder)
        found = getattr(import_module(module_name), class_name)
    except (Exception, SystemExit) as error:
        if not own:
            raise
        raise UsageError(f"{name}: cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _look_beside(folder: Path) -> None:
    """Lets modules be found in ``folder``, after installed ones.

    Modules that were loaded from another suite's folder, and are here too, are forgotten: each suite has its own, and
    its own of what that imports.
    """
    here = str(folder)
    others = [path for path in _BESIDE if path != here]
    sys.path[:] = [path for path in sys.path if path not in _BESIDE] + [here, *others]
    _BESIDE.update({here: None})
    theirs = tuple(f"{other}{os.sep}" for other in others)
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        origin = str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), ""))
        if (
            origin.startswith(theirs)
            and not origin.startswith(f"{here}{os.sep}")
            and "site-packages" not in Path(origin).parts
            and ((folder / f"{top}.py").is_file() or (folder / top).is_dir())
        ):
            del sys.modules[name]
