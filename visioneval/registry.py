"""Graders, providers and judges by name: the modules with their options, checks and implementations.

Modules are listed as text and imported on first use, so that the suite model depends on no grader or provider, and
reading a suite loads no implementation. Classes of other people are in ``visioneval.plugins``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """One grader, provider or judge. ``config`` and ``work`` are ``module:Name``."""

    config: str
    """Its options: a pydantic model that does not import the implementation."""
    work: str
    """Its implementation, built from the options."""
    checks: str | None = None
    """A module with ``problems``, ``run_problems``, ``warnings`` or ``answer_problems`` of suites that use it; by
    default, that of its options."""


def _grader(package: str, config: str, work: str) -> Part:
    return Part(f"visioneval.graders.{package}:{config}", f"visioneval.graders.{package}.{work}")


def _part(package: str, config: str, work: str, *, checks: bool = False) -> Part:
    checked = f"visioneval.{package}.checks" if checks else None
    return Part(f"visioneval.{package}.config:{config}", f"visioneval.{package}.{work}", checked)


GRADERS: Mapping[str, Part] = {
    "rubric": _grader("rubric", "RubricGrader", "grader:Rubric"),
    "alignment": _grader("alignment", "AlignmentGrader", "grader:Alignment"),
    "gecko": _grader("gecko", "GeckoGrader", "grader:Gecko"),
    "text": _grader("text", "TextGrader", "grader:Text"),
    "locality": _grader("pixels", "LocalityGrader", "locality:Locality"),
    "reference": _grader("pixels", "ReferenceGrader", "reference:Reference"),
    "properties": _grader("properties", "PropertiesGrader", "grader:Properties"),
    "video": _grader("properties", "VideoGrader", "video:Video"),
    "diversity": _grader("pixels", "DiversityGrader", "reference:Diversity"),
    "pairwise": _grader("pairwise", "PairwiseGrader", "grader:Pairwise"),
}
PROVIDERS: Mapping[str, Part] = {
    "openai": _part("providers.openai", "OpenAIProvider", "generator:OpenAIGenerator"),
    "gemini": _part("providers.gemini", "GeminiProvider", "generator:GeminiGenerator"),
    "litellm": _part("providers.litellm", "LiteLLMProvider", "generator:LiteLLMGenerator"),
    "files": _part("providers.files", "FilesProvider", "generator:Files"),
    "mock": _part("providers.mock", "MockProvider", "generator:Mock"),
    "command": _part("providers.command", "CommandProvider", "generator:Command"),
}
JUDGES: Mapping[str, Part] = {
    "openai": _part("providers.openai", "OpenAIJudge", "judge:open_judge"),
    "gemini": _part("providers.gemini", "GeminiJudge", "judge:GeminiJudgeClient"),
    "litellm": _part("providers.litellm", "LiteLLMJudge", "generator:open_judge"),
    "recorded": _part("providers.recorded", "RecordedJudge", "judge:Recorded", checks=True),
}
BUILT_IN: Mapping[str, Mapping[str, Part]] = {
    "visioneval.graders": GRADERS,
    "visioneval.providers": PROVIDERS,
    "visioneval.judges": JUDGES,
}
"""By the group of entry points that adds to them."""


@cache
def load_object(target: str) -> Any:
    """Imports the object at ``module:Name``."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def config_of(table: Mapping[str, Part], name: str) -> Any:
    """The options class of ``name``. Raises ``KeyError`` if ``table`` has no such name."""
    return load_object(table[name].config)


def check_of(table: Mapping[str, Part], name: str, function: str) -> Any:
    """The check ``function`` of ``name``; ``None`` if it has none or ``table`` has no such name."""
    part = table.get(name)
    return part and getattr(import_module(part.checks or part.config.partition(":")[0]), function, None)
