"""What resvg leaves out of an SVG without a word: CSS that it does not know, and images that it cannot decode."""

from __future__ import annotations

import base64
import io
import re
import warnings
from urllib.parse import unquote_to_bytes

from visioneval.bounds import MEGAPIXELS, max_pixels
from visioneval.errors import ImageError

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
