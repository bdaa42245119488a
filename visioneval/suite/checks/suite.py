"""Everything about a well-formed suite that can be checked before any call is paid for. Each check is one function.

A check yields ``(loc, message)``: ``loc`` is a path in the suite such as ``("cases", 3, "masks")``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from visioneval.errors import Problem, did_you_mean
from visioneval.installation import has_extra, needs
from visioneval.media.urls import public_address
from visioneval.media.video import can_read_videos
from visioneval.plugins import GRADERS, JUDGES, PROVIDERS, check_of
from visioneval.rules import is_true, parse_gate
from visioneval.suite.cases.outputs import RunLabels
from visioneval.suite.checks.cases import (
    CaseTexts,
    brace_warnings,
    id_problems,
    output_of_problems,
    prompt_entry_problems,
    prompt_warnings,
    text_problems,
    turn_problems,
)
from visioneval.suite.checks.files import file_problems, unreadable_addresses
from visioneval.suite.checks.judges import judge_problems, panel_warnings, recorded_answer_problems
from visioneval.suite.checks.models import (
    expand_models,
    generation_problems,
    limit_problems,
    no_image_problems,
    run_label_problems,
    task_problems,
)
from visioneval.suite.checks.rules import Problems, SuiteContext, idle_rules, rule_problems
from visioneval.suite.entries.graders import BaseGrader, rubric_scale
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.findings import Loc, SuiteNote, SuiteWarning, untrusted_code_message
from visioneval.suite.labels import READY, VERDICT, WHY, LabelQuestion, Labels, metric_mismatch
from visioneval.suite.loading.paths import Trust
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.suite.plugins import version_warnings
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
    yield from file_problems(suite, folder, trust)
    if "vars" not in broken:
        yield from text_problems(suite, texts, known_models="models" not in broken)
    if not broken & {"cases", "vars", "prompts"}:
        yield from prompt_entry_problems(suite, texts)
    yield from _graders(suite, trust)
    if not broken & {"cases", "vars", "graders", "judges", "verdict"}:
        yield from judge_problems(suite, folder, trust, texts)
    yield from label_problems(suite, folder, trust, broken)
    yield from tracking_problems(suite, trust)
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
    yield from _graders_on_runs(suite_context, broken)
    if not broken & {"graders", "judges"}:
        yield from recorded_answer_problems(suite_context, folder, trust)
    if not broken & {"graders", "metrics"}:
        yield from rule_problems(suite_context, is_complete="verdict" not in broken)
        yield from (SuiteWarning(loc, message) for loc, message in idle_rules(suite_context))
        yield from suite_warnings(suite)


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


def tracking_problems(suite: Suite, trust: Trust) -> Iterator[tuple[Loc, str]]:
    """A host, an account or a project that a suite without trust must not name."""
    problem = None if suite.tracking is None or trust.everything else suite.tracking.untrusted_option()
    if problem is not None:
        key, message = problem
        yield ("tracking", key), message


def label_problems(suite: Suite, folder: Path, trust: Trust, broken: frozenset[str]) -> Problems:
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
    if labels.anchors is not None and (message := _anchors(labels.anchors, folder, trust)):
        yield ("labels", "anchors"), message


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


def _anchors(path: str, folder: Path, trust: Trust) -> str | None:
    if refusal := trust.refusal(path, folder):
        return refusal
    return None if (folder / path).is_file() else f"{public_address(path)}: there is no such file"


def suite_warnings(suite: Suite) -> Iterator[SuiteWarning]:
    """Yields warnings about prompts, panels and gates, and those that belong to one type of grader."""
    checks = (
        *(prompt_warnings, brace_warnings, panel_warnings, _idle_gates, _missing_references, _misspelled_tags),
        *(_servers_without_path, _same_calls, _of_providers, _missing_extras, version_warnings, unreadable_addresses),
    )
    for check_suite in checks:
        yield from (SuiteWarning(loc, message) for loc, message in check_suite(suite))
    for name, graders in graders_by_type(suite).items():
        if check := check_of(GRADERS, name, "warnings"):
            yield from (SuiteWarning(loc, message) for loc, message in check(suite, graders))


def _idle_gates(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields gates on errors that cannot fail."""
    for index, entry in enumerate(suite.gates):
        gate = parse_gate(entry.rule)
        if (
            gate.is_about_errors
            and gate.has_side
            and all(is_true(rate, gate.op, gate.threshold) for rate in (0.0, 1.0))
        ):
            is_replacing = entry.is_unrestricted and gate.op in ("<", "<=")
            replaced = ", and replaces the implied limit of 0" if is_replacing else ""
            advice = f"write '{gate.fn} <= 0.05', or another limit below 1"
            yield ("gates", index), f"{entry.rule!r} cannot fail{replaced}: {advice}"


def _missing_references(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields graders whose judge is to see the reference, although no case has one."""
    for index, grader in enumerate(suite.graders):
        shown = getattr(grader, "show", None) or ()
        if "reference" in shown and not any(case.reference for case in suite.cases if grader.is_for(case)):
            yield ("graders", index, "show"), "show lists 'reference', but no case of this grader has one"


def _misspelled_tags(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields tags that look like the one that comparisons protect, where they are first."""
    reported: set[str] = set()
    for index, case in enumerate(suite.cases):
        for tag in case.tags:
            if tag != MUST_PASS and re.sub(r"[^a-z]", "", tag.lower()) == "mustpass" and tag not in reported:
                reported.add(tag)
                yield ("cases", index, "tags"), f"the tag {tag!r} protects nothing: comparisons know {MUST_PASS!r}"


def _servers_without_path(suite: Suite) -> Iterator[tuple[Loc, str]]:
    entries: list[tuple[Loc, object]] = [(("models", index), model) for index, model in enumerate(suite.models)]
    for loc, entry in [*entries, *((("judges", name), judge) for name, judge in suite.judges.items())]:
        if isinstance(entry, Remote) and (warning := entry.base_url_warning):
            yield (*loc, "base_url"), warning


def _same_calls(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields models that differ only in their server: a cache keeps one answer for both."""
    seen: list[tuple[object, BaseProvider]] = []
    for index, model in enumerate(suite.models):
        if isinstance(model, Remote):
            calls = (model.provider_name, model.key_options, model.params, model.grid, model.prompts)
            twin = next((other for others, other in seen if others == calls), None)
            if twin is not None and getattr(twin, "base_url", None) != model.base_url:
                message = "differ only in their server, which no cache tells apart: --reuse all and --offline use one"
                yield ("models", index), f"{twin.base_label!r} and {model.base_label!r} {message} output for both"
            seen.append((calls, model))


def _of_providers(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields the warnings that belong to one provider."""
    for index, model in enumerate(suite.models):
        if check := check_of(PROVIDERS, model.provider_name, "warnings"):
            yield from ((("models", index, *loc), message) for loc, message in check(model))
    for name, judge in suite.judges.items():
        if check := check_of(JUDGES, judge.provider_name, "warnings"):
            yield from ((("judges", name, *loc), message) for loc, message in check(judge))


def _missing_extras(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields what has to be installed before videos and text can be read, or results be sent."""
    videos = (index for index, case in enumerate(suite.cases) if case.task is TaskType.VIDEO_GENERATION)
    if (index := next(videos, None)) is not None and not can_read_videos():
        yield ("cases", index), needs("video")
    for index, grader in enumerate(suite.graders):
        extras = {extra for case in suite.cases if grader.is_for(case) and (extra := grader.extra_for(case))}
        yield from ((("graders", index, "type"), needs(extra)) for extra in extras - {"video"} if not has_extra(extra))
    if suite.tracking is not None and (problem := suite.tracking.missing_client):
        yield ("tracking", "to"), problem


def graders_by_type(suite: Suite) -> dict[str, list[tuple[int, BaseGrader]]]:
    """The graders of each type, with their indices in the suite."""
    by_type: dict[str, list[tuple[int, BaseGrader]]] = {}
    for index, grader in enumerate(suite.graders):
        by_type.setdefault(grader.type_name, []).append((index, grader))
    return by_type
