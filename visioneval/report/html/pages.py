"""Templates, style, scripts, plots and the Content-Security-Policy of pages.

Templates escape all values. The policy runs only our script, loads only files from the page's folder, and blocks
APIs that turn text into markup.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from visioneval.analysis.summary.counts import VerdictCounts
from visioneval.report.sections import Interval, Report
from visioneval.report.text import clean, show_usd

FOLDER = Path(__file__).parent / "page"
THEME = "theme.css"
STYLES = (THEME, "page.css", "gallery.css", "cell.css", "compare.css", "narrow.css")
SCRIPTS = {
    "report": (
        *("dom.js", "data.js", "filters.js", "sorting.js", "gallery.js", "grid.js"),
        *("playback.js", "zoom.js", "stage.js", "details.js", "cell.js", "report.js"),
    ),
    "compare": ("dom.js", "zoom.js", "stage.js", "cases.js", "compare.js"),
}
BINS = 16
WIDTH, HEIGHT = 200.0, 18.0
PAD = 6.0


@dataclass(frozen=True, slots=True)
class PageFrame:
    """What surrounds a page that is one of several: links as text and address, and what keeps it up to date."""

    links: tuple[tuple[str, str], ...]
    notice: str = ""
    """The state of a run in progress."""
    script: str = ""
    """The address of a script that asks the server for changes; empty for a static page."""
    version: str = ""


def render(template: str, folder: Path = FOLDER, /, **values: Any) -> str:
    """Renders a page template of a folder, or one of this package's. All values are escaped."""
    return _environment(folder).get_template(template).render(**values)


def sections_page(report: Report, frame: PageFrame | None = None) -> str:
    """A report that consists of sections alone, as one file without scripts or network access."""
    own_policy = policy(inline_style=style(), has_script=False)
    return render("results.html.j2", policy=own_policy, style=style(), report=report, frame=frame)


@cache
def script(page: str) -> str:
    """The complete script of a page."""
    parts = [(FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS[page]]
    return '"use strict";\n' + "\n".join(parts)


@cache
def theme() -> str:
    """The named colors and sizes of all pages, for a page with a style of its own."""
    return (FOLDER / THEME).read_text(encoding="utf-8")


@cache
def style() -> str:
    """The style of all pages."""
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in STYLES)


def policy(inline_script: str = "", inline_style: str = "", *, is_live: bool = False, has_script: bool = True) -> str:
    """The Content-Security-Policy of a page with this inline script and style, or with both as files.

    A live page may ask its server what is new.
    """
    scripts = _hash(inline_script) if inline_script else "'self' file:" if has_script else "'none'"
    styles = _hash(inline_style) if inline_style else "'self' file:"
    images = "data:" if inline_script else "'self' file: data:"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            f"style-src {styles}",
            f"img-src {images}",
            f"media-src {images}",
            *(["connect-src 'self'"] if is_live else []),
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types visioneval",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment(folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, FOLDER]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"soft": soft, "usd": usd, "coordinates": coordinates}
    return environment


def _clean(value: Any) -> Any:
    """Removes control characters from text. ``Markup`` comes from ``soft``, which cleans it."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def usd(amount: float, unknown: int) -> str:
    """An amount as in the terminal, with a proper greater-or-equal sign."""
    return show_usd(amount, unknown).replace(">=", "\u2265")


def soft(text: object) -> Markup:
    """Escaped text with line break opportunities after the separators in labels and ids."""
    parts = re.split(r"(?<=[,_/])", clean(str(text)))
    return Markup("<wbr>").join(parts)


def coordinates(plot: Interval) -> dict[str, Any]:
    """The positions of the ends, the value and the marks of an interval, and the size of its plot."""
    first, last = plot.ends
    low, value, high, *marks = (
        None if number is None else round(PAD + (number - first) / (last - first) * (WIDTH - 2 * PAD), 1)
        for number in (plot.low, plot.value, plot.high, *plot.marks)
    )
    return {"low": low, "value": value, "high": high, "marks": marks, "width": WIDTH, "height": HEIGHT}


def histogram(values: Sequence[float], low: float, high: float, bins: int = BINS) -> tuple[float, ...]:
    """The heights of ``bins`` equal bins over ``low``..``high``, the tallest is 1: compare shapes, not heights."""
    counts = [0] * bins
    span = (high - low) or 1.0
    for value in values:
        counts[min(bins - 1, max(0, int((value - low) / span * bins)))] += 1
    return tuple(round(number / max(counts), 3) for number in counts)


def verdict_bar(counts: VerdictCounts, cells: int) -> list[tuple[str, float, float]]:
    """The parts of a bar, each with its verdict, start and width, of 600. Of ``cells``, a run may lack some."""
    bar: list[tuple[str, float, float]] = []
    start = 0.0
    for name, number in (("pass", counts.passed), ("fail", counts.failed), ("error", counts.errors)):
        width = 600 * number / cells if cells else 0.0
        if number:
            bar.append((name, round(start, 2), round(width, 2)))
        start += width
    return bar
