"""Everything about a well-formed suite that can be wrong before anything is paid for. Each check is one function.

A check yields ``(loc, message)``: ``loc`` is a path in the suite such as ``("cases", 3, "masks")``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visioneval.errors import ImageError, Problem, SuiteError, TemplateError, VisionEvalError
from visioneval.media import images
from visioneval.registry import GRADERS, PROVIDERS, check_of
from visioneval.suite.case import TestCase
from visioneval.suite.checks.judges import judge_problems
from visioneval.suite.checks.labels import label_problems
from visioneval.suite.checks.output_of import output_of_problems
from visioneval.suite.checks.outputs import no_image_problems, prompt_problems
from visioneval.suite.checks.rules import Found, SuiteContext, rule_problems
from visioneval.suite.graders import BaseGrader
from visioneval.suite.loading.messages import Loc, did_you_mean, runs_code
from visioneval.suite.loading.paths import Trust
from visioneval.suite.model import Suite
from visioneval.suite.outputs import RunLabels
from visioneval.suite.prompts import RESERVED, context
from visioneval.suite.providers import BaseProvider, GeneratingProvider
from visioneval.suite.runs import model_runs
from visioneval.suite.size import cell_problem, grid_problems
from visioneval.templates.render import render
from visioneval.types import ModelRun, TaskType

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_LABEL = 200


def problems(
    suite: Suite, folder: Path, trust: Trust, run_labels: RunLabels, broken: frozenset[str] = frozenset()
) -> Iterator[tuple[Loc, str] | Problem]:
    """Every problem of a suite that its model cannot see. Those in a file of its own come with their place.

    ``broken`` names the top-level keys from which something is missing here because it is wrong by itself, and
    ``metrics`` where nobody knows what some grader writes: what depends on them cannot be checked.
    """
    runs: list[tuple[int, ModelRun]] = []
    yield from _expanded(suite, folder, trust, run_labels, broken, runs)
    yield from _labels(runs)
    yield from _named_calls(suite, [run for _, run in runs], broken)
    yield from _ids(suite)
    yield from _files(suite, folder, trust)
    if "vars" not in broken:
        yield from _prompts(suite, known_models="models" not in broken)
    yield from _graders(suite, trust)
    if not broken & {"cases", "vars", "graders", "judges", "verdict"}:
        yield from judge_problems(suite, folder, trust)
    yield from label_problems(suite, folder, trust, broken)
    view = SuiteContext(suite, [run for _, run in runs])
    if broken & {"cases", "task", "models"} or len({index for index, _ in runs}) < len(suite.models):
        return
    if too_many := cell_problem(suite, view.runs):
        yield ("cases",), too_many
        return
    yield from _tasks(view)
    yield from output_of_problems(suite.cases)
    yield from _graders_on_runs(view, broken)
    if not broken & {"graders", "metrics"}:
        yield from rule_problems(view, complete="verdict" not in broken)


def _expanded(
    suite: Suite,
    folder: Path,
    trust: Trust,
    run_labels: RunLabels,
    broken: frozenset[str],
    runs: list[tuple[int, ModelRun]],
) -> Iterator[tuple[Loc, str] | Problem]:
    """Problems of the entries of ``models:``; their model runs are added to ``runs``, unless there are too many."""
    too_many = list(grid_problems(suite))
    yield from too_many
    for index, entry in enumerate(suite.models):
        loc = ("models", index)
        refusals = list(_entry(entry, folder, trust, loc))
        yield from refusals
        if refusals or too_many:
            continue
        try:
            found = model_runs(entry, suite, folder, run_labels)
        except SuiteError as error:
            yield from error.problems
        except VisionEvalError as error:
            key, message = entry.source_problem(str(error))
            yield (*loc, *key), message
        else:
            yield from _swept(entry, found, loc, folder, complete="cases" not in broken)
            runs.extend((index, run) for run in found)


def _entry(entry: BaseProvider, folder: Path, trust: Trust, loc: Loc) -> Found:
    if entry.runs_code and not trust.everything:
        yield (*loc, "provider"), runs_code(entry.provider_name, getattr(entry, "options", None))
    if check := check_of(PROVIDERS, entry.provider_name, "problems"):
        yield from (((*loc, *key), message) for key, message in check(entry, folder, trust))


def _swept(entry: BaseProvider, runs: Sequence[ModelRun], loc: Loc, folder: Path, *, complete: bool) -> Found:
    if check := check_of(PROVIDERS, entry.provider_name, "run_problems"):
        yield from (((*loc, *key), message) for key, message in check(entry, folder))
    if not runs and complete:
        what = f"no image is labeled {entry.label!r}" if entry.label else "no case brings a finished image"
        yield loc, f"this entry makes no model run: {what}"
    grid = entry.grid if isinstance(entry, GeneratingProvider) else {}
    said: set[tuple[str, str]] = set()
    for run in runs:
        for problem in entry.param_problems(run.params):
            if problem not in said:
                said.add(problem)
                yield (*loc, "grid" if problem[0] in grid else "params", problem[0]), problem[1]


def _named_calls(suite: Suite, runs: Sequence[ModelRun], broken: frozenset[str]) -> Found:
    """Limits and prices for something that the suite never calls are a slip of the pen."""
    if broken:
        return
    called: list[tuple[str, Any]] = [(entry.provider_name, None) for entry in suite.models]
    called += [(run.provider, run.params.get("model")) for run in runs]
    called += [(judge.provider_name, getattr(judge, "model", None)) for judge in suite.judges.values()]
    providers, models = {provider for provider, _ in called}, {str(model) for _, model in called if model}
    both = {f"{provider}:{model}" for provider, model in called if model}
    for key, entries, known in (
        ("limits", suite.limits, providers | both),
        ("prices", suite.prices, providers | both | models),
    ):
        for name in entries:
            if name not in known:
                yield (key, name), f"{key}: the suite calls nothing named {name!r}{did_you_mean(name, known)}"


def _labels(runs: Sequence[tuple[int, ModelRun]]) -> Found:
    first: dict[str, int] = {}
    for (index, label), count in Counter((index, run.label) for index, run in runs).items():
        loc = ("models", index)
        if _CONTROL.search(label) or label != label.strip() or not label:
            yield loc, f"the label {label!r} is not text on one line, without spaces around it"
        elif len(label) > _LONGEST_LABEL:
            yield (
                loc,
                f"the label {label[:40]!r}... has over {_LONGEST_LABEL} characters: shorten the grid's values",
            )
        elif label in first:
            yield loc, f"two model runs are labeled {label!r}: give each entry a label of its own"
        elif count > 1:
            yield loc, f"two model runs are labeled {label!r}: list each value of the grid once"
        first.setdefault(label, index)


def _ids(suite: Suite) -> Found:
    first: dict[str, str] = {}
    for index, case in enumerate(suite.cases):
        folded = case.id.lower()
        if folded in first:
            same = f"two cases have the id {case.id!r}"
            close = f"the ids {first[folded]!r} and {case.id!r} differ only by upper and lower case"
            yield ("cases", index, "id"), same if first[folded] == case.id else close
        first.setdefault(folded, case.id)


@dataclass(slots=True)
class _ImageFiles:
    """Looks at every image once, however many cases name it."""

    folder: Path
    trust: Trust
    seen: dict[str, tuple[tuple[int, int], bool] | str] = field(default_factory=dict)

    def look(self, path: str) -> tuple[tuple[int, int], bool] | str:
        """Its size and whether it has alpha, or why it cannot be used."""
        if path not in self.seen:
            self.seen[path] = self._look(path)
        return self.seen[path]

    def _look(self, path: str) -> tuple[tuple[int, int], bool] | str:
        full = self.folder / path
        try:
            if refusal := self.trust.refusal(path, self.folder):
                return refusal
            images.check_decodes(full)
            return images.size_of(full), images.has_alpha(full)
        except ImageError as error:
            return f"{path}: {error}"


def _files(suite: Suite, folder: Path, trust: Trust) -> Found:
    outputs = _ImageFiles(folder, trust)
    for index, case in enumerate(suite.cases):
        for loc, message in _case_files(case, outputs):
            yield ("cases", index, *loc), message


def _case_files(case: TestCase, outputs: _ImageFiles) -> Found:
    named: list[tuple[Loc, str]] = [(("images", at, "path"), image.path) for at, image in enumerate(case.images)]
    if case.reference:
        named.append((("reference",), case.reference))
    masks = case.masks.model_dump(exclude_none=True) if case.masks else {}
    named.extend((("masks", name), path) for name, path in masks.items())
    bad = [(loc, found) for loc, path in named if isinstance(found := outputs.look(path), str)]
    yield from bad
    for label, paths in case.outputs.items():
        for at, path in enumerate(output.path for output in paths):
            if path and (refusal := outputs.trust.refusal(path, outputs.folder, remote=True)):
                yield ("outputs", label, at), refusal
    if masks and not case.images:
        yield ("masks",), "a mask needs an image: the case has none"
    elif not bad:
        for name, path in masks.items():
            if message := _mask(path, case.images[0].path, outputs):
                yield ("masks", name), message


def _mask(path: str, base: str, outputs: _ImageFiles) -> str | None:
    mask, image = outputs.look(path), outputs.look(base)
    if isinstance(mask, str) or isinstance(image, str):
        return None
    (size, alpha), (wanted, _) = mask, image
    if size != wanted:
        return f"{path} has {size[0]} x {size[1]} pixels, but the base image has {wanted[0]} x {wanted[1]}"
    return None if alpha else f"{path} has no alpha channel: transparent pixels (alpha 0) are inside the mask"


def _prompts(suite: Suite, *, known_models: bool) -> Found:
    if known_models:
        yield from prompt_problems(suite)
    for name in RESERVED:
        if name in suite.vars:
            yield ("vars", name, "[key]"), f"the name {name!r} is taken: templates see the case by it"
    for index, case in enumerate(suite.cases):
        for key, text in (("prompt", case.prompt or "-"), ("criteria", case.criteria or "-")):
            try:
                shown = render(text, context(case, suite.vars)) if "{" in text else text
            except TemplateError as error:
                yield ("cases", index, key), str(error)
                continue
            if key == "prompt" and not shown.strip():
                yield ("cases", index, key), "the prompt is empty once it is rendered"


def _graders(suite: Suite, trust: Trust) -> Found:
    seen: set[str] = set()
    for index, grader in enumerate(suite.graders):
        if grader.key in seen:
            yield ("graders", index, "key"), f"two graders have the key {grader.key!r}"
        seen.add(grader.key)
        if grader.runs_code and not trust.everything:
            yield ("graders", index, "type"), runs_code(grader.type_name, getattr(grader, "options", None))
    for name, own in _by_type(suite).items():
        if check := check_of(GRADERS, name, "problems"):
            yield from check(suite, own)


def _by_type(suite: Suite) -> dict[str, list[tuple[int, BaseGrader]]]:
    found: dict[str, list[tuple[int, BaseGrader]]] = {}
    for index, grader in enumerate(suite.graders):
        found.setdefault(grader.type_name, []).append((index, grader))
    return found


def _graders_on_runs(view: SuiteContext, broken: frozenset[str]) -> Found:
    if broken & {"graders", "judges"}:
        return
    yield from no_image_problems(view)
    for name, own in _by_type(view.suite).items():
        if check := check_of(GRADERS, name, "run_problems"):
            yield from check(view, own)


def _tasks(view: SuiteContext) -> Found:
    doing = {task: any(run.config.does(task) for run in view.runs) for task in TaskType}
    for index, entry in enumerate(view.suite.models):
        if impossible := [task for task in entry.tasks if task not in entry.can_do]:
            yield ("models", index, "tasks"), f"this provider cannot do {', '.join(impossible)}"
        elif not any(entry.does(task) for task in {case.task_type for case in view.suite.cases}):
            yield ("models", index), "no case of this suite is of a task that this model does"
    for index, case in enumerate(view.suite.cases):
        if not doing[case.task_type]:
            yield ("cases", index), f"no model of this suite does {case.task_type}: the case would never run"
        if case.task_type == TaskType.IMAGE_EDITING and not case.images and not case.output_of:
            yield ("cases", index), "an editing case needs images: the first is the image to edit"
