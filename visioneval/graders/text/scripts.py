"""The languages in which Tesseract reads what the models of local OCR cannot, and whether they are installed. Pure."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import which

from visioneval.graders.text.alphabet import unreadable

_RANGES = {
    "ell": ((0x370, 0x3FF), (0x1F00, 0x1FFF)),
    "rus": ((0x400, 0x52F),),
    "heb": ((0x590, 0x5FF), (0xFB1D, 0xFB4F)),
    "ara": ((0x600, 0x6FF), (0x750, 0x77F)),
    "hin": ((0x900, 0x97F),),
    "tha": ((0xE00, 0xE7F),),
    "vie": ((0x1A0, 0x1A1), (0x1AF, 0x1B0), (0x1EA0, 0x1EF9)),
    "kor": ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7A3)),
}
_UKRAINIAN = frozenset("ґєіїҐЄІЇ")
_COMMON = "eng"
"""Read besides: without it, "50%" in a line of Greek is misread."""
_WAIT_S = 60


def language(char: str) -> str | None:
    """The language in which Tesseract reads a character; ``None`` if it is in none of them."""
    if char in _UKRAINIAN:
        return "ukr"
    code = ord(char)
    for name, ranges in _RANGES.items():
        if any(first <= code <= last for first, last in ranges):
            return name
    return None


def languages(line: str) -> tuple[str, ...]:
    """The languages of a line whose characters local OCR cannot read; empty if Tesseract cannot read one of them."""
    names = {language(char) for char in unreadable(line)}
    if not names or None in names:
        return ()
    names -= {"rus"} if "ukr" in names else set()
    return (*sorted(filter(None, names)), _COMMON)


def missing(names: Iterable[str]) -> str | None:
    """What to install to read these languages, in one line; ``None`` if all is there."""
    installed = _data()
    absent = [name for name in sorted(set(names)) if name not in installed]
    packages = [*(() if which("tesseract") else ("tesseract-ocr",)), *(f"tesseract-ocr-{name}" for name in absent)]
    return f"'other_scripts: tesseract' needs Tesseract: run apt install {' '.join(packages)}" if packages else None


def tool_versions(names: Iterable[str]) -> dict[str, str]:
    """The version of Tesseract, and the first digits of the SHA-256 of the data of each language."""
    data = _data()
    hashes = {f"tesseract_{name}": sha256(data[name].read_bytes()).hexdigest()[:16] for name in sorted(set(names))}
    return {"tesseract": _output("--version").split()[1], **hashes}


@cache
def _data() -> Mapping[str, Path]:
    """The files of the installed languages; empty without Tesseract."""
    first, *names = _output("--list-langs").splitlines() or [""]
    folder = Path(first.partition('"')[2].rpartition('"')[0])
    return {name: path for name in names if (path := folder / f"{name}.traineddata").is_file()}


@cache
def _output(option: str) -> str:
    command = which("tesseract")
    if command is None:
        return ""
    done = subprocess.run(  # noqa: S603 - its own option
        [command, option], capture_output=True, text=True, encoding="utf-8", timeout=_WAIT_S, check=False
    )
    return done.stdout or done.stderr
