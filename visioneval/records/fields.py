"""Field types shared by runs, labels and baselines. All are bounded, because files may be untrusted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, Field, StringConstraints

from visioneval.rules import parse_rule
from visioneval.types import MAX_NUMBER

MOST_CELLS = 10**9
CellKey = tuple[str, str, int]
"""Case, model run and sample."""
RunId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=200)]
ModelLabel = Annotated[str, StringConstraints(min_length=1, max_length=10_000)]
MOST_SAMPLES = 1_000_000
SampleIndex = Annotated[int, Field(ge=0, le=MOST_SAMPLES)]
CellCount = Annotated[int, Field(ge=0, le=MOST_CELLS)]
Number = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
"""Any number: finite, and from -2^63 to 2^63, so that sums and squares cannot overflow."""
Usd = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
"""A cost: a negative one would make a run cheaper than it was."""
Duration = Annotated[float, Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False)]
"""Seconds."""
Amount = Annotated[int, Field(ge=-(2**63), le=2**63)]
JsonObject = dict[str, Any]
"""Plain data, as a JSON parser or the engine's sanitizer returns it. Checking its values again takes much longer."""
MOST_PIXELS = 10**9
Pixels = Annotated[int, Field(ge=0, le=MOST_PIXELS)]


class NamedCell(Protocol):
    """Whatever has the fields that name a cell."""

    @property
    def test_id(self) -> str: ...

    @property
    def model_label(self) -> str: ...

    @property
    def sample_index(self) -> int: ...


class OfCell:
    """What is about one cell."""

    @property
    def cell(self: NamedCell) -> CellKey:
        """Identifies the cell: its case, model run and sample."""
        return self.test_id, self.model_label, self.sample_index


def _is_rule(text: str) -> str:
    try:
        parse_rule(text)
    except ValueError:
        raise ValueError(f"{text!r:.60} is not a valid verdict rule") from None
    return text


RuleText = Annotated[str, AfterValidator(_is_rule)]
"""The text of a valid verdict rule."""


def _inside(path: str) -> str:
    """Rejects a path that leads out of the run, because a run may be untrusted."""
    if path.strip("./") and not path.startswith("/") and not any(sign in path for sign in ("..", "\\", "\x00")):
        return path  # fast path for nearly all paths
    parts = PurePosixPath(path).parts
    if not parts or "\\" in path or "\x00" in path or parts[0] == "/" or ".." in parts:
        raise ValueError("is not a path inside the run")
    return path


PathInRun = Annotated[str, StringConstraints(max_length=4096), AfterValidator(_inside)]


def _in_utc(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r:.60} is not a valid time: write a time such as 2025-06-14T09:00:00+00:00") from None
    raise ValueError("a time needs a time zone: write a time such as 2025-06-14T09:00:00+00:00")


Moment = Annotated[str, AfterValidator(_in_utc)]
"""A time with a time zone, as ISO 8601 in UTC."""


def _is_time(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r:.60} is not a valid time: write a time such as 2025-06-14T09:00:00+00:00") from None
    return text


WrittenTime = Annotated[str, AfterValidator(_is_time)]
"""A time for display only, as written."""
