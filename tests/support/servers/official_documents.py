"""The official documents of all services: whether the bodies of requests are valid against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import google_documents
import openai_document
from fake_api.server import LoggedRequest


def invalid_bodies(requests: Sequence[LoggedRequest]) -> Iterator[str]:
    """What the documents that are here say against the requests that a server accepted."""
    if openai_document.DOCUMENT.is_file():
        yield from openai_document.invalid_bodies(requests)
    yield from google_documents.invalid_bodies(requests)
