"""The overview of a report: the summary of the run, with examples of failures, distributions and times. Pure."""

from __future__ import annotations

import shlex
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby, zip_longest
from math import ceil, fsum
from statistics import median
from typing import Any

from visioneval.analysis.scores import counted_metrics, number_of
from visioneval.analysis.summary.gates import FailingCell
from visioneval.analysis.summary.summary import Summary
from visioneval.records.model import CellKey, Record, RunInfo
from visioneval.report.duplicates import sample_name
from visioneval.report.html.pages import BINS, histogram, verdict_bar
from visioneval.report.outcome import cell_link, failure_examples, gallery
from visioneval.report.run import VERDICT_TONES, incomplete, run_report
from visioneval.report.sections import (
    Bars,
    Cell,
    Column,
    ImageStrip,
    Plot,
    Section,
    Share,
    Tile,
    Value,
    dim,
    numbers,
    quoted,
)
from visioneval.report.text import cut_middle
from visioneval.suite.metrics import LeftOutScores

MAX_FAILURES = 14
_WIDE = ("gates", "failures", "rates")
_MAX_BESIDE = 4
"""Columns of a table of metrics by model run that fits half of a desktop."""
_MAX_EXPLANATION = 130


class CellNumbers:
    """Scores and times of cells: 8 bytes for each. Leaves out the scores that the means leave out."""

    def __init__(self, without: LeftOutScores | None = None) -> None:
        """No cells."""
        self._without = without
        self.scores: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))
        """By metric and model label."""
        self.generation: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        """Seconds by model label."""
        self.grading: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        """Seconds by grader."""

    def counted(self, cells: Iterable[Record]) -> Iterator[Record]:
        """The same cells, each of them counted when it is read."""
        for cell in cells:
            self.generation[cell.model_label].append(cell.seconds)
            for grader in cell.graders:
                self.grading[grader.key].append(grader.seconds)
            left_out = self._without.metrics_of(cell.test_id) if self._without else ()
            for name, score in cell.scores.items():
                if (number := number_of(score)) is not None and name not in left_out:
                    self.scores[name, cell.model_label].append(number)
            yield cell


def overview(
    info: RunInfo, numbers: CellNumbers, summary: Summary, thumbs: Mapping[CellKey, str] | None = None
) -> dict[str, Any]:
    """All values of ``report.html.j2`` except styles, scripts and data blocks. ``thumbs`` are those of the gallery."""
    report = run_report(summary, distributions(summary, numbers))
    labels = [model.label for model in summary.models]
    times = [
        *time_section("Generation by model run", "model run", {label: numbers.generation[label] for label in labels}),
        *time_section("Grading by grader", "grader", numbers.grading),
    ]
    names = [section.name if isinstance(section, Section) else "" for section in report.sections]
    at = names.index("costs") if "costs" in names else len(names)
    strips = (*worst_failures(summary, thumbs or {}), *repeated_outputs(summary, thumbs or {}))
    sections = (*strips, *report.sections[:at], *times, *report.sections[at:])
    beside = [part for part in sections if not _is_wide(part)]
    cells = max(summary.planned_cells, summary.counts.cells) if summary.state == "running" else summary.counts.cells
    return {
        "title": f"{summary.suite} \u2013 {summary.run_id}",
        "summary": summary,
        "facts": _facts(info),
        "report": replace(report, sections=[part for part in sections if _is_wide(part)]),
        "beside": [list(parts) for _, parts in groupby(beside, key=lambda part: part.fold or part.title)],
        "lines": [*incomplete(summary), *report.lines],
        "bar": verdict_bar(summary.counts, cells),
    }


def _is_wide(part: Section | ImageStrip) -> bool:
    """Whether a section needs the width of a desktop; two columns of the others fit beside each other."""
    if isinstance(part, ImageStrip) or part.name in _WIDE:
        return True
    return part.splits and len(part.columns) > _MAX_BESIDE


def worst_failures(summary: Summary, thumbs: Mapping[CellKey, str]) -> Iterator[ImageStrip]:
    """One cell of each reason, most frequent reasons first, then a second one of each, without repeating a cell.

    Only cells that are in ``thumbs``, whose addresses are empty without an image.
    """
    by_reason = failure_examples(summary, 3 * MAX_FAILURES)
    columns = [[(reason, *example) for example in examples] for reason, examples in by_reason.items()]
    tiles: dict[CellKey, Tile] = {}
    for entry in chain.from_iterable(zip_longest(*columns)):
        if entry is not None:
            reason, cell, text = entry
            key = cell.test_id, cell.model_label, cell.sample_index
            if key in thumbs and key not in tiles:
                tiles[key] = _tile(reason, cell, text, thumbs[key])
    if tiles:
        everything = Value("All cells that did not pass", link=gallery(verdict="FAIL,ERROR"))
        yield ImageStrip("What did not pass", list(tiles.values())[:MAX_FAILURES], [everything])


def repeated_outputs(summary: Summary, thumbs: Mapping[CellKey, str]) -> Iterator[ImageStrip]:
    """Near-duplicates, each beside the output of the other case. Only cells that are in ``thumbs``, with an image."""
    tiles, shown = list[Tile](), set[frozenset[CellKey]]()
    for cell in (cell for finding in summary.duplicates for cell in finding.cells):
        key = cell.test_id, cell.model_label, cell.sample_index
        pair = frozenset({key, cell.other})
        if thumbs.get(key) and thumbs.get(cell.other) and pair not in shown:
            shown.add(pair)
            name = sample_name(cell.test_id, cell.sample_index)
            caption: list[Cell] = [quoted(f"repeats {sample_name(cell.of, cell.of_sample)}"), dim(cell.model_label)]
            tiles.append(Tile(thumbs[key], cell_link(cell), name, caption, before=thumbs[cell.other]))
    if tiles:
        yield ImageStrip("Outputs that repeat another case's", tiles[:MAX_FAILURES])


def _tile(reason: str, cell: FailingCell, text: str, thumb: str) -> Tile:
    """The verdict, all reasons, the model run, and the explanation of the first reason that has one."""
    reasons = ", ".join(cell.shown(name) or name for name in dict.fromkeys((reason, *cell.explanations)))
    why = cut_middle(cell.reasons.get(reason) or next(iter(cell.reasons.values()), text), _MAX_EXPLANATION)
    name = f"{cell.test_id} [{cell.sample_index}]" if cell.sample_index else cell.test_id
    caption: list[Cell] = [Value(cell.verdict, VERDICT_TONES[cell.verdict]), quoted(reasons), dim(cell.model_label)]
    return Tile(thumb, cell_link(cell), name, [*caption, *([dim(why)] if why not in ("", reasons) else [])])


def distributions(summary: Summary, numbers: CellNumbers) -> dict[tuple[str, str], Plot]:
    """The plot of each metric in each model run: all those of a metric are on one axis."""
    plots: dict[tuple[str, str], Plot] = {}
    for name, metric in counted_metrics(summary.metrics).items():
        values = {model.label: numbers.scores[name, model.label] for model in summary.models}
        measured = list(chain.from_iterable(values.values()))
        low, high = metric.range or (None, None)  # an open end is the measured minimum or maximum
        low = min(measured, default=0.0) if low is None else low
        high = max(measured, default=1.0) if high is None else high
        # a bar for each step of a short scale of integers
        is_short = float(high - low).is_integer() and 2 <= high - low < BINS
        bins = int(high - low) + 1 if is_short and all((value - low).is_integer() for value in measured) else BINS
        is_good = metric.better == "higher"
        for model in summary.models:
            if metric.type == "bool":
                finding = model.metrics.get(name)
                if finding is not None and finding.value is not None:
                    plots[name, model.label] = Share(finding.value, is_good)
            elif values[model.label]:
                ends = (f"{low:.3g}", f"{high:.3g}")
                plots[name, model.label] = Bars(histogram(values[model.label], low, high, bins), ends, is_good)
    return plots


def time_section(title: str, heading: str, times: Mapping[str, array[float]]) -> Iterator[Section]:
    """Seconds by name: mean, median, 95th percentile, and a histogram, all on one axis."""
    seconds = {name: sorted(measured) for name, measured in times.items()}
    top = max((ordered[-1] for ordered in seconds.values() if ordered), default=0.0)
    rows: list[list[Cell]] = []
    for name, ordered in seconds.items():
        plot, figures = None, [0.0, 0.0, 0.0]
        if ordered:
            plot = Bars(histogram(ordered, 0.0, top), ("0", f"{top:.3g}"))
            figures = [fsum(ordered) / len(ordered), median(ordered), ordered[ceil(0.95 * len(ordered)) - 1]]
        rows.append([quoted(name), f"{len(ordered):,}", *(f"{value:.2f}" for value in figures), Value("", plot=plot)])
    columns = [Column(heading), *numbers("n", "mean s", "median s", "p95 s"), Column("spread")]
    if rows:
        yield Section(title, columns, rows, name="times")


def _facts(info: RunInfo) -> list[tuple[str, str]]:
    chosen = {
        name: ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        for name, value in info.selection.model_dump(exclude_defaults=True).items()
    }
    judges = []
    for name, judge in info.suite.judges.items():
        parts = (getattr(judge, "provider", ""), getattr(judge, "model", "") or getattr(judge, "path", ""))
        judges.append(f"{name}: {' '.join(str(part) for part in parts if part)}")
    rows = {
        "run": info.run_id,
        "experiment": info.experiment,
        "note": info.note,
        "description": info.suite.description,
        "started": f"{info.started_at[:19].replace('T', ' ')} UTC",
        "took": _took(info),
        "resumed": ", ".join(info.resumed_at),
        "state": info.state if info.state != "complete" else None,
        "suite": info.suite_path,
        "judges": ", ".join(judges),
        "selected": "; ".join(f"{name}: {value}" for name, value in chosen.items()),
        "command": shlex.join(info.command_line),
        "commit": info.git_commit and info.git_commit[:12],
        "created by": f"visioneval {info.visioneval_version}, Python {info.python_version}",
    }
    return [(name, value) for name, value in rows.items() if value]


def _took(info: RunInfo) -> str | None:
    """The duration of the run, or ``None`` if start or end is unknown or invalid."""
    try:
        start, end = datetime.fromisoformat(info.started_at), datetime.fromisoformat(info.ended_at or "")
        seconds = int((end - start).total_seconds())
    except (ValueError, TypeError):
        return None
    if seconds < 0:  # the clock was set back during the run
        return None
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "under 1 s"
