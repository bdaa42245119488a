"""SVGs as pixels: drawn by resvg, without anything outside of the file, in a process that has limits.

resvg draws local files that an SVG names, and any size that it declares. So an SVG is read first: what refers to
something outside, and what a still drawing does not show, is refused, and the size is bounded before it is drawn.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from xml.parsers import expat

from visioneval.aio import check_may_wait
from visioneval.bounds import MEGAPIXELS, max_pixels
from visioneval.errors import ImageError, ImageLimitError, MissingExtraError
from visioneval.extras import has_extra, needs

MAX_SVG_BYTES = 10_000_000
MAX_ELEMENTS = 100_000
MAX_DEPTH = 100
_SECONDS = 30
_MEMORY = 3 << 30
_START = 4096
"""Bytes in which the first element is expected, after the XML declaration and comments."""
_UNITS = {"": 1, "px": 1, "pt": 4 / 3, "pc": 16, "in": 96, "cm": 96 / 2.54, "mm": 96 / 25.4}
_LENGTH = re.compile(r"\s*\+?(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)\s*(px|pt|pc|in|cm|mm)?\s*", re.IGNORECASE)
_INSIDE = re.compile(r"\s*(#|data:image/(png|jpe?g|gif|webp)[;,])", re.IGNORECASE)
_URL = re.compile(r"url\(\s*[\"']?(?!\s*[\"']?(?:#|data:))([^)]*)", re.IGNORECASE)
_FONTS = {
    "serif_family": ("Times New Roman", "Liberation Serif", "DejaVu Serif", "Noto Serif", "FreeSerif", "Times"),
    "sans_serif_family": ("Arial", "Liberation Sans", "DejaVu Sans", "Noto Sans", "FreeSans", "Helvetica", "Roboto"),
    "monospace_family": ("Courier New", "Liberation Mono", "DejaVu Sans Mono", "Noto Sans Mono", "FreeMono", "Courier"),
}
"""The fonts of the generic families, by resvg's options: the first that the machine has. Text in a font that it lacks
is drawn in the serif one; without that, resvg leaves the text out."""
_REFUSED = {
    "script": "a script",
    "foreignobject": "<foreignObject>, which is not drawn",
    **dict.fromkeys(("animate", "animatetransform", "animatemotion", "animatecolor", "set"), "an animation"),
}
_NO_FONT = 3
_DRAW = """
import json, sys
seconds, memory, width, height, fonts, no_font, packages = json.loads(sys.argv[1])
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
except (ImportError, ValueError, OSError):
    pass
sys.path.append(packages)
import resvg_py
svg = sys.stdin.buffer.read().decode("utf-8")

def draws(family):
    start, end = '<svg xmlns="http://www.w3.org/2000/svg" width="30" height="30">', "</svg>"
    text = f'<text y="20" font-size="20" font-family="{family}">x</text>'
    return resvg_py.svg_to_bytes(svg_string=start + text + end) != resvg_py.svg_to_bytes(svg_string=start + end)

found = {kind: next(filter(draws, families), None) for kind, families in fonts.items()}
known = next(filter(None, found.values()), None)
if fonts and not known:
    sys.exit(no_font)
families = {kind: family or known for kind, family in found.items()}
sys.stdout.buffer.write(resvg_py.svg_to_bytes(svg_string=svg, width=width, height=height, dpi=96, **families))
"""
"""Draws standard input in a process of its own: a drawing cannot be stopped otherwise, and may end the process."""


def is_svg(source: Path | bytes) -> bool:
    """Whether the beginning of a file looks like an SVG."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            start = file.read(_START)
    else:
        start = source[:_START]
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return text.startswith(b"<") and b"<svg" in text and b"<html" not in text


@lru_cache(maxsize=8)
def raster(data: bytes) -> bytes:
    """An SVG as a PNG of its own size. Raises ``ImageError``, ``MissingExtraError`` without the extra ``svg``."""
    spec = find_spec("resvg_py") if has_extra("svg") else None
    if spec is None or spec.origin is None:
        raise MissingExtraError(needs("svg"))
    drawing = _read(data)
    check_may_wait()
    width, height = drawing.size
    packages = str(Path(spec.origin).absolute().parents[1])  # -I leaves out the user's own packages
    fonts = _FONTS if drawing.has_text else {}
    arguments = json.dumps([_SECONDS, _MEMORY, width, height, fonts, _NO_FONT, packages])
    environment = {name: value for name in ("PATH", "SYSTEMROOT", "HOME") if (value := os.environ.get(name))}
    try:
        with tempfile.TemporaryDirectory(prefix="visioneval-svg-") as folder:
            drawn = subprocess.run(  # noqa: S603 - Python itself, without a shell
                [sys.executable, "-I", "-c", _DRAW, arguments],  # no module from the working directory
                input=drawing.text.encode(),
                capture_output=True,
                timeout=2 * _SECONDS,
                env=environment,
                cwd=folder,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise ImageLimitError(f"the SVG cannot be drawn: it takes more than {2 * _SECONDS} seconds") from None
    if drawn.returncode == _NO_FONT:
        raise MissingExtraError(
            "the SVG cannot be drawn: it has text, and this machine has none of the usual fonts: install some, such as"
            " DejaVu"
        )
    if drawn.returncode or not drawn.stdout:
        lines = drawn.stderr.decode(errors="replace").strip().splitlines() if drawn.returncode == 1 else []
        if not lines:
            raise ImageLimitError("the SVG cannot be drawn: it needs too much memory or time")
        raise ImageError(f"the SVG cannot be drawn: {lines[-1].removeprefix('ValueError: '):.200}")
    return drawn.stdout


@dataclass(slots=True)
class _Drawing:
    """What reading an SVG collects."""

    text: str
    size: tuple[int, int] = (0, 0)
    elements: int = 0
    path: list[str] = field(default_factory=list)
    has_text: bool = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Checks an element, whose name and attributes may have a prefix."""
        kind = _local(name)
        self.elements += 1
        self.path.append(kind)
        if self.elements > MAX_ELEMENTS or len(self.path) > MAX_DEPTH:
            raise ImageError(f"the SVG has more than {MAX_ELEMENTS:,} elements, or {MAX_DEPTH} levels of them")
        if kind in _REFUSED:
            raise ImageError(f"the SVG has {_REFUSED[kind]}")
        if self.elements == 1:
            if kind != "svg":
                raise ImageError(f"the SVG begins with <{name:.40}>")
            self.size = _size(attributes)
        self.has_text = self.has_text or kind == "text"
        for key, value in attributes.items():
            if _local(key) == "href" and kind != "a" and value.strip() and not _INSIDE.match(value):
                raise _outside(value)
            self.style(value)

    def style(self, text: str) -> None:
        """Checks style rules, and the value of any attribute."""
        lowered = text.lower()
        if (found := _URL.search(text)) is not None:
            raise _outside(found[1])
        if "@import" in lowered:
            raise _outside("@import")
        if "@keyframes" in lowered:
            raise ImageError("the SVG has an animation")


def _read(data: bytes) -> _Drawing:
    """Checks an SVG without drawing it. Raises ``ImageError``."""
    if len(data) > MAX_SVG_BYTES:
        raise ImageError(f"the SVG has {len(data):,} bytes, over the limit of {MAX_SVG_BYTES:,}")
    try:
        drawing = _Drawing(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ImageError("the SVG is not UTF-8") from None
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = drawing.start
    parser.EndElementHandler = lambda _name: drawing.path.pop() and None
    parser.CharacterDataHandler = lambda text: drawing.style(text) if drawing.path[-1:] == ["style"] else None
    parser.StartDoctypeDeclHandler = _check_doctype
    parser.ProcessingInstructionHandler = _check_instruction
    try:
        parser.Parse(drawing.text.encode(), True)
    except expat.ExpatError as error:
        raise ImageError(f"the SVG is not valid XML: {error}") from None
    return drawing


def _check_doctype(_name: str, _system: str | None, _public: str | None, has_internal_subset: int) -> None:
    if has_internal_subset:
        raise ImageError("the SVG declares entities in its DOCTYPE")


def _check_instruction(target: str, data: str) -> None:
    if target.lower() == "xml-stylesheet":
        raise _outside(data)


def _outside(what: str) -> ImageError:
    what = " ".join(what.split())
    return ImageError(f"the SVG refers to something outside of it ({what:.60}): embed it as data:image/png")


def _size(attributes: dict[str, str]) -> tuple[int, int]:
    """Width and height in pixels, as browsers show it by itself: an image that needs a size has one."""
    box = [_length(part) for part in attributes.get("viewBox", "").replace(",", " ").split()[2:]]
    view = (box[0], box[1]) if len(box) == 2 and box[0] and box[1] else None
    width, height = (_length(attributes.get(name)) for name in ("width", "height"))
    if view is not None:
        width, height = (
            width if width is not None else view[0] if height is None else height * view[0] / view[1],
            height if height is not None else view[1] if width is None else width * view[1] / view[0],
        )
    if not width or not height:
        raise ImageError("the SVG has no size: it needs a viewBox, or a width and a height in pixels")
    if not width * height <= max_pixels():
        raise ImageLimitError(
            f"the SVG declares {width:.6g} x {height:.6g} pixels, over the limit of {MEGAPIXELS.limit:,} million"
            f" ({MEGAPIXELS.hint})"
        )
    return max(1, round(width)), max(1, round(height))


def _length(text: str | None) -> float | None:
    """A length in pixels; ``None`` for none and for shares of the page."""
    match = _LENGTH.fullmatch(text or "")
    return None if match is None else float(match[1]) * _UNITS[(match[2] or "").lower()]


def _local(name: str) -> str:
    return name.rpartition(":")[2].lower()
