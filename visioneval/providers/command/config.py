"""The configuration of a custom program."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from visioneval.suite.cases.case import PRINTABLE
from visioneval.suite.entries.providers import GeneratingProvider

Argument = Annotated[str, StringConstraints(pattern=PRINTABLE)]


class CommandProvider(GeneratingProvider):
    """A custom program, called once per image. Needs ``--trust-suite``."""

    runs_code: ClassVar[bool] = True

    provider: Literal["command"]
    argv: Annotated[list[Argument], Field(min_length=1)] = Field(description="The program and its arguments; no shell.")
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=True)] = Field(
        default=600.0, description="Seconds after which the program is killed."
    )
