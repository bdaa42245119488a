"""SVGs as pixels: drawn by resvg, without anything outside of the file, in a process that has limits.

resvg draws local files that an SVG names, and any size that it declares. So an SVG is read first: what refers to
something outside, and what a still drawing does not show, is refused, and the size is bounded before it is drawn. So is
what resvg leaves out without a word: CSS that it does not know, and images that it cannot decode.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from unicodedata import category
from urllib.parse import unquote_to_bytes
from xml.parsers import expat

from visioneval.bounds import MEGAPIXELS, max_pixels
from visioneval.errors import ImageError, ImageLimitError, MissingExtraError
from visioneval.installation import has_extra, needs

MAX_SVG_BYTES = 10_000_000
MAX_ELEMENTS = 100_000
MAX_DEPTH = 100
_SECONDS = 30
_MEMORY = 3 << 30
_START = re.compile(
    rb"(?:\xef\xbb\xbf)?(?>\s+|<\?(?>.*?\?>)|<!--(?>.*?-->)|<!DOCTYPE[^\[>]*(?:\[(?>.*?\]\s*>)|>))*(?:<[\w.-]+:|<)svg[\s/>]",
    re.IGNORECASE | re.DOTALL,
)
"""Whatever may precede the first element, and its name."""
_UNITS = {"": 1, "px": 1, "pt": 4 / 3, "pc": 16, "in": 96, "cm": 96 / 2.54, "mm": 96 / 25.4}
_LENGTH = re.compile(r"\s*\+?(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)\s*(px|pt|pc|in|cm|mm)?\s*", re.IGNORECASE)
_INSIDE = re.compile(r"\s*(#|data:image/(png|jpe?g|gif|webp)[;,])", re.IGNORECASE)
_URL = re.compile(r"url\(\s*[\"']?(?!\s*[\"']?(?:#|data:))([^)]*)", re.IGNORECASE)
_IN_NO_FONT = "\U0010fffd"
"""The last character for private use."""
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
    drawn = resvg_py.svg_to_bytes(svg_string=start + text + end, serif_family=family)  # else in a font that it finds
    return drawn != resvg_py.svg_to_bytes(svg_string=start + end)

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
    if isinstance(source, bytes):
        return _START.match(source, 0, MAX_SVG_BYTES) is not None
    with source.open("rb") as file:
        start = file.read(64)
        is_markup = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"<", b"")
        return is_markup and is_svg(start + file.read(MAX_SVG_BYTES))


@lru_cache(maxsize=8)
def checked_raster(data: bytes) -> bytes:
    """``raster``, once the machine has a font for each character of the text. Raises ``ImageError``."""
    drawn = raster(data)
    # What text shows, and not every font has.
    characters = sorted(
        character
        for character in _read(data).characters
        if ord(character) > 0x7E and (category(character)[0] not in "ZCM" or category(character) == "Co")
    )
    if characters and (missing := _missing(characters)):
        raise MissingExtraError(
            f"the SVG cannot be drawn: no font of this machine has {', '.join(missing[:5])}: install one, such as Noto"
        )
    return drawn


def _missing(characters: Sequence[str]) -> list[str]:
    """The characters that are drawn like one that no font has: as a box."""
    from PIL import Image

    places = [(number % 50 * 60, number // 50 * 40) for number in range(len(characters) + 1)]
    texts = (
        f'<text x="{left + 20}" y="{top + 30}" font-size="20">&#{ord(character)};</text>'
        for (left, top), character in zip(places, (_IN_NO_FONT, *characters), strict=True)
    )
    size = f'width="3000" height="{places[-1][1] + 40}"'
    drawn = raster(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(texts)}</svg>'.encode())
    with Image.open(io.BytesIO(drawn)) as sheet:
        box, *glyphs = (sheet.crop((left, top, left + 60, top + 40)).tobytes() for left, top in places)
    return [character for character, glyph in zip(characters, glyphs, strict=True) if glyph == box]


@lru_cache(maxsize=8)
def raster(data: bytes) -> bytes:
    """An SVG as a PNG of its own size. Raises ``ImageError``, ``MissingExtraError`` without the extra ``svg``."""
    spec = find_spec("resvg_py") if has_extra("svg") else None
    if spec is None or spec.origin is None:
        raise MissingExtraError(needs("svg"))
    drawing = _read(data)
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
    declared: tuple[float, float] = (0, 0)
    elements: int = 0
    path: list[str] = field(default_factory=list)
    has_text: bool = False
    characters: set[str] = field(default_factory=set)
    sheet: list[str] = field(default_factory=list)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in whole pixels."""
        width, height = self.declared
        return max(1, round(width)), max(1, round(height))

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
            self.declared = _size(attributes)
        self.has_text = self.has_text or kind == "text"
        for key, value in attributes.items():
            if _local(key) == "href" and kind != "a" and value.strip():
                if not (inside := _INSIDE.match(value)):
                    raise _outside(value)
                if inside[2]:
                    check_embedded(value)
            elif _local(key) in CSS_ATTRIBUTES:
                _check_style(value)

    def end(self, _name: str) -> None:
        """Checks a style sheet, which is complete here."""
        if self.path.pop() == "style":
            _check_style("".join(self.sheet))
            self.sheet.clear()

    def content(self, text: str) -> None:
        """Collects style sheets and the characters of text."""
        if self.path[-1:] == ["style"]:
            self.sheet.append(text)
        elif "text" in self.path:
            self.characters.update(text)


def _check_style(text: str) -> None:
    """Checks a style sheet, or the value of an attribute in CSS."""
    lowered = text.lower()
    if (found := _URL.search(text)) is not None:
        raise _outside(found[1])
    if "@import" in lowered:
        raise _outside("@import")
    if "@keyframes" in lowered:
        raise ImageError("the SVG has an animation")
    check_css(text)


def _read(data: bytes) -> _Drawing:
    """Checks an SVG without drawing it. Raises ``ImageError``."""
    if len(data) > MAX_SVG_BYTES:
        raise ImageError(f"the SVG has {len(data):,} bytes, over the limit of {MAX_SVG_BYTES:,}")
    try:
        drawing = _Drawing(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ImageError("the SVG is not UTF-8") from None
    encoded, begin = drawing.text.encode(), -1
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal begin
        begin = parser.CurrentByteIndex if begin < 0 else begin
        drawing.start(name, attributes)

    def check_doctype(_name: str, _system: str | None, _public: str | None, has_internal_subset: int) -> None:
        if has_internal_subset:
            raise ImageError("the SVG declares entities in its DOCTYPE")

    def check_instruction(target: str, content: str) -> None:
        if target.lower() == "xml-stylesheet":
            raise _outside(content)

    parser.StartElementHandler = start
    parser.EndElementHandler = drawing.end
    parser.CharacterDataHandler = drawing.content
    parser.StartDoctypeDeclHandler = check_doctype
    parser.ProcessingInstructionHandler = check_instruction
    try:
        parser.Parse(encoded, True)
    except expat.ExpatError as error:
        raise ImageError(f"the SVG is not valid XML: {error}") from None
    if drawing.size != drawing.declared:  # else its edge is a part of a pixel, which is partly transparent
        (width, height), box = drawing.size, " ".join(map(str, drawing.declared))
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {box}"'
        drawing.text = f'{head} preserveAspectRatio="none">{encoded[begin:].decode()}</svg>'
    return drawing


def _outside(what: str) -> ImageError:
    what = " ".join(what.split())
    return ImageError(f"the SVG refers to something outside of it ({what:.60}): embed it as data:image/png")


def _size(attributes: dict[str, str]) -> tuple[float, float]:
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
    return width, height


def _length(text: str | None) -> float | None:
    """A length in pixels; ``None`` for none and for shares of the page."""
    match = _LENGTH.fullmatch(text or "")
    return None if match is None else float(match[1]) * _UNITS[(match[2] or "").lower()]


def _local(name: str) -> str:
    return name.rpartition(":")[2].lower()


CSS_ATTRIBUTES = frozenset((
    "style", "fill", "stroke", "stop-color", "flood-color", "lighting-color", "color", "filter", "clip-path",
    "mask", "marker", "marker-start", "marker-mid", "marker-end", "cursor", "opacity", "fill-opacity",
    "stroke-opacity", "stop-opacity", "stroke-width", "stroke-dasharray", "font-size", "x", "y", "width", "height",
    "r", "cx", "cy", "rx", "ry", "dx", "dy",
))  # fmt: skip
"""Attributes whose values are CSS."""
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"(?<![\w-])(-?[a-z][a-z-]*)\(([^()]*)", re.IGNORECASE)
_COLORS = ("rgb", "rgba", "hsl", "hsla")
_FUNCTIONS = frozenset((
    "url", "media", "matrix", "translate", "translatex", "translatey", "scale", "scalex", "scaley", "rotate",
    "skewx", "skewy", "blur", "brightness", "contrast", "drop-shadow", "grayscale", "hue-rotate", "invert",
    "opacity", "saturate", "sepia",
))  # fmt: skip
"""The functions that resvg knows, besides those of colors, and what may precede a parenthesis."""
_PLAIN_COLOR = re.compile(r"[\s\d.,%+-]*")
_UNKNOWN_RULES = re.compile(
    r"@(?:font-face|supports|layer|container|scope|media(?!\s*(?:print|\(\s*(?:prefers-color-scheme\s*:\s*dark|"
    r"prefers-reduced-motion|prefers-contrast|forced-colors))))\b|:root\b|:last-child\b|:(?:first|last|only)-of-type\b|"
    r"(?:^|[{;])\s*(?:r|cx|cy|rx|ry|x|y|rotate|scale|translate)\s*:|"
    r"(?:^|[{;])\s*background(?:-color|-image)?\s*:(?!\s*(?:none|transparent))|"
    r"(?:^|[{;\s])transform\s*:[^;}]{0,200}\d(?:px|deg|rad|turn|%|r?em)",
    re.IGNORECASE,
)
"""Rules for screens, selectors and properties that a browser applies and resvg does not."""

_FORMATS = ["PNG", "JPEG", "GIF", "WEBP"]


def check_css(text: str) -> None:
    """Raises ``ImageError`` for style rules, or the value of an attribute, that resvg does not know."""
    text = _COMMENT.sub(" ", text)
    unknown = None if (rule := _UNKNOWN_RULES.search(text)) is None else rule[0].strip("{; \t\r\n")
    for name, value in _FUNCTION.findall(text):
        is_color = name.lower() in _COLORS
        if (is_color and not _PLAIN_COLOR.fullmatch(value)) or not (is_color or name.lower() in _FUNCTIONS):
            unknown = unknown or f"{name}({value})"
    if unknown:
        shown = " ".join(unknown.split())
        raise ImageError(f"the SVG has CSS that is not drawn ({shown:.40}): write plain SVG attributes")


def check_embedded(address: str) -> None:
    """Raises ``ImageError`` for an image as ``data:`` that is damaged, too large, or of another type than it says."""
    head, _, content = address.strip().partition(",")
    declared = head.partition("/")[2].partition(";")[0].lower()
    try:
        kind, mode = _decoded(unquote_to_bytes(content), is_base64=";base64" in head.lower())
    except Exception:  # decoders may raise anything for a hostile file
        raise ImageError(
            f"the SVG has an embedded image ({head:.40}) that is damaged, or over the limit of {MEGAPIXELS.limit:,}"
            f" million pixels ({MEGAPIXELS.hint})"
        ) from None
    if declared.replace("jpg", "jpeg") != kind:
        raise ImageError(f"the SVG has an embedded image that is no {declared}: write data:image/{kind}")
    if mode == "CMYK":
        raise ImageError("the SVG has an embedded image in CMYK, whose colors are not drawn right: embed it as RGB")


def _decoded(data: bytes, *, is_base64: bool) -> tuple[str, str]:
    """The type and the mode of an image that decodes. Raises anything."""
    from PIL import Image

    data = base64.b64decode(data + b"==") if is_base64 else data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about sizes, which are checked here
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            image.verify()  # the checksums of a PNG, which decoding ignores
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            if image.width * image.height > max_pixels():
                raise ValueError
            image.load()
            return (image.format or "").lower(), image.mode
