"""Converts results of providers and graders to plain JSON data, because custom classes may return anything."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

import orjson

from visioneval.running.plan import Plan, needed_keys
from visioneval.suite.load import HIDDEN, SHORTEST_SECRET
from visioneval.suite.remote import environment_secrets

if TYPE_CHECKING:
    from pydantic import JsonValue

MAX_DEPTH = 30
_STRICT = (
    orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
MAX_INT = 2**63
_START = rb"""([:"'\s(=,>\[](?:\\{0,4}/|\\{1,4}u002[fF]){2})"""
"""Of an address in a text or in JSON, after a scheme or without one."""
_USER = re.compile(_START + rb"""[^\s"'<>/?#@\\]{1,500}@""")
_QUERY = re.compile(
    _START + rb"""([^\s"'<>?]{1,2000}?)(?:\?|\\{1,4}u003[fF])(?:[^\s"'<>\\]|\\{1,4}(?:u[0-9a-fA-F]{4}|/))+"""
)


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """Converts any value to plain data, and removes secrets from its text."""

    secrets: tuple[str, ...] = ()
    escaped_secrets: tuple[bytes, ...] = field(init=False, repr=False)
    """As they are in JSON. A text with a lone surrogate cannot be in JSON."""

    def __post_init__(self) -> None:
        in_utf8 = (secret for secret in self.secrets if secret.encode("utf-8", "replace").decode() == secret)
        escaped = (orjson.dumps(secret)[1:-1] for secret in in_utf8)
        object.__setattr__(self, "escaped_secrets", tuple(escaped))

    @classmethod
    def around(cls, named: Collection[str] = (), stated: Iterable[str] = ()) -> Sanitizer:
        """Hides the values of these environment variables, and of all with secret-like names, the longest first.

        Explicitly ``stated`` secrets may be shorter.
        """
        secrets = {*environment_secrets(named), *(secret for secret in stated if len(secret) >= SHORTEST_SECRET)}
        # each as it is, and as a text has it that is JSON itself, such as the answer of a judge
        in_json = (json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for secret in secrets for is_ascii in (True, False))
        return cls(tuple(sorted({*secrets, *in_json}, key=lambda form: (-len(form), form))))

    def hides(self, value: Any) -> bool:
        """Whether plain data contains a secret."""
        with suppress(TypeError):
            data = orjson.dumps(value, option=_STRICT)
            if not any(secret in data for secret in self.escaped_secrets):
                return False
        todo = [value]
        while todo:
            item = todo.pop()
            if isinstance(item, (dict, Mapping)):  # the first of the two is fast
                todo += [*item, *item.values()]
            elif isinstance(item, (list, tuple)):
                todo += item
            else:
                text = str(item)
                for secret in self.secrets:
                    if secret in text:
                        return True
        return False

    def text(self, value: object) -> str:
        """Any value as text that is valid UTF-8, without secrets."""
        text = value if type(value) is str else str(value)
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def reply(self, data: bytes) -> bytes:
        """The raw answer of a server without secrets, nor the users and queries of URLs, which may be signatures."""
        for secret in self.secrets:
            data = data.replace(secret.encode("utf-8", "replace"), HIDDEN.encode())
            if b"\\" in data:  # as JSON of any server, which may escape each character: as \/ or \u002b
                plain = ((re.escape(char.encode("utf-8", "replace")), ord(char)) for char in secret)
                escaped = (rb"(?:%s|\\\\{0,3}(?:%s|(?i:u%04x)))" % (char, char, number) for char, number in plain)
                data = re.sub(b"".join(escaped), HIDDEN.encode(), data)
        data = _USER.sub(rb"\1***@", data)
        return _QUERY.sub(rb"\1\2?***", data)

    def __call__(self, value: Any, depth: int = 0) -> JsonValue:
        """Any value as JSON data: non-finite numbers become ``None``, unknown types become text."""
        kind = type(value)  # nearly all values have one of these types
        if kind is str:
            return self.text(value)
        if kind is bool or value is None or (kind is float and isfinite(value)):
            plain: JsonValue = value
            return plain
        if kind is dict and depth < MAX_DEPTH:
            return self.mapping(value, depth + 1)
        if kind is list and depth < MAX_DEPTH:
            return self._list(value, depth + 1)
        return self._converted(value, depth)

    def _converted(self, value: Any, depth: int) -> JsonValue:
        if hasattr(value, "item") and not isinstance(value, (str, Mapping)):
            value = scalar(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if abs(value) < MAX_INT else None
        if isinstance(value, float):
            return float(value) if isfinite(value) else None
        if isinstance(value, bytes):
            return f"<{len(value)} bytes>"
        if isinstance(value, (Mapping, list, tuple, Set)) and depth < MAX_DEPTH:
            return self.mapping(value, depth + 1) if isinstance(value, Mapping) else self._list(value, depth + 1)
        return self.text(value)

    def _list(self, value: Iterable[Any], depth: int) -> JsonValue:
        # long lists are of coordinates, which need no call each
        return [item if type(item) is float and isfinite(item) else self(item, depth) for item in value]

    def mapping(self, value: Mapping[Any, Any] | None, depth: int = 0) -> dict[str, JsonValue]:
        """A mapping as a JSON object."""
        if not value:
            return {}
        text = self.text
        return {text(name): text(item) if type(item) is str else self(item, depth) for name, item in value.items()}

    def texts(self, value: Mapping[Any, Any] | None) -> dict[str, str]:
        """A mapping of names to texts."""
        return {self.text(name): self.text(item) for name, item in value.items()} if value else {}

    def counts(self, value: Mapping[Any, Any] | None) -> dict[str, int] | None:
        """A mapping of names to integers, without values that are not numbers."""
        if value is None:
            return None
        numbers = {self.text(name): amount(item) for name, item in value.items()}
        return {name: int(number) for name, number in numbers.items() if number is not None}


def scalar(value: Any) -> Any:
    """The Python value of a NumPy scalar; other values unchanged."""
    if value is None or type(value) in (float, int, bool, str):
        return value
    try:
        return value.item()
    except Exception:
        return value


def usd(value: Any) -> float | None:
    """A cost: a finite number from 0, or ``None`` for anything else."""
    number = amount(scalar(value))
    return number if number is not None and number >= 0 else None


def amount(value: Any) -> float | None:
    """A finite number, or ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < MAX_INT else None


def sanitizer_for(plan: Plan) -> Sanitizer:
    """Hides API keys of the plan, environment variables with secret-like names, and secret suite variables.

    Variables are hidden both as typed and as templates render them.
    """
    displayed = (str(plan.suite.vars.get(name, "")) for name in plan.secrets)
    return Sanitizer.around(needed_keys(plan).keys(), (*plan.secrets.values(), *displayed))
