"""Where the noise of a run is: what varies, and what narrows its intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visioneval.analysis.summary.variance import LEVERS, NoiseFinding
from visioneval.report.sections import Column, Section, dim, quoted


def noise_sections(noise: Sequence[NoiseFinding]) -> Iterator[Section]:
    """A row for the pass rate and for each metric, without columns of dashes, then what narrows the intervals."""
    if not noise:
        return
    names = ("case", "sample", "vote", "now", *(f"2x {lever}" for lever in LEVERS))
    rows = [(finding.name, _noise_cells(finding)) for finding in noise if finding.varies]
    shown = [at for at in range(len(names)) if any(cells[at] != "-" for _, cells in rows)]
    about = dim(
        "Why scores vary: because cases differ, because a model generates another image each time (samples), or because"
        " a judge answers differently each time (votes). Then half the 95% interval of a model run, now and with twice"
        " as many of each."
    )
    yield Section(
        "Where the noise is: shares of the variance of a cell, and half the 95% interval of a model run",
        [Column("metric", min_width=12), *(Column(names[at], is_number=True) for at in shown)] if rows else [],
        [[quoted(name), *(cells[at] for at in shown)] for name, cells in rows],
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
        yield f"For a more certain number, more {' or more '.join(best)} help most: {', '.join(names)}"
    if by_best:
        yield (
            "A comparison of two runs looks at the same cases in both: how much the cases differ does not matter there,"
            " but repeated samples and votes help."
        )
    for note, names in by_note.items():
        yield f"{', '.join(names)}: {note}"
