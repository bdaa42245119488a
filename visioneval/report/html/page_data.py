"""Data for the page's script: a columnar index of all cells, their texts, and full cells in parts.

The index is small, so that thousands of cells open quickly. The script loads texts when they are searched or shown,
and full cells when they are opened.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from visioneval import bounds
from visioneval.analysis.summary.gates import reason_of
from visioneval.analysis.summary.graders import alignment_keys, gaps_in
from visioneval.analysis.summary.judges import disagreement_finder
from visioneval.errors import TemplateError
from visioneval.records.model import Record, RunInfo
from visioneval.report.html.images import ReportImages
from visioneval.report.text import failed_text, thresholds_of
from visioneval.rules import parse_rule, show_score
from visioneval.settings import SETTINGS
from visioneval.suite.case import BASE_ROLE, TestCase, rendered
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


class _TextTable(dict[str, int]):
    """Recurring texts, each stored once and referenced by its index."""

    def index(self, text: str) -> int:
        return self.setdefault(text, len(self))

    def all(self, texts: Iterable[str]) -> list[int]:
        return [self.index(text) for text in texts]


class PageData:
    """What the page's script reads of a run: full cells in parts, an index of all of them, and their texts.

    The index and the texts are complete when all parts were read.
    """

    def __init__(self, info: RunInfo, images: ReportImages, *, trust: bool) -> None:
        """No cells. Only with ``trust`` do commands have flags that trust the suite."""
        self.outputs: list[str | None] = []
        """The path of the output of each cell."""
        self._info, self._images, self._trust = info, images, trust
        self._cases = {case.id: case for case in info.suite.cases}
        self._free = {str(entry.label) for entry in info.suite.models if entry.is_free}
        self._disagree = disagreement_finder(info.suite)
        self._computed = SuiteMetrics(info.suite).grader_sources()
        self._alignments = alignment_keys(info)
        self._case_json: dict[str, str] = {}
        self._columns: defaultdict[str, list[Any]] = defaultdict(list)
        self._scores: dict[str, list[Score | str]] = {name: [] for name in info.metrics}
        """``""`` if a metric does not apply, ``None`` if it was not measured."""
        self._tables = {name: _TextTable() for name in ("cases", "models", "tags", "failureTags", "rules", "failures")}
        for entry in info.selected_suite.models:
            self._tables["models"].index(str(entry.label))
        self._prompts = _TextTable()
        self._texts: defaultdict[str, list[Any]] = defaultdict(list)

    def parts(self, cells: Iterable[Record]) -> Iterator[str]:
        """Full cells as JSON like that of ``as_json``, ``PART`` at a time."""
        remaining = iter(cells)
        while batch := list(islice(remaining, PART)):
            yield _inert(f"[{','.join(map(self._added, batch))}]")

    def index(self, thumbs: Sequence[str]) -> dict[str, Any]:
        """The data that the gallery shows and filters by, without texts. ``thumbs`` are URLs, one per cell."""
        columns = ("case", "model", "sample", "tags", "failureTags", "rules", "failures", "refused", "disagreement")
        return {
            "part": PART,
            "count": len(self.outputs),
            **{name: list(table) for name, table in self._tables.items()},
            "metrics": {name: metric.model_dump(mode="json") for name, metric in self._info.metrics.items()},
            "cells": {
                **{name: self._columns[name] for name in columns},
                "verdict": "".join(self._columns["verdict"]),
                "gaps": self._columns["gaps"] if self._alignments else [],
                "thumb": list(thumbs),
                "scores": self._scores,
            },
        }

    def texts(self) -> dict[str, Any]:
        """Searchable texts: all prompts, and for each cell the index of its prompt and its reasons."""
        return {"prompt": self._texts["prompt"], "why": self._texts["why"], "prompts": list(self._prompts)}

    def _added(self, cell: Record) -> str:
        """Adds a cell to the index and the texts, and returns it as JSON."""
        case, disagreements = self._cases.get(cell.test_id), self._disagree(cell)
        failures = [failed_text(rule, cell.scores) for rule in cell.failed_rules]
        tables, at = self._tables, len(self.outputs)
        for name, value in {
            "case": tables["cases"].index(cell.test_id),
            "model": tables["models"].index(cell.model_label),
            "sample": cell.sample_index,
            "verdict": cell.verdict[0],
            "tags": tables["tags"].all(cell.tags),
            "failureTags": tables["failureTags"].all(cell.failure_tags),
            "rules": tables["rules"].all(cell.failed_rules),
            "failures": tables["failures"].all(failures),
            "gaps": sum(len(gaps_in(cell, key)) for key in self._alignments),
        }.items():
            self._columns[name].append(value)
        self._columns["refused"] += [at] if cell.status == "refused" else []
        self._columns["disagreement"] += [at] if any(disagreements.values()) else []
        for name, scores in self._scores.items():
            score = cell.scores.get(name, "")
            scores.append(float(f"{score:.5g}") if isinstance(score, float) else score)
        self._texts["prompt"].append(self._prompts.index(cell.prompt))
        self._texts["why"].append(_why(cell, case, self._info.suite))
        self.outputs.append(cell.artifact_path)
        return self._full(cell, case, [key for key, disagreed in disagreements.items() if disagreed])

    def _full(self, cell: Record, case: TestCase | None, disagreement: Sequence[str]) -> str:
        suite = self._info.suite
        if cell.test_id not in self._case_json:
            self._case_json[cell.test_id] = _json(_case_data(case, self._info, self._images))
        # the image that a later turn edits is its cell's own
        inputs_json = self._case_json[cell.test_id] if cell.base_path is None else self._turn_json(case, cell)
        shown = cell.model_copy(update={"run_params": cell.shown_params})
        record = shown.model_dump_json(exclude=_OMITTED_FIELDS)
        has_output = (cell.artifact_path or "").startswith("artifacts/")
        has_files = record.count('"artifacts/') > has_output + (cell.base_path is not None)
        files = _paths([grader.all_details for grader in cell.graders]) if has_files else ()
        has_ended = cell.status == "completed" and (cell.error is None or cell.error.stage != "generate")
        output: Any = {"why": NOT_DOWNLOADED} if has_ended else None
        if cell.artifact_path:
            output = self._images.run_image(cell.artifact_path)
        broken = [parse_rule(rule).metric for rule in cell.failed_rules]
        limits = thresholds_of(cell)
        cell_json = _json(
            {
                "prompt": cell.prompt,
                "output": output,
                "files": {path: self._images.run_image(path) for path in files},
                "disagreement": disagreement,
                "command": command_of(self._info, cell, trust=self._trust),
                "commandNote": "" if self._trust or _TRUST not in self._info.command_line else _UNTRUSTED,
                "failed": _rules(cell.failed_rules, cell, case, suite),
                "warned": _rules(cell.warned_rules, cell, case, suite),
                "broken": broken,
                "failing": self._failing(broken, case),
                "exact": {name: show_score(cell.scores.get(name), limit) for name, limit in limits.items()},
                "free": cell.model_label in self._free,
            }
        )
        # a run may have a hundred thousand cells: the record's JSON is inserted without parsing it
        return f'{cell_json[:-1]},"record":{record},{inputs_json[1:]}'

    def _failing(self, broken: Sequence[str], case: TestCase | None) -> list[str]:
        """The graders whose metrics failed, also as part of a computed metric."""
        if not broken or case is None:
            return []
        sources = {source for name in broken for source in (name, *self._computed.get(name, ()))}
        return [grader.key for grader in self._info.suite.graders if not sources.isdisjoint(grader.metrics(case))]

    def _turn_json(self, case: TestCase | None, cell: Record) -> str:
        """The inputs of a later turn: the output of the turn before, and those of its case."""
        data = _case_data(case, self._info, self._images)
        base = [{"role": BASE_ROLE, **self._images.run_image(cell.base_path)}] if cell.base_path else []
        return _json({**data, "inputs": [*base, *data["inputs"]]})


def _why(cell: Record, case: TestCase | None, suite: Suite) -> str:
    """All reasons, a line for each, those of failed rules first: the gallery shows the first, and searches all."""
    failed = (reason_of(parse_rule(rule).metric, cell, case, suite) for rule in cell.failed_rules)
    reasons = [*dict.fromkeys((*failed, *cell.reasons.values()))]
    if cell.error is not None:
        reasons.insert(0, f"{cell.error.stage}, {cell.error.kind}: {cell.error.message}")
    return "\n".join(" ".join(reason.split()) for reason in reasons if reason)


def _rules(rules: Iterable[str], cell: Record, case: TestCase | None, suite: Suite) -> list[tuple[str, str]]:
    """What each rule found, and why."""
    return [(failed_text(rule, cell.scores), reason_of(parse_rule(rule).metric, cell, case, suite)) for rule in rules]


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
        "inputs": [
            {"role": role, **images.input(image.path)}
            for image, role in zip(case.images, case.shown_roles, strict=True)
        ],
        "masks": [{"role": name, **images.input(path, mask=True)} for name, path in masks.items()],
        "reference": images.input(case.reference) if case.reference else None,
    }


def _paths(value: Any) -> Iterator[str]:
    """Paths of images that graders stored, in their details."""
    if isinstance(value, str):
        if value.startswith("artifacts/") and ".." not in value and "\\" not in value and "\x00" not in value:
            yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
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
