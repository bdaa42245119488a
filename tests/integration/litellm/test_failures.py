"""Calls of LiteLLM that fail: what kind of error each is, and that none is sent twice."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from canned_api import canned
from conftest import FORMS, KEY
from test_image_forms import answer_of, error, url_of

from visioneval import CaseFiles, bounds
from visioneval.providers.litellm.worker import Trace

Generate = Callable[..., Any]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("status", "headers", "kind", "wait"),
    [
        (401, {}, "auth", None),
        (403, {}, "invalid", None),
        (404, {}, "invalid", None),
        (429, {"retry-after": "7"}, "rate_limit", 7.0),
        (500, {}, "transient", None),
        (503, {"retry-after": "2"}, "transient", 2.0),
    ],
)
def test_a_status_is_a_kind_of_error(
    generate: Generate, form: str, status: int, headers: dict[str, str], kind: str, wait: float | None
) -> None:
    with canned({"error": {"message": f"no, {KEY}"}}, status=status, headers=headers) as server:
        problem = error(generate, FORMS[form], url_of(form, server))
    assert str(problem) == f"{status}: no, ***"
    assert (problem.kind, problem.retry_after, problem.may_be_billed) == (kind, wait, False)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("status", "headers", "answer", "kind", "wait"),
    [
        (402, {}, {"error": {"message": "no credit"}}, "quota", None),
        (403, {}, {"detail": "User is locked. Reason: Exhausted balance."}, "quota", None),
        (429, {}, {"error": {"message": "no", "type": "budget_exceeded", "code": "429"}}, "quota", None),
        (429, {}, {"error": {"message": "Please try again in 1m30s."}}, "rate_limit", 90.0),
        (429, {"x-ms-retry-after-ms": "60000"}, {"error": {"message": "no"}}, "rate_limit", 60.0),
        (429, {"x-ratelimit-reset-requests": "6m0s"}, {"error": {"message": "no"}}, "rate_limit", 360.0),
    ],
)
def test_a_spent_quota_and_a_wait_pass_through(
    generate: Generate, form: str, status: int, headers: dict[str, str], answer: Any, kind: str, wait: float | None
) -> None:
    with canned(answer, status=status, headers=headers) as server:
        problem = error(generate, FORMS[form], url_of(form, server))
    assert (problem.kind, problem.retry_after) == (kind, wait)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("form", "status", "answer", "message"),
    [
        ("openai", 400, {"error": {"code": "moderation_blocked", "message": "Your request was rejected"}},
         "400: Your request was rejected"),
        ("fal", 422, {"detail": [{"loc": ["body"], "msg": "flagged", "type": "content_policy_violation"}]},
         "422: flagged"),
        ("stability", 403, {"name": "content_moderation", "errors": ["Your request was flagged"]},
         "403: Your request was flagged"),
        ("stability", 200, {"finish_reason": "CONTENT_FILTERED", "image": ""},
         "Content was filtered by Stability AI safety systems"),
    ],
)  # fmt: skip
def test_a_refusal(generate: Generate, form: str, status: int, answer: Any, message: str) -> None:
    with canned(answer, status=status) as server:
        problem = error(generate, FORMS[form], url_of(form, server))
    assert problem.kind == "refused"
    assert message in str(problem)


@pytest.mark.parametrize("form", FORMS)
def test_a_page_is_no_answer(generate: Generate, form: str) -> None:
    with canned("<!doctype html><title>Sign in</title>") as server:
        problem = error(generate, FORMS[form], url_of(form, server))
    assert (problem.kind, problem.may_be_billed) == ("unusable", True)
    assert str(problem).startswith("the answer could not be read: ")
    assert problem.reply == b"<!doctype html><title>Sign in</title>"
    assert len(server.bodies) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", [200, 403])
def test_the_text_of_a_gateway_is_no_refusal(generate: Generate, form: str, status: int) -> None:
    with canned("Blocked by content policy of your organization", status=status) as server:
        problem = error(generate, FORMS[form], url_of(form, server))
    assert problem.kind == ("unusable" if status == 200 else "invalid")


def test_a_request_without_a_reply_has_not_that_of_the_one_before() -> None:
    trace = Trace(body=b'{"id": 1}')
    trace.begin(httpx.Request("GET", "https://api.example/1"))
    assert (trace.body, trace.status) == (b"", None)


@contextmanager
def cutting() -> Iterator[tuple[str, list[bytes]]]:
    """A server that closes each connection in the middle of its answer, and what it received."""
    received: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                received.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("form", FORMS)
def test_a_cut_answer_is_not_asked_for_again(generate: Generate, form: str) -> None:
    with cutting() as (url, received):
        problem = error(generate, FORMS[form], url)
    assert (problem.kind, problem.may_be_billed) == ("transient", True)
    assert str(problem).startswith("no answer: ")
    assert len([data for data in received if data.startswith(b"POST")]) == 1


@pytest.mark.parametrize("form", FORMS)
def test_an_unreachable_server_costs_nothing(generate: Generate, form: str) -> None:
    problem = error(generate, FORMS[form], "http://127.0.0.1:1")
    assert (problem.kind, problem.may_be_billed) == ("transient", False)


@pytest.mark.parametrize("form", FORMS)
def test_a_redirect_is_not_followed(generate: Generate, form: str) -> None:
    with canned({}, status=307, headers={"location": "http://elsewhere.example/x?sig=s3cr3t"}) as server:
        problem = error(generate, FORMS[form], url_of(form, server))
    assert str(problem) == (
        "307: the server redirects to 'http://elsewhere.example'; redirects are not followed: set base_url to the"
        " final URL"
    )
    assert problem.kind == "invalid"


@pytest.mark.parametrize("form", FORMS)
def test_a_reply_over_the_limit(generate: Generate, image: bytes, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(bounds.REPLY_MB, "override", 1)
    with canned(answer_of(form, image * 3000)) as server:
        problem = error(generate, FORMS[form], url_of(form, server))
    assert str(problem).startswith("the reply is over the limit of 1 MB: --max-reply-mb")
    assert (problem.kind, problem.may_be_billed) == ("unusable", True)


def test_a_polled_address_on_another_host_gets_no_key(generate: Generate, save_image: Callable[..., Path]) -> None:
    files = CaseFiles(images=(("base", save_image()),))
    with canned({"id": "1", "polling_url": "https://localhost:1/v1/get_result?id=1"}) as server:
        problem = error(generate, "black_forest_labs/flux-kontext-pro", url_of("fal", server), files=files)
    assert server.headers[0]["x-key"] == KEY
    assert str(problem).endswith("Rejected polling URL: host is not within the bfl.ai domain")
    assert len(server.bodies) == 1


def test_a_base_url_that_litellm_ignores_gets_no_call(generate: Generate) -> None:
    problem = error(generate, "black_forest_labs/flux-pro-1.1", "http://127.0.0.1:1")
    assert str(problem) == "blocked a request to 'api.bfl.ai': calls may only go to '127.0.0.1'"


def test_an_answer_that_litellm_reads_for_listed_models_only(
    generate: Generate, image: bytes, save_image: Callable[..., Path]
) -> None:
    files = CaseFiles(images=(("base", save_image()),))
    with canned(answer_of("stability", image)) as server:
        problem = error(generate, "stability/inpaint-9", url_of("stability", server), files=files)
    assert (problem.kind, problem.may_be_billed) == ("unusable", True)  # not repeated, as the next one is paid too
    assert json.loads(problem.reply or b"")["image"]


@pytest.mark.parametrize("form", ["fal", "stability"])
def test_a_key_that_the_entry_does_not_name_is_not_used(generate: Generate, image: bytes, form: str) -> None:
    with canned(answer_of(form, image)) as server:
        problem = error(generate, FORMS[form], url_of(form, server), api_key_env=None)
    assert problem.kind == "auth"
    assert str(problem).endswith("set api_key_env, or env for several variables")
    assert server.bodies == []


def test_a_key_under_the_name_that_litellm_reads(generate: Generate, image: bytes) -> None:
    with canned(answer_of("fal", image)) as server:
        options = {"api_key_env": None, "env": {"FAL_AI_API_KEY": "LOCAL_KEY"}}
        assert generate(FORMS["fal"], url_of("fal", server), **options).outputs == (image,)
    assert server.headers[0]["authorization"] == f"Key {KEY}"


def test_a_variable_of_the_entry_is_in_no_message(generate: Generate) -> None:
    with canned({"detail": f"no {KEY}"}, status=400) as server:
        options = {"api_key_env": None, "env": {"FAL_AI_API_KEY": "LOCAL_KEY"}}
        problem = error(generate, FORMS["fal"], url_of("fal", server), **options)
    assert str(problem) == "400: no ***"


def test_an_address_in_the_environment_is_not_used(
    generate: Generate, image: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAL_AI_API_BASE", "http://127.0.0.1:1")
    monkeypatch.setenv("STABILITY_API_BASE", "http://127.0.0.1:1")
    for form in ("fal", "stability"):
        with canned(answer_of(form, image)) as server:
            generate(FORMS[form], url_of(form, server))
        assert len(server.bodies) == 1


def test_an_unknown_model_of_a_provider(generate: Generate) -> None:
    problem = error(generate, "nowhere/flux", "http://127.0.0.1:1")
    assert problem.kind == "invalid"
    assert "LLM Provider NOT provided" in str(problem)
