"""Invalid replies of servers: redirects, truncated or endless replies, errors that look like answers."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from canned_api import canned
from failing_calls import CALLS, FailingCall, error_of
from fake_api import FakeAPI, Fault

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("local_api")]
FEW = ("generation", "responses", "gemini", "gemini judge")
JUDGES = ("responses", "chat", "gemini judge")
"""A call of each client for images and for judgements."""


@pytest.mark.parametrize("call", CALLS)
def test_no_redirect_is_followed(tmp_path: Path, api: FakeAPI, call: str) -> None:
    failing = FailingCall(tmp_path, api, call)
    with canned({"data": [{"b64_json": "AAAA"}], "choices": [{"message": {"content": '{"quality": 5}'}}]}) as other:
        record = failing.run_with_fault(
            Fault("redirect", location=f"{other.url}/there?token=abc"), "--log-file", str(tmp_path / "log")
        )
        assert (failing.result.exit_code, record.verdict, failing.calls, other.bodies) == (3, "ERROR", 1, [])
    origin = other.url.removesuffix("/v1")
    assert error_of(record).startswith(f"307: the server redirects to '{origin}'; redirects are not followed: ")
    assert "token" not in error_of(record)
    assert failing.logged(tmp_path / "log") == ["invalid"]


@pytest.mark.parametrize("call", ["generation", "gemini"])
@pytest.mark.parametrize(
    ("status", "location", "shown"),
    [
        (301, "http://127.0.0.1:9/v1/", "'http://127.0.0.1:9'"),
        (302, "//other.example/x", "'http://other.example'"),
        (303, "https://user:sk-secret@other.example:8443/x", "'https://other.example:8443'"),
        (308, "/v1/images/generations/", "'http://127.0.0.1:{port}'"),
        (300, None, "an unknown location"),
        (307, "http://[x/", "an invalid URL"),
    ],
)
def test_a_redirect_is_reported_by_host_only(
    tmp_path: Path, api: FakeAPI, call: str, status: int, location: str | None, shown: str
) -> None:
    record = FailingCall(tmp_path, api, call).run_with_fault(Fault("redirect", status=status, location=location))
    assert record.error.kind == "invalid"
    where = shown.format(port=api.port)
    assert record.error.message.startswith(
        f"{status}: the server redirects to {where}; redirects are not followed: "
    ), record.error.message


@pytest.mark.parametrize(("call", "kind"), list(zip(CALLS, ["bad_chunk", "bad_status_line"] * 3, strict=True)))
def test_broken_http_is_tried_again_like_a_reset(tmp_path: Path, api: FakeAPI, call: str, kind: str) -> None:
    failing = FailingCall(tmp_path, api, call)
    record = failing.run_with_fault(Fault(kind), "--log-file", str(tmp_path / "log"))
    assert (failing.result.exit_code, record.verdict, failing.calls) == (3, "ERROR", 2)
    assert failing.logged(tmp_path / "log") == ["transient"] * 2
    assert "Error: " not in error_of(record).removeprefix("no answer: RemoteProtocolError: ")
    assert record.attempts == (1 if failing.is_judged else 2)
    api.faults.clear()
    api.faults.queue(Fault(kind))
    again = failing.run(resume=True)
    assert (again.verdict, again.error) == ("PASS", None)
    assert again.attempts == (1 if failing.is_judged else 2)


def test_attempts_count_the_calls_of_a_cell_that_fails(tmp_path: Path, api: FakeAPI) -> None:
    failing = FailingCall(tmp_path, api, "generation")
    for kind, attempts in (("server_error", 2), ("reset", 2), ("bad_request", 1), ("refusal", 1)):
        record = failing.run_with_fault(Fault(kind), resume=failing.calls > 0)
        assert (record.attempts, failing.api_run.records) == (attempts, [record]), kind
    offline = failing.run("--offline", "--cache", str(tmp_path / "cache"), resume=True)
    assert offline.status == "refused"


def test_a_cell_without_calls_has_no_attempts(tmp_path: Path, api: FakeAPI) -> None:
    failing = FailingCall(tmp_path, api, "generation")
    failing.api_run.cache.mkdir()
    record = failing.run("--offline")
    assert (record.error.kind, record.attempts, api.requests) == ("offline", 0, [])


ERRORS = [
    ("rate_limit", "rate_limit", "ate limit reached for"),
    ("server_error", "transient", "The server had an error while processing your request."),
    ("bad_request", "invalid", "Invalid value: 'ultra'."),
    ("model_not_found", "invalid", "does not exist or you do not have"),
]
GEMINI_ERRORS = [
    ("rate_limit", "rate_limit", "429: You exceeded your current quota"),
    ("server_error", "transient", "500: An internal error has occurred."),
    ("bad_request", "invalid", "400: Request contains an invalid argument."),
    ("model_not_found", "invalid", "is not found for API version"),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("at", range(4))
def test_an_error_with_status_200_is_reported_with_the_providers_message(
    tmp_path: Path, api: FakeAPI, call: str, at: int
) -> None:
    reason, kind, words = (GEMINI_ERRORS if call.startswith("gemini") else ERRORS)[at]
    failing = FailingCall(tmp_path, api, call)
    record = failing.run_with_fault(Fault("error_in_200", reason=reason), "--log-file", str(tmp_path / "log"))
    assert record.verdict == "ERROR"
    assert words in error_of(record)
    assert set(failing.logged(tmp_path / "log")) == {kind}
    assert failing.calls == (1 if kind == "invalid" else 2)


@pytest.mark.parametrize("call", ["generation", "responses", "chat"])
def test_a_refused_key_with_the_status_200_ends_the_run(tmp_path: Path, api: FakeAPI, call: str) -> None:
    failing = FailingCall(tmp_path, api, call)
    api.faults.when(lambda asked: True, Fault("error_in_200", reason="unauthorized"))
    result = failing.api_run.run("--quiet")
    assert result.exit_code == 3
    assert "the provider refused the API key: the reply is an error: Incorrect API key provided" in result.stderr


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ({"error": "model is loading"}, "transient", "the reply is an error: model is loading"),
        ({"error": {"message": "slow", "code": "429"}}, "rate_limit", "the reply is an error: slow"),
        ({"error": {"message": "slow", "type": "rate_limit_error"}}, "rate_limit", "the reply is an error: slow"),
        ({"error": ["odd"]}, "transient", "the reply is an error: odd"),
        ({"error": {"code": "content_filter", "message": "no"}}, "refused", "the reply is an error: no"),
        (
            {"choices": [{"error": {"code": 502, "message": "host is down"}, "finish_reason": "error"}]},
            "transient",
            "the reply is an error: host is down",
        ),
    ],
)
def test_errors_of_other_servers(tmp_path: Path, api: FakeAPI, answer: Any, kind: str, words: str) -> None:
    failing = FailingCall(tmp_path, api, "chat")
    suite = tmp_path / "suite.yaml"
    with canned(answer) as other:
        suite.write_text(suite.read_text().replace(api.openai_base_url + '", "api_key_env": "PAID_KEY", "model": "gpt-5.4', other.url + '", "api_key_env": "PAID_KEY", "model": "gpt-5.4'))  # fmt: skip
        record = failing.run("--log-file", str(tmp_path / "log"))
    assert other.bodies
    assert (error_of(record).removeprefix("the judge refused: "), set(failing.logged(tmp_path / "log"))) == (
        words,
        {kind},
    )


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ({"error": "overloaded"}, "transient", "500: overloaded"),
        ([{"error": {"code": 429, "message": "slow down"}}], "rate_limit", "429: slow down"),
        ({"error": {"status": "NOT_FOUND", "message": "no such model"}}, "invalid", "404: no such model"),
    ],
)
def test_errors_of_other_gemini_servers(tmp_path: Path, api: FakeAPI, answer: Any, kind: str, words: str) -> None:
    failing = FailingCall(tmp_path, api, "gemini")
    suite = tmp_path / "suite.yaml"
    with canned(answer) as other:
        suite.write_text(suite.read_text().replace(api.gemini_base_url, other.url.removesuffix("/v1")))
        record = failing.run()
    assert (record.error.kind, record.error.message) == (kind, words)


# --- how long to wait


@pytest.mark.parametrize("call", ["responses", "gemini"])
def test_a_date_to_wait_for_is_honoured(tmp_path: Path, api: FakeAPI, call: str) -> None:
    failing = FailingCall(tmp_path, api, call)
    then = datetime.now(UTC) + timedelta(seconds=2)
    api.faults.queue(*[None] * failing.is_judged, Fault("unavailable", retry_after_header=format_datetime(then, usegmt=True)))  # fmt: skip
    assert failing.run().verdict == "PASS"
    assert failing.calls == 2
    assert datetime.now(UTC) >= then.replace(microsecond=0)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        ("generation", "rate_limit", "1e308"),
        ("generation", "unavailable", "9" * 400),
        ("gemini judge", "rate_limit", "Wed, 21 Oct 2099 07:28:00 GMT"),
        ("gemini judge", "unavailable", "1e308"),
    ],
)
def test_a_wait_without_end_is_given_up_in_a_short_line(
    tmp_path: Path, api: FakeAPI, call: str, text: str, kind: str
) -> None:
    failing = FailingCall(tmp_path, api, call)
    record = failing.run_with_fault(Fault(kind, retry_after_header=text))
    assert (record.verdict, failing.calls) == ("ERROR", 1)
    assert error_of(record).endswith("(the provider asks for a wait of 30 days or more: resume the run after that)")
    assert len(error_of(record)) < 250


def test_an_excessive_retry_after_is_not_waited_for(tmp_path: Path, api: FakeAPI) -> None:
    api.faults.when(lambda asked: True, Fault("rate_limit", retry_after_header="1e308"))
    failing = FailingCall(tmp_path, api, "generation", cases=[{"id": f"c{at}", "prompt": "a tree"} for at in range(6)])
    result = failing.api_run.run("--max-concurrency", "2")
    assert result.exit_code == 3
    messages = [record.error.message for record in failing.api_run.records if record.error]
    assert len(messages) == 6
    assert all("30 days or more" in message for message in messages)
    waited = "the provider asks for a wait of 30 days or more: resume the run after that"
    assert (len(api.requests), sum(message == waited for message in messages)) == (2, 4)
    assert "00000000" not in result.output


PAST = "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        *(("responses", text) for text in ("-5", "nan", "inf", "-inf", "", "soon", PAST, "Wed, 99 Oct 2015", "\u0661")),
        *(("gemini", text) for text in ("-5", "soon", PAST)),
    ],
)
def test_an_invalid_retry_after_is_ignored(tmp_path: Path, api: FakeAPI, call: str, text: str) -> None:
    failing = FailingCall(tmp_path, api, call)
    header = text if text.isascii() else "\u00b2"
    api.faults.queue(*[None] * failing.is_judged, Fault("unavailable", retry_after_header=header))
    assert (failing.run().verdict, failing.calls) == ("PASS", 2)


# --- how large a reply may be


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        *((call, fault) for call in CALLS for fault in (Fault("large", size=3), Fault("bomb", size=40))),
        *(("responses", fault) for fault in (Fault("endless"), Fault("bomb", size=40, coding="x-gzip"))),
        *((call, Fault("endless_gzip")) for call in ("generation", "gemini")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.coding or value.kind,
)
def test_a_reply_over_the_limit_is_not_read(tmp_path: Path, api: FakeAPI, call: str, fault: Fault) -> None:
    failing = FailingCall(tmp_path, api, call)
    record = failing.run_with_fault(fault, "--max-reply-mb", "2", "--log-file", str(tmp_path / "log"))
    asked = 2 if call in JUDGES else 1  # what cannot be read of a judge is asked for once more
    assert (failing.result.exit_code, record.verdict, failing.calls) == (3, "ERROR", asked)
    assert error_of(record).endswith(
        "the reply is over the limit of 2 MB: --max-reply-mb or VISIONEVAL_MAX_REPLY_MB raises it"
    )
    assert failing.logged(tmp_path / "log") == ["unusable"] * asked


@pytest.mark.parametrize("call", ["responses", "gemini"])
def test_no_reply_fills_the_memory(tmp_path: Path, api: FakeAPI, call: str) -> None:
    failing = FailingCall(tmp_path, api, call)
    fault = Fault("bomb", size=400)
    failing.run_with_fault(fault, "--max-reply-mb", "1")  # what is imported and compressed once
    tracemalloc.start()
    try:
        record = failing.run_with_fault(fault, "--retry-unusable", resume=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "over the limit of 64 MB" in error_of(record)
    assert peak < 200_000_000


@pytest.mark.parametrize(("call", "kind"), list(zip(FEW, ["endless", "bomb", "endless_gzip", "bomb"], strict=True)))
def test_an_error_without_end_is_still_the_error_that_it_is(tmp_path: Path, api: FakeAPI, call: str, kind: str) -> None:
    failing = FailingCall(tmp_path, api, call)
    record = failing.run_with_fault(Fault(kind, status=503, size=40), "--log-file", str(tmp_path / "log"))
    assert failing.logged(tmp_path / "log") == ["transient"] * 2
    assert error_of(record).startswith("503: ")


TWICE, BROTLI, ZSTD = (
    Fault("bomb", size=40, layers=2),
    *(Fault("bomb", size=1, coding=name) for name in ("br", "zstd")),
)


@pytest.mark.parametrize(("call", "fault"), list(zip(FEW, [TWICE, BROTLI, ZSTD, TWICE], strict=True)))
def test_an_unrequested_encoding_is_not_decompressed(tmp_path: Path, api: FakeAPI, call: str, fault: Fault) -> None:
    failing = FailingCall(tmp_path, api, call)
    record = failing.run_with_fault(fault, "--log-file", str(tmp_path / "log"))
    assert failing.logged(tmp_path / "log") == ["unusable"] * (2 if call in JUDGES else 1)
    coding = fault.coding or "gzip, gzip"
    problem = f"the answer could not be read: it is encoded as {coding!r}, which was not requested"
    assert error_of(record).endswith(problem)
    assert failing.api.requests[-1].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("call", FEW)
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_reply_is_read(tmp_path: Path, api: FakeAPI, call: str, coding: str) -> None:
    failing = FailingCall(tmp_path, api, call)
    api.packing = coding
    assert failing.run().verdict == "PASS"


@pytest.mark.parametrize(("flags", "variable"), [(("--max-reply-mb", "1"), "9"), ((), "1")])
def test_the_limit_is_set_by_a_flag_or_else_by_the_environment(
    tmp_path: Path, api: FakeAPI, flags: tuple[str, ...], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_MAX_REPLY_MB", variable)
    failing = FailingCall(tmp_path, api, "generation")
    record = failing.run_with_fault(Fault("large", size=3), *flags)
    assert error_of(record).startswith("the reply is over the limit of 1 MB: ")
    api.faults.clear()
    assert failing.run("--max-reply-mb", "9", resume=True).verdict == "ERROR"
    assert failing.calls == 1
    assert failing.run("--max-reply-mb", "9", "--retry-unusable", resume=True).verdict == "PASS"


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "much"])
def test_an_invalid_limit_is_a_usage_error(
    tmp_path: Path, api: FakeAPI, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingCall(tmp_path, api, "generation")
    result = failing.api_run.run("--max-reply-mb", text)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "--max-reply-mb" in result.stderr
    monkeypatch.setenv("VISIONEVAL_MAX_REPLY_MB", text)
    result = failing.api_run.run()
    assert (result.exit_code, len(result.stderr.splitlines()), api.requests) == (2, 1, [])
    assert result.stderr.startswith(f"VISIONEVAL_MAX_REPLY_MB='{text}': must be a whole number from 1 to")


def test_the_resume_command_includes_the_limit(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = FailingCall(tmp_path, api, "generation")
    api.faults.when(lambda asked: True, Fault("unauthorized"))
    monkeypatch.setattr("sys.argv", ["visioneval", *failing.api_run.arguments("--max-reply-mb", "100")])
    result = failing.api_run.run("--max-reply-mb", "100")
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("stopped")]
    assert " visioneval run --resume runs/r --trust-suite " in line
    assert line.endswith(" --max-reply-mb 100")


def test_a_slow_reply_ends_with_the_time_limit(tmp_path: Path, api: FakeAPI) -> None:
    failing = FailingCall(tmp_path, api, "responses")
    suite = tmp_path / "suite.yaml"
    suite.write_text(suite.read_text().replace('"timeout_s": 20', '"timeout_s": 1'))
    record = failing.run_with_fault(Fault("drip"), "--log-file", str(tmp_path / "log"))
    assert error_of(record) == "no answer within 1 s, the timeout_s of limits: openai"
    assert failing.logged(tmp_path / "log") == ["cancelled"] * 2
