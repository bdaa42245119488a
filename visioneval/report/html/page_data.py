"""Data for the page's script: a columnar index of all cells, their texts, and full cells in parts.

The index is small, so that thousands of cells open quickly. The script loads texts when they are searched or shown,
and full cells when they are opened.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from visioneval import bounds
from visioneval.analysis.alignments import alignment_keys, gaps_in
from visioneval.analysis.disagreements import disagreement_finder
from visioneval.analysis.summary.cells import reason_of
from visioneval.errors import TemplateError
from visioneval.records.model import Record, RunInfo
from visioneval.report.html.images import ReportImages
from visioneval.report.html.slim_run import SlimRun
from visioneval.report.numbers import failed_text, thresholds_of
from visioneval.rules import parse_rule, show_score
from visioneval.settings import SETTINGS
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.prompts import rendered
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Score

PART = 40
"""Cells in one part of the details."""
_REPEATED_FLAGS = tuple(SETTINGS[name].flag for name in ("variables", "judges", "samples", "runs", "cache"))
_TRUSTED_FLAGS = ("--env-file", *(bound.setting.flag for bound in bounds.ALL))
_TRUST = SETTINGS["trust_suite"].flag
_UNTRUSTED = f"The run had {_TRUST}: add it if you trust this suite, or write the report with it."
NOT_DOWNLOADED = "not downloaded: the output stayed at its address, where the judges read it"
_OMITTED_FIELDS = {"schema_version", "run_id", "test_id", "model_label", "sample_index", "prompt", "artifact_sha256"}


class _TextTable:
    """Recurring texts, each stored once and referenced by index."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.indexes: dict[str, int] = {}
        for text in texts:
            self.index(text)

    def index(self, text: str) -> int:
        return self.indexes.setdefault(text, len(self.indexes))

    def all(self, texts: Iterable[str]) -> list[int]:
        return [self.index(text) for text in texts]

    @property
    def texts(self) -> list[str]:
        return list(self.indexes)


def index_of(run: SlimRun, thumbs: Sequence[str]) -> dict[str, Any]:
    """The data that the gallery shows and filters by, without texts. ``thumbs`` are URLs, one per cell."""
    info, cells = run.info, run.cells
    cases, models = _TextTable(), _TextTable(str(entry.label) for entry in info.selected_suite.models)
    keys = alignment_keys(info)
    tags, failure_tags, rules, failures = _TextTable(), _TextTable(), _TextTable(), _TextTable()
    columns = {
        "case": [cases.index(cell.test_id) for cell in cells],
        "model": [models.index(cell.model_label) for cell in cells],
        "sample": [cell.sample_index for cell in cells],
        "verdict": "".join(cell.verdict[0] for cell in cells),
        "refused": [at for at, cell in enumerate(cells) if cell.status == "refused"],
        "tags": [tags.all(cell.tags) for cell in cells],
        "failureTags": [failure_tags.all(cell.failure_tags) for cell in cells],
        "rules": [rules.all(cell.failed_rules) for cell in cells],
        "failures": [failures.all(failed_text(rule, cell.scores) for rule in cell.failed_rules) for cell in cells],
        "disagreement": [
            at
            for at, disagreements in enumerate(map(disagreement_finder(info.suite), cells))
            if any(disagreements.values())
        ],
        "gaps": [sum(len(gaps_in(cell, key)) for key in keys) for cell in cells] if keys else [],
        "thumb": list(thumbs),
        "place": run.positions,
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
        "failures": failures.texts,
        "metrics": {name: metric.model_dump(mode="json") for name, metric in info.metrics.items()},
        "cells": columns,
    }


def _number(score: Score | str) -> Score | str:
    """``""`` if a metric does not apply, ``null`` if it was not measured."""
    return float(f"{score:.5g}") if isinstance(score, float) else score


def texts_of(run: SlimRun) -> dict[str, Any]:
    """Searchable texts: all prompts, and for each cell the index of its prompt and its reasons."""
    prompts, suite = _TextTable(), run.info.suite
    cases = {case.id: case for case in suite.cases}
    return {
        "prompt": [prompts.index(cell.prompt) for cell in run.cells],
        "why": [_why(cell, cases.get(cell.test_id), suite) for cell in run.cells],
        "prompts": prompts.texts,
    }


def _why(cell: Record, case: TestCase | None, suite: Suite) -> str:
    """All reasons, a line for each, those of failed rules first: the gallery shows the first, and searches all."""
    failed = (reason_of(parse_rule(rule).metric, cell, case, suite) for rule in cell.failed_rules)
    reasons = [*dict.fromkeys((*failed, *cell.reasons.values()))]
    if cell.error is not None:
        reasons.insert(0, f"{cell.error.stage}, {cell.error.kind}: {cell.error.message}")
    return "\n".join(" ".join(reason.split()) for reason in reasons if reason)


def details_of(run: SlimRun, images: ReportImages, *, trust: bool) -> Iterator[str]:
    """Full cells as JSON like that of ``as_json``, ``PART`` at a time, in the order of the file."""
    info = run.info
    cases = {case.id: case for case in info.suite.cases}
    case_json: dict[str, str] = {}
    disagree = disagreement_finder(info.suite)
    failing = _failing_graders(info.suite)
    free = {str(entry.label) for entry in info.suite.models if entry.is_free}
    pairs = ((cell, disagree(cell)) for cell in run.full_records())
    while batch := list(islice(pairs, PART)):
        cells = []
        for cell, disagreements in batch:
            case = cases.get(cell.test_id)
            if cell.test_id not in case_json:
                case_json[cell.test_id] = _json(_case_data(case, info, images))
            # the image that a later turn edits is its cell's own
            inputs_json = case_json[cell.test_id] if cell.base_path is None else _turn_json(case, cell, info, images)
            broken = [parse_rule(rule).metric for rule in cell.failed_rules]
            exact = {name: show_score(cell.scores.get(name), limit) for name, limit in thresholds_of(cell).items()}
            shown = cell.model_copy(update={"run_params": cell.shown_params})
            record = shown.model_dump_json(exclude=_OMITTED_FIELDS)
            more = {
                "failed": _rules(cell.failed_rules, cell, case, info.suite),
                "warned": _rules(cell.warned_rules, cell, case, info.suite),
                "broken": broken,
                "failing": failing(broken, case),
                "exact": exact,
                "free": cell.model_label in free,
            }
            cell_json = _json({**_detail(cell, record, disagreements, info, images, trust=trust), **more})
            # a run may have a hundred thousand cells: the record's JSON is inserted without parsing it
            cells.append(f'{cell_json[:-1]},"record":{record},{inputs_json[1:]}')
        yield _inert(f"[{','.join(cells)}]")


def _rules(rules: Iterable[str], cell: Record, case: TestCase | None, suite: Suite) -> list[tuple[str, str]]:
    """What each rule found, and why."""
    return [(failed_text(rule, cell.scores), reason_of(parse_rule(rule).metric, cell, case, suite)) for rule in rules]


def _failing_graders(suite: Suite) -> Callable[[Sequence[str], TestCase | None], list[str]]:
    """Returns a function that finds the graders whose metrics failed, also as part of a computed metric."""
    computed = SuiteMetrics(suite).grader_sources()

    def failing(broken: Sequence[str], case: TestCase | None) -> list[str]:
        if not broken or case is None:
            return []
        sources = {source for name in broken for source in (name, *computed.get(name, ()))}
        return [grader.key for grader in suite.graders if not sources.isdisjoint(grader.metrics(case))]

    return failing


def _case_data(case: TestCase | None, info: RunInfo, images: ReportImages) -> dict[str, Any]:
    """The inputs shared by all cells of a case."""
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
        "inputs": [{"role": image.role, **images.input(image.path)} for image in case.images],
        "masks": [{"role": name, **images.input(path, mask=True)} for name, path in masks.items()],
        "reference": images.input(case.reference) if case.reference else None,
    }


def _turn_json(case: TestCase | None, cell: Record, info: RunInfo, images: ReportImages) -> str:
    """The inputs of a later turn: the output of the turn before, and those of its case."""
    data = _case_data(case, info, images)
    base = [{"role": "base", **images.run_image(cell.base_path)}] if cell.base_path else []
    return _json({**data, "inputs": [*base, *data["inputs"]]})


def _detail(
    cell: Record, record: str, disagreements: Mapping[str, bool], info: RunInfo, images: ReportImages, *, trust: bool
) -> dict[str, Any]:
    output = (cell.artifact_path or "").startswith("artifacts/")
    has_files = record.count('"artifacts/') > output + (cell.base_path is not None)
    return {
        "prompt": cell.prompt,
        "output": images.run_image(cell.artifact_path) if cell.artifact_path else _no_output(cell),
        "files": {path: images.run_image(path) for path in _paths([grader.all_details for grader in cell.graders])}
        if has_files
        else {},
        "disagreement": [key for key, disagreed in disagreements.items() if disagreed],
        "command": command_of(info, cell, trust=trust),
        "commandNote": "" if trust or _TRUST not in info.command_line else _UNTRUSTED,
    }


def _no_output(cell: Record) -> dict[str, str] | None:
    """Why a finished output is not in the run; ``None`` if there is none."""
    if cell.status != "completed" or (cell.error is not None and cell.error.stage == "generate"):
        return None
    return {"why": NOT_DOWNLOADED}


def _paths(value: Any) -> Iterator[str]:
    """Paths of images that graders stored, in their details."""
    if isinstance(value, str):
        if value.startswith("artifacts/") and ".." not in value and "\\" not in value and "\x00" not in value:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _paths(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _paths(item)


def command_of(info: RunInfo, cell: Record, *, trust: bool = False) -> str:
    """The command that runs one cell again, with the flags of its run that it needs.

    Flags that trust the suite, read keys or lift limits are included only with ``trust``: the run may be a stranger's.
    """
    suite = f"./{info.suite_path}" if info.suite_path.startswith("-") else info.suite_path
    before: list[str] = []
    command = ["run", suite, "--case", cell.test_id, "--model", cell.model_label]
    arguments = iter(info.command_line)
    for word in arguments:
        name, sign, value = word.partition("=")
        if name in (*_REPEATED_FLAGS, *_TRUSTED_FLAGS):
            flag_value = value if sign else next(arguments, None)
            if flag_value is not None and (trust or name in _REPEATED_FLAGS):
                (before if name == "--env-file" else command).extend((name, flag_value))
        elif name == _TRUST and trust:
            command.append(name)
    return shlex.join(("visioneval", *before, *command))


def as_script(name: str, text: str) -> str:
    """Wraps JSON from ``as_json`` in a script that registers it under a name."""
    return f"visioneval.take({json.dumps(name)},{text});\n"


def as_block(name: str, text: str) -> str:
    """Wraps JSON from ``as_json`` in an inert block of a page."""
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def as_json(data: Any) -> str:
    """JSON that cannot end a script element or a line of script."""
    return _inert(_json(data))


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _inert(text: str) -> str:
    escaped = (("<", "\\u003c"), (">", "\\u003e"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
    for sign, code in escaped:
        text = text.replace(sign, code)
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
