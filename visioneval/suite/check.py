"""Everything about a well-formed suite that can be wrong before anything is paid for. Each check is one function.

A check yields ``(loc, message)``: ``loc`` is a path in the suite such as ``("cases", 3, "masks")``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from visioneval import images
from visioneval.errors import ImageError, SuiteError, TemplateError, VisionEvalError
from visioneval.suite.alphabet import unreadable
from visioneval.suite.case import TestCase
from visioneval.suite.check_rules import View, rule_problems
from visioneval.suite.graders import TextGrader
from visioneval.suite.messages import Loc
from visioneval.suite.model import Suite
from visioneval.suite.paths import Trust
from visioneval.suite.prompts import RESERVED, rendered
from visioneval.suite.providers import BaseProvider, CommandProvider, DrawingProvider, FilesProvider
from visioneval.suite.runs import RunLabels, model_runs, split_run
from visioneval.types import ModelRun

Found = Iterator[tuple[Loc, str]]


def problems(suite: Suite, folder: Path, trust: Trust, run_labels: RunLabels) -> Found:
    """Every problem of a suite that its model cannot see."""
    runs: list[tuple[int, ModelRun]] = []
    for index, entry in enumerate(suite.models):
        loc = ("models", index)
        refusals = list(_entry(entry, folder, trust, loc))
        yield from refusals
        if refusals:
            continue
        try:
            found = model_runs(entry, suite, folder, run_labels)
        except SuiteError as error:
            yield from ((loc, str(problem)) for problem in error.problems)
            continue
        except VisionEvalError as error:
            yield (*loc, "run"), str(error)
            continue
        yield from _swept(entry, found, loc)
        runs.extend((index, run) for run in found)
    yield from _labels(runs)
    yield from _ids(suite)
    yield from _files(suite, folder, trust)
    yield from _prompts(suite)
    yield from _graders(suite, trust)
    view = View(suite, [run for _, run in runs])
    if len({index for index, _ in runs}) == len(suite.models):
        yield from _tasks(view)
        yield from rule_problems(view)


def _entry(entry: BaseProvider, folder: Path, trust: Trust, loc: Loc) -> Found:
    if entry.runs_code and not trust.everything:
        yield loc, _runs_code(str(getattr(entry, "provider", "")))
    if isinstance(entry, CommandProvider) and not _is_program(entry.argv[0], folder):
        yield (*loc, "argv"), f"there is no program {entry.argv[0]!r} on this machine"
    if isinstance(entry, FilesProvider):
        for key, path in _named_paths(entry):
            if refusal := trust.refusal(path, folder):
                yield (*loc, key), refusal


def _is_program(name: str, folder: Path) -> bool:
    return shutil.which(name) is not None or ("/" in name and shutil.which(str(folder / name)) is not None)


def _named_paths(entry: FilesProvider) -> Iterator[tuple[str, str]]:
    if entry.path:
        yield "path", entry.path.split("{")[0]
    if entry.run and "/" in (run := split_run(entry.run)[0]):
        yield "run", str(Path.cwd() / run)
    if entry.dataset:
        yield "dataset", entry.dataset.path


def _runs_code(name: str) -> str:
    return f"{name!r} runs code that the suite brings: pass --trust-suite if you trust this suite"


def _swept(entry: BaseProvider, runs: Sequence[ModelRun], loc: Loc) -> Found:
    if not runs:
        what = f"no picture is labelled {entry.label!r}" if entry.label else "no case brings a finished picture"
        yield loc, f"this entry makes no model run: {what}"
    said: set[str] = set()
    for run in runs:
        try:
            entry.check_params(dict(run.params))
        except ValueError as error:
            if str(error) not in said:
                key = "grid" if isinstance(entry, DrawingProvider) and entry.grid else "params"
                yield (*loc, key), str(error)
            said.add(str(error))


def _labels(runs: Sequence[tuple[int, ModelRun]]) -> Found:
    seen: set[str] = set()
    for index, run in runs:
        if run.label in seen:
            yield (
                ("models", index),
                f"two model runs are labelled {run.label!r}: give each a label of its own",
            )
        seen.add(run.label)


def _ids(suite: Suite) -> Found:
    first: dict[str, str] = {}
    for index, case in enumerate(suite.cases):
        folded = case.id.lower()
        if folded in first:
            same = first[folded] == case.id
            yield (
                ("cases", index, "id"),
                f"the id {case.id!r} stands here twice"
                if same
                else f"the ids {first[folded]!r} and {case.id!r} differ only by upper and lower case",
            )
        first.setdefault(folded, case.id)


def _files(suite: Suite, folder: Path, trust: Trust) -> Found:
    seen: dict[Path, str | None] = {}

    def wrong(path: str) -> str | None:
        full = folder / path
        if full not in seen:
            seen[full] = trust.refusal(path, folder) or _unreadable_picture(full)
        return f"{path}: {seen[full]}" if seen[full] else None

    for index, case in enumerate(suite.cases):
        named: list[tuple[Loc, str]] = [(("images", at, "path"), image.path) for at, image in enumerate(case.images)]
        if case.reference:
            named.append((("reference",), case.reference))
        masks = case.masks.model_dump(exclude_none=True) if case.masks else {}
        named.extend((("masks", name), path) for name, path in masks.items())
        bad = [(loc, message) for loc, path in named if (message := wrong(path))]
        yield from ((("cases", index, *loc), message) for loc, message in bad)
        yield from ((("cases", index, *loc), message) for loc, message in _finished(case, folder, trust))
        if masks and not bad:
            yield from ((("cases", index, *loc), message) for loc, message in _masks(case, masks, folder))


def _unreadable_picture(path: Path) -> str | None:
    try:
        images.verify(path)
    except ImageError as error:
        return str(error)
    return None


def _finished(case: TestCase, folder: Path, trust: Trust) -> Found:
    for label, paths in case.pictures.items():
        for at, path in enumerate(paths):
            if refusal := trust.refusal(path, folder):
                yield ("pictures", label, at), refusal


def _masks(case: TestCase, masks: dict[str, str], folder: Path) -> Found:
    if not case.images:
        yield ("masks",), "a mask needs an image: the case has none"
        return
    base = images.size_of(folder / case.images[0].path)
    for name, path in masks.items():
        size = images.size_of(folder / path)
        if size != base:
            yield (
                ("masks", name),
                f"{path} has {size[0]} x {size[1]} pixels, but the base image has {base[0]} x {base[1]}",
            )
        elif not images.has_alpha(folder / path):
            yield (
                ("masks", name),
                f"{path} has no alpha channel: transparent pixels (alpha 0) are inside the mask",
            )


def _prompts(suite: Suite) -> Found:
    for name in RESERVED:
        if name in suite.vars:
            yield ("vars", name), f"the name {name!r} is taken: templates see the case by it"
    for index, case in enumerate(suite.cases):
        try:
            prompt, _ = rendered(case, suite.vars)
        except TemplateError as error:
            yield ("cases", index, "prompt"), str(error)
            continue
        if not prompt.strip():
            yield ("cases", index, "prompt"), "the prompt is empty once it is rendered"


def _graders(suite: Suite, trust: Trust) -> Found:
    seen: set[str] = set()
    for index, grader in enumerate(suite.graders):
        if grader.key in seen:
            yield ("graders", index, "key"), f"two graders have the key {grader.key!r}"
        seen.add(grader.key)
        if grader.runs_code and not trust.everything:
            yield ("graders", index), _runs_code(grader.type)
        if isinstance(grader, TextGrader):
            yield from _alphabet(suite, grader)


def _alphabet(suite: Suite, grader: TextGrader) -> Found:
    for index, case in enumerate(suite.cases):
        expected = case.expect.text
        if expected is None or (grader.when and not grader.when.fits(case.id, case.task_type, case.tags)):
            continue
        for key in ("required", "forbidden", "allowed"):
            for at, line in enumerate(getattr(expected, key)):
                if foreign := unreadable(line):
                    yield (
                        ("cases", index, "expect", "text", key, at),
                        f"local OCR cannot read {' '.join(foreign)}: this line needs a grader with 'extract: judge'",
                    )


def _tasks(view: View) -> Found:
    for index, entry in enumerate(view.suite.models):
        if impossible := [task for task in entry.tasks if task not in entry.can_do]:
            yield ("models", index, "tasks"), f"this provider cannot do {', '.join(impossible)}"
    for index, case in enumerate(view.suite.cases):
        if not any(run.config.does(case.task_type) for run in view.runs):
            yield ("cases", index), f"no model of this suite does {case.task_type}: the case would never run"
        if case.task_type == "image_editing" and not case.images:
            yield ("cases", index), "an editing case needs images: the first is the picture to edit"
    for index, entry in enumerate(view.suite.models):
        if not any(entry.does(case.task_type) for case in view.suite.cases):
            yield ("models", index), "no case of this suite is of a task that this model does"
