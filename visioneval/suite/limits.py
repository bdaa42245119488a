"""How fast a provider may be called, how long an answer may take, and what it costs."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from visioneval.types import Frozen

Seconds = Annotated[float, Field(gt=0, le=86_400, strict=True)]
Usd = Annotated[float, Field(ge=0, le=1_000_000, strict=True)]
LimitName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=300)]

MAX_ATTEMPTS = 6
TIMEOUT_S = 300.0
CELL_TIMEOUT_S = 3600.0


class Limits(Frozen):
    """For one ``provider:model``, or for all calls of a provider together.

    A time limit or a number of tries that is given for a provider is for each model that has none of its own.
    """

    max_concurrency: Annotated[int, Field(ge=1, le=4096, strict=True)] | None = Field(
        default=None, description="Calls at once, generations and judgements each; --max-concurrency where not given."
    )
    requests_per_minute: Annotated[float, Field(gt=0, strict=True)] | None = None
    images_per_minute: Annotated[float, Field(gt=0, strict=True)] | None = Field(
        default=None, description="Images generated."
    )
    max_attempts: Annotated[int, Field(ge=1, le=100, strict=True)] | None = Field(
        default=None, description=f"Tries of one call before its cell is an ERROR; {MAX_ATTEMPTS} where not given."
    )
    timeout_s: Seconds | None = Field(
        default=None, description=f"For one try of one call; {TIMEOUT_S:.0f} where not given."
    )


class Price(Frozen):
    """In US dollars: for each image, each call, or each million tokens. What is left out costs nothing."""

    per_image: Usd | None = None
    per_call: Usd | None = None
    input_per_million: Usd | None = None
    output_per_million: Usd | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if all(value is None for value in self.model_dump().values()):
            raise ValueError("a price is per_image, per_call, input_per_million or output_per_million")
        return self
