"""How a suite names a provider that is called over a network: its host, its key, and who may be sent what."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from visioneval.suite.case import Text
from visioneval.types import Frozen
from visioneval.urls import TRUSTED_HOSTS, trusted_hosts

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=120)]


def _plain_host(url: str) -> str:
    """A URL whose host means the same to everyone who reads it. Raises ``ValueError``."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"this is no URL: {error}") from None
    if not re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", host) and not parts.netloc.startswith("["):
        raise ValueError("this URL has no plain host name (write an international name in its xn-- form)")
    return url


Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@\\]+$", max_length=500), AfterValidator(_plain_host)]

_OPENAI_KEYS = frozenset({"OPENAI_API_KEY", "OPENAI_ADMIN_KEY"})
_GEMINI_KEYS = frozenset({"GEMINI_API_KEY", "GOOGLE_API_KEY"})


class Remote(Frozen):
    """Where calls go and which environment variable holds the key. A suite never holds a key."""

    own_hosts: ClassVar[tuple[str, ...]] = ()
    default_key: ClassVar[str] = ""
    usual_keys: ClassVar[frozenset[str]] = frozenset()
    """Variables that hold a key to the provider's own hosts, and so are sent to no other."""

    base_url: Url | None = Field(
        default=None,
        description="Another server that speaks the same protocol. Outside the provider's own hosts it needs an "
        "api_key_env of its own, and trust.",
    )
    api_key_env: EnvName | None = Field(
        default=None, description="The environment variable that holds the key, instead of the provider's usual one."
    )

    @property
    def key_variable(self) -> str:
        """The environment variable that holds the key."""
        return self.api_key_env or self.default_key

    @property
    def is_own_host(self) -> bool:
        """Whether calls go to the provider itself, whose prices are public."""
        host = urlsplit(self.base_url or "").hostname or ""
        return self.base_url is None or any(host == own or host.endswith(f".{own}") for own in self.own_hosts)

    def host_problem(self, *, trusted: bool) -> str | None:
        """Why a call must not be sent to ``base_url``; ``None`` where it may."""
        if self.key_variable in (_OPENAI_KEYS | _GEMINI_KEYS) - self.usual_keys:
            return f"{self.key_variable} is another provider's key: name a variable of its own as api_key_env"
        if self.base_url is None:
            return self._own_host_problem(trusted=trusted)
        host = urlsplit(self.base_url).hostname or ""
        if self.is_own_host:
            https = self.base_url.startswith("https://")
            return self._own_host_problem(trusted=trusted) if https else f"{host} takes https only"
        if self.key_variable in self.usual_keys:
            return (
                f"base_url {host!r} is not the provider's own host: name an environment variable of its own"
                f" as api_key_env, so that {self.key_variable} is not sent there"
            )
        if trusted or host in trusted_hosts():
            return None
        return f"base_url {host!r} is not the provider's own host: pass --trust-suite, or list it in {TRUSTED_HOSTS}"

    def _own_host_problem(self, *, trusted: bool) -> str | None:
        """A suite must not send any variable that it names to a provider, who would then know a stranger's secret."""
        if trusted or self.key_variable in self.usual_keys:
            return None
        return f"{self.key_variable} is not a usual name of this provider's key: pass --trust-suite to send it there"


class OpenAIOptions(Remote):
    """The OpenAI API, or a server that speaks it (vLLM, Ollama, llama.cpp, LocalAI)."""

    own_hosts: ClassVar[tuple[str, ...]] = ("api.openai.com",)
    default_key: ClassVar[str] = "OPENAI_API_KEY"
    usual_keys: ClassVar[frozenset[str]] = _OPENAI_KEYS


class GoogleCloud(Frozen):
    """A Vertex AI project. Credentials are the machine's application default ones."""

    project: Text
    location: Text


class GeminiOptions(Remote):
    """The Gemini Developer API, or Vertex AI where ``google`` is given."""

    own_hosts: ClassVar[tuple[str, ...]] = ("generativelanguage.googleapis.com", "aiplatform.googleapis.com")
    default_key: ClassVar[str] = "GEMINI_API_KEY"
    usual_keys: ClassVar[frozenset[str]] = _GEMINI_KEYS

    google: GoogleCloud | None = Field(default=None, description="project and location: use Vertex AI, with no key.")

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.google is not None and self.api_key_env is not None:
            raise ValueError("google (Vertex AI) uses the machine's own credentials: leave api_key_env out")
        return self


MaskMode = Literal["send", "as_image", "ignore"]
