"""The cells of one case in full: what was asked, what was measured, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from visioneval.records.model import GraderRecord, Record
from visioneval.report.terminal.summary import COLOURS
from visioneval.report.terminal.table import Cell, Column, pairs, table, titled
from visioneval.report.text import clean, plain
from visioneval.suite.case import TestCase
from visioneval.types import Score


def print_cells(cells: Sequence[Record], case: TestCase | None, folder: Path, console: Console) -> None:
    """Prints cells of one case, of which there is at least one: what all were asked, then each by itself."""
    console.print(Text(clean(cells[0].test_id), style="bold"))
    console.print(pairs(_asked(cells[0], case)))
    for cell in cells:
        console.print()
        _print_cell(cell, folder, console)


def _asked(record: Record, case: TestCase | None) -> Iterator[tuple[str, Cell]]:
    yield "prompt", record.prompt
    if case is not None:
        masks = case.masks.model_dump(exclude_none=True) if case.masks else {}
        yield from _given(
            {
                "criteria": case.criteria,
                "region": case.region,
                "inputs": ", ".join(f"{image.path} ({image.role})" for image in case.images),
                "masks": ", ".join(f"{path} ({name})" for name, path in masks.items()),
                "reference": case.reference,
            }
        )
    yield from _given({"tags": ", ".join(record.tags)})


def _given(rows: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in rows.items() if value)


def _print_cell(record: Record, folder: Path, console: Console) -> None:
    title = Text.assemble(
        (record.verdict, f"bold {COLOURS[record.verdict]}"),
        f"  {clean(record.model_label)}  sample {record.sample_index}",
    )
    console.print(Rule(title, align="left"))
    if record.artifact_path:
        # no fold of ours: a path that the terminal wraps can still be copied
        console.print(Text(clean(str(folder / record.artifact_path))), soft_wrap=True)
    console.print(pairs(_found(record)))
    if record.scores:
        console.print()
        console.print(_scores(record, console.width))
    for grader in record.graders:
        rows = list(_grader_rows(grader))
        if rows:
            console.print()
            console.print(titled(f"{grader.key} ({grader.type})", pairs(rows)))


def _found(record: Record) -> Iterator[tuple[str, Cell]]:
    error = record.error
    cost = "" if record.cost_usd is None else f", {record.cost_usd:.4f} USD"
    yield from _given(
        {
            "size": f"{record.width} x {record.height} {record.mime}" if record.width else "no image",
            "generated": f"{record.provider}, {record.seconds:.2f} s{cost}",
            "params": ", ".join(f"{name}={_detail(value)}" for name, value in record.run_params.items()),
            "refused": record.reasons.get("refused") if record.status == "refused" else None,
            "error": f"{error.stage}, {error.kind}: {error.message}" if error else None,
            "failed": "\n".join(record.failed_rules),
            "warned": "\n".join(record.warned_rules),
            "skipped": "\n".join(record.skipped_rules),
            "failure tags": ", ".join(record.failure_tags),
        }
    )


def _scores(record: Record, width: int) -> Any:
    columns = (Column("metric", least=16), Column("score", right=True), Column("reason", least=20))
    rows = [(name, show_score(score), record.reasons.get(name, "")) for name, score in record.scores.items()]
    # a reason that covers all of a grader's metrics stands under the grader's key
    rows += [
        (grader.key, "", record.reasons[grader.key])
        for grader in record.graders
        if grader.key in record.reasons and grader.key not in record.scores
    ]
    shown = columns if any(row[2] for row in rows) else columns[:2]
    return table(shown, [row[: len(shown)] for row in rows], width)


def show_score(score: Score) -> str:
    """A score in a table: ``yes``, ``no``, a number, or ``not measured``."""
    if score is None:
        return "not measured"
    return ("no", "yes")[score] if isinstance(score, bool) else f"{score:.4g}"


def _grader_rows(grader: GraderRecord) -> Iterator[tuple[str, Cell]]:
    if grader.error:
        yield "error", grader.error
    for name, value in grader.details.items():
        if _worth_a_look(value):
            yield name.replace("_", " "), plain(_detail(value))


def _worth_a_look(value: Any) -> bool:
    """Not for what is empty, and not for coordinates, which only a program can use."""
    if isinstance(value, (list, tuple)):
        return bool(value) and not any(_is_coordinate(item) for item in value)
    return value is not None and value not in ("", {})


def _is_coordinate(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(number, (int, float)) for number in value)


def _detail(value: Any) -> str:
    if isinstance(value, Mapping):
        shown = ((name.replace("_", " "), item) for name, item in value.items() if _worth_a_look(item))
        return ", ".join(f"{name}: {_detail(item)}" for name, item in shown)
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, Mapping) for item in value)
        return ("\n" if nested else ", ").join(_item(item) for item in value)
    if isinstance(value, bool):
        return ("no", "yes")[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _item(value: Any) -> str:
    """One of a list. Of a mapping the first value says what it is, and what repeats it is left out."""
    if not isinstance(value, Mapping):
        return _detail(value)
    shown = [
        (name, _detail(item), item) for name, item in value.items() if _worth_a_look(item) and not _is_coordinate(item)
    ]
    if not shown:
        return "-"
    (_, head, _), *rest = shown
    words = [_word(name, text, item) for name, text, item in rest if text != head]
    return f"{head}  ({', '.join(words)})" if words else head


def _word(name: str, text: str, value: Any) -> str:
    said = name.replace("_", " ")
    if isinstance(value, bool):
        return said if value else f"not {said}"
    return f"{said} {text}"
