"""Makes text from models, suites and datasets safe to print, and shows numbers.

A number beside a threshold has enough digits to show on which side of it it lies.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from rich.text import Text

from visioneval.analysis.scores import WORD_SHARE, Estimate
from visioneval.analysis.sides import Rerouting
from visioneval.analysis.stats.basic import Statistic
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.judges import PanelFinding
from visioneval.errors import count_of
from visioneval.records.model import Record
from visioneval.rules import parse_gate, parse_rule, show_beside, show_failed
from visioneval.types import Metric, Score

_ALLOWED = {"\n", "\t", "\u200c", "\u200d"}  # the two joiners shape letters and emoji and do not move the cursor
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_REPLACEMENT = "\ufffd"
RATE = "pass rate [95%]"
"""The heading of pass rates."""


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
    note = f" ({alpha.note})" if alpha.low is None or alpha.high is None else ""
    return f"alpha {with_interval(alpha.value, alpha.low, alpha.high)}{note}"


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


def gate_value(gate: GateFinding) -> str:
    """The value of a gate, with its interval if it has one. A quantile may have one limit only."""
    if gate.value is None:
        return "no value"
    threshold = parse_gate(gate.rule).threshold
    value = show_beside(gate.value, threshold)
    if gate.low is None and gate.high is None:
        return value
    return f"{value} {_ends(gate.low, gate.high, threshold)}"


def gate_missing(gate: GateFinding) -> tuple[int, str]:
    """How many cells a gate leaves out, and what they are: errors, or other cells that were not measured.

    None for a gate on ``error_rate``, whose value shows its errors.
    """
    if gate.unmeasured and gate.unmeasured != gate.errors:
        return gate.unmeasured, f"{gate.unmeasured:,} not measured"
    if gate.errors and parse_gate(gate.rule).fn != "error_rate":
        return gate.errors, count_of(gate.errors, "error")
    return 0, ""


def gate_note(gate: GateFinding) -> str:
    """Why a gate cannot tell, and a sentence about the cells that it leaves out, if they are too many or not just its
    errors; else empty.
    """
    notes = [bound_note(gate), gate.note if gate.is_unreliable or gate.unmeasured > gate.errors else ""]
    return f"{gate.rule}: {'; '.join(filter(None, notes))}" if any(notes) else ""


def bound_note(gate: GateFinding) -> str:
    """Why a gate cannot tell, by its bound or for lack of samples; else empty."""
    if gate.state != "cannot_tell":
        return ""
    if gate.sampling:
        return f"cannot tell: {gate.sampling}"
    parsed = parse_gate(gate.rule)
    name, bound = ("lower", gate.low) if parsed.is_minimum else ("upper", gate.high)
    if bound is None:
        return f"cannot tell: the value passes, and its {name} bound is unknown"
    shown = show_beside(bound, parsed.threshold, 2, "f")
    return f"cannot tell: the value passes, its {name} bound {shown} does not"


def gate_repeat(gate: GateFinding) -> str:
    """How often a run of the same quality fails a gate: ``1 of 12 runs``; empty if that is unknown."""
    share = gate.repeat_fails
    return "" if share is None else show_share_of_runs(share)


def show_share_of_runs(share: float) -> str:
    """``1 of 12 runs`` for a small probability, ``3 of 10 runs`` for a larger one, with its limits in words."""
    if share < 0.001:
        return "under 1 of 1,000 runs"
    if share < 0.15:
        return f"1 of {1 / share:,.0f} runs"
    if share <= 0.95:
        return f"{max(1, min(9, round(10 * share)))} of 10 runs"
    return "nearly all runs"


def show_interval(low: float | None, high: float | None) -> str:
    """`` [0.55, 0.95]`` with a leading space, or nothing if there is no interval."""
    return "" if low is None or high is None else f" {_ends(low, high, 0)}"


def show_share(share: float, low: float | None = None, high: float | None = None) -> str:
    """``66.7 % [20.8, 93.9]``: a share and its interval, if it has one, in percent; a decimal of 0 is left out."""
    value, *ends = (f"{100 * number:.1f}".removesuffix(".0") for number in (share, low, high) if number is not None)
    return f"{value} % [{', '.join(ends)}]" if len(ends) > 1 else f"{value} %"


def show_rate(rate: Estimate) -> str:
    """``83.3 % [55.2, 95.3] n=12``; ``- n=0`` if nothing was counted."""
    return "- n=0" if rate.value is None else f"{show_share(rate.value, rate.low, rate.high)} n={rate.n}"


def show_estimate(finding: Estimate | None, metric: Metric) -> str:
    """A rate as ``66.7 % [20.8, 93.9] (3)``, a mean as ``2.67 of 5 [1.2, 4.1] (3)``, with the number of values; the
    share of a word as ``66.7 % [20.8, 93.9] (2 of 3)``.

    ``!2`` counts those that were not measured.
    """
    if finding is None:
        return "-"
    missing = f" !{finding.unmeasured}" if finding.unmeasured else ""
    if finding.value is None:
        return f"none{missing}"
    if metric.type == "bool":
        cells = f"{round(finding.value * finding.n)} of {finding.n}" if metric is WORD_SHARE else f"{finding.n}"
        return f"{show_share(finding.value, finding.low, finding.high)} ({cells}){missing}"
    interval = show_interval(finding.low, finding.high)
    return f"{finding.value:.3g}{scale_of(metric)}{interval} ({finding.n}){missing}"


def scale_of(metric: Metric) -> str:
    """`` of 5`` after a number whose highest value is 5; empty if there is none, or if it is 1, as of a share."""
    highest = metric.range[1] if metric.type == "number" and metric.range else None
    return "" if highest is None or highest <= 1 else f" of {highest:g}"


def show_usd(amount: float | None, unknown: int) -> str:
    """``0.0120``; ``>= 0.0120`` if ``unknown`` more costs are missing; ``unknown`` if all are; ``-`` without costs."""
    if not amount and unknown:
        return "unknown"
    if amount is None:
        return "-"
    digits = f"{amount:,.2f}" if amount >= 10 else f"{amount:.4f}"
    return f">= {digits}" if unknown else digits


def with_interval(
    value: float | None, low: float | None, high: float | None, form: str = ".2f", missing: str = "-"
) -> str:
    """``0.60 [0.48, 0.72]``, or the value alone if there is no interval. ``form`` is that of all three."""
    if value is None:
        return missing
    interval = "" if low is None or high is None else f" [{format(low, form)}, {format(high, form)}]"
    return f"{format(value, form)}{interval}"


def _ends(low: float | None, high: float | None, beside: float) -> str:
    """``[0.004, 0.950]``: limits with the digits that show their sides of another number, as many for both."""
    limits = [limit for limit in (low, high) if limit is not None]
    decimals = 2
    if all(abs(limit) <= 1 for limit in limits):
        decimals = max(len(_bound(limit, beside, decimals).partition(".")[2]) for limit in limits)
    texts = ("no limit" if limit is None else _bound(limit, beside, decimals) for limit in (low, high))
    return f"[{', '.join(texts)}]"


def _bound(value: float, beside: float, decimals: int) -> str:
    """A limit with the digits that show its side of another number."""
    return show_beside(value, beside, decimals, "f") if abs(value) <= 1 else show_beside(value, beside, 3)


def failed_text(rule: str, scores: Mapping[str, Score]) -> str:
    """A failed rule with its score and its limit, such as ``hierarchy 2 < 3``, or as it is if it compares no number."""
    return show_failed(rule, scores.get(parse_rule(rule).metric)) or rule


def thresholds_of(record: Record) -> dict[str, float]:
    """The thresholds that a cell did not reach, by metric."""
    rules = map(parse_rule, (*record.warned_rules, *record.failed_rules))
    return {rule.metric: rule.threshold for rule in rules if rule.op is not None}
