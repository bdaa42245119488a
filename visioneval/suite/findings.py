"""What loading and checks report about a suite: where it is, a warning or a note, and values in messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from visioneval.media.urls import public_address
from visioneval.suite.entries.sweep import as_written

Loc = tuple[str | int, ...]
WARNING, NOTE = "warning: ", "note: "
"""Begin the messages of problems with which a suite can be run. ``validate --strict`` refuses warnings, never notes."""


@dataclass(frozen=True, slots=True)
class SuiteWarning:
    """What may not be intended, although the suite can be run."""

    loc: Loc
    message: str


@dataclass(frozen=True, slots=True)
class SuiteNote:
    """How something is read, which only ``validate`` shows."""

    loc: Loc
    message: str


def untrusted_code_message(name: str, options: object = None) -> str:
    """The message for a custom class in an untrusted suite. ``options`` are not checked without the class."""
    unchecked = "; until then, its options are not checked" if options else ""
    return f"{name!r} runs code from the suite: pass --trust-suite if you trust it{unchecked}"


def format_value(value: Any) -> str:
    """Formats a value of a suite for an error message: short, on one line, in YAML notation."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        text = repr(public_address(value))
    else:
        text = as_written(value) if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
