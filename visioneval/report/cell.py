"""The cells of one case in full, in a terminal: the request, the scores and the reasons."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from visioneval.analysis.redaction import LEFT_OUT, REDACTED
from visioneval.analysis.summary.gates import question_of
from visioneval.analysis.summary.summary import in_order
from visioneval.errors import TemplateError, UsageError, did_you_mean
from visioneval.media.urls import public_address
from visioneval.records.model import GraderRecord, JudgeAnswer, Record, RunInfo
from visioneval.records.reader import Records
from visioneval.records.stores.lookup import display_name
from visioneval.report.run import VERDICT_TONES
from visioneval.report.sections import Cell, Column, Section, Value, numbers, shown_columns
from visioneval.report.terminal import STYLES, key_values, section_part
from visioneval.report.text import clean, failed_text, thresholds_of
from visioneval.rules import parse_rule, show_score
from visioneval.suite.case import TestCase, rendered
from visioneval.suite.filters import chain_of

WIDTH = 100
"""Columns of a case outside of a terminal."""
_SHORTEST_WAIT_S = 0.05
"""Shorter waits are not shown."""


def cells_of_case(info: RunInfo, records: Records[Record], case: str) -> list[Record]:
    """The cells of a case, of all its turns if it has several. Raises ``UsageError`` if there are none.

    It reads all records, so that a damaged one is reported.
    """
    cells = [record for record in records if case in (record.test_id, chain_of(record.test_id))]
    if not cells:
        ids = {name for test_id, *_ in records.names() for name in (test_id, chain_of(test_id))}
        raise UsageError(f"no case {case!r} in this run{did_you_mean(str(case), ids)}")
    return in_order(info, cells)


def print_case(cells: Sequence[Record], info: RunInfo, folder: Path, console: Console) -> None:
    """Prints the cells of one case: of each of its turns, the shared request, then each cell."""
    for turn, turn_cells in groupby(cells, lambda cell: cell.test_id):
        case = _rendered_case(info, turn)
        _print_turn([_with_questions(cell, case, info) for cell in turn_cells], case, folder, console)


def _with_questions(cell: Record, case: TestCase | None, info: RunInfo) -> Record:
    """A cell in which a failed metric has the question as its reason, where the judge gave its grader none."""
    if case is None:
        return cell
    metrics = dict.fromkeys(parse_rule(rule).metric for rule in cell.failed_rules)
    asked = {metric: question_of(metric, cell, case, info.suite) for metric in metrics if metric in cell.scores}
    questions = {metric: question for metric, question in asked.items() if question}
    return cell.model_copy(update={"reasons": {**cell.reasons, **questions}})


def case_text(cells: Sequence[Record], info: RunInfo, folder: Path) -> str:
    """What is printed of the cells of one case, as plain text."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        print_case(cells, info, folder, console)
    return captured.get().rstrip("\n")


def _rendered_case(info: RunInfo, case_id: str) -> TestCase | None:
    """The case, with its criteria as judges saw them."""
    case = next((case for case in info.suite.cases if case.id == case_id), None)
    if case is None or not case.criteria:
        return case
    with suppress(TemplateError):
        return case.model_copy(update={"criteria": rendered(case, info.suite.vars)[1]})
    return case


def _print_turn(cells: Sequence[Record], case: TestCase | None, folder: Path, console: Console) -> None:
    console.print(Text(clean(cells[0].test_id), style="bold"))
    console.print(key_values(_case_rows(cells[0], case)))
    for cell in cells:
        _print_cell(cell, folder, console)


def _case_rows(record: Record, case: TestCase | None) -> Iterator[tuple[str, Cell]]:
    yield "prompt", record.prompt
    rows: dict[str, str | None] = {}
    if case is not None:
        masks = case.masks.model_dump(exclude_none=True) if case.masks else {}
        shown = zip(case.images, case.shown_roles, strict=True)
        rows = {
            "criteria": case.criteria,
            "region": case.region,
            "inputs": ", ".join(f"{public_address(image.path)} ({role})" for image, role in shown),
            "masks": ", ".join(f"{public_address(path)} ({name})" for name, path in masks.items()),
            "reference": case.reference and public_address(case.reference),
        }
    yield from _non_empty({**rows, "tags": ", ".join(record.tags)})


def _non_empty(rows: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in rows.items() if value)


def _print_cell(record: Record, folder: Path, console: Console) -> None:
    title = Text.assemble(
        (record.verdict, f"bold {STYLES[VERDICT_TONES[record.verdict]]}"),
        f"  {clean(record.model_label)}  sample {record.sample_index}",
    )
    console.print()
    console.print(Rule(title, align="left"))
    if record.artifact_path == REDACTED:
        console.print(Text(LEFT_OUT))
    elif record.artifact_path:
        # not wrapped by us, so that the path can be copied from the terminal
        console.print(Text(clean(display_name(folder / record.artifact_path))), soft_wrap=True)
    console.print(key_values(_result_rows(record)))
    parts: list[RenderableType] = [section_part(_scores(record), console.width)] if record.scores else []
    for grader in record.graders:
        if rows := list(_grader_rows(grader)):
            parts.append(Group(Text(clean(f"{grader.key} ({grader.type})"), style="bold"), key_values(rows)))
        for judge, details in (("", grader.details), *((answer.judge, answer.details) for answer in grader.judges)):
            if questions := _questions_in(details):
                section = _answers(f"{grader.key}: {judge or 'answers'}", questions)
                parts.append(section_part(section, console.width))
    for part in parts:
        console.print()
        console.print(part)


def _result_rows(record: Record) -> Iterator[tuple[str, Cell]]:
    error = record.error
    cost = "" if record.cost_usd is None else f", {record.cost_usd:.4f} USD"
    stored = f" (in {record.reply_path})" if record.reply_path else ""
    yield from _non_empty(
        {
            "edits": record.base_path,
            "size": f"{record.width} x {record.height} {record.mime}" if record.width else "no image",
            "sent prompt": record.sent_prompt,
            "graded prompt": record.graded_prompt,
            "generated": f"{record.provider}, {record.seconds:.2f} s{_waited(record.waited_seconds)}{cost}",
            "params": ", ".join(f"{name}={_detail(value)}" for name, value in record.shown_params.items()),
            "refused": record.reasons.get("refused") if record.status == "refused" else None,
            "error": f"{error.stage}, {error.kind}: {error.message}" if error else None,
            "unused answer": None if record.is_unusable or not record.reply_note else record.reply_note + stored,
            "failed": "\n".join(failed_text(rule, record.scores) for rule in record.failed_rules),
            "warned": "\n".join(failed_text(rule, record.scores) for rule in record.warned_rules),
            "skipped": "\n".join(record.skipped_rules),
            "failure tags": ", ".join(record.failure_tags),
        }
    )


def _waited(seconds: float) -> str:
    return f" (waited {seconds:.2f} s)" if seconds >= _SHORTEST_WAIT_S else ""


def _scores(record: Record) -> Section:
    columns = (Column("metric", min_width=16), *numbers("score"), Column("reason", min_width=20))
    thresholds, reasons = thresholds_of(record), record.reasons
    shown = {name: show_score(score, thresholds.get(name)) for name, score in record.scores.items()}
    # a reason for all of a grader's metrics is stored under the grader's key
    shown |= {grader.key: "" for grader in record.graders if grader.key in reasons and grader.key not in shown}
    rows = [(name, score, reasons.get(name, "")) for name, score in shown.items()]
    return Section("", *shown_columns(columns, rows, {"reason": any(row[2] for row in rows)}))


def _questions_in(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The questions that a grader asked about a cell, with their answers."""
    listed = details.get("questions")
    entries = listed if isinstance(listed, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping) and "question" in entry and "expected" in entry]


def _answers(title: str, questions: Sequence[Mapping[str, Any]]) -> Section:
    """A row for each question: how it was answered, why it scored 0, and what in the prompt it is about."""
    notes = [name for name in ("reason", "justification") if any(entry.get(name) for entry in questions)]
    rows: list[list[Cell]] = [
        [str(entry["question"]), _answer_to(entry), *(str(entry.get(name) or "") for name in notes)]
        for entry in questions
    ]
    columns = [Column("question", min_width=20), Column("answer", min_width=20)]
    return Section(title, [*columns, *(Column(name, min_width=16) for name in notes)], rows)


def _answer_to(entry: Mapping[str, Any]) -> Value:
    given = _detail(entry.get("choice") or entry.get("answer") or "")
    if entry.get("unanswered"):
        return Value(f"Not answered: {_detail(entry['unanswered'])}.", "error")
    if not entry.get("right"):
        return Value(f"Answered {given}, expected {_detail(entry['expected'])}.", "fail")
    if entry.get("score") == 0:
        return Value(f"Answered {given}. Scored 0: its parent question failed.", "fail")
    return Value(f"Answered {given}.")


def _grader_rows(grader: GraderRecord) -> Iterator[tuple[str, Cell]]:
    if grader.error:
        yield "error", grader.error
    if grader.waited_seconds >= _SHORTEST_WAIT_S:
        yield "time", f"{grader.seconds:.2f} s{_waited(grader.waited_seconds)}"
    for name, value in grader.details.items():
        if _is_shown(value) and not (name == "questions" and _questions_in(grader.details)):
            yield name.replace("_", " "), _detail(value)
    for answer in grader.judges:
        yield answer.judge, _answer(answer)


def _answer(answer: JudgeAnswer) -> str:
    """The answer of one judge of a panel: its scores, its error, its tags, its votes, and its reasons below."""
    scores = (f"{name}: {'not measured' if score is None else _detail(score)}" for name, score in answer.scores.items())
    model = f"({answer.model})" if answer.model else ""
    cost = "" if answer.cost_usd is None else f"{answer.cost_usd:.4f} USD"
    votes = answer.details.get("votes")
    parts = (", ".join(scores), ", ".join(answer.failure_tags), f"votes: {_detail(votes)}" if votes else "", cost)
    head = " ".join(filter(None, ("; ".join(filter(None, parts)), model)))
    return "\n".join(filter(None, (head, answer.error, *answer.reasons.values())))


def _is_shown(value: Any) -> bool:
    """Hides empty values and coordinates, which are only useful to programs."""
    if isinstance(value, (list, tuple)):
        return bool(value) and not any(_is_coordinate(item) for item in value)
    return value is not None and value not in ("", {})


def _is_coordinate(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(number, (int, float)) for number in value)


def _detail(value: Any) -> str:
    if isinstance(value, Mapping):
        items = ((name.replace("_", " "), item) for name, item in value.items() if _is_shown(item))
        return ", ".join(f"{name}: {_detail(item)}" for name, item in items)
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, Mapping) for item in value)
        return ("\n" if nested else ", ").join(_item(item) for item in value)
    if isinstance(value, bool):
        return ("no", "yes")[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _item(value: Any) -> str:
    """One item of a list. In a mapping the first value is the heading; values equal to it are omitted."""
    if not isinstance(value, Mapping):
        return _detail(value)
    parts = [(name, item) for name, item in value.items() if _is_shown(item) and not _is_coordinate(item)]
    if not parts:
        return "-"
    head, notes = _detail(parts[0][1]), []
    for name, item in parts[1:]:
        if (text := _detail(item)) != head:
            label = name.replace("_", " ")
            notes.append(f"not {label}" if item is False else label if item is True else f"{label} {text}")
    return f"{head}  ({', '.join(notes)})" if notes else head
