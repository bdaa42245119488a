"""The failures that the overview of a report begins with: examples of each reason, as thumbnails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from urllib.parse import urlencode

from visioneval.analysis.summary.summary import Summary
from visioneval.records.model import CellKey
from visioneval.report.terminal.run.failures import failure_examples
from visioneval.report.text import one_line

MAX_FAILURES = 12
_MAX_EXPLANATION = 140


@dataclass(frozen=True, slots=True)
class FailureTile:
    """A cell that did not pass, with its reasons, and the explanation of the first that has one.

    ``thumb`` is a URL, empty without an image.
    """

    name: str
    model: str
    link: str
    thumb: str
    verdict: str
    reason: str
    explanation: str


def worst_failures(summary: Summary, thumbs: Mapping[CellKey, str]) -> list[FailureTile]:
    """One cell of each reason, most frequent reasons first, then a second one of each, without repeating a cell.

    Only cells that are in ``thumbs``, which are those of the gallery.
    """
    by_reason = failure_examples(summary, 3 * MAX_FAILURES)
    columns = [[(reason, *example) for example in examples] for reason, examples in by_reason.items()]
    tiles: dict[CellKey, FailureTile] = {}
    for entry in chain.from_iterable(zip_longest(*columns)):
        if entry is None:
            continue
        reason, cell, text = entry
        key = cell.test_id, cell.model_label, cell.sample_index
        if key not in thumbs or key in tiles:
            continue
        tiles[key] = FailureTile(
            name=f"{cell.test_id} [{cell.sample_index}]" if cell.sample_index else cell.test_id,
            model=cell.model_label,
            link=f"#cell?{urlencode({'case': cell.test_id, 'at': cell.model_label, 'sample': cell.sample_index})}",
            thumb=thumbs[key],
            verdict=cell.verdict,
            reason=", ".join(dict.fromkeys((reason, *cell.explanations))),
            explanation=one_line(cell.reasons.get(reason) or next(iter(cell.reasons.values()), text), _MAX_EXPLANATION),
        )
    return list(tiles.values())[:MAX_FAILURES]
