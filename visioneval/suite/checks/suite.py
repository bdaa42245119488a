"""Everything about a well-formed suite that can be checked before any call is paid for. Each check is one function.

A check yields ``(loc, message)``: ``loc`` is a path in the suite such as ``("cases", 3, "masks")``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from visioneval.errors import ImageError, Problem, SuiteError, TemplateError, VisionEvalError, count_of
from visioneval.media import images
from visioneval.media.animation import check_still
from visioneval.media.urls import public_address
from visioneval.registry import GRADERS, PROVIDERS, check_of
from visioneval.suite.cases.case import TestCase
from visioneval.suite.cases.outputs import RunLabels
from visioneval.suite.cases.prompts import RESERVED, context
from visioneval.suite.checks.generation import generation_problems
from visioneval.suite.checks.judges import judge_problems, recorded_answer_problems
from visioneval.suite.checks.labels import label_problems
from visioneval.suite.checks.limits import limit_problems
from visioneval.suite.checks.output_of import output_of_problems
from visioneval.suite.checks.outputs import no_image_problems, prompt_problems
from visioneval.suite.checks.prompts import prompt_entry_problems
from visioneval.suite.checks.rules import Problems, SuiteContext, idle_rules, rule_problems
from visioneval.suite.checks.tracking import tracking_problems
from visioneval.suite.checks.turns import turn_problems
from visioneval.suite.checks.warnings import graders_by_type, suite_warnings
from visioneval.suite.entries.providers import BaseProvider, GeneratingProvider
from visioneval.suite.loading.messages import Loc, SuiteNote, SuiteWarning, untrusted_code_message
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite
from visioneval.suite.runs import model_runs
from visioneval.suite.size import cell_problem, grid_problems
from visioneval.suite.turns import chain_of
from visioneval.templates.render import render
from visioneval.types import ModelRun, TaskType

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_LABEL = 200
_INVERTED = 0.75
"""A mask that lets a larger share of the image change may be inverted."""
_NOTED_MASKS = 3


def problems(
    suite: Suite, folder: Path, trust: Trust, run_labels: RunLabels, broken: frozenset[str] = frozenset()
) -> Iterator[tuple[Loc, str] | Problem | SuiteWarning | SuiteNote]:
    """Every problem of a suite that its model cannot detect, warnings and notes.

    Problems in other files have a position.

    ``broken`` names the top-level keys that lost invalid entries, and ``metrics`` if the metrics of some grader are
    unknown: checks that depend on them are skipped.
    """
    runs: list[tuple[int, ModelRun]] = []
    yield from _expand_models(suite, folder, trust, run_labels, broken, runs)
    yield from _labels(runs)
    if not broken:
        yield from limit_problems(suite, [run for _, run in runs])
    yield from _ids(suite)
    yield from _files(suite, folder, trust)
    if "vars" not in broken:
        yield from _prompts(suite, known_models="models" not in broken)
    if not broken & {"cases", "vars", "prompts"}:
        yield from prompt_entry_problems(suite)
    yield from _graders(suite, trust)
    if not broken & {"cases", "vars", "graders", "judges", "verdict"}:
        yield from judge_problems(suite, folder, trust)
    yield from label_problems(suite, folder, trust, broken)
    yield from tracking_problems(suite, trust)
    suite_context = SuiteContext(suite, [run for _, run in runs])
    if broken & {"cases", "task", "models", "prompts"} or len({index for index, _ in runs}) < len(suite.models):
        return
    if too_many := cell_problem(suite, suite_context.runs):
        yield ("cases",), too_many
        return
    yield from _tasks(suite_context)
    yield from generation_problems(suite_context, [index for index, _ in runs])
    yield from output_of_problems(suite.cases)
    yield from turn_problems(suite, runs)
    yield from _graders_on_runs(suite_context, broken)
    if not broken & {"graders", "judges"}:
        yield from recorded_answer_problems(suite_context, folder, trust)
    if not broken & {"graders", "metrics"}:
        yield from rule_problems(suite_context, is_complete="verdict" not in broken)
        yield from (SuiteWarning(loc, message) for loc, message in idle_rules(suite_context))
        yield from suite_warnings(suite)


def _expand_models(
    suite: Suite,
    folder: Path,
    trust: Trust,
    run_labels: RunLabels,
    broken: frozenset[str],
    runs: list[tuple[int, ModelRun]],
) -> Iterator[tuple[Loc, str] | Problem]:
    """Problems of the entries of ``models``. Adds their model runs to ``runs``, unless there are too many."""
    too_many = list(grid_problems(suite))
    yield from too_many
    for index, entry in enumerate(suite.models):
        loc = ("models", index)
        refusals = list(_entry_problems(entry, folder, trust, loc))
        yield from refusals
        if refusals or too_many:
            continue
        try:
            entry_runs = model_runs(entry, suite, folder, run_labels)
        except SuiteError as error:
            yield from error.problems
        except VisionEvalError as error:
            key, message = entry.source_problem(str(error))
            yield (*loc, *key), message
        else:
            yield from _run_problems(entry, entry_runs, loc, folder, is_complete="cases" not in broken)
            runs.extend((index, run) for run in entry_runs)


def _entry_problems(entry: BaseProvider, folder: Path, trust: Trust, loc: Loc) -> Problems:
    if entry.needs_trust and not trust.everything:
        yield (*loc, "provider"), untrusted_code_message(entry.provider_name, getattr(entry, "options", None))
    if check := check_of(PROVIDERS, entry.provider_name, "problems"):
        yield from (((*loc, *key), message) for key, message in check(entry, folder, trust))


def _run_problems(
    entry: BaseProvider, runs: Sequence[ModelRun], loc: Loc, folder: Path, *, is_complete: bool
) -> Problems:
    if check := check_of(PROVIDERS, entry.provider_name, "run_problems"):
        yield from (((*loc, *key), message) for key, message in check(entry, folder))
    if not runs and is_complete:
        reason = f"no output is labeled {entry.label!r}" if entry.label else "no case has an existing output"
        if isinstance(entry, GeneratingProvider):
            reason = "none of its prompts applies to a case of its tasks"
        yield loc, f"this entry has no model run: {reason}"
    grid = entry.grid if isinstance(entry, GeneratingProvider) else {}
    reported: set[tuple[str, str]] = set()
    for run in runs:
        for problem in entry.param_problems(run.params):
            if problem not in reported:
                reported.add(problem)
                yield (*loc, "grid" if problem[0] in grid else "params", problem[0]), problem[1]


def _labels(runs: Sequence[tuple[int, ModelRun]]) -> Problems:
    first: dict[str, int] = {}
    for (index, label), count in Counter((index, run.label) for index, run in runs).items():
        loc = ("models", index)
        if _CONTROL.search(label) or label != label.strip() or not label:
            yield loc, f"the label {label!r} must be one line of text without leading or trailing spaces"
        elif len(label) > _LONGEST_LABEL:
            yield (
                loc,
                f"the label {label[:40]!r}... is over {_LONGEST_LABEL} characters long: shorten the label or the grid",
            )
        elif label in first:
            yield loc, f"two model runs are labeled {label!r}: set a different 'label' for each entry"
        elif count > 1:
            yield loc, f"two model runs are labeled {label!r}: remove the duplicate value from the grid"
        first.setdefault(label, index)


def _ids(suite: Suite) -> Problems:
    """IDs that are repeated. A case and its turns have one name."""
    first: dict[str, str] = {}
    before = ""
    for index, case in enumerate(suite.cases):
        name = chain_of(case.id)
        if case.previous_turn is None:
            if other := first.get(name.lower()):
                same = f"two cases have the ID {name!r}"
                close = f"the IDs {other!r} and {name!r} differ only in upper and lower case"
                yield ("cases", index, "id"), same if other == name else close
            first.setdefault(name.lower(), name)
        elif case.previous_turn != before:
            yield ("cases", index, "id"), f"the turn {case.id!r} does not follow {case.previous_turn!r}"
        before = case.id


@dataclass(slots=True)
class _ImageFiles:
    """Checks each image file once, even if many cases use it."""

    folder: Path
    trust: Trust
    seen: dict[str, tuple[tuple[int, int], bool] | str] = field(default_factory=dict)
    shares: dict[str, images.MaskShares] = field(default_factory=dict)
    """By mask: how much of it is inside and outside."""

    def look(self, path: str) -> tuple[tuple[int, int], bool] | str:
        """Size and whether the image has alpha, or why it cannot be used."""
        if path not in self.seen:
            self.seen[path] = self._look(path)
        return self.seen[path]

    def one_sided(self, path: str) -> str | None:
        """Why a mask with alpha separates nothing."""
        if path not in self.shares:
            self.shares[path] = images.mask_shares(self.folder / path)
        shares = self.shares[path]
        if not shares.opaque:
            return f"{path} has no opaque pixel: mark what must not change with opaque pixels"
        if not shares.clear:
            only = ", only partly transparent ones" if shares.partial else ""
            return f"{path} has no transparent pixel (alpha 0){only}: mark what may change"
        return None

    def _look(self, path: str) -> tuple[tuple[int, int], bool] | str:
        full = self.folder / path
        try:
            if refusal := self.trust.refusal(path, self.folder):
                return refusal
            images.identify(full)
            check_still(full)
            return images.size_of(full), images.has_alpha(full)
        except ImageError as error:
            return f"{public_address(path)}: {error}"


def _files(suite: Suite, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str] | SuiteWarning | SuiteNote]:
    files = _ImageFiles(folder, trust)
    for index, case in enumerate(suite.cases):
        for loc, message in _case_files(case, files):
            yield ("cases", index, *loc), message
        path = case.masks.editable if case.masks else None
        shares = files.shares.get(path or "")
        if shares is not None and (inside := shares.clear + shares.partial) >= _INVERTED:
            message = f"{path} lets {inside:.0%} of the image change: its transparent pixels are what may change"
            yield SuiteWarning(("cases", index, "masks", "editable"), message)
    yield from _masks_as_read(suite, files)


def _masks_as_read(suite: Suite, files: _ImageFiles) -> Iterator[SuiteNote]:
    """How each mask is read, where a case names it first; after a few, the others in one note."""
    masks: dict[str, tuple[Loc, str]] = {}
    for index, case in enumerate(suite.cases):
        for name, path in (case.masks.model_dump(exclude_none=True) if case.masks else {}).items():
            masks.setdefault(path, (("cases", index, "masks", name), name))
    read = [(path, loc, name) for path, (loc, name) in masks.items() if path in files.shares]
    for path, loc, name in read[:_NOTED_MASKS]:
        shares = files.shares[path]
        edge = f" and {_percent(shares.partial)} partly (its edge)" if shares.partial else ""
        meaning = "they may change, opaque ones must not" if name == "editable" else "they are inside, opaque ones not"
        yield SuiteNote(loc, f"{path}: {_percent(shares.clear)} of its pixels are transparent{edge}: {meaning}")
    if more_masks := read[_NOTED_MASKS:]:
        inside = [1 - files.shares[path].opaque for path, _, _ in more_masks]
        soft = sum(files.shares[path].partial > 0 for path, _, _ in more_masks)
        message = f"{count_of(len(more_masks), 'more mask')}: {_percent(min(inside))} to {_percent(max(inside))} inside"
        yield SuiteNote(more_masks[0][1], f"{message}, {soft:,} with a soft edge")


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _case_files(case: TestCase, files: _ImageFiles) -> Problems:
    named: list[tuple[Loc, str]] = [
        (("images", position, "path"), image.path) for position, image in enumerate(case.images)
    ]
    if case.reference:
        named.append((("reference",), case.reference))
    masks = case.masks.model_dump(exclude_none=True) if case.masks else {}
    named.extend((("masks", name), path) for name, path in masks.items())
    bad = [(loc, found) for loc, path in named if isinstance(found := files.look(path), str)]
    yield from bad
    for label, paths in case.outputs.items():
        for position, path in enumerate(output.path for output in paths):
            if path and (refusal := files.trust.refusal(path, files.folder, remote=True)):
                yield ("outputs", label, position), refusal
    if masks and not case.edits_image:
        yield ("masks",), "a mask needs a base image: add 'images' to the case"
    elif not bad:
        base = None if case.previous_turn else case.images[0].path if masks else None
        for name, path in masks.items():
            if message := _mask(path, base, files):
                yield ("masks", name), message


def _mask(path: str, base: str | None, files: _ImageFiles) -> str | None:
    """What is wrong with a mask; ``base`` is ``None`` if the base image is still to be generated."""
    mask = files.look(path)
    image = mask if base is None else files.look(base)
    if isinstance(mask, str) or isinstance(image, str):
        return None
    (size, has_alpha), (base_size, _) = mask, image
    if size != base_size:
        return f"{path} is {size[0]} x {size[1]} pixels, but the base image is {base_size[0]} x {base_size[1]}"
    if not has_alpha:
        return f"{path} has no alpha channel: mark the inside of the mask with transparent pixels (alpha 0)"
    return files.one_sided(path)


def _prompts(suite: Suite, *, known_models: bool) -> Problems:
    if known_models:
        yield from prompt_problems(suite)
    for name in RESERVED:
        if name in suite.vars:
            yield ("vars", name, "[key]"), f"the name {name!r} is reserved for templates: rename the variable"
    for index, case in enumerate(suite.cases):
        for key, text in (("prompt", case.prompt or "-"), ("criteria", case.criteria or "-")):
            try:
                result = render(text, context(case, suite.vars)) if "{" in text else text
            except TemplateError as error:
                yield ("cases", index, key), str(error)
                continue
            if key == "prompt" and not result.strip():
                yield ("cases", index, key), "the prompt is empty after rendering"


def _graders(suite: Suite, trust: Trust) -> Problems:
    keys: set[str] = set()
    for index, grader in enumerate(suite.graders):
        if grader.key in keys:
            yield ("graders", index, "key"), f"two graders have the key {grader.key!r}"
        keys.add(grader.key)
        if grader.needs_trust and not trust.everything:
            yield ("graders", index, "type"), untrusted_code_message(grader.type_name, getattr(grader, "options", None))
    for name, graders in graders_by_type(suite).items():
        if check := check_of(GRADERS, name, "problems"):
            yield from check(suite, graders)


def _graders_on_runs(view: SuiteContext, broken: frozenset[str]) -> Problems:
    if broken & {"graders", "judges"}:
        return
    yield from no_image_problems(view)
    for name, graders in graders_by_type(view.suite).items():
        if check := check_of(GRADERS, name, "run_problems"):
            yield from check(view, graders)


def _tasks(view: SuiteContext) -> Problems:
    is_supported = {task: any(run.config.does(task) for run in view.runs) for task in TaskType}
    covered = frozenset[int]().union(*(cases for _, cases in view.labels))
    for index, entry in enumerate(view.suite.models):
        if impossible := [task for task in entry.tasks if not entry.does(task)]:
            yield ("models", index, "tasks"), f"this provider does not support {', '.join(impossible)}"
        elif not any(entry.does(task) for task in {case.task_type for case in view.suite.cases}):
            yield ("models", index), "this model supports no task of this suite's cases"
    for index, case in enumerate(view.suite.cases):
        if not is_supported[case.task_type]:
            yield (
                ("cases", index),
                f"no model of this suite supports {case.task_type}: add such a model or remove the case",
            )
        elif index not in covered and case.output_of is None:
            yield ("cases", index), "no entry of 'prompts' applies to this case: add one without 'when'"
        if case.task_type == TaskType.IMAGE_EDITING and not case.edits_image and not case.output_of:
            yield ("cases", index), "an editing case needs 'images': the first is the base image"
