"""The notes of a release, from its section in CHANGELOG.md: ``python tests/release_notes.py v1.2.3``.

Fails where the tag is not the version in pyproject.toml, or the section is missing or empty.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(tag: str, root: Path = ROOT) -> str:
    """The section of the tag's version, with links that also work on the release's page. Raises ``SystemExit``."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag != f"v{version}":
        raise SystemExit(
            f"tag {tag}: pyproject.toml has version {version}: tag it as v{version}, or change the version"
        )
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise SystemExit(f"CHANGELOG.md: nothing under '## {version}': write what a user notices in this version")
    address = f"https://github.com/{os.environ.get('GITHUB_REPOSITORY', 'OWNER/visioneval')}/blob/{tag}/"
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({address}", section[1].strip()) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python tests/release_notes.py TAG")
    sys.stdout.write(notes(sys.argv[1]))
