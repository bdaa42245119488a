"""Checks of models against those that Google has ended. Locations are relative to the entry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from visioneval.providers.ended_models import end_warnings, named_models
from visioneval.providers.gemini.config import GeminiJudge, GeminiProvider
from visioneval.suite.findings import Loc
from visioneval.suite.loading.paths import Trust
from visioneval.suite.remote import is_vertex_host

_IMAGEN = re.compile(r"(^|/)imagen-")
_WHERE_IT_WENT = (
    "Imagen was shut down on the Gemini API on 2026-08-17, and this provider does not call it on Vertex AI: use"
    " 'gemini-nano-banana-2.1'"
)


def problems(entry: GeminiProvider | GeminiJudge, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str]]:  # noqa: ARG001
    """Yields Imagen, which answers no call of this provider. Another server has models of its own."""
    if _service(entry) is not None:
        imagen = ((loc, model) for loc, model in named_models(entry) if _IMAGEN.search(model))
        yield from ((loc, f"{model!r}: {_WHERE_IT_WENT}") for loc, model in imagen)


def warnings(entry: GeminiProvider | GeminiJudge) -> Iterator[tuple[Loc, str]]:
    """Yields models that Google has ended or will end on the service that is called."""
    if service := _service(entry):
        yield from end_warnings(entry, service)


def _service(entry: GeminiProvider | GeminiJudge) -> str | None:
    """The service that answers; ``None`` for another server."""
    if entry.google is not None or is_vertex_host(urlsplit(entry.base_url or "").hostname or ""):
        return "Vertex AI"
    return "Gemini API" if entry.is_own_host else None
