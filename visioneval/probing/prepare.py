"""Prepares a probe: which outputs, which graders and which kinds of change, and what it costs at most.

Outputs are those of a run that passed, or existing outputs and files of a suite: of each, its pixels, the region that
perturbations may change, and its lines of copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import dist
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from visioneval.analysis.planning import read_past_costs
from visioneval.analysis.probe import MinDetection, check_max_false_alarm, parse_min_detection
from visioneval.analysis.run_lookup import named_run
from visioneval.errors import ImageError, UsageError
from visioneval.graders.text.layout import Corners
from visioneval.media import images
from visioneval.media.urls import is_url
from visioneval.probing import copy
from visioneval.probing.kinds import COPY, KINDS, PROMPT_KINDS, Kind, is_within, matching
from visioneval.probing.subject import (
    FORMATS,
    CannotPerturbError,
    Mask,
    PerturbedFile,
    Pixels,
    Subject,
    TextLine,
    decode,
    encode,
    seeded,
)
from visioneval.records.model import Record
from visioneval.records.reader import read_records
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.records.untrusted import is_inside
from visioneval.running.calls.prices import budget_warnings
from visioneval.running.calls.settings import CallSettings, budget_of
from visioneval.running.cells.generation import call_on_records, is_edit_of
from visioneval.running.estimate import judging_costs, total_text
from visioneval.running.loading import SuiteOptions, load_plan
from visioneval.running.plan import Call, Plan
from visioneval.running.prepare import RunToGrade, plan_grading
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.filters import any_glob
from visioneval.types import Output, Status, Verdict


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What ``probe`` probes, and how it decides. ``kinds`` are names or prefixes; none means all."""

    name: str
    """A suite file or a run."""
    kinds: tuple[str, ...] = ()
    seed: int = 0
    judges: bool = False
    """Whether graders that ask judges are probed too, with counter-prompts."""
    min_detection: tuple[str, ...] = ()
    max_false_alarm: float | None = None
    with_images: bool = False
    """Whether the result has the images of missed perturbations."""


@dataclass(frozen=True, slots=True)
class PreparedProbe:
    """A probe that can be executed. ``metrics`` are the graders of the metrics that rules read."""

    request: ProbeRequest
    plan: Plan
    """With the graders that are probed only."""
    originals: tuple[Original, ...]
    kinds: tuple[Kind, ...]
    prompt_kinds: tuple[str, ...]
    metrics: dict[str, str]
    minimums: tuple[MinDetection, ...]
    notes: Notes

    @property
    def source(self) -> str:
        """The name of the suite file or the run, without its folder."""
        return Path(self.request.name).name

    @property
    def changes(self) -> int:
        """The most changes that one output gets."""
        return sum(len(kind.levels) for kind in self.kinds) + len(self.prompt_kinds)

    @property
    def announcement(self) -> str:
        """What the probe is about to do."""
        outputs, graders = len(self.originals), ", ".join(grader.key for grader in self.plan.suite.graders)
        return f"probing {graders} with up to {self.changes} changes of each of {outputs} output{'s' * (outputs != 1)}"


def prepare_probe(request: ProbeRequest, options: SuiteOptions) -> PreparedProbe:
    """Loads a suite or a run. Raises ``UsageError`` and ``SuiteError``."""
    names = [kind.name for kind in KINDS] + list(PROMPT_KINDS if request.judges else ())
    minimums = tuple(parse_min_detection(text, names) for text in request.min_detection)
    check_max_false_alarm(request.max_false_alarm)
    kinds, prompt_kinds = _kinds(request)
    notes = Notes()
    planned, source = _load(request.name, options)
    graders = tuple(_probed_graders(planned, notes, judges=request.judges))
    if not graders:
        raise UsageError(f"{request.name}: no grader to probe: {'; '.join(notes.lines()) or 'it has none'}")
    suite = planned.suite.model_copy(update={"graders": graders})
    plan = replace(planned, suite=suite, generates=False)
    if source is None:
        originals = suite_outputs(plan, notes)
    else:
        if source.info.state != "complete":
            notes.say(f"the run is {source.info.state}: only the cells that it has are probed")
        originals = passing_outputs(plan, source.folder, source.label, notes)
    for number, original in enumerate(originals):  # rules that only warn fail: the question is what a grader sees
        grading = original.call.grading
        optional = frozenset(grader.key for grader in grading.graders if grader.optional)
        rules = tuple((rule, False) for rule, _ in grading.rules)
        call = replace(original.call, grading=replace(grading, rules=rules, optional_graders=optional))
        originals[number] = replace(original, call=call)
    metrics = _read_metrics(plan, [original.call for original in originals], notes)
    return PreparedProbe(request, plan, tuple(originals), kinds, prompt_kinds, metrics, minimums, notes)


def _kinds(request: ProbeRequest) -> tuple[tuple[Kind, ...], tuple[str, ...]]:
    """The kinds of change that were asked for, of images and of prompts."""
    of_prompts = [name for name in request.kinds if any(is_within(kind, name) for kind in PROMPT_KINDS)]
    if of_prompts and not request.judges:
        raise UsageError(f"--kinds {of_prompts[0]}: only judges read prompts: add --judges")
    of_images = [name for name in request.kinds if name not in of_prompts]
    kinds = matching(of_images) if of_images or not request.kinds else ()
    if not request.judges:
        return kinds, ()
    return kinds, tuple(
        kind for kind in PROMPT_KINDS if not request.kinds or any(is_within(kind, name) for name in of_prompts)
    )


def _load(name: str, options: SuiteOptions) -> tuple[Plan, RunToGrade | None]:
    if Path(name).is_file():
        return load_plan(Path(name), options), None
    if Path(name).suffix.lower() in (".yaml", ".yml"):
        raise UsageError(f"{name}: there is no such suite file")
    source = RunToGrade(*named_run(name, options.runs))
    fetch_outputs(source.folder)
    return plan_grading(source, None, options), source


def _probed_graders(plan: Plan, notes: Notes, *, judges: bool) -> Iterator[BaseGrader]:
    """The graders whose scores follow from an image: local ones, and those that ask judges if these are probed."""
    for grader in plan.suite.graders:
        recorded = [name for name in grader.judge_names if plan.suite.judges[name].is_recorded]
        if not grader.kind.grades_cells:
            notes.say(f"left out the grader {grader.key}: it compares {grader.kind.compares}")
        elif recorded:
            notes.say(f"left out the grader {grader.key}: its answers are recorded for other images")
        elif grader.judge_names and not judges:
            notes.say(f"left out the grader {grader.key}: it asks a judge (--judges probes it)")
        else:
            yield grader


def _read_metrics(plan: Plan, calls: Sequence[Call], notes: Notes) -> dict[str, str]:
    """The grader of each metric that a rule of these calls reads, in the order of the graders."""
    metrics: dict[str, str] = {}
    for grader in plan.suite.graders:
        applying = [call for call in calls if grader.key in {entry.key for entry in call.grading.graders}]
        read_by_rules = {
            metric: grader.key
            for call in applying
            for metric in grader.metrics(call.case)
            if any(rule.metric == metric for rule, _ in call.grading.rules)
        }
        metrics |= read_by_rules
        if not read_by_rules:
            reason = "no rule reads its metrics" if applying else "no probed case has anything for it to measure"
            notes.say(f"the grader {grader.key} can catch nothing: {reason}")
    return metrics


def cost_lines(prepared: PreparedProbe, settings: CallSettings, runs: Path) -> Iterator[str]:
    """The estimate: the sum, each judge, and what the budget does not cover. None if no judge is asked."""
    if not prepared.request.judges or settings.reuse.offline:
        return
    costs = judging_costs(prepared.plan, gradings(prepared), cache(lambda: read_past_costs(runs)))
    yield f"cost if every perturbation can be applied and no answer is cached: {total_text(costs)}"
    yield from (f"  {cost}" for cost in costs)
    limit_usd = budget_of(prepared.plan, settings)
    if limit_usd is None:
        return
    yield from budget_warnings(prepared.plan, limit_usd)
    if sum(cost.usd or 0.0 for cost in costs) > limit_usd:
        yield f"this is over the budget of {limit_usd:g} USD: the probe stops when the budget is used up"


def gradings(prepared: PreparedProbe) -> Counter[str]:
    """How often each grader grades at most: every output as it is, with every change, and with a line set again."""
    controls = LINES_TO_TRY if any(kind.group == COPY for kind in prepared.kinds) else 0
    times: Counter[str] = Counter()
    for original in prepared.originals:
        times.update({grader.key: 1 + prepared.changes + controls for grader in original.call.grading.graders})
    return times


@dataclass(frozen=True, slots=True)
class Original:
    """An output to change: the call that grades it, its sample, its file, and the parameters of its generation."""

    call: Call
    sample: int
    path: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    sha256: str | None = None
    """What a run recorded of it; ``None`` for a file of a suite."""

    @property
    def name(self) -> str:
        """How notes name it."""
        return _name(self.call, self.sample)


class Notes:
    """What was skipped, counted by reason: one line for each."""

    def __init__(self) -> None:
        self._outputs: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._kinds: dict[str, dict[str, set[str]]] = {}
        self._lines: dict[str, None] = {}
        self.unmeasured = 0
        """The outputs that should be probed, and are lost or have no verdict as they are."""

    def say(self, line: str) -> None:
        """Adds a line about all outputs."""
        self._lines[line] = None

    def skip(self, name: str, reason: str, *, is_unmeasured: bool = False) -> None:
        """Counts an output that cannot be probed; ``is_unmeasured`` if it should be, so that gates lack it."""
        self.unmeasured += is_unmeasured
        self._outputs[reason] += 1
        self._examples[reason] = min(name, self._examples.get(reason, name))  # outputs finish in any order

    def not_perturbed(self, name: str, kind: str, reason: str) -> None:
        """Counts a kind of change that does not apply to an output."""
        self._kinds.setdefault(reason, {}).setdefault(kind, set()).add(name)

    def lines(self) -> tuple[str, ...]:
        """All notes, in an order that does not depend on which output was done first."""
        skipped = [
            f"skipped {count} output{'s' * (count != 1)}: {reason} ({self._examples[reason]})"
            for reason, count in sorted(self._outputs.items())
        ]
        not_perturbed = [
            f"not applied to {len(names)} output{'s' * (len(names) != 1)}: {', '.join(sorted(kinds))}: {reason}"
            for reason, kinds in sorted(self._kinds.items())
            if (names := set[str]().union(*kinds.values()))
        ]
        return (*self._lines, *skipped, *not_perturbed)


def passing_outputs(plan: Plan, folder: Path, label: str | None, notes: Notes) -> list[Original]:
    """The outputs of a run whose cells passed. Raises ``UsageError`` if there are none."""
    by_cell = {record.cell: record for record in read_records(folder)}
    originals, failed = [], 0
    for call, sample, lacks_base in _cells(plan, lambda call, at: call_on_records(call, at, by_cell, folder)):
        record = by_cell.get((call.case.id, call.run.label, sample))
        if record is None or not (label is None or any_glob((label,), call.run.label)):
            continue
        if record.verdict is not Verdict.PASS or record.status is not Status.COMPLETED:
            failed += 1
            notes.unmeasured += record.verdict is Verdict.ERROR
            continue
        name = _name(call, sample)
        if record.mime is None or not record.mime.startswith("image/"):
            notes.skip(name, "is no image")
        elif record.artifact_path is None or not is_inside(folder, record.artifact_path):
            notes.skip(name, "its file is not in the run", is_unmeasured=True)
        elif lacks_base or not is_edit_of(call, record):
            notes.skip(name, "the image that it edits is not in the run", is_unmeasured=True)
        else:
            path = folder / record.artifact_path
            originals.append(Original(call, record.sample_index, path, record.run_params, record.artifact_sha256))
    if not originals:
        raise UsageError(f"{folder}: no output to probe: none of the selected cells passed with an image")
    if failed:
        notes.say(f"left out {failed} cell{'s' * (failed != 1)} that did not pass with an output")
    return originals


def suite_outputs(plan: Plan, notes: Notes) -> list[Original]:
    """The existing outputs of a suite; for cases without any, the reference, or else the first input image.

    Raises ``UsageError`` if it has none of these: its outputs must be generated first.
    """
    originals: list[Original] = []
    fallbacks: dict[str, Original] = {}
    for call, sample, lacks_base in _cells(plan, lambda call, _: _on_existing(call, plan.folder)):
        name, remote = _name(call, sample), "its output is remote: run the suite, and probe that run"
        if not call.run.config.reads_outputs:
            if lacks_base:
                notes.skip(name, "edits an output that only a run has: probe that run")
            elif (file := call.files.reference or call.files.base) is not None:
                fallbacks.setdefault(call.case.id, Original(call, sample, file))
            continue
        path = str(call.params.get("path") or "")
        if not path or is_url(path) or not call.run.config.has_outputs:
            notes.skip(name, remote if path else "has no output")
        elif lacks_base:
            notes.skip(name, "the turn before has no output that can be read", is_unmeasured=True)
        else:
            originals.append(Original(call, sample, plan.folder / path, call.params, call.params.get("sha256")))
    covered = {original.call.case.id for original in originals}
    originals += [original for case, original in fallbacks.items() if case not in covered]
    if not originals:
        raise UsageError(
            f"{plan.suite.name}: has no existing outputs, references or input images to probe:"
            " run it with 'visioneval run', and probe that run"
        )
    return originals


def _on_existing(call: Call, folder: Path) -> Call:
    """The call with the existing output of the turn before, if it is a later turn and that can be read."""
    path = str(call.previous.params.get("path") or "") if call.previous is not None else ""
    if not call.needs_base or not path or is_url(path):
        return call
    try:
        data = images.read(folder / path)
        mime, width, height = images.identify(data)
    except ImageError:
        return call
    digest = images.sha256(data)
    if call.previous is not None and call.previous.params.get("sha256", digest) != digest:
        return call  # changed since another run generated it
    return call.with_base(Output(folder / path, digest, mime, width, height))


def _name(call: Call, sample: int) -> str:
    return f"{call.case.id} on {call.run.label}, sample {sample}"


def _cells(plan: Plan, on_base: Callable[[Call, int], Call]) -> Iterator[tuple[Call, int, bool]]:
    """Every cell of a plan, and whether it lacks its base: it is of a later turn, and the output of the turn before is
    unknown.

    ``on_base`` returns a call for a sample with the image that it edits, if it is known.
    """
    for planned in plan.calls():
        edits = [on_base(planned, sample) for sample in planned.samples]
        for number in range(1 + len(planned.dependents)):
            for sample, edit in zip(planned.samples, edits, strict=True):
                yield edit.with_dependents[number], sample, edit.needs_base


MAX_MEGAPIXELS = 16
MIN_SIDE = 32
MASK_BORDER = 16
"""Pixels around a mask that are not perturbed: graders allow an edit to reach a little beyond its mask."""
MIN_REGION = 0.005
"""The smallest share of an image outside its mask at which it is perturbed."""
MAX_SLANT = 0.05
"""The largest slope of a line that can be set again."""
LINES_TO_TRY = 3


def open_subject(original: Original) -> Subject:
    """Decodes an output. Raises ``ImageError`` if it cannot be probed: damaged, too small, too large, other format."""
    data = images.read(original.path)
    if original.sha256 is not None and images.sha256(data) != original.sha256:
        raise ImageError("it was changed after it was generated")
    if (base := original.call.base) is not None and images.sha256(images.read(base.path)) != base.sha256:
        raise ImageError("the image that it edits was changed after it was generated")
    with images.header(data) as handle:
        width, height = handle.size
    if width * height > MAX_MEGAPIXELS * 1_000_000:
        raise ImageError(f"more than {MAX_MEGAPIXELS} megapixels")
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"smaller than {MIN_SIDE} x {MIN_SIDE} pixels")
    mime, _, _ = images.identify(data)
    if mime not in FORMATS:
        raise ImageError(f"its format is {mime.partition('/')[2]}, which cannot be stored again unchanged")
    if images.frames(original.path) > 1:
        raise ImageError("it has several frames")
    if (space := images.color_space_of(data)).transforms is not None:
        raise ImageError(f"its color space is {space.name}, which a changed image would lose")
    image = decode(data)
    return Subject(image, data, mime, _region(image, original.call.files.masks), original.call.case.expect)


def _region(image: Pixels, masks: Mapping[str, Path]) -> Mask:
    """Where perturbations may lie: visible pixels, not near what the editable mask allows to change."""
    height, width = image.shape[:2]
    region = np.ones((height, width), bool)
    if "editable" in masks:
        mask = np.asarray(images.load_mask(masks["editable"]).resize((width, height), 0))
        size = 2 * MASK_BORDER + 1
        region &= cv2.dilate(mask, np.ones((size, size), np.uint8)) == 0
        if region.mean() < MIN_REGION:
            region[:] = False
    if image.shape[2] == 4:
        region &= image[..., 3] >= 128
    return region


def with_lines(subject: Subject, record: Record, seed: str) -> list[Subject]:
    """The subject with each of a few lines of its copy, in random order; at least one, perhaps without a line."""
    readings = [reading for details in _ocr_details(record) for reading in details["lines"]]
    boxes = tuple(corners for reading in readings if (corners := _corners(reading)) is not None)
    lines = [line for details in _ocr_details(record) for line in _copy_lines(details)]
    if not lines:
        reason = "it has no line of required copy that runs level" if readings else "no text grader read text in it"
        return [replace(subject, lines=boxes, no_line=reason)]
    chosen = [lines[int(at)] for at in seeded(seed, "line").permutation(len(lines))[:LINES_TO_TRY]]
    return [
        replace(subject, lines=boxes, line=line, others=tuple(other for other in lines if other is not line))
        for line in chosen
    ]


def as_control(subject: Subject) -> PerturbedFile | None:
    """The output with its line set again unchanged; ``None`` if that is not possible."""
    try:
        again = copy.set_line(subject, subject.copy_line.text)
    except CannotPerturbError:
        return None
    return PerturbedFile(encode(again.image, subject.mime), subject.mime, again.box)


def _ocr_details(record: Record) -> Iterator[Mapping[str, Any]]:
    """The details of each text grader that read by OCR."""
    for grader in record.graders:
        details: Any = grader.details.get("ocr", grader.details)
        if grader.type == "text" and isinstance(details, dict) and details.get("extract") == "ocr":
            yield details


def _copy_lines(details: Mapping[str, Any]) -> Iterator[TextLine]:
    """The required lines that OCR read exactly, each in one level box."""
    for pair in details["found"]:
        if len(pair["readings"]) != 1 or pair["line"] != pair["read"]:
            continue
        corners = _corners(details["lines"][pair["readings"][0]])
        if corners is not None and sum(map(str.isalpha, pair["line"])) >= 3:
            (left, top), (right, end), _, (_, bottom) = corners
            is_level = abs(end - top) <= MAX_SLANT * max(1.0, right - left)
            if is_level and dist(corners[0], corners[1]) > bottom - top:
                yield TextLine(pair["line"], corners)


def _corners(reading: Mapping[str, Any]) -> Corners | None:
    points = [(float(x), float(y)) for x, y in reading["box"]]
    return (points[0], points[1], points[2], points[3]) if len(points) == 4 else None
