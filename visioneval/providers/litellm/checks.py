"""Checks of models against what the installed LiteLLM knows. Locations are relative to the entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from visioneval.providers.litellm import catalog
from visioneval.providers.litellm.config import LiteLLMJudge, LiteLLMOptions, LiteLLMProvider, model_problem
from visioneval.suite.findings import Loc
from visioneval.suite.loading.paths import Trust


def problems(entry: LiteLLMOptions, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str]]:  # noqa: ARG001
    """Yields models of providers that LiteLLM does not know. Without LiteLLM, nothing is known."""
    for loc, model in _models(entry):
        if problem := catalog.unknown_provider(model):
            yield loc, problem


def warnings(entry: LiteLLMOptions) -> Iterator[tuple[Loc, str]]:
    """Yields models that LiteLLM's list lacks, or that LiteLLM is missing."""
    if not catalog.is_installed():
        yield ("provider",), catalog.missing_text()
    elif entry.is_own_host:  # another server has models of its own
        use: catalog.Use = "judge" if isinstance(entry, LiteLLMJudge) else "generate"
        if isinstance(entry, LiteLLMProvider) and entry.api == "videos":
            use = "video"
        for loc, model in _models(entry):
            if warning := catalog.unknown_model(model, use):
                yield loc, warning


def _models(entry: LiteLLMOptions) -> Iterator[tuple[Loc, str]]:
    """The models of an entry whose names have a provider."""
    for model in entry.model_names:
        if model_problem(model) is None:
            yield (("model",) if isinstance(entry, LiteLLMJudge) else ("params", "model")), model
