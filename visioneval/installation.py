"""What is installed here: extras, with the command that installs one, and the built-in suites and prompts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

PACKAGES: Mapping[str, tuple[str, ...]] = {"ocr": ("rapidocr", "onnxruntime"), "video": ("av",), "svg": ("resvg_py",)}
"""The modules of the extras that graders need."""
_USES: Mapping[str, str] = {
    "ocr": "reading text needs RapidOCR",
    "video": "videos need an extra",
    "svg": "SVGs need an extra",
}
_USER = re.compile(r"(?<=://)(?!git@[^/@]*/)[^/?#\s]*@")
"""User and password of an address, in which ``@`` may occur. The user ``git`` is no secret, and SSH needs it."""


def is_installed(module: str) -> bool:
    """Whether a module is installed. A folder of its name, as W&B leaves one behind, is none."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # not even its parent package
        return False
    return spec is not None and spec.origin is not None


def has_extra(extra: str) -> bool:
    """Whether everything in an extra of ``PACKAGES`` is installed."""
    return all(map(is_installed, PACKAGES[extra]))


def needs(extra: str) -> str:
    """The message about a missing extra of ``PACKAGES``: what needs it, and what to do."""
    return f"{_USES[extra]}: {install_command(extra)}"


@cache
def install_command(extra: str) -> str:
    """What to run to install an extra: from the Git address that visioneval was installed from, or in a checkout."""
    if (address := git_address()) is None:
        return f"run pip install '.[{extra}]' in a checkout of visioneval"
    requirement = shlex.quote(f"visioneval[{extra}] @ {address}")
    return f"run pip install {requirement}"


def git_address() -> str | None:
    """The Git address that visioneval was installed from, with its commit, but without user and password.

    ``None`` if there is none. Installers record it (PEP 610).
    """
    try:
        text = Distribution.from_name("visioneval").read_text("direct_url.json")
        origin = json.loads(text or "{}")
        source = origin.get("vcs_info", {})
        if source.get("vcs") != "git":
            return None
        return f"git+{_USER.sub('', origin['url'])}@{source['commit_id']}"
    except (PackageNotFoundError, OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def builtin(kind: str) -> Path:
    """The folder of built-in files of a kind, such as ``suites`` or ``prompts``."""
    package = Path(__file__).parent
    shipped = package / "_builtin" / kind
    return shipped if shipped.is_dir() else package.parent / kind


def suite_folders() -> dict[str, Path]:
    """The folder of each built-in suite, by name, in alphabetical order."""
    return {path.parent.name: path.parent for path in sorted(builtin("suites").glob("*/suite.yaml"))}
