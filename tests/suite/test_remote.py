"""Hosts that may receive keys, and invalid addresses."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from visioneval.suite.remote import GeminiOptions, OpenAIOptions


def problem(url: str | None, key: str | None = None, *, trusted: bool = False) -> str | None:
    return OpenAIOptions(base_url=url, api_key_env=key).host_problem(trusted=trusted)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "https://api.openai.com/v1",
        "https://API.OpenAI.COM/v1",
        "https://eu.api.openai.com/v1",
        "https://api.openai.com:443/v1",
    ],
)
@pytest.mark.parametrize("key", [None, "OPENAI_API_KEY", "TEAM_KEY"])
def test_the_provider_host_accepts_its_default_key_and_another_key_with_trust(url: str | None, key: str | None) -> None:
    assert problem(url, key, trusted=True) is None
    message = problem(url, key)
    assert message == (
        "TEAM_KEY is not a usual key variable of this provider: pass --trust-suite to allow it"
        if key == "TEAM_KEY"
        else None
    )


def test_the_provider_host_requires_https() -> None:
    assert problem("http://api.openai.com/v1", trusted=True) == "api.openai.com accepts only https"


ELSEWHERE = [
    "https://evil.example/v1",
    "https://api.openai.com.evil.example/v1",
    "https://evilapi.openai.com.example/v1",
    "https://notapi.openai.com/v1",
    "https://evil.example/api.openai.com",
    "https://openai.com/v1",
    "http://127.0.0.1:8000/v1",
    "http://[::1]:8000/v1",
    "https://[::ffff:1.2.3.4]/v1",
]


@pytest.mark.parametrize("url", ["https://evil.example?.api.openai.com", "https://evil.example#.api.openai.com",
                                 "https://api.openai.com/v1?key=a", "https://api.openai.com/v1#a"])  # fmt: skip
def test_a_query_or_a_fragment_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the URL has a query or a fragment"):
        problem(url, "LOCAL_KEY", trusted=True)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_another_host_needs_its_own_key_and_trust(url: str) -> None:
    for usual in (None, "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        output = problem(url, usual, trusted=True)
        assert output is not None
        assert f"so that {usual or 'OPENAI_API_KEY'} is not sent there" in output
    assert "pass --trust-suite, or add the host, without a port, to VISIONEVAL_TRUSTED_HOSTS" in str(
        problem(url, "LOCAL_KEY")
    )
    assert problem(url, "LOCAL_KEY", trusted=True) is None


@pytest.mark.parametrize(
    ("listed", "url", "taken"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/v1", True),
        ("other.example, LLM.Example ", "https://llm.example/v1", True),
        ("::1", "http://[::1]:8000/v1", True),
        ("[::1]", "http://[::1]/v1", True),
        ("llm.example", "https://sub.llm.example/v1", False),
        ("llm.example", "https://llm.example.evil.example/v1", False),
        ("", "https://evil.example/v1", False),
        (",", "https://evil.example/v1", False),
        ("*", "https://evil.example/v1", False),
    ],
)
def test_the_environment_may_list_trusted_hosts(
    listed: str, url: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", listed)
    assert (problem(url, "LOCAL_KEY") is None) is taken
    assert problem(url) is not None


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com@evil.example/v1",
        "https://user:pass@evil.example/v1",
        "https://evil.example\\.api.openai.com/v1",
        "https://evil.example%2f.api.openai.com/v1",
        "https://evil.example\uff0f.api.openai.com/v1",
        "https://api.openai.com\u3002evil.example/v1",
        "https://evil.example;.api.openai.com/v1",
        "https://api..openai.com/v1",
        "https://",
        "http:///v1",
        "https://:443/v1",
        "https://[::1/v1",
        "https://host:99999/v1",
        "https://host:port/v1",
        "https://a b/v1",
        "https://host/v1\n",
        "ftp://api.openai.com/v1",
        "api.openai.com",
        "HTTPS://api.openai.com/v1",
        "",
    ],
)
def test_invalid_base_urls_are_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        OpenAIOptions(base_url=url, api_key_env="LOCAL_KEY")


def test_no_provider_is_sent_the_key_of_another() -> None:
    openai, gemini = OpenAIOptions(api_key_env="GEMINI_API_KEY"), GeminiOptions(api_key_env="OPENAI_API_KEY")
    for options in (openai, gemini):
        output = options.host_problem(trusted=True)
        assert output is not None
        assert "is another provider's key" in output
    assert GeminiOptions(api_key_env="GOOGLE_API_KEY").host_problem(trusted=False) is None
    elsewhere = GeminiOptions(base_url="https://evil.example", api_key_env="GOOGLE_API_KEY")
    assert "so that GOOGLE_API_KEY is not sent there" in str(elsewhere.host_problem(trusted=True))


@pytest.mark.parametrize("name", ["", "1KEY", "MY-KEY", "MY KEY", "KEY\n", "sk-123", "É"])
def test_a_key_is_given_by_variable_name_only(name: str) -> None:
    with pytest.raises(ValidationError):
        OpenAIOptions(api_key_env=name)
