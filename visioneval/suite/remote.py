"""How a suite names a provider that is called over a network: its host, its key, and who may be sent what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from visioneval.media.urls import TRUSTED_HOSTS, TRUSTED_PROJECTS, trusted_hosts, trusted_projects
from visioneval.types import Frozen

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

    def credentials_problem(self, *, trusted: bool) -> str | None:  # noqa: ARG002 - most have a key and nothing else
        """Why this machine's own credentials must not be used for this entry; ``None`` where they may, or are not."""
        return None

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


CloudName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$", max_length=63)]
_VERTEX_HOST = re.compile(r"([a-z0-9-]+-)?aiplatform(\.mtls|\.[a-z0-9-]+\.rep|-[a-z0-9-]+\.p)?\.googleapis\.com")
_PROJECT = re.compile(r"(?:^|/)projects/([^/]*)")


def is_vertex_host(host: str) -> bool:
    """Whether a host is Vertex AI itself: global, of a region, or a private endpoint of Google's."""
    return _VERTEX_HOST.fullmatch(host) is not None


class GoogleCloud(Frozen):
    """A Vertex AI project. Credentials are the machine's application default ones."""

    project: CloudName = Field(description="The project's id: a-z, 0-9 and -.")
    location: CloudName = Field(description="A region, us, eu or global: a-z, 0-9 and -.")

    @property
    def url(self) -> str:
        """Where the location is served."""
        if self.location in ("us", "eu"):
            return f"https://aiplatform.{self.location}.rep.googleapis.com"
        return f"https://{'' if self.location == 'global' else f'{self.location}-'}aiplatform.googleapis.com"


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

    def host_problem(self, *, trusted: bool) -> str | None:
        """Also for Vertex AI, whose credentials open far more than one model: no trust sends them elsewhere."""
        if self.google is None:
            return super().host_problem(trusted=trusted)
        parts = urlsplit(self.base_url or self.google.url)
        if parts.scheme == "https" and is_vertex_host(parts.hostname or ""):
            return None
        return (
            f"base_url {parts.hostname!r} over {parts.scheme} is not Vertex AI's own host over https:"
            " this machine's Google credentials are sent to no other"
        )

    def credentials_problem(self, *, trusted: bool) -> str | None:
        """Names each project that would be used, as a model or a cache may be another project's."""
        if self.google is None or trusted:
            return None
        named = self.model_dump(include={"model", "params", "grid"})
        for project in (self.google.project, *_projects_in(named)):
            if project not in trusted_projects():
                return (
                    "Vertex AI is called with this machine's own Google credentials: pass --trust-suite if you trust"
                    f" this suite, or list the project {project!r} in {TRUSTED_PROJECTS}"
                )
        return None


def _projects_in(value: Any) -> Iterator[str]:
    """The projects of all resource names (``projects/NAME/...``) in plain data."""
    if isinstance(value, str):
        yield from _PROJECT.findall(value)
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _projects_in(item)


MaskMode = Literal["send", "as_image", "ignore"]
