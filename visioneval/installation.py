"""What is installed here: extras, with the command that installs one, and the built-in suites and prompts."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distributions
from importlib.util import find_spec
from pathlib import Path

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "ocr": ("rapidocr", "onnxruntime"),
    "video": ("av",),
    "svg": ("resvg_py",),
    "codes": ("zxingcpp",),
}
"""The modules of the extras that graders need."""
_USES: Mapping[str, str] = {
    "ocr": "reading text needs RapidOCR",
    "video": "videos need an extra",
    "svg": "SVGs need an extra",
    "codes": "reading QR codes and bar codes needs an extra",
}
_USER = re.compile(r"(?<=://)(?!git@[^/@]*/)[^/?#\s]*@")
"""User and password of an address, in which ``@`` may occur. The user ``git`` is no secret, and SSH needs it."""
_QUERY = re.compile(r"[?#].*", re.DOTALL)
"""The end of an address, which may have a token."""


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
    """What to run to install an extra, with the tool and from the source that visioneval itself was installed with.

    In visioneval's action, which installs itself from a folder of the runner: the input that installs it.
    """
    if os.environ.get("GITHUB_ACTION_PATH") and (_address() or "").startswith("file:"):
        return f"add {extra} to the input 'extras' of the action"
    command, replaces = _installer()
    extras = ",".join(sorted({extra} | (_present_extras() if replaces else set())))
    address = _address()
    if address is None:
        return command.format(f"-e '.[{extras}]'") + " in a checkout of visioneval"
    if not address:
        return command.format(f"'visioneval[{extras}]'") + ", from the index or folder that visioneval came from"
    return command.format(shlex.quote(f"visioneval[{extras}] @ {address}"))


def _installer() -> tuple[str, bool]:
    """A command that installs ``{}`` where this Python is, and whether it removes extras that it does not name."""
    environment = Path(sys.prefix)
    if (environment / "uv-receipt.toml").is_file():
        return "run uv tool install {}", True
    if environment.parent.name.startswith("archive-v"):  # in uv's cache
        return "run visioneval as uvx --from {} visioneval", True
    if (environment / "pipx_metadata.json").is_file():
        if environment.parent.name == "venvs":
            return "run pipx install --force {}", True
        return "run visioneval as pipx run --spec {} visioneval", True
    return ("run pip install {}" if is_installed("pip") else "run uv pip install {}"), False


def _present_extras() -> set[str]:
    """The extras whose packages are all here. ``vertex`` is left out, as other requirements include its package."""
    present: dict[str, bool] = {}
    for requirement in Distribution.from_name("visioneval").requires or ():
        if match := re.match(r"([\w.-]+).*extra == ['\"](\w+)['\"]", requirement):
            present[match[2]] = present.get(match[2], True) and bool(list(distributions(name=match[1])))
    return {extra for extra, is_present in present.items() if is_present} - {"vertex"}


def git_address() -> str | None:
    """The Git address that visioneval was installed from, with its commit, or ``None``. No secrets."""
    address = _address() or ""
    return address if address.startswith("git+") else None


def _address() -> str | None:
    """Where visioneval was installed from, without secrets: "" if unknown, as for an index, ``None`` for a checkout.

    Installers record it, with the commit of a Git repository and the folder in it (PEP 610).
    """
    try:
        text = Distribution.from_name("visioneval").read_text("direct_url.json")
        if text is None:
            return ""
        origin = json.loads(text)
        url = _QUERY.sub("", _USER.sub("", origin["url"]))
        folder = f"#subdirectory={origin['subdirectory']}" if origin.get("subdirectory") else ""
        if "vcs_info" in origin:
            return f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}{folder}"
        return None if origin.get("dir_info", {}).get("editable") else f"{url}{folder}"
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
