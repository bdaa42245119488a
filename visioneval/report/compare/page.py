"""A comparison as one HTML file: the findings, and every pair with both images beside each other. No network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from visioneval.analysis.cells import Cell, Side
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import Difference
from visioneval.analysis.compare.gates import GateResult, outcome
from visioneval.analysis.compare.pairing import CHANGES, CellPair, Change
from visioneval.report.html.images import EmbeddedShelf
from visioneval.report.html.page_data import as_json
from visioneval.report.html.pages import policy, render, script, style
from visioneval.report.sentences import (
    TITLES,
    change_in_words,
    headline,
    left_out,
    money_and_time,
    notes,
    power_lines,
    show_difference,
    show_n,
    show_p,
    show_value,
    unlike_lines,
)

SHOWN_PAIRS = 5_000
PICTURED_PAIRS = 400
"""Pairs whose images are embedded, those that changed first: a file that a browser opens and a mail carries."""
SIDE = 640
LISTED = 20
_LISTED: tuple[Change, ...] = ("broken", "error_after", "fixed", "error_before")
_HALF, _REACH = 80.0, 72.0
_GATE_WORDS = {"passed": "passed", "failed": "failed", "unmeasured": "not measured"}
_OUTCOMES = {
    "passed": ("pass", "All gates passed"),
    "failed": ("fail", "A gate failed"),
    "unmeasured": ("error", "A gate had nothing to measure"),
    "incomplete": ("error", "B is not complete"),
}


@dataclass(frozen=True, slots=True)
class Whisker:
    """A difference and its interval as x coordinates; what lies to the right is better."""

    low: float | None
    value: float
    high: float | None


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One metric of a table of differences, in words and generated."""

    name: str
    a: str
    b: str
    difference: str
    plot: Whisker | None
    p: str
    n: str
    judged: str
    told: str
    significant: bool


def comparison_page(found: Comparison, held: Sequence[GateResult]) -> str:
    """The whole page. Images that are not there are told as missing."""
    first, *rest = headline(found)
    own_style, own_script = style(), script("compare")
    return render(
        "compare.html.j2",
        policy=policy(own_script, own_style),
        style=own_style,
        script=own_script,
        a=found.a,
        b=found.b,
        outcome=_OUTCOMES[outcome(found, held)],
        headline=[first, *rest],
        notes=list(notes(found)),
        unlike=list(unlike_lines(found)),
        gates=held,
        gate_words=_GATE_WORDS,
        changes=list(_changes(found)),
        tables=list(_tables(found)),
        money=list(money_and_time(found)),
        left_out=left_out(found),
        data=as_json(_data(found)),
    )


def _changes(found: Comparison) -> Iterator[dict[str, Any]]:
    """What broke, then what was fixed: the first of each, with the way to their images."""
    for change in _LISTED:
        pairs = found.changed(change)
        if pairs:
            rows = [_changed(pair, found) for pair in pairs[:LISTED]]
            more = max(0, len(pairs) - LISTED)
            link = f"#pairs?{urlencode({'change': change})}"
            yield {"title": TITLES[change], "total": len(pairs), "rows": rows, "more": more, "link": link}


def _changed(pair: CellPair, found: Comparison) -> tuple[str, str, str, str, list[str]]:
    name = f"{pair.b.test_id} [{pair.b.sample_index}]" if pair.b.sample_index else pair.b.test_id
    link = f"#pairs?{urlencode({'change': pair.change, 'q': pair.b.test_id})}"
    return name, link, pair.b.model_label, ", ".join(_marks(pair)), change_in_words(pair, found.b.writers)


def _marks(pair: CellPair) -> list[str]:
    marks = (("must_pass", pair.must_pass), ("flaky", pair.flaky), ("same image", pair.same_output))
    return [word for word, there in marks if there]


def _tables(found: Comparison) -> Iterator[dict[str, Any]]:
    tested = (found.pass_rate, *found.metrics)
    yield _table("Pass rate and metrics, pair by pair", "metric", tested, power_lines(tested), adjusted=True)
    if found.by_run:
        yield _table("Pass rate by model run", "model run", found.by_run, ())
    if found.by_tag:
        yield _table("Pass rate by tag", "tag", found.by_tag, ())
    if found.by_type:
        yield _table("By type of question", "type", found.by_type, ())


def _table(
    title: str, what: str, own: Sequence[Difference], told: Iterator[str] | tuple[()], *, adjusted: bool = False
) -> dict[str, Any]:
    rows = [_row(one, one.p_holm if adjusted else one.p) for one in own]
    return {"title": title, "what": what, "p": "p Holm" if adjusted else "p", "rows": rows, "notes": list(told)}


def _row(one: Difference, p: float | None) -> CaseRow:
    worse = one.worse_by
    judged = "" if not worse else "worse" if worse > 0 else "better"
    return CaseRow(
        name=one.name,
        a=show_value(one, one.a),
        b=show_value(one, one.b),
        difference=show_difference(one),
        plot=_whisker(one),
        p=show_p(p),
        n=show_n(one),
        judged=judged,
        told=f"significantly {judged}" if judged and one.significant else judged,
        significant=one.significant,
    )


def _whisker(one: Difference) -> Whisker | None:
    """Each metric on a scale of its own, since only the side of zero is compared between metrics."""
    if one.difference is None or one.metric.better == "none":
        return None
    sign = -1 if one.metric.better == "lower" else 1
    ends = (one.interval.low, one.interval.high) if one.interval else ()
    reach = max(abs(number) for number in (one.difference, *ends)) or 1.0
    place: Callable[[float], float] = lambda number: round(_HALF + sign * number / reach * _REACH, 1)  # noqa: E731
    low, high = (place(number) for number in ends) if ends else (None, None)
    return Whisker(low, place(one.difference), high)


def _data(found: Comparison) -> dict[str, Any]:
    """What the page's script reads: the pairs, those that changed first, and each image once."""
    order = {change: at for at, change in enumerate(CHANGES)}
    pairs = sorted(found.pairs, key=lambda pair: (order[pair.change], pair.flaky, not pair.must_pass))
    outputs = _PairImages(found)
    samples = any(pair.b.sample_index for pair in found.pairs)
    told = [
        _pair(pair, found, outputs if at < PICTURED_PAIRS else None, samples)
        for at, pair in enumerate(pairs[:SHOWN_PAIRS])
    ]
    changes = {
        change: {"title": TITLES[change].partition(" (")[0], "number": found.counts[change]}
        for change in CHANGES
        if found.counts[change]
    }
    open_ones = [change for change in changes if change not in ("still_passing", "still_failing", "still_error")]
    return {
        "changes": changes,
        "first": ",".join(open_ones),
        "total": len(pairs),
        "images": outputs.data,
        "list": told,
    }


def _pair(pair: CellPair, found: Comparison, outputs: _PairImages | None, samples: bool) -> dict[str, Any]:
    names = dict.fromkeys((*pair.b.scores, *pair.a.scores))
    scores = [(name, pair.a.scores.get(name), pair.b.scores.get(name)) for name in names]
    far = f"not embedded: over {PICTURED_PAIRS} pairs"
    return {
        "case": pair.b.test_id,
        "labels": [pair.a.model_label, pair.b.model_label],
        "sample": pair.b.sample_index if samples else None,
        "change": pair.change,
        "verdicts": [pair.a.verdict, pair.b.verdict],
        "notes": _marks(pair),
        "lines": change_in_words(pair, found.b.writers),
        "reasons": [reason for cell in (pair.a, pair.b) for reason in cell.reasons.values()],
        "scores": [score for score in scores if score[1] != score[2]],
        "prompt": pair.b.prompt or pair.a.prompt,
        "images": [far, far] if outputs is None else outputs.of(pair),
    }


class _PairImages:
    """Images as data, each once."""

    def __init__(self, found: Comparison) -> None:
        self.data: list[str] = []
        self._sides = tuple((side, _shelf(side)) for side in (found.a, found.b))

    def of(self, pair: CellPair) -> list[int | str]:
        """The place of each image of a pair among the data, or why there is none."""
        a = self._one(pair.a, *self._sides[0])
        same = pair.same_output and isinstance(a, int)
        return [a, a if same else self._one(pair.b, *self._sides[1])]

    def _one(self, cell: Cell, side: Side, shelf: EmbeddedShelf | None) -> int | str:
        if shelf is None:
            return f"{side.name} keeps no images"
        if cell.artifact_path is None:
            return "no image was generated"
        shown = shelf.own(cell.artifact_path)
        if "src" not in shown:
            return shown.get("why", "")
        self.data.append(shown["src"])
        return len(self.data) - 1


def _shelf(side: Side) -> EmbeddedShelf | None:
    return None if side.folder is None else EmbeddedShelf(side.folder, Path(), trust=False, side=SIDE)
