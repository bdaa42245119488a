"""The location of built-in suites and prompts: at the top of a checkout, or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path


def builtin(kind: str) -> Path:
    """The folder of built-in files of a kind, such as ``suites`` or ``prompts``."""
    package = Path(__file__).parent
    shipped = package / "_builtin" / kind
    return shipped if shipped.is_dir() else package.parent / kind


def suite_folders() -> dict[str, Path]:
    """The folder of each built-in suite, by name, in alphabetical order."""
    return {path.parent.name: path.parent for path in sorted(builtin("suites").glob("*/suite.yaml"))}
