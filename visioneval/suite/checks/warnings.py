"""What may not be intended in a suite, although it can be run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from visioneval.extras import has_extra, needs
from visioneval.media.video import can_read_videos
from visioneval.registry import GRADERS, JUDGES, PROVIDERS, check_of
from visioneval.rules import Gate, is_true, parse_gate
from visioneval.suite.checks.addresses import unreadable_addresses
from visioneval.suite.checks.panels import panel_warnings
from visioneval.suite.checks.prompts import brace_warnings, prompt_warnings
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.loading.messages import Loc, SuiteWarning
from visioneval.suite.model import Suite
from visioneval.suite.plugins import version_warnings
from visioneval.suite.remote import Remote
from visioneval.types import MUST_PASS, TaskType


def suite_warnings(suite: Suite) -> Iterator[SuiteWarning]:
    """Yields warnings about prompts, panels and gates, and those that belong to one type of grader."""
    yield from (SuiteWarning(loc, message) for loc, message in prompt_warnings(suite))
    yield from (SuiteWarning(loc, message) for loc, message in brace_warnings(suite))
    yield from (SuiteWarning(loc, message) for loc, message in panel_warnings(suite))
    yield from (SuiteWarning(loc, message) for loc, message in _idle_gates(suite))
    yield from (SuiteWarning(loc, message) for loc, message in _missing_references(suite))
    yield from (SuiteWarning(loc, message) for loc, message in _misspelled_tags(suite))
    yield from (SuiteWarning(loc, message) for loc, message in _servers_without_path(suite))
    yield from (SuiteWarning(loc, message) for loc, message in _same_calls(suite))
    yield from (SuiteWarning(loc, message) for loc, message in _of_providers(suite))
    yield from (SuiteWarning(loc, message) for loc, message in _missing_extras(suite))
    yield from (SuiteWarning(loc, message) for loc, message in version_warnings(suite))
    yield from (SuiteWarning(loc, message) for loc, message in unreadable_addresses(suite))
    for name, graders in graders_by_type(suite).items():
        if check := check_of(GRADERS, name, "warnings"):
            yield from (SuiteWarning(loc, message) for loc, message in check(suite, graders))


def _idle_gates(suite: Suite) -> Iterator[tuple[Loc, str]]:
    """Yields gates on errors that cannot fail."""
    for index, entry in enumerate(suite.gates):
        gate = parse_gate(entry.rule)
        if gate.is_about_errors and _is_always_met(gate):
            is_replacing = entry.is_unrestricted and gate.op in ("<", "<=")
            replaced = ", and replaces the implied limit of 0" if is_replacing else ""
            advice = f"write '{gate.fn} <= 0.05', or another limit below 1"
            yield ("gates", index), f"{entry.rule!r} cannot fail{replaced}: {advice}"


def _is_always_met(gate: Gate) -> bool:
    """Whether every rate from 0 to 1 meets a gate."""
    return gate.op not in ("==", "!=") and all(is_true(rate, gate.op, gate.threshold) for rate in (0.0, 1.0))


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
