"""A probe from its request to its findings: the engine's grading step on every change of every output."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from visioneval.analysis.left_out import LeftOut, granted_share
from visioneval.analysis.probe import (
    HARMLESS,
    MissedPerturbation,
    ProbedCell,
    ProbeFindings,
    check_gates,
    exit_code,
    metric_rates,
    rates_of,
    weakest_caught,
)
from visioneval.errors import ClosingError, ImageError, count_of
from visioneval.media.images import identify, on_checkerboard, sha256
from visioneval.media.video import ending
from visioneval.probing.kinds import COPY, Change, changes_of, perturb
from visioneval.probing.prepare import (
    Original,
    PreparedProbe,
    ProbeRequest,
    as_control,
    cost_lines,
    open_subject,
    prepare_probe,
    with_lines,
)
from visioneval.probing.subject import Box, CannotPerturbError, PerturbedFile, Pixels, Subject, decode
from visioneval.records.model import Record
from visioneval.records.writer import RunWriter
from visioneval.rules import parse_rule
from visioneval.running.calls.settings import CallSettings, check_budget, check_session, open_calls
from visioneval.running.cells.cell import StoredOutput, regrade_output
from visioneval.running.cells.services import Listener, Services, build_components
from visioneval.running.execution import Progress, execute
from visioneval.running.loading import SuiteOptions
from visioneval.running.plan import Call
from visioneval.running.prepare import describe_run, now
from visioneval.suite.filters import Scope
from visioneval.threads import gather_all, processors
from visioneval.types import Status, Verdict
from visioneval.version import __version__


@dataclass(frozen=True, slots=True, repr=False)
class ProbeResult:
    """What graders caught of perturbed outputs."""

    findings: ProbeFindings
    """What ``--json`` prints."""
    images: tuple[tuple[bytes, bytes] | None, ...] = ()
    """With ``with_images=True``, for each of ``findings.missed``, both images as WebP."""

    @property
    def exit_code(self) -> int:
        """0 passed, 1 a gate failed, 3 no perturbation could be applied or something is missing, 130 interrupted."""
        return self.findings.exit_code

    def __repr__(self) -> str:
        findings = self.findings
        outputs = f"{count_of(findings.outputs, 'output')} of {count_of(findings.cases, 'case')}"
        return f"ProbeResult({findings.source}: {outputs}, {len(findings.missed):,} missed, exit code {self.exit_code})"


def run_probe(request: ProbeRequest, suite: SuiteOptions, calls: CallSettings, listener: Listener) -> ProbeResult:
    """Perturbs, grades and counts. Raises ``UsageError``, ``SuiteError``, ``BudgetError`` and ``StorageError``."""
    prepared = prepare_probe(request, suite)
    listener.note(prepared.announcement)
    for line in cost_lines(prepared, calls, suite.runs):
        listener.note(line)
    changes, stopped, interrupted = measure(prepared, calls, listener)
    request, metrics, notes = prepared.request, prepared.metrics, prepared.notes
    cells = [change.cell for change in changes]
    perturbed = [cell for cell in cells if not cell.is_harmless]
    harmless = [cell for cell in cells if cell.is_harmless]
    detections = tuple(rates_of(perturbed, metrics))
    probed = {(cell.case, cell.model, cell.sample) for cell in cells}
    originals = LeftOut(notes.unmeasured, len(probed) + notes.unmeasured)
    granted = granted_share(prepared.plan.whole_suite.declared_gates, Scope())
    gates = check_gates(cells, prepared.minimums, request.max_false_alarm, originals, granted)
    findings = ProbeFindings(
        visioneval_version=__version__,
        source=prepared.source,
        suite=prepared.plan.suite.name,
        seed=request.seed,
        outputs=len(probed),
        cases=len({cell.case for cell in cells}),
        metrics=metrics,
        detections=detections,
        false_alarms=(*metric_rates(harmless, HARMLESS, "", metrics), *rates_of(harmless, metrics)) if harmless else (),
        weakest=tuple(weakest_caught(detections)),
        missed=tuple(
            MissedPerturbation(**{name: getattr(cell, name) for name in MissedPerturbation.model_fields})
            for cell in perturbed
            if cell.verdict is not Verdict.FAIL
        ),
        notes=tuple(notes.lines()),
        gates=gates,
        stopped=stopped,
        exit_code=exit_code(cells, gates, stopped, interrupted=interrupted),
    )
    return ProbeResult(findings, tuple(change.images for change in changes if change.is_missed))


OUTPUTS_AT_ONCE = 2
"""Outputs whose changes are graded at the same time; each is decoded once."""
JUDGED_AT_ONCE = 32
"""Changes that are graded at the same time if judges are asked, who take seconds."""
_WAS_NEVER_ASKED = "a judge was never asked, as its answer is not in the cache: repeat the command without --offline"


@dataclass(frozen=True, slots=True)
class ProbedChange:
    """A graded change; for a missed perturbation, both images as WebP, if they were asked for."""

    cell: ProbedCell
    order: tuple[int, int]
    """Its kind with its strength, and its output, both by number."""
    images: tuple[bytes, bytes] | None = None

    @property
    def is_missed(self) -> bool:
        """Whether it is a perturbation that no rule failed."""
        return not self.cell.is_harmless and self.cell.verdict is not Verdict.FAIL


def measure(
    prepared: PreparedProbe, settings: CallSettings, listener: Listener
) -> tuple[list[ProbedChange], str | None, bool]:
    """Changes and grades every output, in a temporary run that is deleted.

    Returns the graded changes, by kind, strength and output; why the probe is incomplete, if it is; and whether it was
    interrupted.

    The first interrupt lets running work finish, the second cancels it. Raises ``UsageError``, ``BudgetError``,
    ``StorageError``, and ``AuthError`` if a judge refuses the key.
    """
    check_budget(prepared.plan, settings)
    check_session(prepared.plan, settings, listener.say)
    components = build_components(prepared.plan, offline=settings.reuse.offline)
    info = describe_run(prepared.plan, run_id="probe", note=None, command_line=())
    changes: list[ProbedChange] = []
    with tempfile.TemporaryDirectory(prefix="visioneval-probe-") as folder:
        writer = RunWriter.create(Path(folder), info)
        with open_calls(prepared.plan, settings, info.payer, listener.say) as calls:
            interrupted, never_asked = True, False

            async def work(services: Services, progress: Progress) -> bool:
                nonlocal interrupted, never_asked
                prober = _Prober(prepared, services, progress, listener, changes)
                await prober.run()
                interrupted, never_asked = progress.is_over, prober.never_asked
                return interrupted

            try:
                execute(work, prepared.plan, components, writer, calls, listener)
            finally:
                writer.finish("complete", now())  # closes its files
    changes.sort(key=lambda change: change.order)
    stopped = calls.budget.refusal or (_WAS_NEVER_ASKED if never_asked else None)
    return changes, stopped, interrupted


class _Prober:
    """Grades the changes of all outputs and collects the results."""

    def __init__(
        self,
        prepared: PreparedProbe,
        context: Services,
        progress: Progress,
        listener: Listener,
        results: list[ProbedChange],
    ) -> None:
        self._prepared, self._context, self._progress, self._listener = prepared, context, progress, listener
        self._results = results
        cores = processors()
        self._room = asyncio.Semaphore(JUDGED_AT_ONCE if prepared.request.judges else cores)
        self._files = 0
        self.never_asked = False
        """Whether a judge was not asked about an output, or a change of one."""

    async def run(self) -> None:
        queue = iter(enumerate(self._prepared.originals))
        async with asyncio.TaskGroup() as group:
            for _ in range(OUTPUTS_AT_ONCE):
                group.create_task(self._work(queue))

    async def _work(self, queue: Iterator[tuple[int, Original]]) -> None:
        for number, original in queue:
            if self._progress.is_over:
                return
            try:
                await self._probe(number, original)
            except ClosingError as error:  # its changes that are graded count
                self._progress.leave(error)
                return
            total = len(self._prepared.originals)
            self._listener.note(f"probed {number + 1} of {total} outputs: {original.name}")

    async def _probe(self, number: int, original: Original) -> None:
        """Grades an output as it is, and if it passes, every change of it."""
        notes = self._prepared.notes
        try:
            subject = await asyncio.to_thread(open_subject, original)
        except ImageError as error:
            notes.skip(original.name, str(error), is_unmeasured=True)
            return
        record = await self._grade(original, original.call, PerturbedFile(subject.data, subject.mime))
        if record.verdict is not Verdict.PASS:
            reason = f"has no verdict as it is: {record.error.message if record.error else 'not measured'}"
            if record.verdict is Verdict.FAIL:
                reason = f"does not pass as it is: {', '.join(record.failed_rules)}"
            notes.skip(original.name, reason, is_unmeasured=record.verdict is Verdict.ERROR)
            return
        seed = f"{self._prepared.request.seed}\0{sha256(subject.data)}\0{original.call.case.id}"
        if any(kind.group == COPY for kind in self._prepared.kinds):
            subject = await self._with_readable_line(original, with_lines(subject, record, seed))
        changes = changes_of(self._prepared.kinds, self._prepared.prompt_kinds)
        await gather_all(
            self._change(number, original, subject, order, change, seed) for order, change in enumerate(changes)
        )

    async def _with_readable_line(self, original: Original, candidates: list[Subject]) -> Subject:
        """The first of the candidates whose line, set again unchanged, still passes; otherwise one without a line."""
        for candidate in candidates:
            if candidate.line is None:
                return candidate
            control = await asyncio.to_thread(as_control, candidate)
            if control is not None and (await self._grade(original, original.call, control)).verdict is Verdict.PASS:
                return candidate
        return replace(candidates[-1], line=None, no_line="its lines do not pass when they are set again unchanged")

    async def _change(
        self, number: int, original: Original, subject: Subject, order: int, change: Change, seed: str
    ) -> None:
        async with self._room:
            if self._progress.is_over or self._context.calls.budget.refused:
                return
            try:
                file, call, detail = await asyncio.to_thread(perturb, change, subject, original.call, seed)
            except CannotPerturbError as error:
                self._prepared.notes.not_perturbed(original.name, change.name, str(error))
                return
            record = await self._grade(original, call, file)
            cell = _probed_cell(original, change, record, self._context.sanitizer.text(detail))
            probed = ProbedChange(cell, (order, number))
            if self._prepared.request.with_images and probed.is_missed:
                probed = replace(probed, images=await asyncio.to_thread(side_by_side, subject.image, file))
            self._results.append(probed)

    async def _grade(self, original: Original, call: Call, file: PerturbedFile) -> Record:
        """Grades a file as the output of a cell, with the engine's grading step."""
        self._files += 1
        name = f"{original.sample}.{self._files}{ending(file.mime)}"
        writer, case, label = self._context.writer, original.call.case.id, original.call.run.label
        path = await asyncio.to_thread(writer.save, case, label, name, file.data)
        try:
            _, width, height = await asyncio.to_thread(identify, file.data)
            record = Record(
                run_id=writer.info.run_id,
                test_id=case,
                model_label=label,
                sample_index=original.sample,
                task_type=call.task_type,
                prompt=call.prompt,
                provider=call.run.provider,
                run_params=dict(original.params),
                status=Status.COMPLETED,
                verdict=Verdict.ERROR,
                artifact_path=path,
                artifact_sha256=sha256(file.data),
                mime=file.mime,
                width=width,
                height=height,
                generation_key="",
                grade_key="",
            )
            deadline = asyncio.get_running_loop().time() + self._context.plan.suite.cell_timeout_s
            stored = StoredOutput(call, record, writer.folder, is_new=True, is_of_another_run=True)
            graded = await regrade_output(stored, self._context, deadline)
            self.never_asked |= any(grader.never_asked for grader in graded.graders)
            return graded
        finally:
            (writer.folder / path).unlink(missing_ok=True)


def _probed_cell(original: Original, change: Change, record: Record, detail: str) -> ProbedCell:
    metrics = {rule.metric for rule, _ in original.call.grading.rules}.intersection(record.scores)
    unmeasured = frozenset(metric for metric in metrics if record.scores[metric] is None)
    return ProbedCell(
        case=original.call.case.id,
        model=original.call.run.label,
        sample=original.sample,
        kind=change.name,
        strength=change.level.label,
        number=change.level.number,
        verdict=record.verdict,
        failed=frozenset(parse_rule(text).metric for text in record.failed_rules),
        measured=frozenset(metrics - unmeasured),
        unmeasured=unmeasured,
        detail=detail,
    )


SIDE = 320
CONTEXT = 2.5
"""A cutout is this many times as large as the perturbation."""


def side_by_side(before: Pixels, after: PerturbedFile) -> tuple[bytes, bytes]:
    """Both images as WebP, at most ``SIDE`` pixels on their longer side, on a checkered ground if transparent."""
    image = decode(after.data)
    box = after.box if image.shape[:2] == before.shape[:2] else None
    return _cutout(before, box), _cutout(image, box)


def _cutout(image: Pixels, box: Box | None) -> bytes:
    shown = Image.fromarray(image)
    if box is not None:
        left, top, width, height = box
        side = max(CONTEXT * width, CONTEXT * height, 96)
        x, y = left + width / 2 - side / 2, top + height / 2 - side / 2
        shown = shown.crop(
            (max(0, round(x)), max(0, round(y)), min(shown.width, round(x + side)), min(shown.height, round(y + side)))
        )
    shown.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    on_checkerboard(shown).save(buffer, "WEBP", quality=82, method=2)
    return buffer.getvalue()
