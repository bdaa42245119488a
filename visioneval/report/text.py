"""Makes text from models, suites and datasets safe to print."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from rich.text import Text

from visioneval.analysis.sides import Rerouting
from visioneval.analysis.stats.basic import Statistic
from visioneval.analysis.summary.judges import PanelFinding
from visioneval.errors import count_of

_ALLOWED = {"\n", "\t", "\u200c", "\u200d"}  # the two joiners shape letters and emoji and do not move the cursor
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """Replaces control characters: escape sequences, direction overrides and cursor movement."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in _ALLOWED or unicodedata.category(c) not in _UNSAFE else _REPLACEMENT for c in text)


def one_line(text: str, limit: int = 300) -> str:
    """Clean text on one line, truncated to ``limit`` characters."""
    flat = " ".join(clean(" ".join(text.split())).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."


def cut_middle(text: str, limit: int) -> str:
    """Clean text on one line. A longer one keeps its beginning and its end, where a reason has its conclusion."""
    flat = one_line(text, len(text))
    if len(flat) <= limit:
        return flat
    tail = limit // 2 - 2
    head = limit - tail - 5
    begins, ends = flat[:head].rpartition(" ")[0] or flat[:head], flat[-tail:].partition(" ")[2] or flat[-tail:]
    return f"{begins} ... {ends}"


def plain(text: str, style: str = "") -> Text:
    """Clean text for Rich, without markup."""
    return Text(clean(text), style=style)


def rerouting_lines(reroutings: Iterable[Rerouting]) -> Iterator[str]:
    """Which model answered instead of which, and whom: a line for each pair of models."""
    cells_by_models: dict[tuple[str, str], list[str]] = {}
    for entry in reroutings:
        in_cells = f"{entry.grader} in {count_of(entry.cells, 'cell')}"
        cells_by_models.setdefault((entry.asked, entry.answered), []).append(in_cells)
    for (asked, answered), cells in cells_by_models.items():
        yield f"asked the model {asked!r}, but {answered!r} answered: {', '.join(cells)}"


def alpha_text(alpha: Statistic) -> str:
    """Krippendorff's alpha with its interval: ``alpha 0.72 [0.61, 0.81]``, or why there is none."""
    if alpha.value is None:
        return f"no alpha ({alpha.note})"
    if alpha.low is None or alpha.high is None:
        return f"alpha {alpha.value:.2f} ({alpha.note})"
    return f"alpha {alpha.value:.2f} [{alpha.low:.2f}, {alpha.high:.2f}]"


def panel_lines(key: str, panel: PanelFinding) -> Iterator[str]:
    """How far the judges of a panel agree on each metric, one line each, and how often each did not answer."""
    for name, metric in panel.metrics.items():
        split = f"; split, so not measured, in {_of_cells(metric.split, panel.cells)}" if metric.split else ""
        text = alpha_text(metric.alpha)
        yield clean(f"{key}: {text} between {', '.join(panel.judges)} on {name}, {metric.alpha.n:,} cells{split}")
    for judge, cells in panel.unanswered.items():
        yield clean(f"{key}: {judge} did not answer in {_of_cells(cells, panel.cells)}")


def _of_cells(number: int, cells: int) -> str:
    return f"{number:,} of {count_of(cells, 'cell')}"
