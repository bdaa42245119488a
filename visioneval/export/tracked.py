"""Sends a run to an experiment tracker: parameters, metrics with intervals, gates and tags, and a table of its cells.

Each tracker's module has a class with the calls of its client, which is an extra and is imported there only. One line
says whatever goes wrong.

What each entry gets:

- both: `pass_rate`; `cells/all`, `cells/passed`, `failed`, `errors`, `refused`, `unmeasured`; `cost/usd`,
  `cost/unpriced` (calls), `time/mean_seconds`; `failure_tags/TAG`, the 200 most frequent; tags such as
  `visioneval.run_id`
- a model run: its parameters (dotted names), the mean of each measured metric, the table `cells` with images of 512
  pixels
- the whole run: suite, judges, rules; `gates/` with `passed`, `failed`, `cannot_tell`, `skipped`, `unmeasured`,
  `deferred`; tags `gate.1`, ...; `report.html`, `gates.json`, `summary.json`, the table `all_cells` without images
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from visioneval.analysis.redaction import Redaction
from visioneval.analysis.run_lookup import Warn
from visioneval.analysis.scores import Estimate
from visioneval.analysis.summary.counts import ModelFindings
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.graders import alignment_keys, gaps_in
from visioneval.analysis.summary.summary import Summary
from visioneval.errors import ExitCode, TrackerError, VisionEvalError, count_of
from visioneval.export.table import Column, Table, error_text, kind_of, score_of, typed
from visioneval.records.model import Record, RunInfo
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.report.html.images import small_webp
from visioneval.report.html.report import GalleryFilters, SlimRun, read_slim, write_report
from visioneval.report.text import clean, one_line
from visioneval.rules import parse_rule
from visioneval.suite.tracking import BaseTracking
from visioneval.types import Verdict

RUN_ID, STARTED_AT, MODEL_RUN = "visioneval.run_id", "visioneval.started_at", "visioneval.model_run"
PREFIX, GATE = "visioneval.", "gate."
"""How the names of all tags begin."""
IMAGE_SIDE = 512
"""Pixels on the longer side of an image in a table."""
_INFO_TAGS = ("experiment", "state", "stopped_by", "note", "graded_from", "git_commit")
_HIDDEN_PARAMS = ("label", "tasks", "api_key_env")
_GATE_STATES = ("passed", "failed", "cannot_tell", "skipped", "unmeasured", "deferred")
_MAX_LISTED, _MAX_TEXT, _MAX_GATES = 200, 2_000, 20
_OPTIONAL = ("gaps", "failed rules", "failure tags", "error")
"""The columns that a table has only if a cell has a value there: trackers show the first columns only."""
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


@dataclass(frozen=True, slots=True)
class TrackedEntry:
    """One entry of a tracker: a whole run, or one of its model runs (``label``).

    Names and texts are not limited to what a tracker accepts.
    """

    name: str
    label: str | None
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The same for every export of a run, so that a later one updates it; 64 hexadecimal digits."""
        return sha256(json.dumps((self.tags[RUN_ID], self.tags[STARTED_AT], self.label)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TrackedCells:
    """The cells in a table: those that did not pass, then the others, each in the order of the suite.

    ``rows`` are the values of each cell, by column. The first of the columns identifies a cell within its model run.
    """

    slim: SlimRun
    columns: list[str]
    cells: list[Record]
    rows: list[dict[str, Any]]

    def with_images(
        self, label: str, image: Callable[[bytes | None], Any], *, without: str = ""
    ) -> tuple[list[str], list[list[Any]]]:
        """The columns and rows of a model run, the second with what ``image`` returns for the small WebP of a cell."""
        first, *rest = (name for name in self.columns if name != without)
        data = [
            [row[first], image(self.image(cell)), *(row[name] for name in rest)]
            for cell, row in zip(self.cells, self.rows, strict=True)
            if cell.model_label == label
        ]
        return [first, "image", *rest], data

    def without_images(self) -> list[list[Any]]:
        """The rows of all model runs, in the order of the columns."""
        return [[row[name] for name in self.columns] for row in self.rows]

    def image(self, cell: Record) -> bytes | None:
        """A small WebP of the output of a cell; ``None`` if there is none that can be read."""
        output = cell.artifact_path
        return None if output is None else small_webp(self.slim.folder, output, IMAGE_SIDE)

    @property
    def left_out(self) -> str | None:
        """How many cells are not in the table; ``None`` if it has all."""
        cells, listed = len(self.slim.records), len(self.slim.gallery)
        if cells == listed:
            return None
        return f"the table has {listed:,} of {cells:,} cells, those that did not pass first (option rows)"


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as a tracker shows it, in one experiment. The first of its entries is the whole run.

    ``cells`` is ``None`` for a run without cells.
    """

    folder: Path
    info: RunInfo
    summary: Summary
    experiment: str
    entries: tuple[TrackedEntry, ...]
    cells: TrackedCells | None
    has_report: bool

    @property
    def is_finished(self) -> bool:
        """Whether it ended by itself."""
        return self.info.state == "complete"

    def write_files(self, folder: Path) -> list[Path]:
        """Writes the report, gates and summary to a folder. The report is one file with the cells of the table."""
        gates = [gate.model_dump(mode="json") for gate in self.summary.gates]
        (folder / "gates.json").write_text(json.dumps(gates, indent=2), encoding="utf-8")
        (folder / "summary.json").write_text(self.summary.model_dump_json(indent=2), encoding="utf-8")
        if self.has_report and self.cells is not None:
            write_report(self.cells.slim, folder / "report.html", single_file=True, trust=False)
        return sorted(folder.iterdir())


def tracked_run(
    folder: Path,
    info: RunInfo,
    summary: Summary,
    *,
    experiment: str | None = None,
    rows: int,
    has_report: bool = True,
    redact: tuple[str, ...] = (),
) -> TrackedRun:
    """Collects what is sent of a run. ``experiment`` replaces the one of the suite. Raises ``RunFormatError``."""
    tags = _common_tags(info, summary)
    models = {str(model.label): model for model in info.selected_suite.models}
    digits = len(str(len(summary.gates)))
    gates = {f"{GATE}{at:0{digits}}": gate_text(gate) for at, gate in enumerate(summary.gates[:_MAX_LISTED], 1)}
    run_tags = {**tags, "visioneval.kind": "run", **gates}
    states = Counter[str](gate.state for gate in summary.gates)
    counts = {**_counts(summary), **{f"gates/{name}": states[name] for name in _GATE_STATES}}
    entries = [TrackedEntry(info.run_id, None, _suite_params(info), counts, run_tags)]
    for model in summary.models:
        own_tags = {**tags, "visioneval.kind": "model_run", MODEL_RUN: model.label}
        options = models[model.label].model_dump(mode="json", exclude_defaults=True) if model.label in models else {}
        params = {  # nested options by dotted names; ``params.quality`` is ``quality``
            ".".join(path[1:] if path[0] == "params" and len(path) > 1 else path): clean(value)
            for path, value in _flat(options, ())
            if path[0] not in _HIDDEN_PARAMS
        }
        metrics = {**_estimates(model.metrics), **_counts(model), "time/mean_seconds": model.seconds}
        entries.append(TrackedEntry(model.label, model.label, params, metrics, own_tags))
    cells = tracked_cells(folder, info, rows, redact) if summary.counts.cells else None
    name = experiment or info.experiment or info.suite.name
    return TrackedRun(folder, info, summary, name, tuple(entries), cells, has_report)


def _common_tags(info: RunInfo, summary: Summary) -> dict[str, str]:
    selection = info.selection.model_dump(mode="json", exclude_defaults=True)
    is_complete = info.state == "complete" and summary.counts.cells >= info.planned_cells
    tags = {
        RUN_ID: info.run_id,
        STARTED_AT: info.started_at,
        "visioneval.suite": info.suite.name,
        "visioneval.result": ExitCode(summary.exit_code).name.lower().replace("_", " "),
        "visioneval.incomplete": None if is_complete else "true",
        "visioneval.selection": typed(selection, "text") if selection else None,
        "visioneval.merged_from": ", ".join(info.merged_from),
        "visioneval.version": info.visioneval_version,
        **{f"{PREFIX}{name}": getattr(info, name) for name in _INFO_TAGS},
    }
    return {name: clean(value) for name, value in tags.items() if value}


def gate_text(gate: GateFinding) -> str:
    """A gate on one line: ``failed: pass_rate >= 0.9 (0.71 over 14 cells; tags: logo)``."""
    value = "not measured" if gate.value is None else f"{gate.value:.6g} over {count_of(gate.n, 'cell')}"
    scope = f"; {gate.scope}" if gate.scope else ""
    return one_line(f"{gate.state}: {gate.rule} ({value}{scope})")


def _suite_params(info: RunInfo) -> dict[str, str]:
    suite = info.selected_suite
    params = {
        "suite": suite.name,
        "suite_sha256": info.source_sha256,
        "cases": str(len(suite.cases)),
        "model_runs": str(len(suite.models)),
        "samples": str(suite.samples if info.selection.samples is None else info.selection.samples),
        **{f"judge.{name}": judge.title for name, judge in suite.judges.items()},
        **{f"rule.{number:02}": str(rule.rule) for number, rule in enumerate(suite.verdict[:_MAX_LISTED], 1)},
    }
    return {name: clean(value) for name, value in params.items()}


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, (*path, str(key)))
    elif value not in (None, [], ()):
        yield path, typed(value, "text")


def _counts(findings: Summary | ModelFindings) -> dict[str, float]:
    """Pass rate, cells, the known cost, and the number of cells with each of the most frequent failure tags."""
    counts = findings.counts
    names = ("passed", "failed", "errors", "refused", "unmeasured")
    numbers = {
        **_estimates({"pass_rate": counts.pass_rate}),
        "cells/all": counts.cells,
        **{f"cells/{name}": getattr(counts, name) for name in names},
        "cost/unpriced": findings.unpriced,
    }
    if findings.cost_usd is not None:
        numbers["cost/usd"] = findings.cost_usd
    for tag, cells in list(findings.failure_tags.items())[:_MAX_LISTED]:
        numbers[f"failure_tags/{tag.replace('/', '_')}"] = cells
    return numbers


def _estimates(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Values with the bounds of their 95 % intervals. What was not measured is left out: it is no number."""
    numbers: dict[str, float] = {}
    for name, estimate in estimates.items():
        if estimate.low is not None and estimate.high is not None:
            numbers |= {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    # a metric named look_low is more than the lower bound of another
    return numbers | {name: estimate.value for name, estimate in estimates.items() if estimate.value is not None}


def tracked_cells(folder: Path, info: RunInfo, rows: int, redact: tuple[str, ...] = ()) -> TrackedCells:
    """The table of a run with at most ``rows`` cells. Raises ``RunFormatError``."""
    slim = read_slim(folder, info, filters=GalleryFilters(max_cells=rows, redact=Redaction.by(redact)))
    passed = (Verdict.PASS, Verdict.NONE)
    cells = sorted(slim.gallery, key=lambda cell: cell.verdict in passed)
    table = Table(_columns(info), cells)
    values = list(table.typed_rows())
    filled = {name for row in values for name in _OPTIONAL if row[name]}
    columns = [name for name in table.names if name not in _OPTIONAL or name in filled]
    return TrackedCells(slim, columns, cells, values)


def _columns(info: RunInfo) -> list[Column]:
    keys = alignment_keys(info)
    texts: dict[str, Callable[[Record], str]] = {
        "model run": lambda cell: cell.model_label,
        "verdict": lambda cell: cell.verdict.value,
        "reasons": lambda cell: "\n".join(reasons_of(cell)),
        "gaps": lambda cell: "\n".join(gap for key in keys for gap in gaps_in(cell, key)),
        "failed rules": lambda cell: "; ".join(cell.failed_rules),
        "failure tags": lambda cell: "; ".join(cell.failure_tags),
        "error": lambda cell: error_text(cell) or "",
        "prompt": lambda cell: cell.shown_prompt,
    }
    has_samples = info.suite.samples > 1
    return [
        Column("case", "text", lambda cell: f"{cell.test_id} #{cell.sample_index}" if has_samples else cell.test_id),
        *(Column(name, "text", partial(_shortened, text)) for name, text in texts.items()),
        Column("sample", "integer", lambda cell: cell.sample_index),
        Column("cost_usd", "number", lambda cell: cell.total_cost_usd),
        Column("seconds", "number", lambda cell: cell.seconds),
        *(Column(f"score {name}", kind_of(name, info), partial(score_of, name)) for name in info.metrics),
    ]


def _shortened(text: Callable[[Record], str], cell: Record) -> str:
    return shortened(text(cell))


def reasons_of(cell: Record) -> list[str]:
    """The reasons of a cell, those of failed rules first."""
    failed = [parse_rule(rule).metric for rule in cell.failed_rules]

    def is_other(name: str) -> bool:
        """Whether it is neither the reason of a failed metric, nor of its grader or a part of it."""
        return not any(f"{metric}.".startswith(f"{name}.") or name.startswith(f"{metric}.") for metric in failed)

    return [f"{name}: {cell.reasons[name]}" for name in sorted(cell.reasons, key=is_other) if cell.reasons[name]]


def description(run: TrackedRun) -> str:
    """A run in Markdown: its note, result, counts and gates."""
    counts, tags = run.summary.counts, run.entries[0].tags
    named = {"PASS": counts.passed, "FAIL": counts.failed, "ERROR": counts.errors, "unmeasured": counts.unmeasured}
    listed = ", ".join(f"{count:,} {name}" for name, count in named.items() if count)
    gates = [f"- `{gate_text(gate).replace('`', chr(39))}`" for gate in run.summary.gates[:_MAX_GATES]]
    result = f"**{tags.get('visioneval.result', run.info.state)}**: {listed} of {run.info.planned_cells:,} cells"
    return "\n\n".join([*([shortened(run.info.note)] if run.info.note else []), result, "\n".join(gates)])


def write_image(image: bytes | None, folder: Path) -> str | None:
    """Writes a WebP to a folder, by its content. Returns the name of its file; ``None`` without an image."""
    if image is None:
        return None
    name = f"{sha256(image).hexdigest()[:24]}.webp"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(image)
    return name


def safe_names(values: Mapping[str, Any], refused: str, longest: int) -> dict[str, Any]:
    """The values by names that a tracker accepts; no two names become the same.

    ``refused`` is a regular expression of what becomes ``_``, and ``longest`` the number of characters.
    """
    safe: dict[str, Any] = {}
    for name, value in values.items():
        base = re.sub(refused, "_", name)[:longest].strip() or "_"
        key, number = base, 1
        while key in safe:
            number += 1
            key = f"{base[: longest - len(f'-{number}')]}-{number}"
        safe[key] = value
    return safe


def shortened(text: str, longest: int = _MAX_TEXT) -> str:
    """Text without control characters, cut to ``longest`` characters."""
    safe = clean(text)
    return safe if len(safe) <= longest else f"{safe[: longest - 3]}..."


class Tracker(Protocol):
    """Sends one run. Its errors are ``TrackerError`` and those of its client."""

    def send(self, entry: TrackedEntry, folder: Path) -> None:
        """Creates an entry, or updates that of an earlier export. ``folder`` is empty, for files on their way."""

    def finish(self) -> str:
        """Deletes what an earlier export had more. Returns where the run can be seen."""


Connect = Callable[[Any, TrackedRun], AbstractContextManager[Tracker]]
"""What the module of each tracker has as ``connect``."""


def send_to_tracker(
    target: BaseTracking, folder: Path, info: RunInfo, summary: Summary, warn: Warn, redact: tuple[str, ...] = ()
) -> str:
    """Sends a run, or updates what an earlier export sent. Returns where it can be seen, without credentials.

    ``info`` and ``summary`` are redacted by the tags ``redact``, as the cells will be. ``warn`` gets what is left out.
    Raises ``TrackerError``, also if the tracker cannot be reached, and ``RunFormatError`` for a damaged run.
    """
    if problem := target.missing_client:
        raise TrackerError(problem)
    connect: Connect = import_module(f"visioneval.export.{target.to}").connect
    try:
        fetch_outputs(folder)
        run = tracked_run(
            folder,
            info,
            summary,
            experiment=target.experiment,
            rows=target.rows,
            has_report=target.report,
            redact=redact,
        )
        if run.cells is not None and run.cells.left_out is not None:
            warn(f"{target.to}: {run.cells.left_out}")
        with connect(target, run) as tracker:
            for entry in run.entries:
                with TemporaryDirectory() as name:
                    tracker.send(entry, Path(name))
            return _without_credentials(tracker.finish())
    except VisionEvalError:
        raise
    except Exception as error:  # clients raise anything; whatever it is, only the export failed
        message = _without_credentials(str(error) or type(error).__name__)
        raise TrackerError(f"{target.to}: {one_line(message)}") from error


def _without_credentials(text: str) -> str:
    """Text without users and passwords in addresses: that of the environment may have them, and errors repeat it."""
    return _CREDENTIALS.sub("", text)


@contextmanager
def client_environment(settings: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[None]:
    """Sets variables that a client reads. ``defaults`` are for those that the user has not set."""
    changed = {**{name: value for name, value in defaults.items() if name not in os.environ}, **settings}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
