"""What providers and graders hand over, as plain data: a class of the user's own may give anything."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from visioneval.suite.load import HIDDEN, SHORTEST_SECRET

if TYPE_CHECKING:
    from pydantic import JsonValue

MAX_DEPTH = 30
MAX_INT = 2**63
_SHORTEST_SECRET = 8
_SECRET_NAME = re.compile(r"(?:.*_)?(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Plain:
    """Makes plain data of anything, and takes secrets out of all text in it."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def without(cls, secrets: Iterable[str]) -> Plain:
        """Hides these secrets, a secret that holds another one first. A very short one is no secret."""
        return cls._hiding({secret for secret in secrets if len(secret) >= _SHORTEST_SECRET})

    @classmethod
    def _hiding(cls, secrets: Collection[str]) -> Plain:
        return cls(tuple(sorted(secrets, key=lambda secret: (-len(secret), secret))))

    @classmethod
    def around(cls, named: Collection[str] = (), given: Iterable[str] = ()) -> Plain:
        """Hides what stands in these environment variables, and in each that is named like a secret.

        Of the secrets that were ``given`` as such shorter ones are hidden too.
        """
        known = cls.without(v for name, v in os.environ.items() if name in named or _SECRET_NAME.fullmatch(name))
        return cls._hiding({*known.secrets, *(secret for secret in given if len(secret) >= SHORTEST_SECRET)})

    def hides(self, value: Any) -> bool:
        """Whether plain data holds a secret."""
        if isinstance(value, Mapping):
            return any(self.hides(item) for item in (*value, *value.values()))
        if isinstance(value, (list, tuple)):
            return any(map(self.hides, value))
        return any(secret in str(value) for secret in self.secrets)

    def text(self, value: object) -> str:
        """Any value as text that UTF-8 can hold."""
        said = str(value).encode("utf-8", "replace").decode()
        for secret in self.secrets:
            said = said.replace(secret, HIDDEN)
        return said

    def __call__(self, value: Any, depth: int = 0) -> JsonValue:
        """Any value as JSON: a number that JSON does not know as ``None``, an unknown thing as its text."""
        if hasattr(value, "item") and not isinstance(value, (str, Mapping)):
            value = scalar(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if abs(value) < MAX_INT else None
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, bytes):
            return f"<{len(value)} bytes>"
        if isinstance(value, (Mapping, list, tuple, Set)) and depth < MAX_DEPTH:
            return self._nested(value, depth + 1)
        return self.text(value)

    def _nested(self, value: Any, depth: int) -> JsonValue:
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        return [self(item, depth) for item in value]

    def mapping(self, value: Mapping[Any, Any] | None, depth: int = 0) -> dict[str, JsonValue]:
        """A mapping as a JSON object."""
        return {self.text(name): self(item, depth) for name, item in (value or {}).items()}

    def texts(self, value: Mapping[Any, Any] | None) -> dict[str, str]:
        """A mapping of names to texts."""
        return {self.text(name): self.text(item) for name, item in (value or {}).items()}

    def counts(self, value: Mapping[Any, Any] | None) -> dict[str, int] | None:
        """A mapping of names to whole numbers; what is no number is left out."""
        if value is None:
            return None
        found = {self.text(name): amount(item) for name, item in value.items()}
        return {name: int(number) for name, number in found.items() if number is not None}


def scalar(value: Any) -> Any:
    """The Python value of a NumPy scalar; anything else as it is."""
    try:
        return value.item()
    except Exception:
        return value


def amount(value: Any) -> float | None:
    """A finite number, or ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < MAX_INT else None
