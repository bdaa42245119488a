"""The files that pages are made of: templates, one style, one script, and the policy that holds them.

Everything in a template is escaped. The policy lets nothing run but our own script, loads nothing from anywhere but
the page's own folder, and forbids the ways in which text becomes markup.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from visioneval.report.terminal.summary import show_usd
from visioneval.report.text import clean

FOLDER = Path(__file__).parent / "page"
SCRIPTS = {
    "report": (
        "dom.js",
        "data.js",
        "filters.js",
        "gallery.js",
        "grid.js",
        "stage.js",
        "details.js",
        "cell.js",
        "report.js",
    ),
    "compare": ("dom.js", "stage.js", "compare.js"),
}


def render(template: str, **values: Any) -> str:
    """A page from a template of ours. What a value holds is text, whatever it looks like."""
    return _environment().get_template(template).render(**values)


@cache
def script(page: str) -> str:
    """The whole script of a page."""
    parts = [(FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS[page]]
    return '"use strict";\n' + "\n".join(parts)


@cache
def style() -> str:
    """The style of all pages."""
    return (FOLDER / "page.css").read_text(encoding="utf-8")


def policy(own_script: str = "", own_style: str = "") -> str:
    """The Content-Security-Policy of a page that holds this script and style itself, or else has them beside it."""
    scripts = _hash(own_script) if own_script else "'self' file:"
    styles = _hash(own_style) if own_style else "'self' file:"
    images = "data:" if own_script else "'self' file: data:"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            f"style-src {styles}",
            f"img-src {images}",
            f"media-src {images}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types visioneval",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["soft"] = soft
    made.filters["usd"] = usd
    return made


def _clean(value: Any) -> Any:
    """Text without control characters and overrides of its direction; our own markup is that of ``soft``, clean too."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def usd(amount: float, unknown: int) -> str:
    """An amount as in a terminal, with the sign that a page can show."""
    return show_usd(amount, unknown).replace(">=", "\u2265")


def soft(text: object) -> Markup:
    """Text, escaped, that may be broken after the signs that part the words of labels and ids."""
    words = re.split(r"(?<=[,_/])", clean(str(text)))
    return Markup("<wbr>").join(words)
