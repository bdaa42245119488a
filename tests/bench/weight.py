"""``make weight``: the megabytes that visioneval and each extra take, with all that they require, as pip leaves them.

It prints the table of docs/how_to/install.md. Not a test: the sizes differ between machines and versions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
_EXTRAS = _PROJECT.partition("\n[project.optional-dependencies]\n")[2].partition("\n[")[0]
USES: dict[str, str] = dict(re.findall(r"^(\w+) = \[.*\]  # (.+)$", _EXTRAS, re.MULTILINE))
"""What each extra is for, as the comment beside it says."""


def size(folder: Path) -> int:
    """The bytes on disk of all files."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def megabytes(environment: Path, extra: str = "") -> int:
    """What an installation with one extra, or with none, adds to a new environment without pip."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment)], check=True)
    empty = size(environment)
    requirement = f"{ROOT}[{extra}]" if extra else str(ROOT)
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(environment), requirement]
    subprocess.run(install, check=True)
    return round((size(environment) - empty) / 1_000_000)


def main() -> None:
    """Prints a row for no extra, then what each extra adds to that."""
    with tempfile.TemporaryDirectory() as folder:
        base = megabytes(Path(folder, "base"))
        print(f"| extra | for | adds |\n|---|---|---|\n| none | everything else, with OpenAI and Gemini | {base} MB |")
        for extra, use in USES.items():
            print(f"| `{extra}` | {use} | {megabytes(Path(folder, extra), extra) - base} MB |", flush=True)
            shutil.rmtree(Path(folder, extra))


if __name__ == "__main__":
    main()
