"""The options of a custom program, and whether it is there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from visioneval.suite.case import PRINTABLE
from visioneval.suite.entries.providers import GeneratingProvider
from visioneval.suite.files import Trust
from visioneval.suite.messages import Loc

Argument = Annotated[str, StringConstraints(pattern=PRINTABLE)]


class CommandProvider(GeneratingProvider):
    """A custom program, called once per image. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: Literal["command"]
    argv: Annotated[list[Argument], Field(min_length=1)] = Field(description="The program and its arguments; no shell.")
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=True)] = Field(
        default=600.0, description="Seconds after which the program is killed."
    )


def problems(entry: CommandProvider, folder: Path, trust: Trust) -> Iterator[tuple[Loc, str]]:  # noqa: ARG001 - trust is checked elsewhere
    """Yields a missing program."""
    if not _is_program(entry.argv[0], folder):
        yield ("argv",), f"program {entry.argv[0]!r} not found on this machine"


def _is_program(name: str, folder: Path) -> bool:
    return shutil.which(name) is not None or ("/" in name and shutil.which(str(folder / name)) is not None)
