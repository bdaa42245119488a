"""Every body that the server of any test accepts is valid against OpenAI's own document (see ``FakeAPI.check_requests``)."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fake_api import FakeAPI, Script
from openai_document import DOCUMENT, invalid_bodies
from tables import rows_of

rows = rows_of(__file__)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not DOCUMENT.is_file(), reason="../shared/data is not here")]

QUESTION = {"role": "user", "content": [{"type": "input_text", "text": "Which color?"}]}


def problems(path: str, body: dict[str, Any]) -> list[str]:
    with FakeAPI(Script()) as server:
        headers = {"authorization": f"Bearer {server.key}"}
        reply = httpx2.post(f"{server.openai_base_url}{path}", headers=headers, json=body)
        assert reply.status_code in (200, 400)
        (request,) = server.requests
    request.status = 200  # as if this server accepted what the document may not
    return list(invalid_bodies([request]))


@pytest.mark.parametrize(("path", "body", "at"), rows("an_invalid_body_is_noticed"))
def test_an_invalid_body_is_noticed(path: str, body: dict[str, Any], at: str) -> None:
    errors = problems(path, body)
    assert errors
    assert all(problem.startswith(f"{path}: {at}: ") for problem in errors)


def test_a_valid_body_has_no_problem() -> None:
    assert problems("/responses", {"model": "gpt-5.4", "input": [QUESTION], "top_logprobs": 5}) == []
