"""Where the suites that come with the program are: at the top of a checkout, or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path


def builtin(kind: str) -> Path:
    """The folder of built-in ``suites`` (or another kind that is shipped)."""
    package = Path(__file__).parent
    shipped = package / "_builtin" / kind
    return shipped if shipped.is_dir() else package.parent / kind
