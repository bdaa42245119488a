"""Everything about a well-formed suite that can be checked before any call is paid for. Each check is one function.

A check yields ``(loc, message)``: ``loc`` is a path in the suite such as ``("cases", 3, "masks")``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from visioneval.errors import ImageError, Problem, count_of, did_you_mean
from visioneval.installation import has_extra, is_installed, needs
from visioneval.media import images
from visioneval.media.animation import check_still
from visioneval.media.urls import BUCKETS, needs_extra, public_address
from visioneval.media.video import can_read_videos
from visioneval.plugins import GRADERS, JUDGES, PROVIDERS, check_of
from visioneval.rules import is_true, parse_gate
from visioneval.suite.case import TestCase
from visioneval.suite.checks.generation import (
    CaseTexts,
    brace_warnings,
    expand_models,
    generation_problems,
    id_problems,
    limit_problems,
    no_image_problems,
    output_of_problems,
    prompt_entry_problems,
    prompt_warnings,
    run_label_problems,
    task_problems,
    text_problems,
    turn_problems,
)
from visioneval.suite.checks.judges import judge_problems, panel_warnings, recorded_answer_problems
from visioneval.suite.checks.rules import Problems, SuiteContext, idle_rules, rule_problems
from visioneval.suite.checks.same_question import same_question_problems
from visioneval.suite.entries.graders import CASES, BaseGrader, of_kind, rubric_scale
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.files import RunLabels, Trust
from visioneval.suite.labels import READY, VERDICT, WHY, LabelQuestion, Labels, metric_mismatch
from visioneval.suite.messages import Loc, SuiteNote, SuiteWarning, untrusted_code_message
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.suite.plugins import version_warnings
from visioneval.suite.relations import relation_problems
from visioneval.suite.remote import Remote
from visioneval.suite.runs import cell_problem
from visioneval.types import MUST_PASS, Metric, ModelRun, TaskType


def problems(
    suite: Suite, folder: Path, trust: Trust, run_labels: RunLabels, broken: frozenset[str] = frozenset()
) -> Iterator[tuple[Loc, str] | Problem | SuiteWarning | SuiteNote]:
    """Every problem of a suite that its model cannot detect, warnings and notes.

    Problems in other files have a position.

    ``broken`` names the top-level keys that lost invalid entries, and ``metrics`` if the metrics of some grader are
    unknown: checks that depend on them are skipped.
    """
    runs: list[tuple[int, ModelRun]] = []
    texts: CaseTexts = {}
    yield from expand_models(suite, folder, trust, run_labels, broken, runs)
    yield from run_label_problems(runs)
    if not broken:
        yield from limit_problems(suite, [run for _, run in runs])
    yield from id_problems(suite)
    yield from _layouts(suite)
    yield from _file_problems(suite, folder, trust)
    if "vars" not in broken:
        yield from text_problems(suite, texts, known_models="models" not in broken)
    if not broken & {"cases", "vars", "prompts"}:
        yield from prompt_entry_problems(suite, texts)
    yield from _graders(suite, trust)
    yield from _of_graders("problems", suite, suite)
    if not broken & {"cases", "vars", "graders", "judges", "verdict"}:
        yield from judge_problems(suite, folder, trust, texts)
    yield from _labels(suite, folder, trust, broken)
    if suite.tracking is not None and not trust.everything and (problem := suite.tracking.untrusted_option()):
        yield ("tracking", problem[0]), problem[1]
    suite_context = SuiteContext(suite, [run for _, run in runs])
    if broken & {"cases", "task", "models", "prompts"} or len({index for index, _ in runs}) < len(suite.models):
        return
    if too_many := cell_problem(suite, suite_context.runs):
        yield ("cases",), too_many
        return
    yield from task_problems(suite_context)
    yield from generation_problems(suite_context, [index for index, _ in runs])
    yield from output_of_problems(suite.cases)
    yield from turn_problems(suite, runs)
    if not broken & {"graders", "judges"}:
        yield from no_image_problems(suite_context)
        yield from _of_graders("run_problems", suite, suite_context)
        yield from recorded_answer_problems(suite_context, folder, trust)
    if not broken & {"graders", "metrics"}:
        yield from rule_problems(suite_context, is_complete="verdict" not in broken)
        yield from same_question_problems(suite_context, broken)
        yield from _unread_duplicates(suite)
        warnings = (
            *(idle_rules(suite_context), prompt_warnings(suite), brace_warnings(suite), panel_warnings(suite)),
            *(_idle_gates(suite), _missing_references(suite), _misspelled_tags(suite), _of_servers(suite)),
            *(_of_providers(suite), _missing_extras(suite), version_warnings(suite), _unreadable_addresses(suite)),
            _of_graders("warnings", suite, suite),
        )
        yield from (SuiteWarning(loc, message) for of_kind in warnings for loc, message in of_kind)


def _graders(suite: Suite, trust: Trust) -> Problems:
    keys: set[str] = set()
    for index, grader in enumerate(suite.graders):
        if grader.key in keys:
            yield ("graders", index, "key"), f"two graders have the key {grader.key!r}"
        keys.add(grader.key)
        if grader.needs_trust and not trust.everything:
            yield ("graders", index, "type"), untrusted_code_message(grader.type_name, getattr(grader, "options", None))


def _layouts(suite: Suite) -> Problems:
    for index, case in enumerate(suite.cases):
        expect = case.expect
        required = expect.text.required if expect.text else ()
        for loc, message in relation_problems(expect.layout or (), required, expect.regions):
            yield ("cases", index, "expect", *loc), message


def _of_graders(function: str, suite: Suite, subject: Suite | SuiteContext) -> Problems:
    """What the function of this name, beside the options of each type of grader, finds about ``subject``."""
    by_type: dict[str, list[tuple[int, BaseGrader]]] = {}
    for index, grader in enumerate(suite.graders):
        by_type.setdefault(grader.type_name, []).append((index, grader))
    for name, graders in by_type.items():
        if check := check_of(GRADERS, name, function):
            yield from check(subject, graders)


def _labels(suite: Suite, folder: Path, trust: Trust, broken: frozenset[str]) -> Problems:
    """Every problem of ``labels``. ``broken`` names the top-level keys that are incomplete in this suite."""
    labels = suite.labels
    if labels is None or "labels" in broken:
        return
    yield from _keys(labels)
    if not broken & {"cases", "graders", "metrics"}:
        metrics = SuiteMetrics(suite).all
        for index, question in enumerate(labels.questions):
            for name in question.metrics:
                if message := _metric(question, name, metrics, suite):
                    yield ("labels", "questions", index, "metric"), message
    if labels.anchors is not None:
        if refusal := trust.refusal(labels.anchors, folder):
            yield ("labels", "anchors"), refusal
        elif not (folder / labels.anchors).is_file():
            yield ("labels", "anchors"), f"{public_address(labels.anchors)}: there is no such file"


def _keys(labels: Labels) -> Problems:
    """Duplicate keys. A question replaces the preset's question of its key; it cannot have the key of a pair."""
    preset = READY[labels.preset] if labels.preset else None
    used = {key for pair in preset.pairs for key in (pair.key, f"{pair.key}{WHY}")} if preset else set()
    for index, question in enumerate(labels.questions):
        if question.key in used:
            yield ("labels", "questions", index, "key"), f"two questions have the key {question.key!r}"
        used.add(question.key)
    used = {question.key for question in (*labels.questions, *(preset.questions if preset else ()))}
    for index, pair in enumerate(labels.pairs):
        if clashing := used & {pair.key, f"{pair.key}{WHY}"}:
            yield ("labels", "pairs", index, "key"), f"two questions have the key {min(clashing)!r}"
        used |= {pair.key, f"{pair.key}{WHY}"}


def _metric(question: LabelQuestion, name: str, metrics: dict[str, Metric], suite: Suite) -> str | None:
    if name not in metrics:
        if name == VERDICT and not suite.has_rules:
            return "a suite without rules has no verdict: add 'graders' and 'verdict', or remove 'metric'"
        if name == VERDICT:
            return None if question.type == "yes_no" else "the verdict is yes or no: use the type yes_no"
        return f"no grader writes {name!r}{did_you_mean(name, {*metrics, VERDICT})}"
    return metric_mismatch(question, name, metrics[name], rubric_scale(name, suite.graders))


def _idle_gates(suite: Suite) -> Problems:
    """Yields gates on errors that cannot fail."""
    for index, entry in enumerate(suite.gates):
        gate = parse_gate(entry.rule)
        always = all(is_true(rate, gate.op, gate.threshold) for rate in (0.0, 1.0))
        if gate.is_about_errors and gate.has_side and always:
            is_replacing = entry.is_unrestricted and gate.op in ("<", "<=")
            replaced = ", and replaces the implied limit of 0" if is_replacing else ""
            advice = f"write '{gate.fn} <= 0.05', or another limit below 1"
            yield ("gates", index), f"{entry.rule!r} cannot fail{replaced}: {advice}"


def _unread_duplicates(suite: Suite) -> Problems:
    """Yields gates on near-duplicates without a grader that finds them."""
    for index, entry in enumerate(suite.gates):
        if parse_gate(entry.rule).fn == "duplicate_rate" and not of_kind(suite.graders, CASES):
            yield ("gates", index), f"{entry.rule!r} needs a grader of the type duplicates"


def _missing_references(suite: Suite) -> Problems:
    """Yields graders whose judge is to see the reference, although no case has one."""
    for index, grader in enumerate(suite.graders):
        shown = getattr(grader, "show", None) or ()
        if "reference" in shown and not any(case.reference for case in suite.cases if grader.is_for(case)):
            yield ("graders", index, "show"), "show lists 'reference', but no case of this grader has one"


def _misspelled_tags(suite: Suite) -> Problems:
    """Yields tags that look like the one that comparisons protect, where they are first."""
    reported: set[str] = set()
    for index, case in enumerate(suite.cases):
        for tag in case.tags:
            if tag != MUST_PASS and re.sub(r"[^a-z]", "", tag.lower()) == "mustpass" and tag not in reported:
                reported.add(tag)
                yield ("cases", index, "tags"), f"the tag {tag!r} protects nothing: comparisons know {MUST_PASS!r}"


def _of_servers(suite: Suite) -> Problems:
    """Yields addresses without a path, and models that differ only in their server: a cache has one answer for both."""
    entries: list[tuple[Loc, object]] = [(("models", index), model) for index, model in enumerate(suite.models)]
    for loc, entry in [*entries, *((("judges", name), judge) for name, judge in suite.judges.items())]:
        if isinstance(entry, Remote) and (warning := entry.base_url_warning):
            yield (*loc, "base_url"), warning
    seen: list[tuple[object, BaseProvider]] = []
    for index, model in enumerate(suite.models):
        if isinstance(model, Remote):
            calls = (model.provider_name, model.key_options, model.params, model.grid, model.prompts)
            twin = next((other for others, other in seen if others == calls), None)
            if twin is not None and getattr(twin, "base_url", None) != model.base_url:
                message = "differ only in their server, which no cache tells apart: --reuse all and --offline use one"
                yield ("models", index), f"{twin.base_label!r} and {model.base_label!r} {message} output for both"
            seen.append((calls, model))


def _of_providers(suite: Suite) -> Problems:
    """Yields the warnings that belong to one provider."""
    for index, model in enumerate(suite.models):
        if check := check_of(PROVIDERS, model.provider_name, "warnings"):
            yield from ((("models", index, *loc), message) for loc, message in check(model))
    for name, judge in suite.judges.items():
        if check := check_of(JUDGES, judge.provider_name, "warnings"):
            yield from ((("judges", name, *loc), message) for loc, message in check(judge))


def _missing_extras(suite: Suite) -> Problems:
    """Yields what has to be installed before videos and text can be read, or results be sent."""
    videos = (index for index, case in enumerate(suite.cases) if case.task is TaskType.VIDEO_GENERATION)
    if (index := next(videos, None)) is not None and not can_read_videos():
        yield ("cases", index), needs("video")
    for index, grader in enumerate(suite.graders):
        extras = {extra for case in suite.cases if grader.is_for(case) and (extra := grader.extra_for(case))}
        yield from ((("graders", index, "type"), needs(extra)) for extra in extras - {"video"} if not has_extra(extra))
    if suite.tracking is not None and (problem := suite.tracking.missing_client):
        yield ("tracking", "to"), problem


_INVERTED = 0.75
"""A mask that lets a larger share of the image change may be inverted."""
_NOTED_MASKS = 3


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
        if path in self.seen:
            return self.seen[path]
        full, refusal = self.folder / path, self.trust.refusal(path, self.folder)
        try:
            if refusal is None:
                images.identify(full)
                check_still(full)
            self.seen[path] = refusal or (images.size_of(full), images.has_alpha(full))
        except ImageError as error:
            self.seen[path] = f"{public_address(path)}: {error}"
        return self.seen[path]


def _file_problems(suite: Suite, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str] | SuiteWarning | SuiteNote]:
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
    masks = case.masks.model_dump(exclude_none=True) if case.masks else {}
    named: list[tuple[Loc, str]] = [
        *((("images", position, "path"), image.path) for position, image in enumerate(case.images)),
        *([(("reference",), case.reference)] if case.reference else []),
        *((("masks", name), path) for name, path in masks.items()),
    ]
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
    if path not in files.shares:
        files.shares[path] = images.mask_shares(files.folder / path)
    shares = files.shares[path]
    if not shares.opaque:
        return f"{path} has no opaque pixel: mark what must not change with opaque pixels"
    if not shares.clear:
        only = ", only partly transparent ones" if shares.partial else ""
        return f"{path} has no transparent pixel (alpha 0){only}: mark what may change"
    return None


_MODULES = {"gs": "gcsfs", "s3": "s3fs", "hf": "huggingface_hub"}


def _unreadable_addresses(suite: Suite) -> Problems:
    """Yields, once for each scheme, the first address that nothing on this machine can read."""
    missing = {scheme for scheme in BUCKETS if not is_installed(_MODULES[scheme])}
    for loc, address in _addresses(suite) if missing else ():
        if (scheme := address.partition("://")[0]) in missing:
            missing.discard(scheme)
            yield loc, needs_extra(scheme)


def _addresses(suite: Suite) -> Problems:
    """The addresses of existing outputs that are read, and of folders in which a model leaves its videos."""
    for index, case in enumerate(suite.cases):
        graders = [grader for grader in suite.graders if grader.is_for(case)]
        for label, outputs in case.outputs.items():
            for at, output in enumerate(outputs):
                is_left = bool(output.path) and str(output.path).startswith("gs://")  # which Gemini itself reads
                if output.path and not (is_left and all(grader.needs_no_bytes for grader in graders)):
                    yield ("cases", index, "outputs", label, at), output.path
    for index, entry in enumerate(suite.models):
        if isinstance(path := getattr(entry, "path", None), str):
            yield ("models", index, "path"), path
        if isinstance(address := getattr(entry, "params", {}).get("output_gcs_uri"), str):
            yield ("models", index, "params", "output_gcs_uri"), address
