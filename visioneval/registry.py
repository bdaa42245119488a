"""Graders, providers and judges by name: the modules with their options and checks, and their implementations.

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
    """Its options: a pydantic model. Its module may have ``problems``, ``run_problems``, ``warnings`` or
    ``answer_problems`` of suites that use it."""
    work: str
    """Its implementation, built from the options."""


def _part(package: str, config: str, work: str) -> Part:
    """``work`` is relative to the package, whose own module has the options: ``.module:Name``, or ``:Name`` in it."""
    return Part(f"visioneval.{package}:{config}", f"visioneval.{package}{work}")


GRADERS: Mapping[str, Part] = {
    "rubric": _part("graders.rubric", "RubricGrader", ".grader:Rubric"),
    "alignment": _part("graders.alignment", "AlignmentGrader", ".grader:Alignment"),
    "gecko": _part("graders.gecko", "GeckoGrader", ".grader:Gecko"),
    "text": _part("graders.text", "TextGrader", ".grader:Text"),
    "locality": _part("graders.pixels", "LocalityGrader", ".locality:Locality"),
    "reference": _part("graders.pixels", "ReferenceGrader", ".reference:Reference"),
    "properties": _part("graders.properties", "PropertiesGrader", ".grader:Properties"),
    "video": _part("graders.properties", "VideoGrader", ".video:Video"),
    "diversity": _part("graders.pixels", "DiversityGrader", ".reference:Diversity"),
    "pairwise": _part("graders.pairwise", "PairwiseGrader", ".grader:Pairwise"),
}
PROVIDERS: Mapping[str, Part] = {
    "openai": _part("providers.openai", "OpenAIProvider", ".generator:OpenAIGenerator"),
    "gemini": _part("providers.gemini", "GeminiProvider", ".generator:GeminiGenerator"),
    "litellm": _part("providers.litellm", "LiteLLMProvider", ".generator:LiteLLMGenerator"),
    "files": _part("providers.files", "FilesProvider", ":Files"),
    "mock": _part("providers.mock", "MockProvider", ".generator:Mock"),
    "command": _part("providers.command", "CommandProvider", ":Command"),
}
JUDGES: Mapping[str, Part] = {
    "openai": _part("providers.openai", "OpenAIJudge", ".judge:open_judge"),
    "gemini": _part("providers.gemini", "GeminiJudge", ".generator:GeminiJudgeClient"),
    "litellm": _part("providers.litellm", "LiteLLMJudge", ".generator:open_judge"),
    "recorded": _part("providers.recorded", "RecordedJudge", ":Recorded"),
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
    return part and getattr(import_module(part.config.partition(":")[0]), function, None)
