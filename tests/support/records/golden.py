"""Golden files: text that must stay as it is. ``UPDATE_GOLDEN=1`` writes it anew, to be reviewed as a diff."""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from visioneval.version import __version__

WIDTH = 160
_UPDATES = bool(os.environ.get("UPDATE_GOLDEN"))
_NUMBER = re.compile(r"-?\d+\.\d{9,}(e-?\d+)?")
_CHANGING = (
    (r"(?m)^probed \d+ of [^\n]*\n", ""),  # outputs are probed in any order
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?", "TIME"),
    (r"\b[0-9a-f]{12,64}\b", "HASH"),
    (r"sha256-[\w+/]+=*", "sha256-HASH"),
    (r"(data:[a-z]+/[a-z+-]+;base64,)[\w+/=]+", r"\1DATA"),
    (r"(?<=<dt>took</dt><dd>)[^<]+", "TIME"),
    (r"Python 3\.\d+\.\d+\w*", "Python 3"),
    (rf"(?<![\w.]){re.escape(__version__)}(?![\w.])", "VERSION"),
    (r"(?<=<style>).*?(?=</style>)|(?<=<script>).*?(?=</script>)", " ... "),
)
"""What differs between two runs of the same code, and between two versions of it."""


def check_golden(path: Path, text: str) -> None:
    """Compares a text with a golden file, or writes it."""
    if _UPDATES:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    difference = difflib.unified_diff(expected.splitlines(), text.splitlines(), path.name, "now", lineterm="")
    assert text == expected, "\n".join([*difference, "To accept it: UPDATE_GOLDEN=1 make golden"])


def check_no_others(folder: Path, pattern: str, names: Iterable[str]) -> None:
    """Checks that no golden file is left over, or deletes it."""
    left_over = [path for path in folder.glob(pattern) if path.name not in set(names)]
    for path in left_over if _UPDATES else ():
        path.unlink()
    assert _UPDATES or not left_over


def stable(text: str, *folders: Path) -> str:
    """The text without spaces at the ends of lines, and without what changes; each of ``folders`` is a dot."""
    for folder in folders:
        text = text.replace(str(folder), ".")
    for pattern, replacement in _CHANGING:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n"


def html_lines(page: str) -> str:
    """A page with a line for each block, as a diff of one long line shows nothing.

    Its policy allows the style and the script that are in it, whose hashes a golden file does not have.
    """
    for inline in re.findall(r"<style>(.*?)</style>|<script>(.*?)</script>", page, re.DOTALL):
        digest = sha256("".join(inline).encode()).digest()
        assert f"sha256-{base64.b64encode(digest).decode()}" in page
    blocks = r"\s*(</?(?:body|main|section|article|header|table|thead|tbody|tr|ul|ol|li|dl|details|figure|h[1-6]|p|svg|script|div)\b)"
    return re.sub(r"\n\s*\n+", "\n", re.sub(blocks, r"\n\1", page))


def json_lines(data: Any, indent: str = "") -> str:
    """Data as JSON, with what fits into a line in one line. The last digits of a number depend on the processor."""
    line = _NUMBER.sub(lambda match: f"{float(match[0]):.8g}", json.dumps(data, ensure_ascii=False))
    if not isinstance(data, (dict, list)) or len(indent) + len(line) <= WIDTH:
        return line
    more = indent + " "
    if isinstance(data, dict):
        items = [f"{json.dumps(name, ensure_ascii=False)}: {json_lines(value, more)}" for name, value in data.items()]
    else:
        items = [json_lines(value, more) for value in data]
    opening, closing = "{}" if isinstance(data, dict) else "[]"
    inner = f",\n{more}".join(items)
    return f"{opening}\n{more}{inner}\n{indent}{closing}"
