"""Classes by name, imported when they are first needed. A suite may also name ``my_package.module:Class``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from visioneval.errors import UsageError


def load_class(name: str, table: Mapping[str, str], folder: Path) -> Any:
    """The class that ``name`` stands for in ``table``, or the one at ``module:Class``.

    Modules of the user's own are looked for beside the suite (``folder``) too. Raises ``UsageError`` in one line.
    """
    target = table.get(name, name)
    module_name, _, class_name = target.partition(":")
    own = name not in table
    if own and str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        found = getattr(import_module(module_name), class_name)
    except Exception as error:
        if not own:
            raise
        raise UsageError(f"{name}: cannot be imported: {type(error).__name__}: {error}") from error
    return found
