"""Runs and regrades, and exports of runs to experiment trackers."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from pydantic import ValidationError

from visioneval.analysis.redaction import Redaction, check_redact, redacted_run
from visioneval.analysis.run_lookup import Warn, ignore, named_run, open_part, warn_missing
from visioneval.analysis.summary.summary import Compared, Summary, summarize
from visioneval.api.options import checked_keywords, run_options
from visioneval.errors import TrackerError, UsageError, VisionEvalError, count_of, did_you_mean
from visioneval.records.model import Record, RunInfo, read_info
from visioneval.records.reader import Records, records_of
from visioneval.records.runs import resume_hint
from visioneval.records.stores.lookup import display_name, fetch_outputs, find_named_run, runs_folder
from visioneval.records.stores.writing import send_run, writing_root
from visioneval.running.cells.services import Listener
from visioneval.running.prepare import (
    PreparedRun,
    RunOptions,
    RunToGrade,
    prepare_grading,
)
from visioneval.running.runner import EndedRun, run_prepared, summarize_run
from visioneval.running.sanitize import Sanitizer
from visioneval.scale.merge import merge_shards
from visioneval.settings import LATEST, RUNS, GradeKeywords
from visioneval.suite.filters import Scope
from visioneval.suite.load import HIDDEN
from visioneval.suite.loading.document import parse_scalar
from visioneval.suite.messages import explain
from visioneval.suite.tracking import TRACKERS, BaseTracking
from visioneval.types import Verdict

if TYPE_CHECKING:
    import pandas as pd


LOG = logging.getLogger("visioneval")


def log_listener() -> Listener:
    """A listener that sends messages to the logger ``visioneval``."""
    return Listener(say=LOG.warning, note=LOG.info, debug=lambda error: LOG.debug("unexpected", exc_info=error))


def logging_run(prepared: PreparedRun) -> AbstractContextManager[Listener]:
    """Sends the messages of a run to the logger ``visioneval``."""
    for note in prepared.notes:
        LOG.info(note)
    return nullcontext(log_listener())


Watch = Callable[[PreparedRun], AbstractContextManager[Listener]]
"""Provides the listener of a prepared run, for example a progress bar."""


@dataclass(frozen=True, repr=False)
class Run:
    """A run on disk, or one model run of it, or some of its cells, with its summary."""

    folder: Path
    """The folder of the run."""
    info: RunInfo
    """The contents of ``run.json``."""
    summary: Summary
    """What ``summary.json`` has."""
    label: str | None = None
    """The model run, if it is only one of the run."""
    resume_hint: str | None = None
    """The command that resumes it, if it is not complete."""
    error: str | None = None
    """The message of a provider that refused the API key, which ended the run."""
    scope: Scope = field(default_factory=Scope)
    """The cases, tags and model runs to which it was narrowed."""
    redact: tuple[str, ...] = ()
    """The tags, or ``case:ID``, of the cases whose records have no image and no text about one."""

    @property
    def exit_code(self) -> int:
        """What the command exits with: 0 passed, 1 a gate failed, 3 incomplete or undecided, 130 interrupted."""
        return self.summary.exit_code

    @property
    def _stored(self) -> Records[Record]:
        _, stored = redacted_run(self.info, records_of(self.folder), Redaction.by(self.redact))
        of_model_run = stored if self.label is None else stored.within(Scope(models=(self.label,)))
        return of_model_run.within(self.scope)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """One record per cell, in the order in which cells finished: sort them to compare runs.

        Read from the folder when first used. Raises ``RunFormatError``.
        """
        return tuple(self._stored)

    @cached_property
    def failed(self) -> tuple[Record, ...]:
        """The records that are ``FAIL`` or ``ERROR``, the worst first. Raises ``RunFormatError``."""
        cells = self._worst_first
        return tuple(cell for cell in cells if cell.verdict in (Verdict.FAIL, Verdict.ERROR))

    @property
    def _worst_first(self) -> Records[Record]:
        """All cells, in the order of the suite behind those that did not pass."""
        from visioneval.report.outcome import worst_first

        cells = self._stored.in_order(self.info)
        ranks = {
            (cell.test_id, cell.model_label, cell.sample_index): rank
            for rank, cell in enumerate(worst_first(self.summary))
        }
        names = list(cells.names())
        return cells.take(sorted(range(len(cells)), key=lambda at: ranks.get(names[at], len(ranks))))

    def show(self, case: str) -> ShownCase:
        """One case in full, with all its cells: as text, and in a notebook with its outputs.

        Raises ``UsageError`` for a case that the run does not have.
        """
        from visioneval.report.cell import cells_of_case

        return ShownCase(tuple(cells_of_case(self.info, self._stored, case)), self.info, self.folder)

    def _repr_html_(self) -> str:
        """A table of the first cells, for a notebook."""
        from visioneval.report.html.notebook import MAX_ROWS, run_html

        return run_html(self.summary, list(self._worst_first[:MAX_ROWS]), self.folder)

    def to_pandas(self) -> pd.DataFrame:
        """One row per cell, with the columns of a CSV: one per metric, and per judge of a panel. Types are nullable.

        Raises ``UsageError`` if pandas is not installed (`pip install pandas`).
        """
        from visioneval.export.table import cell_table, data_frame

        return data_frame(cell_table(self.records, self.info))

    def __repr__(self) -> str:
        counts = self.summary.counts
        verdicts = ((counts.passed, "PASS"), (counts.failed, "FAIL"), (counts.errors, "ERROR"))
        listed = " ".join(f"{count} {verdict}" for count, verdict in verdicts if count)
        cells = f"{count_of(counts.cells, 'cell')}{', ' * bool(listed)}{listed}"
        return f"Run({self}: {cells}, exit code {self.exit_code})"

    def __str__(self) -> str:
        return str(self.folder) if self.label is None else f"{self.folder}@{self.label}"


@dataclass(frozen=True, repr=False)
class ShownCase:
    """The cells of one case, which are shown in full: as text, and in a notebook with their outputs."""

    cells: tuple[Record, ...]
    info: RunInfo
    folder: Path

    def __repr__(self) -> str:
        from visioneval.report.cell import case_text

        return case_text(self.cells, self.info, self.folder)

    def _repr_html_(self) -> str:
        from visioneval.report.html.notebook import case_html

        return case_html(self.cells, self.info, self.folder)


def grade(source: Run | Path | str, suite: Path | str | None = None, **settings: Unpack[GradeKeywords]) -> Run:
    """Grades the outputs of a run again, by its own suite or another, into a new run. Generates nothing."""
    check_path(grade, suite)
    options = run_options(**checked_keywords(grade, settings, GradeKeywords))
    return grade_run(str(source), None if suite is None else Path(suite), options, logging_run, LOG.warning)


def load_run(
    name: Path | str = LATEST,
    *,
    cases: Sequence[str] = (),
    tags: Sequence[str] = (),
    models: Sequence[str] = (),
    redact: Sequence[str] = (),
    runs: Path | str = RUNS,
    warn: Warn = LOG.warning,
) -> Run:
    """Reads a run: its path, id, a unique prefix of it or ``latest``; ``RUN@LABEL`` for one model run.

    ``cases``, ``tags`` and ``models`` leave only the cells of these: cases and labels (globs), and tags. Of cases
    with a tag of ``redact``, it has no image and no text about one. Raises ``UsageError``.
    """
    if any(isinstance(patterns, str) for patterns in (cases, tags, models, redact)):
        raise UsageError("cases, tags, models and redact must be lists of strings, not one string")
    root, scope = runs_folder(runs), Scope(cases=tuple(cases), tags=tuple(tags), models=tuple(models))
    folder, _, label = named_run(str(name), root)
    _, info, records = open_part(str(folder) if label is None else f"{folder}@{label}", scope, root, warn)
    check_redact(redact, info.suite)
    info, records = redacted_run(info, records, Redaction.by(redact))
    compared = Compared.read(folder, info, has_pairs=scope == Scope(), has_costs=label is None)
    summary = summarize(info, records, compared)
    return Run(folder, info, summary, label, resume_hint(folder, info), scope=scope, redact=tuple(redact))


def merge(
    *names: Run | Path | str,
    run_id: str,
    note: str | None = None,
    redact: Sequence[str] = (),
    runs: Path | str = RUNS,
    warn: Warn = LOG.warning,
) -> Run:
    """Makes one run of the runs of all shards (``shard`` of ``run``), summarizes it, and checks its gates.

    ``redact`` is that of ``load_run``. Raises ``UsageError`` for missing, repeated and foreign shards, and
    ``StorageError``.
    """
    if not names:
        raise UsageError("name the runs of all shards")
    root = runs_folder(runs)
    folders = [find_named_run(str(name), root) for name in names]
    for folder in folders:
        fetch_outputs(folder)
    check_redact(redact, read_info(folders[0]).suite)
    folder, info, summary = merge_shards(folders, writing_root(root, run_id), run_id, note, warn)
    send_run(folder, root)
    warn_missing(folder, info, summary.counts.cells, warn)
    run = _redacted(Run(folder, info, summary, None, resume_hint(folder, info)), redact)
    track_finished(run, RunOptions(), warn)
    return run


def grade_run(name: str, suite: Path | None, options: RunOptions, watch: Watch, warn: Warn) -> Run:
    """Grades the run ``name`` again, into a new run."""
    source = RunToGrade(*named_run(name, options.suite.runs))
    prepared = prepare_grading(source, suite, options, warn)
    with watch(prepared) as listener:
        ended = run_prepared(prepared, options.calls, listener)
    finished = summarized_run(prepared, ended, options)
    track_finished(finished, options, warn)
    return finished


def track_finished(run: Run, options: RunOptions, warn: Warn) -> None:
    """Sends a run to the tracker of its suite, if it names one. Whatever goes wrong is one line, and changes nothing.

    A shard leaves it to ``merge``, and an interrupted run to ``--resume``.
    """
    info, target = run.info, run.info.suite.tracking
    is_interrupted = info.state != "complete" and info.stopped_by is None
    if target is None or info.selection.shard is not None or is_interrupted:
        return
    from visioneval.export.tracked import send_to_tracker

    later = f"to send them: {_export_command(run, target)}"
    if options.calls.reuse.offline and not target.is_local:
        warn(f"tracking: --offline sends no results; {later}")
        return
    problem = None if options.suite.trust else target.untrusted_option()
    try:
        if problem is not None:
            warn(f"tracking: {problem[0]}: {problem[1]}")
            return
        warn(f"tracking: {send_to_tracker(target, run.folder, info, run.summary, warn, run.redact)}")
    except VisionEvalError as error:
        warn(f"tracking: the results were not sent: {Sanitizer.around().text(error)}; {later}")


def _export_command(run: Run, target: BaseTracking) -> str:
    """The command that sends a run to the tracker of its suite."""
    options = target.model_dump(mode="json", exclude_defaults=True, exclude={"to"})
    words = [
        f"--option {shlex.quote(f'{name}={str(value).lower() if value is False else value}')}"
        for name, value in options.items()
    ]
    words += [f"--redact {shlex.quote(tag)}" for tag in run.redact]
    return " ".join(["visioneval export", shlex.quote(display_name(run.folder)), f"--to {target.to}", *words])


def check_path(function: Callable[..., Any], suite: object) -> None:
    """Raises ``TypeError`` for a suite that is not the path of its file."""
    if suite is not None and not isinstance(suite, (str, Path)):
        raise TypeError(f"{function.__name__}() takes the path of a suite file, not {type(suite).__name__}")


def summarized_run(prepared: PreparedRun, ended: EndedRun, options: RunOptions) -> Run:
    """The run that has ended, with its summary, as it may leave this machine."""
    summary = summarize_run(prepared, ended.info)
    run = Run(prepared.writer.folder, ended.info, summary, None, prepared.resume_hint, ended.error)
    return _redacted(run, options.redact)


def _redacted(run: Run, tags: Sequence[str]) -> Run:
    """A whole run as it may leave this machine. Its folder stays as it is."""
    if not tags:
        return run
    redacted = load_run(run.folder, redact=tags, warn=ignore)
    return replace(redacted, resume_hint=run.resume_hint, error=run.error)


def track(
    name: Run | Path | str,
    *,
    to: str,
    redact: Sequence[str] = (),
    runs: Path | str = RUNS,
    warn: Warn = LOG.warning,
    **options: Any,
) -> str:
    """Sends a run to ``mlflow``, ``wandb`` or ``vertex``, or updates what an earlier call sent.

    ``options`` are those of the tracker, as in ``tracking:`` of a suite; ``redact`` is that of ``load_run``, in
    addition to the tags with which a ``Run`` was loaded. Returns where the run can be seen. Raises ``UsageError``, and
    ``TrackerError`` if the tracker does not accept it.
    """
    if isinstance(name, Run) and not isinstance(redact, str):  # which load_run refuses
        redact = (*redact, *name.redact)
    return track_stored(str(name), tracking_of_options(to, options), Path(runs), warn, redact)


def track_stored(name: str, target: BaseTracking, runs: Path, warn: Warn, redact: Sequence[str] = ()) -> str:
    """Sends a run to a tracker. Raises ``UsageError`` and ``TrackerError``."""
    from visioneval.export.tracked import send_to_tracker

    run = load_run(name, redact=redact, runs=runs, warn=warn)
    if run.label is not None:
        raise UsageError(f"{name}: a tracker gets whole runs: leave out @{run.label}")
    try:
        return send_to_tracker(target, run.folder, run.info, run.summary, warn, run.redact)
    except TrackerError as error:
        raise TrackerError(Sanitizer.around().text(error)) from error


_NOT_TEXT = ("rows", "report")
"""The options that YAML would not read as text."""


def tracking_of_options(tracker: str, options: Mapping[str, Any]) -> BaseTracking:
    """The target that ``export --to`` names. Options may be text. Raises ``UsageError``."""
    if tracker not in TRACKERS:
        raise UsageError(f"--to {tracker}: no such tracker{did_you_mean(tracker, TRACKERS)}")
    model = TRACKERS[tracker]
    names = model.model_fields.keys() - {"to"}
    for name in options:
        if name not in names:
            raise UsageError(f"--option {name}: {tracker} has no such option{did_you_mean(name, names)}")
    parsed = {name: parse_scalar(options[name]) for name in _NOT_TEXT if isinstance(options.get(name), str)}
    try:
        return model.model_validate({"to": tracker, **options, **parsed})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            raise UsageError(f"--to {tracker} needs --option {name}=...") from None
        if name == "uri":
            problem["input"] = HIDDEN  # it may contain a password
        message = explain(problem, model.model_json_schema()).removeprefix(f"{name}: ")
        raise UsageError(f"--option {name}: {message}") from None
