"""A comparison as one HTML file: the results, and every pair with both images side by side. No network access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from visioneval.analysis.cells import Cell
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.differences import FEWEST_CASES, Difference
from visioneval.analysis.compare.gates import GateResult
from visioneval.analysis.compare.pairing import CHANGES, CellPair, Change
from visioneval.analysis.sides import Side
from visioneval.report.html.images import EmbeddedImages
from visioneval.report.html.page_data import NOT_DOWNLOADED, as_json
from visioneval.report.html.pages import PageFrame, policy, render, script, style
from visioneval.report.sentences import (
    TITLES,
    assessment,
    compare_outcome,
    cost_and_time_rows,
    describe_change,
    has_few_cases,
    headline,
    mismatch_lines,
    notes,
    power_lines,
    show_difference,
    show_n,
    show_p,
    show_value,
    unpaired_lines,
)

MAX_PAIRS = 5_000
EMBEDDED_PAIRS = 400
"""Pairs with embedded images, changed pairs first. Limits the size of the file."""
SIDE = 640
MAX_LISTED = 20
MAX_WITH_OUTPUTS = 6
"""Broken cells whose outputs the page begins with, and as many new errors."""
_CHANGES_WITH_OUTPUTS: tuple[Change, ...] = ("broken", "error_after")
_LISTED_CHANGES: tuple[Change, ...] = ("fixed", "error_before")
_HALF, _REACH = 80.0, 72.0
_GATE_LABELS = {
    "passed": "passed",
    "failed": "failed",
    "unmeasured": "not measured",
    "cannot_tell": "cannot tell",
    "not_applicable": "not applicable",
}


@dataclass(frozen=True, slots=True)
class Whisker:
    """A difference and its interval as x coordinates. Right of zero is better."""

    low: float | None
    value: float
    high: float | None


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One row of a table of differences, as text and as a plot."""

    name: str
    a: str
    b: str
    difference: str
    plot: Whisker | None
    p: str
    p_holm: str
    n: str
    assessment: str
    significant: bool
    broken: str
    fixed: str
    link: str
    """The changed pairs of a tag; empty in other tables."""


def comparison_page(comparison: Comparison, gates: Sequence[GateResult], frame: PageFrame | None = None) -> str:
    """The whole page. Missing images are marked as missing."""
    first, *rest = headline(comparison)
    own_style, own_script = style(), script("compare")
    return render(
        "compare.html.j2",
        policy=policy(own_script, own_style),
        style=own_style,
        script=own_script,
        frame=frame,
        a=comparison.a,
        b=comparison.b,
        outcome=compare_outcome(comparison, gates),
        headline=[first, *rest],
        notes=list(notes(comparison)),
        mismatches=list(mismatch_lines(comparison)),
        gates=gates,
        gate_labels=_GATE_LABELS,
        regressions=list(_changes(comparison, _CHANGES_WITH_OUTPUTS, MAX_WITH_OUTPUTS)),
        changes=list(_changes(comparison, _LISTED_CHANGES, MAX_LISTED)),
        tables=list(_tables(comparison)),
        folded=f"Statistics of fewer than {FEWEST_CASES} cases" if has_few_cases(comparison) else "",
        cost_rows=list(cost_and_time_rows(comparison)),
        unpaired=unpaired_lines(comparison),
        data=as_json(_data(comparison)),
    )


def _changes(comparison: Comparison, changes: Sequence[Change], limit: int) -> Iterator[dict[str, Any]]:
    """The first rows of each kind of change, with links to their images."""
    for change in changes:
        pairs = comparison.changed(change)
        if pairs:
            yield {
                "title": TITLES[change],
                "total": len(pairs),
                "rows": [_change_row(pair, comparison) for pair in pairs[:limit]],
                "first": sum(min(MAX_PAIRS, comparison.counts[other]) for other in CHANGES[: CHANGES.index(change)]),
                "more": max(0, len(pairs) - limit),
                "link": f"#pairs?{urlencode({'change': change})}",
            }


def _change_row(pair: CellPair, comparison: Comparison) -> tuple[str, str, str, str, list[str]]:
    name = f"{pair.b.test_id} [{pair.b.sample_index}]" if pair.b.sample_index else pair.b.test_id
    link = f"#pairs?{urlencode({'change': pair.change, 'q': pair.b.test_id})}"
    return name, link, pair.b.model_label, ", ".join(_pair_notes(pair)), describe_change(pair, comparison.b.writers)


def _pair_notes(pair: CellPair) -> list[str]:
    marks = (
        ("must_pass", pair.must_pass),
        ("flaky", pair.flaky),
        ("same output", pair.same_output),
        ("changed rules only", pair.is_moved_by_rules),
    )
    return [note for note, applies in marks if applies]


def _tables(comparison: Comparison) -> Iterator[dict[str, Any]]:
    tested = (comparison.pass_rate, *comparison.metrics)
    yield _table("Pass rate and metrics (paired)", "metric", tested, power_lines(tested), adjusted=True)
    if comparison.by_run:
        yield _table("Pass rate by model run (p not adjusted)", "model run", comparison.by_run, (), of_verdicts=True)
    if comparison.by_tag:
        title = "Pass rate and changes by tag (p not adjusted)"
        yield _table(title, "tag", comparison.by_tag, (), of_verdicts=True, links=True)
    if comparison.by_type:
        yield _table("By question type (p not adjusted)", "type", comparison.by_type, ())
    if comparison.by_failure_tag:
        yield _table("Cells by failure tag (p not adjusted)", "tag", comparison.by_failure_tag, ())


def _table(
    title: str,
    heading: str,
    differences: Sequence[Difference],
    notes: Iterator[str] | tuple[()],
    *,
    adjusted: bool = False,
    of_verdicts: bool = False,
    links: bool = False,
) -> dict[str, Any]:
    rows = [_row(difference, links=links) for difference in differences]
    columns = {"adjusted": adjusted, "of_verdicts": of_verdicts}
    return {"title": title, "heading": heading, **columns, "rows": rows, "notes": list(notes)}


def _row(difference: Difference, *, links: bool) -> DifferenceRow:
    return DifferenceRow(
        name=difference.name,
        a=show_value(difference, difference.a),
        b=show_value(difference, difference.b),
        difference=show_difference(difference),
        plot=_whisker(difference),
        p=show_p(difference.p),
        p_holm=show_p(difference.p_holm),
        n=show_n(difference),
        assessment=assessment(difference),
        significant=difference.significant,
        broken=f"{difference.lower:,}",
        fixed=f"{difference.higher:,}",
        link=f"#pairs?{urlencode({'tag': difference.name})}" if links else "",
    )


def _whisker(difference: Difference) -> Whisker | None:
    """Scales each metric separately: only the side of zero is comparable between metrics."""
    if difference.difference is None or difference.metric.better == "none":
        return None
    sign = -1 if difference.metric.better == "lower" else 1
    ends = (difference.interval.low, difference.interval.high) if difference.interval else ()
    reach = max(abs(number) for number in (difference.difference, *ends)) or 1.0
    to_x: Callable[[float], float] = lambda number: round(_HALF + sign * number / reach * _REACH, 1)  # noqa: E731
    low, high = (to_x(number) for number in ends) if ends else (None, None)
    return Whisker(low, to_x(difference.difference), high)


def _data(comparison: Comparison) -> dict[str, Any]:
    """Data for the page's script: the pairs, changed ones first, and each image once."""
    outputs, counts, samples = _PairImages(comparison), comparison.counts, comparison.has_samples
    pairs = chain.from_iterable(comparison.changed(change)[:MAX_PAIRS] for change in CHANGES)
    shown_pairs = [
        _pair(pair, comparison, outputs if at < EMBEDDED_PAIRS else None, samples)
        for at, pair in enumerate(islice(pairs, MAX_PAIRS))
    ]
    tested = (comparison.pass_rate, *comparison.metrics)
    changes = {
        change: {"title": TITLES[change].partition(" (")[0], "number": counts[change]}
        for change in CHANGES
        if counts[change]
    }
    initial = [change for change in changes if change not in ("still_passing", "still_failing", "still_error")]
    return {
        "changes": changes,
        "first": ",".join(initial),
        "total": len(comparison.pairs),
        "images": outputs.data,
        "metrics": {difference.name: difference.metric.model_dump(mode="json") for difference in tested},
        "list": shown_pairs,
    }


def _pair(pair: CellPair, comparison: Comparison, outputs: _PairImages | None, samples: bool) -> dict[str, Any]:
    names = dict.fromkeys((*pair.b.scores, *pair.a.scores))
    scores = [(name, pair.a.scores.get(name), pair.b.scores.get(name)) for name in names]
    not_embedded = f"not embedded: the page embeds the images of at most {EMBEDDED_PAIRS} pairs"
    return {
        "case": pair.b.test_id,
        "labels": [pair.a.model_label, pair.b.model_label],
        "sample": pair.b.sample_index if samples else None,
        "change": pair.change,
        "verdicts": [pair.a.verdict, pair.b.verdict],
        "tags": pair.tags,
        "notes": _pair_notes(pair),
        "lines": describe_change(pair, comparison.b.writers),
        "reasons": [reason for cell in (pair.a, pair.b) for reason in cell.reasons.values()],
        "scores": scores,
        "prompt": pair.b.prompt or pair.a.prompt,
        "sent": [pair.a.sent_prompt, pair.b.sent_prompt],
        "images": [not_embedded, not_embedded] if outputs is None else outputs.of(pair),
    }


class _PairImages:
    """Images as data URLs, without duplicates."""

    def __init__(self, comparison: Comparison) -> None:
        self.data: list[str] = []
        self._sides = tuple((side, _side_images(side)) for side in (comparison.a, comparison.b))

    def of(self, pair: CellPair) -> list[int | str]:
        """The index of each image of a pair in ``data``, or the reason why it is missing."""
        a = self._add(pair.a, *self._sides[0])
        same = pair.same_output and isinstance(a, int)
        return [a, a if same else self._add(pair.b, *self._sides[1])]

    def _add(self, cell: Cell, side: Side, images: EmbeddedImages | None) -> int | str:
        if images is None:
            return f"{side.name} has no images"
        if cell.artifact_path is None:
            is_finished = cell.error is None or cell.error.stage != "generate"
            is_refused = "refused" in cell.reasons or "refused" in cell.failure_tags
            return NOT_DOWNLOADED if is_finished and not is_refused else "no image was generated"
        image = images.run_image(cell.artifact_path)
        if "src" not in image:
            return image.get("why", "")
        self.data.append(image["src"])
        return len(self.data) - 1


def _side_images(side: Side) -> EmbeddedImages | None:
    return None if side.folder is None else EmbeddedImages(side.folder, Path(), trust=False, side=SIDE)
