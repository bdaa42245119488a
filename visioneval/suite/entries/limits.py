"""Rate limits, timeouts and prices of providers."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from visioneval.types import Frozen

Seconds = Annotated[float, Field(gt=0, le=86_400, strict=True)]
Usd = Annotated[float, Field(ge=0, le=1_000_000, strict=True)]
LimitName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=300)]

MAX_ATTEMPTS = 6
TIMEOUT_S = 300.0
OPERATION_TIMEOUT_S = 1800.0
"""How long a run waits for the end of a video's generation."""
CELL_TIMEOUT_S = 3600.0


class Limits(Frozen):
    """Limits of one ``provider:model``, or of all calls of a provider together.

    ``timeout_s`` and ``max_attempts`` of a provider are the defaults for its models.
    """

    max_concurrency: Annotated[int, Field(ge=1, le=4096, strict=True)] | None = Field(
        default=None, description="Concurrent calls, separately for generation and judging; default: --max-concurrency."
    )
    requests_per_minute: Annotated[float, Field(gt=0, strict=True)] | None = Field(
        default=None, description="Calls per minute to one model."
    )
    images_per_minute: Annotated[float, Field(gt=0, strict=True)] | None = Field(
        default=None, description="Images generated."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100, strict=True)] | None = Field(
        default=None, description=f"Attempts per call before its cell becomes an ERROR; default: {MAX_ATTEMPTS}."
    )
    timeout_s: Seconds | None = Field(
        default=None,
        description=f"Timeout of one attempt, in seconds; default: {TIMEOUT_S:.0f}, and {OPERATION_TIMEOUT_S:.0f}"
        " for the generation of a video.",
    )


class Price(Frozen):
    """In US dollars: per image, second of video, call, or million tokens. Missing prices count as zero."""

    per_image: Usd | None = Field(default=None, description="US dollars for each generated image.")
    per_second: Usd | None = Field(default=None, description="Per second of generated video.")
    per_call: Usd | None = Field(default=None, description="US dollars for each call.")
    input_per_million: Usd | None = Field(default=None, description="US dollars for a million input tokens.")
    output_per_million: Usd | None = Field(default=None, description="US dollars for a million output tokens.")

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if all(value is None for value in self.model_dump().values()):
            raise ValueError(
                "the price is empty: set per_image, per_second, per_call, input_per_million or output_per_million"
            )
        return self
