"""Options of providers that are called over a network: host, API key, and which host may receive which key; secrets of
the environment, by the names of their variables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from visioneval.media.urls import TRUSTED_HOSTS, TRUSTED_PROJECTS, trusted_hosts, trusted_projects
from visioneval.types import Frozen

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=120)]


ANY_HOST = "*"
HostPattern = Annotated[str, StringConstraints(pattern=r"^(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*)$", max_length=253)]
"""A host; ``*.example.com`` for the hosts below it; ``*`` for every public host."""
_NO_IPV6 = "after '[' the URL needs an IPv6 address and ']', and then its port if it has one"
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+\](:[0-9]+)?")


def _plain_host(url: str) -> str:
    """Checks that a URL has an unambiguous host name. Raises ``ValueError``."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        if "://[" in url:  # which some versions of Python check in part
            raise ValueError(_NO_IPV6) from None
        raise ValueError(f"not a valid URL: {error}") from None
    if "?" in url or "#" in url:
        raise ValueError("the URL has a query or a fragment, which no API has a place for: end it with the path")
    if parts.netloc.startswith("["):
        if not _IPV6.fullmatch(parts.netloc):
            raise ValueError(_NO_IPV6)
    elif not re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", host):
        raise ValueError("the URL has no plain host name (write an international name in its xn-- form)")
    return url


Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@\\]+$", max_length=500), AfterValidator(_plain_host)]

OPENAI_KEYS = frozenset({"OPENAI_API_KEY", "OPENAI_ADMIN_KEY"})
GEMINI_KEYS = frozenset({"GEMINI_API_KEY", "GOOGLE_API_KEY"})


class Remote(Frozen):
    """Where calls go and which environment variable contains the key. A suite never contains a key."""

    own_hosts: ClassVar[tuple[str, ...]] = ()
    default_key: ClassVar[str] = ""
    usual_keys: ClassVar[frozenset[str]] = frozenset()
    """Variables with a key for the provider's own hosts. They are never sent to other hosts."""
    priced_as: ClassVar[str | None] = None
    """The provider's name in genai-prices."""

    base_url: Url | None = Field(
        default=None,
        description="Another server with the same protocol. Outside the provider's own hosts it needs its own "
        "`api_key_env`, and trust.",
    )
    api_key_env: EnvName | None = Field(
        default=None,
        description="The environment variable with the key. Default: `OPENAI_API_KEY` for `openai`, "
        "`GEMINI_API_KEY` for `gemini`, none for `litellm`.",
    )

    @property
    def key_variable(self) -> str:
        """The environment variable with the API key."""
        return self.api_key_env or self.default_key

    @property
    def is_own_host(self) -> bool:
        """Whether calls go to one of the provider's own hosts."""
        host = urlsplit(self.base_url or "").hostname or ""
        return self.base_url is None or any(
            host == own_host or host.endswith(f".{own_host}") for own_host in self.own_hosts
        )

    @property
    def base_url_warning(self) -> str | None:
        """What is probably missing in ``base_url``."""
        return None

    @classmethod
    def public_name(cls, model: str) -> tuple[str, str] | None:
        """The provider and the model in genai-prices; ``None`` if the provider is not there."""
        return None if cls.priced_as is None else (cls.priced_as, model)

    @classmethod
    def listed_price(cls, model: str) -> Mapping[str, float] | None:  # noqa: ARG003 - most have no list
        """The price in a list of the provider's own, with the names of the suite's ``prices``."""
        return None

    def host_problem(self, *, trusted: bool) -> str | None:
        """Why a call must not be sent to ``base_url``; ``None`` if it may."""
        if self.key_variable in (OPENAI_KEYS | GEMINI_KEYS) - self.usual_keys:
            return f"{self.key_variable} is another provider's key: set api_key_env to a different variable"
        if self.base_url is None:
            return self._own_host_problem(trusted=trusted)
        host = urlsplit(self.base_url).hostname or ""
        if self.is_own_host:
            https = self.base_url.startswith("https://")
            return self._own_host_problem(trusted=trusted) if https else f"{host} accepts only https"
        if self.key_variable in self.usual_keys:
            return (
                f"base_url {host!r} is not the provider's own host: set api_key_env to a separate environment variable"
                f" so that {self.key_variable} is not sent there"
            )
        if trusted or host in trusted_hosts():
            return None
        return not_own_host(host)

    def credentials_problem(self, *, trusted: bool) -> tuple[str, str] | None:  # noqa: ARG002 - most have one key
        """Why this machine's credentials must not be used for this entry, after the option that asks for them.

        ``None`` if they may be used or are not needed.
        """
        return None

    def output_hosts_problem(self, *, trusted: bool) -> str | None:  # noqa: ARG002 - most have none
        """Why outputs must not be fetched from the declared hosts; ``None`` if allowed or none is declared."""
        return None

    def _own_host_problem(self, *, trusted: bool) -> str | None:
        """Refuses unusual key variables: a suite could otherwise send any secret of the environment to a provider."""
        if trusted or self.key_variable in self.usual_keys:
            return None
        return f"{self.key_variable} is not a usual key variable of this provider: pass --trust-suite to allow it"


def not_own_host(host: str) -> str:
    """What lets an untrusted suite call a host that is not its provider's own."""
    return (
        f"base_url {host!r} is not the provider's own host: pass --trust-suite, or add the host, without a port, to"
        f" {TRUSTED_HOSTS}"
    )


class DeclaredHosts(Remote):
    """A provider whose answers may name their outputs by URL."""

    output_hosts: tuple[HostPattern, ...] = Field(
        default=(),
        description="Hosts from which outputs are read if an answer names them by URL, besides the server's own: "
        "`files.example.com`, `*.example.com`, or `*` for every public host, which needs trust. They are read without "
        "a key, over https, and redirects lead only there too. Records have no URLs.",
    )

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """The hosts from which outputs are fetched besides the server's own."""
        return self.output_hosts

    def output_hosts_problem(self, *, trusted: bool) -> str | None:
        """Refuses every public host without trust."""
        if trusted or ANY_HOST not in self.output_hosts:
            return None
        return "outputs of every public host: name the hosts, or pass --trust-suite if you trust this suite"


class OpenAIOptions(Remote):
    """The OpenAI API, or a compatible server (vLLM, Ollama, llama.cpp, LocalAI)."""

    own_hosts: ClassVar[tuple[str, ...]] = ("api.openai.com",)
    priced_as: ClassVar[str | None] = "openai"
    default_key: ClassVar[str] = "OPENAI_API_KEY"
    usual_keys: ClassVar[frozenset[str]] = OPENAI_KEYS

    @property
    def base_url_warning(self) -> str | None:
        """The path below which nearly all servers answer, if the URL has none."""
        if self.base_url is None or urlsplit(self.base_url).path.strip("/"):
            return None
        return f"most servers answer below /v1: {self.base_url.rstrip('/')}/v1"


CloudName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$", max_length=63)]
_VERTEX_HOST = re.compile(r"([a-z0-9-]+-)?aiplatform(\.mtls|\.[a-z0-9-]+\.rep|-[a-z0-9-]+\.p)?\.googleapis\.com")
_PROJECT = re.compile(r"(?:^|/)projects/([^/]*)")


def is_vertex_host(host: str) -> bool:
    """Whether a host belongs to Vertex AI: global, regional, or a private Google endpoint."""
    return _VERTEX_HOST.fullmatch(host) is not None


class GoogleCloud(Frozen):
    """A project of Vertex AI, which is called with the machine's own credentials and no key."""

    project: CloudName = Field(description="The project's ID: a-z, 0-9 and `-`.")
    location: CloudName = Field(description="A region, `us`, `eu` or `global`: a-z, 0-9 and `-`.")

    @property
    def url(self) -> str:
        """The URL of the location's endpoint."""
        if self.location in ("us", "eu"):
            return f"https://aiplatform.{self.location}.rep.googleapis.com"
        return f"https://{'' if self.location == 'global' else f'{self.location}-'}aiplatform.googleapis.com"


class GeminiOptions(Remote):
    """The Gemini Developer API, or Vertex AI if ``google`` is set."""

    own_hosts: ClassVar[tuple[str, ...]] = ("generativelanguage.googleapis.com", "aiplatform.googleapis.com")
    priced_as: ClassVar[str | None] = "google"
    default_key: ClassVar[str] = "GEMINI_API_KEY"
    usual_keys: ClassVar[frozenset[str]] = GEMINI_KEYS

    google: GoogleCloud | None = Field(
        default=None, description="Set project and location to use Vertex AI without an API key."
    )

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if self.google is not None and self.api_key_env is not None:
            raise ValueError("google (Vertex AI) uses the machine's own credentials: remove api_key_env")
        return self

    def host_problem(self, *, trusted: bool) -> str | None:
        """Also covers Vertex AI. Google credentials grant wide access, so even a trusted suite cannot redirect them."""
        if self.google is None:
            return super().host_problem(trusted=trusted)
        parts = urlsplit(self.base_url or self.google.url)
        if parts.scheme == "https" and is_vertex_host(parts.hostname or ""):
            return None
        url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return (
            f"base_url {url!r} is not allowed: this machine's Google credentials are sent only to Vertex AI hosts, over"
            " https"
        )

    def credentials_problem(self, *, trusted: bool) -> tuple[str, str] | None:
        """Checks each project in use, since a model or a cache may belong to another project."""
        if self.google is None or trusted:
            return None
        named = self.model_dump(include={"model", "params", "grid"})
        for project in (self.google.project, *_projects_in(named)):
            if project not in trusted_projects():
                message = (
                    "Vertex AI uses this machine's Google credentials: pass --trust-suite if you trust"
                    f" this suite, or add the project {project!r} to {TRUSTED_PROJECTS}"
                )
                return "google", message
        return None


def _projects_in(value: Any) -> Iterator[str]:
    """The projects in all resource names (``projects/NAME/...``) of plain data."""
    if isinstance(value, str):
        yield from _PROJECT.findall(value)
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _projects_in(item)


MaskMode = Literal["send", "as_image", "ignore"]


SHORTEST_ENVIRONMENT_SECRET = 8
"""Characters of a secret of the environment: shorter values are too common to be hidden."""
SECRET_NAME = re.compile(r"(?:.*_)?(?:api_?key|token|secret|password)", re.IGNORECASE)
"""Matches names of keys, parameters and suite variables that contain secrets."""
_SECRET_VARIABLE = re.compile(r"(?:.*_)?(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)


def environment_secrets(named: Collection[str] = ()) -> frozenset[str]:
    """The values of these environment variables, and of all with names of secrets, unless they are very short."""
    return frozenset(
        value
        for name, value in os.environ.items()
        if (name in named or _SECRET_VARIABLE.fullmatch(name)) and len(value) >= SHORTEST_ENVIRONMENT_SECRET
    )
