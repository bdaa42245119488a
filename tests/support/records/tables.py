"""Tables of tests: the values and the expected outcomes of a test's rows, in a YAML file beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml


def rows_of(file: str) -> Callable[[str], list[Any]]:
    """The rows of each test of ``file``, by its name, from the file of that name that ends in ``.yaml``."""
    tables: dict[str, list[Any]] = yaml.load(
        Path(file).with_suffix(".yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
    )
    return tables.__getitem__
