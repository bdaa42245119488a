"""What the page's script reads: an index of all cells in columns, their words, and each cell in full, in parts.

The index is small, so that thousands of cells open at once; words are fetched when they are searched or shown, and a
cell in full when it is looked at.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from visioneval.analysis.disagreements import disagreement_finder
from visioneval.analysis.summary import reason_of
from visioneval.errors import TemplateError
from visioneval.records.model import Record, RunInfo
from visioneval.report.html.images import ReportImages
from visioneval.report.html.slim_run import SlimRun
from visioneval.rules import parse_rule
from visioneval.suite.case import TestCase
from visioneval.suite.prompts import rendered
from visioneval.types import Score

PART = 40
"""Cells in one part of the details."""
_KEPT_FLAGS = ("--var", "--judge")
_LEFT_OUT = {"schema_version", "run_id", "test_id", "model_label", "sample_index", "prompt", "artifact_sha256"}


class _Table:
    """Texts that recur, each kept once and named by its place."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.places: dict[str, int] = {}
        for text in texts:
            self.place(text)

    def place(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))

    def all(self, texts: Iterable[str]) -> list[int]:
        return [self.place(text) for text in texts]

    @property
    def texts(self) -> list[str]:
        return list(self.places)


def index_of(run: SlimRun, thumbs: Sequence[str]) -> dict[str, Any]:
    """All that the gallery shows and filters by, but for words. ``thumbs`` are addresses, one a cell."""
    info, cells = run.info, run.cells
    cases, models = _Table(), _Table(str(entry.label) for entry in info.suite.models)
    tags, failure_tags, rules = _Table(), _Table(), _Table()
    columns = {
        "case": [cases.place(cell.test_id) for cell in cells],
        "model": [models.place(cell.model_label) for cell in cells],
        "sample": [cell.sample_index for cell in cells],
        "verdict": "".join(cell.verdict[0] for cell in cells),
        "refused": [at for at, cell in enumerate(cells) if cell.status == "refused"],
        "tags": [tags.all(cell.tags) for cell in cells],
        "failureTags": [failure_tags.all(cell.failure_tags) for cell in cells],
        "rules": [rules.all(cell.failed_rules) for cell in cells],
        "parted": [at for at, parted in enumerate(map(disagreement_finder(info.suite), cells)) if any(parted.values())],
        "thumb": list(thumbs),
        "place": run.places,
        "scores": {name: [_number(cell.scores.get(name, "")) for cell in cells] for name in info.metrics},
    }
    return {
        "part": PART,
        "count": len(cells),
        "cases": cases.texts,
        "models": models.texts,
        "tags": tags.texts,
        "failureTags": failure_tags.texts,
        "rules": rules.texts,
        "metrics": {name: metric.model_dump(mode="json") for name, metric in info.metrics.items()},
        "cells": columns,
    }


def _number(score: Score | str) -> Score | str:
    """``""`` where a metric does not apply, ``null`` where it was not measured."""
    return float(f"{score:.5g}") if isinstance(score, float) else score


def words_of(cells: Sequence[Record]) -> dict[str, Any]:
    """What a search for words looks in: prompts, each once, and for each cell its prompt and its reasons."""
    prompts = _Table()
    return {
        "prompt": [prompts.place(cell.prompt) for cell in cells],
        "why": [_why(cell) for cell in cells],
        "prompts": prompts.texts,
    }


def _why(cell: Record) -> str:
    said = [*dict.fromkeys(cell.reasons.values())]
    if cell.error is not None:
        said.insert(0, f"{cell.error.stage}, {cell.error.kind}: {cell.error.message}")
    return " \u00b7 ".join(filter(None, said))


def details_of(run: SlimRun, shelf: ReportImages) -> Iterator[str]:
    """Every cell in full, ``PART`` at a time as JSON like that of ``as_json``, in the order of their places."""
    info = run.info
    cases = {case.id: case for case in info.suite.cases}
    asked: dict[str, str] = {}
    disagree = disagreement_finder(info.suite)
    pairs = ((cell, disagree(cell)) for cell in run.in_full())
    while part := list(islice(pairs, PART)):
        found = []
        for cell, parted in part:
            if cell.test_id not in asked:
                asked[cell.test_id] = _json(_asked(cases.get(cell.test_id), info, shelf))
            case = cases.get(cell.test_id)
            metrics = {rule: parse_rule(rule).metric for rule in (*cell.failed_rules, *cell.warned_rules)}
            why = {rule: reason_of(metric, cell, case, info.suite) for rule, metric in metrics.items()}
            broken = [metrics[rule] for rule in cell.failed_rules]
            record = cell.model_dump_json(exclude=_LEFT_OUT)
            own = _json({**_detail(cell, record, parted, info, shelf), "why": why, "broken": broken})
            # a run may hold a hundred thousand cells: the record's JSON is put in as it is, not parsed and made again
            found.append(f'{own[:-1]},"record":{record},{asked[cell.test_id][1:]}')
        yield _inert(f"[{','.join(found)}]")


def _asked(case: TestCase | None, info: RunInfo, shelf: ReportImages) -> dict[str, Any]:
    """What all cells of a case were asked."""
    if case is None:
        return {"inputs": [], "masks": []}
    masks = case.masks.model_dump(exclude_none=True) if case.masks else {}
    criteria = case.criteria
    with suppress(TemplateError):
        criteria = rendered(case, info.suite.vars)[1]
    return {
        "criteria": criteria,
        "region": case.region,
        "expect": case.expect.model_dump(mode="json", exclude_defaults=True),
        "inputs": [{"role": image.role, **shelf.input(image.path)} for image in case.images],
        "masks": [{"role": name, **shelf.input(path, mask=True)} for name, path in masks.items()],
        "reference": shelf.input(case.reference) if case.reference else None,
    }


def _detail(
    cell: Record, record: str, parted: Mapping[str, bool], info: RunInfo, shelf: ReportImages
) -> dict[str, Any]:
    output = (cell.artifact_path or "").startswith("artifacts/")
    has_files = record.count('"artifacts/') > output
    return {
        "prompt": cell.prompt,
        "output": shelf.own(cell.artifact_path) if cell.artifact_path else None,
        "files": {path: shelf.own(path) for path in _paths([grader.details for grader in cell.graders])}
        if has_files
        else {},
        "parted": [key for key, disagreed in parted.items() if disagreed],
        "command": command_of(info, cell),
    }


def _paths(value: Any) -> Iterator[str]:
    """The graders' own images among what they saw."""
    if isinstance(value, str):
        if value.startswith("artifacts/") and ".." not in value and "\\" not in value and "\x00" not in value:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _paths(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _paths(item)


def command_of(info: RunInfo, cell: Record) -> str:
    """The command that runs one cell's case on its model run again. Whoever pastes it says himself whom he trusts."""
    suite = f"./{info.suite_path}" if info.suite_path.startswith("-") else info.suite_path
    words = ["visioneval", "run", suite, "--case", cell.test_id, "--model", cell.model_label]
    given = iter(info.command_line)
    for word in given:
        name, sign, value = word.partition("=")
        if name in _KEPT_FLAGS:
            kept = value if sign else next(given, None)
            words += [] if kept is None else [name, kept]
    return shlex.join(words)


def as_script(name: str, text: str) -> str:
    """What ``as_json`` gave, as a line of script that hands it to the page under a name."""
    return f"visioneval.take({json.dumps(name)},{text});\n"


def as_block(name: str, text: str) -> str:
    """What ``as_json`` gave, as an inert block within a page."""
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def as_json(data: Any) -> str:
    """JSON in which nothing can end a script element or a line of script."""
    return _inert(_json(data))


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _inert(text: str) -> str:
    escaped = (("<", "\\u003c"), (">", "\\u003e"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
    for sign, code in escaped:
        text = text.replace(sign, code)
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
