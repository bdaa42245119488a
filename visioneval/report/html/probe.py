"""A probe as one HTML file, with each missed damage side by side. No script and no network access."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from typing import Any

from visioneval.analysis.probe import MissedDamage, ProbeFindings
from visioneval.report import probe_texts as texts
from visioneval.report.html.pages import policy, render, style

MAX_IMAGES = 200
"""Missed damage that is shown with images; the rest is listed."""


def probe_page(findings: ProbeFindings, images: Sequence[tuple[bytes, bytes] | None]) -> str:
    """The whole page. ``images`` are both images of each of ``findings.missed`` as WebP."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for missed, pair in list(zip(findings.missed, images, strict=True))[:MAX_IMAGES]:
        by_kind.setdefault(missed.kind, []).append(_missed(missed, pair))
    names = texts.metrics_of(findings)
    return render(
        "probe.html.j2",
        policy=policy(inline_style=style()),
        style=style(),
        findings=findings,
        title=texts.title(findings),
        stopped=texts.stopped_text(findings),
        tables=[
            (
                "Weakest damage caught",
                ["damage", *names],
                list(texts.weakest_rows(findings)),
                texts.ABOUT_WEAKEST,
            ),
            (
                "Detection",
                texts.rate_columns("damage", findings),
                list(texts.rate_rows(findings.detections, findings)),
                texts.ABOUT,
            ),
            (
                "False alarms",
                texts.rate_columns("harmless change", findings),
                list(texts.rate_rows(findings.false_alarms, findings)),
                texts.ABOUT_FALSE_ALARMS,
            ),
        ],
        result=texts.result_text(findings),
        missed=by_kind,
        missed_counts=Counter(missed.kind for missed in findings.missed),
        more=[texts.missed_text(missed) for missed in findings.missed[MAX_IMAGES:]],
    )


def _missed(missed: MissedDamage, pair: tuple[bytes, bytes] | None) -> dict[str, Any]:
    return {"text": texts.missed_text(missed), "images": [] if pair is None else [_data_url(data) for data in pair]}


def _data_url(data: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(data).decode()}"
