"""One cell in full, the list of runs, and a run as a flat table."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from visioneval.analysis.summary import Counts
from visioneval.records import GraderRecord, Record
from visioneval.report.console import COLOURS, show_rate, table
from visioneval.report.text import clean, plain
from visioneval.suite.case import TestCase
from visioneval.types import Score


def print_cell(record: Record, case: TestCase | None, folder: Path, console: Console) -> None:
    """Prints everything that is known of a cell: what was asked, what was measured, and why."""
    title = Text.assemble(
        (record.verdict, f"bold {COLOURS[record.verdict]}"),
        f"  {clean(record.test_id)}  {clean(record.model_label)}  sample {record.sample_index}",
    )
    console.print(Rule(title, align="left"))
    console.print(_asked(record, case, folder))
    console.print(_rules(record))
    if record.scores:
        console.print(_scores(record))
    for grader in record.graders:
        if grader.details or grader.error:
            console.print(_grader(grader))


def _asked(record: Record, case: TestCase | None, folder: Path) -> RenderableType:
    made = table("", "", "", fold=(1,))
    made.show_header = False
    rows: dict[str, str | None] = {
        "prompt": record.prompt,
        "criteria": case.criteria if case else None,
        "region": case.region if case else None,
        "inputs": ", ".join(f"{image.role}: {image.path}" for image in case.images) if case else None,
        "params": ", ".join(f"{name}={value}" for name, value in record.run_params.items()),
        "picture": str(folder / record.artifact_path) if record.artifact_path else "none",
        "size": f"{record.width} x {record.height} {record.mime}" if record.width else None,
        "tags": ", ".join(record.tags),
        "error": f"{record.error.stage}, {record.error.kind}: {record.error.message}" if record.error else None,
    }
    for name, value in rows.items():
        if value:
            made.add_row(name, plain(value))
    return made


def _rules(record: Record) -> RenderableType:
    made = table("Rules", "", "", fold=(1,))
    made.show_header = False
    for name, rules in (
        ("failed", record.failed_rules),
        ("warned", record.warned_rules),
        ("skipped", record.skipped_rules),
        ("failure tags", record.failure_tags),
    ):
        if rules:
            made.add_row(name, plain("\n".join(rules)))
    return made if made.row_count else Text("")


def _scores(record: Record) -> RenderableType:
    made = table("Scores", "metric", "score", "reason", right=(1,), fold=(2,))
    for name, score in record.scores.items():
        made.add_row(plain(name), show_score(score), plain(record.reasons.get(name, "")))
    return made


def show_score(score: Score) -> str:
    """A score in a table: ``yes``, ``no``, a number, or ``not measured``."""
    if score is None:
        return "not measured"
    return ("no", "yes")[score] if isinstance(score, bool) else f"{score:.4g}"


def _grader(grader: GraderRecord) -> RenderableType:
    made = table(f"{clean(grader.key)} ({clean(grader.type)})", "", "", fold=(1,))
    made.show_header = False
    if grader.error:
        made.add_row("error", plain(grader.error))
    for name, value in grader.details.items():
        made.add_row(plain(name.replace("_", " ")), plain(_detail(value)))
    return made


def _detail(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_detail(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, Mapping) for item in value)
        return ("\n" if nested else ", ").join(_detail(item) for item in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_runs(runs: Sequence[tuple[Path, Mapping[str, Any], Counts | None]], console: Console) -> None:
    """Lists runs, grouped by experiment, each with what it found."""
    groups: dict[str, list[tuple[Path, Mapping[str, Any], Counts | None]]] = {}
    for run in runs:
        groups.setdefault(str(run[1].get("experiment") or ""), []).append(run)
    parts: list[RenderableType] = []
    for experiment, own in sorted(groups.items()):
        made = table(
            clean(experiment) or "no experiment",
            "run",
            "state",
            "pass rate [95% interval]",
            "note",
            fold=(3,),
        )
        for path, info, counts in own:
            found = "cannot be read" if counts is None else show_rate(counts.pass_rate)
            made.add_row(plain(path.name), plain(str(info.get("state"))), found, plain(str(info.get("note") or "")))
        parts.append(made)
    console.print(Group(*parts))


_FLAT = (
    "run_id",
    "test_id",
    "model_label",
    "sample_index",
    "task_type",
    "status",
    "verdict",
    "artifact_path",
    "artifact_sha256",
    "width",
    "height",
    "cost_usd",
    "seconds",
    "prompt",
)


def write_csv(records: Iterable[Record], metrics: Sequence[str], out: TextIO) -> None:
    """One row per cell, one column per metric; an empty score was not measured or did not apply."""
    lists = ("failed_rules", "warned_rules", "failure_tags", "tags")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_FLAT, *lists, "error", *metrics])
    for record in records:
        error = record.error
        writer.writerow(
            [_cell(getattr(record, name)) for name in _FLAT]
            + ["; ".join(getattr(record, name)) for name in lists]
            + [f"{error.stage}/{error.kind}: {error.message}" if error else ""]
            + [_cell(record.scores.get(name)) for name in metrics]
        )


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value
