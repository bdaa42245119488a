"""Models that their providers have ended or will end, with dates and successors.

To add a model, add its name to the row of its provider, date and successor, or add a row, with the page that says so.
Names are of the providers' own services: another server, and LiteLLM, has names of its own. Models of Anthropic are
in no row, so nothing checks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import GeneratingProvider
from visioneval.suite.messages import Loc

_OPENAI = "https://developers.openai.com/api/docs/deprecations"
_GEMINI = "https://ai.google.dev/gemini-api/docs/deprecations"
_VERTEX = "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/model-versions"
_CLAUDE = "https://platform.claude.com/docs/en/about-claude/model-deprecations"

# As of 2026-11-25: what the pages said, and what LiteLLM 1.110.2 and the SDK of OpenAI, 3.57.0, copied from them.
_ROWS: tuple[tuple[str, str | None, str | None, str, str], ...] = (
    # service, last day, successor, source, names
    ("OpenAI", "2026-05-12", "gpt-image-2.5-flare", _OPENAI, "dall-e-2 dall-e-3"),
    ("OpenAI", "2026-10-23", "gpt-image-2.5-flare", _OPENAI, "gpt-image-1"),
    ("OpenAI", "2026-12-01", "gpt-image-2.5-flare", _OPENAI, "gpt-image-1-mini gpt-image-1.5 chatgpt-image-latest"),
    ("OpenAI", "2026-09-24", None, _OPENAI, "sora-2 sora-2-pro"),
    ("OpenAI", "2024-09-13", None, _OPENAI, "gpt-3.5-turbo-16k gpt-3.5-turbo-0301 gpt-3.5-turbo-0613"),
    ("OpenAI", "2024-09-13", None, _OPENAI, "gpt-3.5-turbo-16k-0613"),
    ("OpenAI", "2024-12-06", None, _OPENAI, "gpt-4-vision-preview"),
    ("OpenAI", "2025-06-06", None, _OPENAI, "gpt-4-32k gpt-4-32k-0314 gpt-4-32k-0613"),
    ("OpenAI", "2025-07-28", None, _OPENAI, "o1-preview"),
    ("OpenAI", "2025-10-10", None, _OPENAI, "gpt-4o-audio-preview-2024-10-01"),
    ("OpenAI", "2025-10-27", None, _OPENAI, "o1-mini"),
    ("OpenAI", "2026-02-12", None, _OPENAI, "codex-mini-latest"),
    ("OpenAI", "2026-02-17", None, _OPENAI, "chatgpt-4o-latest"),
    ("OpenAI", "2026-03-26", None, _OPENAI, "gpt-4-0125-preview gpt-4-turbo-preview gpt-4-0314"),
    ("OpenAI", "2026-05-07", None, _OPENAI, "gpt-4o-audio-preview gpt-4o-mini-audio-preview"),
    ("OpenAI", "2026-09-28", "gpt-5.6-terra", _OPENAI, "gpt-3.5-turbo-1106"),
    ("OpenAI", None, None, _OPENAI, "gpt-5.1-mini"),
    ("OpenAI", "2026-07-23", "gpt-5.6-sol", _OPENAI, "gpt-5-chat-latest gpt-5.1-chat-latest"),
    ("OpenAI", "2026-07-23", "gpt-5.6-sol", _OPENAI, "gpt-5-codex gpt-5.1-codex gpt-5.1-codex-max gpt-5.2-codex"),
    ("OpenAI", "2026-07-23", "gpt-5.6-sol", _OPENAI, "o3-deep-research o4-mini-deep-research"),
    ("OpenAI", "2026-07-23", "gpt-5.6-terra", _OPENAI, "computer-use-preview gpt-5.1-codex-mini"),
    ("OpenAI", "2026-07-23", "gpt-5.6-terra", _OPENAI, "gpt-4o-search-preview gpt-4o-mini-search-preview"),
    ("OpenAI", "2026-08-10", "gpt-5.6-sol", _OPENAI, "gpt-5.2-chat-latest gpt-5.3-chat-latest"),
    ("OpenAI", "2026-10-23", "gpt-5.6-sol", _OPENAI, "gpt-4 gpt-4-turbo gpt-4-1106-preview gpt-4o-2024-05-13"),
    ("OpenAI", "2026-10-23", "gpt-5.6-sol", _OPENAI, "gpt-4-0613 o1 o1-pro o3-mini"),
    ("OpenAI", "2026-10-23", "gpt-5.6-terra", _OPENAI, "gpt-3.5-turbo gpt-3.5-turbo-0125 o4-mini"),
    ("OpenAI", "2026-10-23", "gpt-5.6-luna", _OPENAI, "gpt-4.1-nano"),
    ("OpenAI", "2026-12-11", "gpt-5.6-sol", _OPENAI, "gpt-5 gpt-5-pro o3 o3-pro"),
    ("OpenAI", "2026-12-11", "gpt-5.6-terra", _OPENAI, "gpt-5-mini"),
    ("OpenAI", "2026-12-11", "gpt-5.6-luna", _OPENAI, "gpt-5-nano"),
    ("OpenAI", "2027-01-14", "gpt-6-luna", _OPENAI, "gpt-4.1 gpt-4.1-mini gpt-4o gpt-4o-mini"),
    ("OpenAI", "2027-01-20", "gpt-audio-1.5", _OPENAI, "gpt-audio gpt-audio-mini"),
    ("OpenAI", "2027-04-01", "gpt-6-sol", _OPENAI, "gpt-5.1 gpt-5.3-codex"),
    ("OpenAI", "2027-04-01", "gpt-6-luna", _OPENAI, "gpt-5.4-nano"),
    ("Gemini API", "2026-01-15", "gemini-nano-banana-2.1", _GEMINI, "gemini-2.5-flash-image-preview"),
    ("Gemini API", "2026-06-25", "gemini-nano-banana-2.1", _GEMINI, "gemini-3.1-flash-image-preview"),
    ("Gemini API", "2026-06-25", "gemini-3-pro-image", _GEMINI, "gemini-3-pro-image-preview"),
    ("Gemini API", "2026-10-29", "gemini-nano-banana-2.1", _GEMINI, "gemini-3.1-flash-image"),
    ("Gemini API", "2027-03-15", "gemini-3.1-flash-lite-image", _GEMINI, "gemini-2.5-flash-image"),
    ("Gemini API", "2025-11-10", "gemini-nano-banana-2.1", _GEMINI, "imagen-3.0-generate-002"),
    ("Gemini API", "2026-08-17", "gemini-nano-banana-2.1", _GEMINI, "imagen-4.0-generate-001"),
    ("Gemini API", "2026-08-17", "gemini-nano-banana-2.1", _GEMINI, "imagen-4.0-fast-generate-001"),
    ("Gemini API", "2026-08-17", "gemini-nano-banana-2.1", _GEMINI, "imagen-4.0-ultra-generate-001"),
    ("Gemini API", "2026-03-09", "gemini-3.1-pro-preview", _GEMINI, "gemini-3-pro-preview"),
    ("Gemini API", "2026-05-25", "gemini-3.1-flash-lite", _GEMINI, "gemini-3.1-flash-lite-preview"),
    ("Gemini API", "2026-06-01", "gemini-3.5-flash", _GEMINI, "gemini-2.0-flash"),
    ("Gemini API", "2026-06-01", "gemini-3.1-flash-lite", _GEMINI, "gemini-2.0-flash-lite"),
    ("Gemini API", "2026-12-01", "gemini-3.5-flash-lite", _GEMINI, "gemini-2.5-flash"),
    ("Gemini API", "2026-12-01", "gemini-3.8-flash", _GEMINI, "gemini-2.5-pro"),
    ("Gemini API", None, "gemini-3.5-flash-lite", _GEMINI, "gemini-2.5-flash-lite"),
    ("Gemini API", "2026-10-22", "gemini-omni-1.2-flash", _GEMINI, "gemini-omni-flash-preview"),
    ("Gemini API", "2026-12-03", "gemini-omni-1.2-flash", _GEMINI, "gemini-omni-1.1-flash"),
    ("Vertex AI", "2026-06-01", "gemini-3.5-flash-lite", _VERTEX, "gemini-2.0-flash gemini-2.0-flash-lite"),
    ("Vertex AI", "2026-07-17", "gemini-nano-banana-2.1", _VERTEX, "gemini-3.1-flash-image-preview"),
    ("Vertex AI", "2026-10-20", "gemini-3.8-flash", _VERTEX, "gemini-2.5-flash gemini-2.5-flash-lite gemini-2.5-pro"),
    ("Vertex AI", "2026-11-19", "gemini-3.8-flash", _VERTEX, "gemini-3.6-flash"),
    ("Vertex AI", "2027-03-15", "gemini-3.1-flash-lite-image", _VERTEX, "gemini-2.5-flash-image"),
    ("Vertex AI", "2026-06-30", None, _VERTEX, "veo-2.0-generate-001 veo-3.0-generate-001 veo-3.0-fast-generate-001"),
    ("Vertex AI", "2026-11-17", None, _VERTEX, "veo-3.1-generate-001 veo-3.1-fast-generate-001"),
    ("Anthropic", "2026-04-20", None, _CLAUDE, "claude-3-haiku-20240307"),
    ("Anthropic", "2026-11-30", "claude-sonnet-5-5", _CLAUDE, "claude-sonnet-4-5"),
)
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{3})$")
"""The end of the name of one version of a model: it ends with the model, unless it has a row of its own."""


@dataclass(frozen=True, slots=True)
class EndedModel:
    """A model that its provider has ended or will end. ``day`` and ``successor`` are ``None`` if no source has one."""

    service: str
    name: str
    day: date | None
    successor: str | None
    source: str

    def warning(self, model: str) -> str:
        """What happened to a model that a suite names, and what to do."""
        today = datetime.now(UTC).date()
        state = f"{'was' if self.day <= today else 'will be'} shut down on {self.day}" if self.day else "is deprecated"
        advice = f"use {self.successor!r}" if self.successor else f"see {self.source}"
        return f"{model!r} {state} ({self.service}): {advice}"


def _models() -> Iterator[EndedModel]:
    for service, day, successor, source, names in _ROWS:
        for name in names.split():
            yield EndedModel(service, name, date.fromisoformat(day) if day else None, successor, source)


ENDED = {(model.service, model.name): model for model in _models()}
"""Every model that has ended or will end, by its service and name."""


def ended_model(service: str, model: str) -> EndedModel | None:
    """The model of that name if it has ended or will end; also for one of its versions or one tuned from it."""
    name = model.rpartition("/")[2]  # models/NAME and publishers/google/models/NAME
    name = name.split(":")[1] if name.startswith("ft:") and name.count(":") > 1 else name
    return ENDED.get((service, name)) or ENDED.get((service, _SNAPSHOT.sub("", name)))


def named_models(entry: GeneratingProvider | BaseJudge) -> Iterator[tuple[Loc, str]]:
    """The models that an entry names, also in its grid."""
    if isinstance(entry, BaseJudge):
        named: list[tuple[Loc, object]] = [(("model",), getattr(entry, "model", None))]
    elif "model" in entry.grid:
        named = [(("grid", "model", index), model) for index, model in enumerate(entry.grid["model"])]
    else:
        named = [(("params", "model"), entry.params.get("model"))]
    yield from ((loc, model) for loc, model in named if isinstance(model, str))


def end_warnings(entry: GeneratingProvider | BaseJudge, service: str) -> Iterator[tuple[Loc, str]]:
    """Warns of each model that an entry names and its service has ended or will end."""
    for loc, model in named_models(entry):
        if ended := ended_model(service, model):
            yield loc, ended.warning(model)
