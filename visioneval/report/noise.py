"""Where the noise of a run is: a section about the sources of variance, and what narrows its intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.analysis.summary.variance import LEVERS, NoiseFinding
from visioneval.report.sections import Cell, Column, Section, dim, numbers, quoted, shown_columns


def noise_sections(noise: Sequence[NoiseFinding]) -> Iterator[Section]:
    """A row for the pass rate and for each metric, without columns of dashes, then what narrows the intervals."""
    if not noise:
        return
    names = ("case", "sample", "vote", "now", *(f"2x {lever}" for lever in LEVERS))
    rows: list[list[Cell]] = [[quoted(finding.name), *_noise_cells(finding)] for finding in noise if finding.varies]
    is_shown = {name: any(row[at] != "-" for row in rows) for at, name in enumerate(names, 1)}
    about = dim(
        "Sources of variance: cases differ, a model generates a different image each time (samples), and a judge"
        " answers differently each time (votes). The last columns are half the 95% interval of a model run, now and"
        " with twice as many of each."
    )
    yield Section(
        "Where the noise is: shares of the variance of a cell, and half the 95% interval of a model run",
        *(shown_columns([Column("metric", min_width=12), *numbers(*names)], rows, is_shown) if rows else ([], [])),
        [quoted(line) for line in _noise_lines(noise)],
        [about],
        fold="Where the noise is",
        name="noise",
    )


def _noise_cells(finding: NoiseFinding) -> list[str]:
    """The shares of the components, the half-width, and the half-widths with twice as much; ``-`` if unknown."""
    parts = (finding.case, finding.sample, None if finding.vote is None else finding.vote / finding.votes)
    total = sum(part or 0.0 for part in parts)
    is_split = sum(part is not None for part in parts) > 1
    shares = [f"{part / total:.0%}" if part is not None and is_split else "-" for part in parts]
    widths = (finding.half_width, *(finding.doubled.get(lever) for lever in LEVERS))
    return [*shares, *("-" if width is None else f"{width:.3g}" for width in widths)]


def _noise_lines(noise: Sequence[NoiseFinding]) -> Iterator[str]:
    """Sentences about what narrows the intervals most and what cannot be separated, with the names they apply to."""
    by_best: dict[tuple[str, ...], list[str]] = {}
    by_note: dict[str, list[str]] = {}
    for finding in noise:
        if len(finding.doubled) > 1:
            by_best.setdefault(finding.best, []).append(finding.name)
        for note in finding.notes:
            by_note.setdefault(note, []).append(finding.name)
    for best, names in by_best.items():
        yield f"To narrow the interval, add {' or '.join(best)}: {', '.join(names)}"
    if by_best:
        yield (
            "'compare' pairs the cases of two runs, so differences between cases do not matter there. More samples and"
            " votes help."
        )
    for note, names in by_note.items():
        yield f"{', '.join(names)}: {note}"
