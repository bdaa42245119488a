"""A comparison as one HTML file: the results, and every pair with both images side by side. No network access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.gates import GateResult
from visioneval.analysis.compare.pairing import CHANGES, CellPair
from visioneval.analysis.redaction import LEFT_OUT, NOTHING, Redaction
from visioneval.analysis.sides import Cell, Side
from visioneval.report.compare import change_lines, comparison_report, pair_remarks
from visioneval.report.differences import CHANGE_WORDS
from visioneval.report.html.images import EmbeddedImages
from visioneval.report.html.page_data import NOT_DOWNLOADED, as_json
from visioneval.report.html.pages import PageFrame, policy, render, script, style

MAX_PAIRS = 5_000
EMBEDDED_PAIRS = 400
"""Pairs with embedded images, changed pairs first. Limits the size of the file."""
SIDE = 640
MAX_WITH_OUTPUTS = 6
"""Broken cells whose outputs the page begins with, and as many new errors."""


def comparison_page(
    comparison: Comparison,
    gates: Sequence[GateResult],
    frame: PageFrame | None = None,
    *,
    interrupted: bool = False,
    cached: Callable[[str], Path | None] | None = None,
    redact: Redaction = NOTHING,
) -> str:
    """The whole page. Missing images are marked as missing.

    The outputs of a baseline, which has none, are where ``cached`` finds their hash, except of cases of ``redact``.
    """
    own_style, own_script = style(), script("compare")
    report, counts = comparison_report(comparison, gates, interrupted=interrupted), comparison.counts
    return render(
        "compare.html.j2",
        policy=policy(own_script, own_style),
        style=own_style,
        script=own_script,
        frame=frame,
        a=comparison.a,
        b=comparison.b,
        report=report,
        counts=counts,
        first_pairs={"broken": 0, "error_after": min(MAX_PAIRS, counts["broken"])},
        max_with_outputs=MAX_WITH_OUTPUTS,
        data=as_json(_data(comparison, _PairImages(comparison, cached, redact.over(comparison.a, comparison.b)))),
    )


def _data(comparison: Comparison, outputs: _PairImages) -> dict[str, Any]:
    """Data for the page's script: the pairs, changed ones first, and each image once."""
    counts = comparison.counts
    pairs = chain.from_iterable(comparison.changed(change)[:MAX_PAIRS] for change in CHANGES)
    shown_pairs = [
        _pair(pair, comparison, outputs if at < EMBEDDED_PAIRS else None)
        for at, pair in enumerate(islice(pairs, MAX_PAIRS))
    ]
    tested = (comparison.pass_rate, *comparison.metrics)
    changes = {
        change: {"title": CHANGE_WORDS[change][0].partition(" (")[0], "number": counts[change]}
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


def _pair(pair: CellPair, comparison: Comparison, outputs: _PairImages | None) -> dict[str, Any]:
    names = dict.fromkeys((*pair.b.scores, *pair.a.scores))
    scores = [(name, pair.a.scores.get(name), pair.b.scores.get(name)) for name in names]
    not_embedded = f"not embedded: the page embeds the images of at most {EMBEDDED_PAIRS} pairs"
    return {
        "case": pair.b.test_id,
        "labels": [pair.a.model_label, pair.b.model_label],
        "sample": pair.b.sample_index if comparison.has_samples else None,
        "change": pair.change,
        "verdicts": [pair.a.verdict, pair.b.verdict],
        "tags": pair.tags,
        "notes": pair_remarks(pair),
        "lines": change_lines(pair, comparison),
        "reasons": [reason for cell in (pair.a, pair.b) for reason in cell.reasons.values()],
        "scores": scores,
        "prompt": pair.b.prompt or pair.a.prompt,
        "sent": [pair.a.sent_prompt, pair.b.sent_prompt],
        "images": [not_embedded, not_embedded] if outputs is None else outputs.of(pair),
    }


def why_no_image(cell: Cell, side: Side) -> str:
    """Why a cell has no file as output, of a side without images or of a cell that has no path of one."""
    if side.folder is None:
        return f"{side.name} has no images"
    is_finished = cell.error is None or cell.error.stage != "generate"
    is_refused = "refused" in cell.reasons or "refused" in cell.failure_tags
    return NOT_DOWNLOADED if is_finished and not is_refused else "no image was generated"


class _PairImages:
    """Images as data URLs, without duplicates."""

    def __init__(self, comparison: Comparison, cached: Callable[[str], Path | None] | None, redact: Redaction) -> None:
        self.data: list[str] = []
        self._cached, self._redact = cached, redact
        self._sides = tuple(
            (side, None if side.folder is None else EmbeddedImages(side.folder, Path(), trust=False, side=SIDE))
            for side in (comparison.a, comparison.b)
        )

    def of(self, pair: CellPair) -> list[int | str]:
        """The index of each image of a pair in ``data``, or the reason why it is missing."""
        if self._redact.covers(pair.b.test_id, (*pair.a.tags, *pair.b.tags)):
            return [LEFT_OUT, LEFT_OUT]
        a = self._add(pair.a, *self._sides[0])
        if pair.same_output and isinstance(a, int):
            return [a, a]
        b = self._add(pair.b, *self._sides[1])
        # a baseline has no images: B's is the same file
        return [b if pair.same_output and isinstance(b, int) else a, b]

    def _add(self, cell: Cell, side: Side, images: EmbeddedImages | None) -> int | str:
        path = cell.artifact_path
        if images is None and self._cached is not None and cell.artifact_sha256 is not None:
            file = self._cached(cell.artifact_sha256)
            if file is not None:
                images, path = EmbeddedImages(file.parent, Path(), trust=False, side=SIDE), file.name
        if images is None or path is None:
            return why_no_image(cell, side)
        image = images.run_image(path)
        if "src" not in image:
            return image.get("why", "")
        self.data.append(image["src"])
        return len(self.data) - 1
