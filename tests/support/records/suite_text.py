"""Suites as text, one section per line, so that a test can state the position of a problem."""

from __future__ import annotations


def suite(
    *more: str,
    name: str = "name: demo",
    cases: str = "cases: [{id: one, prompt: a tree}]",
    models: str = "models: [{provider: mock}]",
    graders: str = "graders: [{key: image, type: properties}]",
    verdict: str = "verdict: [not image.blank]",
) -> str:
    """A small suite that loads: name on line 1, cases 2, models 3, graders 4, verdict 5, the rest from 6 on."""
    return "\n".join([name, cases, models, graders, verdict, *more]) + "\n"
