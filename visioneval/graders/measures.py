"""Local measures: what a grader computes from files alone, so that the engine can cache the result.

A measure is a pure function of the bytes of its files, its options, the versions of its tools and the code of this
package. What a case expects and the limits of a grader are no part of it, so changing them needs no new measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import PIL

from visioneval.installation import has_extra
from visioneval.media.svg import is_svg

T = TypeVar("T")
_PACKAGE = Path(__file__).parent.parent
_CODE = (
    *(f"graders/{name}/*.py" for name in ("text", "pixels", "properties")),
    "graders/text/*.txt",
    "media/*.py",
)
"""The files whose code can change any measurement."""


@dataclass(frozen=True, slots=True)
class Measure(Generic[T]):
    """A measurement to be made, or to be read from the cache."""

    name: str
    """The same for all graders that measure the same thing."""
    files: Mapping[str, Path]
    """Everything that ``run`` reads, by role."""
    run: Callable[[], T]
    """Measures; called in a thread. Its errors are not cached."""
    result: type[T]
    """A dataclass of plain data. Its ``bytes`` fields are images."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the grader that change the result."""
    tool_versions: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    """Folders of graders whose code, besides that of all measures, can change this one only."""

    @property
    def versions(self) -> dict[str, str] | None:
        """The versions of everything that computes the result; ``None`` if the code cannot be identified."""
        code, drawn = code_sha256(), {}
        for path in self.files.values():
            with suppress(OSError):  # measuring reports a file that cannot be read
                if is_svg(path) and has_extra("svg"):
                    drawn = {"resvg": version("resvg_py")}
        if code is None:
            return None
        own = {f"code of {name}": hash_of(f"graders/{name}/*.py") or "" for name in self.code}
        return {"code": code, **own, "pillow": PIL.__version__, **drawn, **self.tool_versions}


class MeasureOnce(Protocol):
    """Returns the result of a measure, cached or new. Raises what the measure raises."""

    async def __call__(self, measure: Measure[T]) -> T: ...


async def measure_directly(measure: Measure[T]) -> T:
    """Measures without a cache."""
    return await asyncio.to_thread(measure.run)


def code_sha256() -> str | None:
    """A hash of the code that every measure may run, so that no result outlives the code; ``None`` if its source is
    not here.

    A version number would have to be raised by hand, and a forgotten one would be a wrong score.
    """
    return hash_of(*_CODE)


@cache
def hash_of(*patterns: str) -> str | None:
    """A hash of files of this package by their patterns; ``None`` if there are none."""
    sources = sorted(path for pattern in patterns for path in _PACKAGE.glob(pattern))
    if not sources:
        return None
    digests = (f"{path.relative_to(_PACKAGE).as_posix()} {sha256(path.read_bytes()).hexdigest()}" for path in sources)
    return sha256("\n".join(digests).encode()).hexdigest()
