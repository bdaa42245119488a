"""What a stranger's run may contain: its folder, its JSON and the fields of its files.

Files outside a run's folder are neither read nor written. JSON is parsed into models, and its version checked; each
problem is one line that names the location. All types of fields are bounded.
"""

from __future__ import annotations

import json
import math
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import orjson
from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from visioneval.errors import RunFormatError, UsageError
from visioneval.media.urls import public_address
from visioneval.rules import parse_rule
from visioneval.types import MAX_NUMBER

ValueT = TypeVar("ValueT")

SCHEMA_VERSION = 2
"""The format of the files of a run. Since 0.2, what a released version wrote stays readable."""
LARGEST = 2**63
"""The largest absolute value of an integer: runs write none beyond it, and sums and squares fit into a float."""
_MOST_DIGITS = 4300
"""The maximum of digits of an integer in a suite, as in Python: parsing more takes quadratic time."""
_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
"""Digits of an integer that may be larger than ``LARGEST``, or of a text."""
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


class UnreadableJsonError(RunFormatError):
    """The text is not JSON: the file is damaged or truncated."""


class UnfitJsonError(RunFormatError):
    """The JSON does not fit the model: a field is missing, unknown, out of range or of the wrong type."""


def check_version(data: Mapping[str, Any], where: str) -> None:
    """Raises ``RunFormatError`` unless data of a file of a run are of the current version."""
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise RunFormatError(f"{where}: no schema_version: not written by visioneval")
    if version != SCHEMA_VERSION:
        is_newer = version > SCHEMA_VERSION
        raise RunFormatError(
            f"{where}: schema_version {version} is {'newer' if is_newer else 'older'} than the supported version"
            f" {SCHEMA_VERSION}: {'upgrade visioneval' if is_newer else 'create it again with this version'}"
        )


def adapter_of(model: type[ValueT]) -> TypeAdapter[ValueT]:
    """Parses and writes values of a type. It takes long to build, so there is one of each."""
    return _adapter_of(model)


_adapter_of: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def read_json(model: type[ValueT], data: bytes, where: str, kind: str, *, largest: int | None = LARGEST) -> ValueT:
    """Parses a value of a type. ``where`` is the file with the line number; ``kind`` describes the expected contents.

    At any depth, numbers must be finite, and integers at most ``largest`` in absolute value. Raises
    ``UnreadableJsonError`` or ``UnfitJsonError``.
    """
    try:
        if not _has_safe_numbers(data):
            json.loads(data, parse_constant=_refuse_constant, parse_float=_finite, parse_int=partial(_integer, largest))
        return adapter_of(model).validate_json(data)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        if problems[0]["type"] != "json_invalid":
            raise UnfitJsonError(f"{where}: {_first_problem(problems)}") from None
    except _NumberError as error:
        raise UnfitJsonError(f"{where}: {error}") from None
    except (ValueError, RecursionError):
        pass
    raise UnreadableJsonError(f"{where}: not a {kind}: damaged or truncated")


def _has_safe_numbers(data: bytes) -> bool:
    """Whether all numbers are finite and within ``LARGEST``. May be false for unusual text, such as long digit strings.

    Much faster than a regular expression, which also takes parts of hashes for numbers.
    """
    if _LONG in data.translate(_TO_ZERO):
        return False
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:  # not JSON, or with NaN, an infinity or a number beyond the range of floats
        return False
    return True


class _NumberError(Exception):
    """A number is not finite or too large."""


def _refuse_constant(token: str) -> Any:
    raise _NumberError(f"{token} is not a finite number")


def _finite(token: str) -> float:
    value = float(token)
    return value if math.isfinite(value) else _refuse_constant(one_line(token))


def _integer(largest: int | None, token: str) -> int:
    if len(token) > _MOST_DIGITS or (largest is not None and abs(int(token)) > largest):
        raise _NumberError(f"{one_line(token)} is too large")
    return int(token)


def _first_problem(problems: Sequence[ErrorDetails]) -> str:
    """The location of the first problem, and its message."""
    location, message = problems[0]["loc"], problems[0]["msg"].removeprefix("Value error, ")
    if location and location[-1] in _SCORE_TYPES and len({problem["loc"][:-1] for problem in problems}) < len(problems):
        location, message = location[:-1], "expected true, false, a number from -2^63 to 2^63, a word, or null"
    path = ".".join(one_line(str(part)) for part in location)
    return (f"{path}: " if path else "") + one_line(message, 400)


_SCORE_TYPES = ("bool", "int", "float", "constrained-str")


def one_line(text: str, limit: int = 80) -> str:
    """Text without control characters, cut to ``limit`` characters."""
    safe = "".join("\ufffd" if unicodedata.category(sign) in _HIDDEN else sign for sign in text[: limit + 1])
    return safe if len(safe) <= limit else f"{safe[: limit - 3]}..."


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
    parts = {*path.split("/")} - {"", "."}
    if not parts or ".." in parts or path.startswith("/") or "\\" in path or "\x00" in path:
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


OUTPUTS = "artifacts"
LOGS = ("results", "stale", "preferences", "confirmations", "labels", "anchors", "labeling", "labeling_draws")
"""The files of a run that grow, without ``.jsonl``."""


def read_header(folder: Path) -> dict[str, Any]:
    """The raw contents of ``run.json``. Raises ``RunFormatError``."""
    return parse_header(bytes_of(folder / "run.json"), folder / "run.json")


def bytes_of(path: Path) -> bytes:
    """The content of a file of a run. Raises ``RunFormatError``."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFormatError(f"{path}: {error.strerror or error}") from None


def parse_header(data: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in ``run.json``. Raises ``RunFormatError``."""
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunFormatError(f"{path}: not JSON: {error}; restore this file, or run the suite again") from None
    if not isinstance(header, dict):
        raise RunFormatError(f"{path}: not a run; restore this file, or run the suite again")
    return header


def list_runs(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """All runs in a folder with the raw contents of ``run.json``, oldest first. Skips invalid runs."""
    runs = []
    for path in sorted(root.glob("*/run.json")):
        try:
            runs.append((path.parent, read_header(path.parent)))
        except RunFormatError:
            continue
    return sorted(runs, key=lambda run: (str(run[1].get("started_at")), run[0].name))


def choose_run(name: str, run_ids: Sequence[str], where: str) -> str:
    """The run whose ID is ``name``, or the only one whose ID starts with it. Raises ``UsageError``."""
    matches = [run_id for run_id in run_ids if run_id.startswith(name)]
    if name in matches:
        return name
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{name!r} is ambiguous: it matches {len(matches)} runs: {', '.join(matches[:5])}")
    raise UsageError(f"{public_address(name)!r}: no such run in {where}: list runs with 'visioneval runs'")


FILES = (
    OUTPUTS,
    *(f"{log}.jsonl" for log in LOGS),
    "diversity.jsonl",
    "duplicates.jsonl",
    "questions.json",
    "summary.json",
    "run.json",
)
"""What commands read or write in the folder of a run:

- ``artifacts``: Outputs, by case and model run.
- ``results.jsonl``: One record per finished cell; the last line of a cell wins.
- ``stale.jsonl``: Records that ``--resume`` replaced or removed.
- ``preferences.jsonl``: Which of two images judges preferred.
- ``confirmations.jsonl``: New samples of ``compare --confirm``.
- ``labels.jsonl``: Human answers, appended.
- ``anchors.jsonl``: Agreed answers; without it, the file that the suite names.
- ``labeling.jsonl``: Sessions and progress on the label page.
- ``labeling_draws.jsonl``: Random draws of cells to label.
- ``diversity.jsonl``: How much the samples of each case differ.
- ``duplicates.jsonl``: Which outputs of different cases are nearly the same image.
- ``questions.json``: Questions of gecko graders.
- ``summary.json``: What ``run --json`` prints; never read back.
- ``run.json``: The resolved suite, its hash, versions, the command line, the state.
"""


def check_run_folder(folder: Path) -> Path:
    """The folder of a run.

    Raises ``RunFormatError`` if a file that commands read or write links out of the run, or ``artifacts`` is no folder.
    """
    for name in FILES:
        if (folder / name).is_symlink() and not is_inside(folder, name):
            raise RunFormatError(
                f"{folder / name}: is a link to a file outside the run: replace it with the file itself"
            )
    artifacts = folder / OUTPUTS
    if os.path.lexists(artifacts) and not artifacts.is_dir():
        raise RunFormatError(f"{artifacts}: is not a folder: restore the folder of outputs, or run the suite again")
    return folder


def is_inside(folder: Path, relative: str) -> bool:
    """Whether a path relative to ``folder`` stays inside it after resolving links; it need not exist."""
    try:
        real, top = os.path.realpath(folder / relative), os.path.realpath(folder)
    except (OSError, ValueError):
        return False
    return real.startswith(top.rstrip(os.sep) + os.sep)


def file_inside(folder: Path, relative: str | None) -> Path | None:
    """A file of a run; ``None`` if it does not exist or links out of the run."""
    if not relative or not is_inside(folder, relative):
        return None
    path = folder / relative
    return path if path.is_file() else None
