"""The judge of a grader, or a panel of judges whose answers are combined."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from visioneval.suite.cases.case import Name
from visioneval.types import Frozen, Metric, text_or_list

Combine = Literal["majority", "median", "mean"]
_Panel = Annotated[tuple[Name, ...], Field(min_length=1)]


JudgeNames = Annotated[
    Annotated[Name, Tag("constrained-str")] | Annotated[_Panel, Tag("list")], Discriminator(text_or_list)
]
"""The key of a judge, or the keys of a panel."""


class PanelOptions(Frozen):
    """How the answers of a panel become one. Without a panel, both must be unset."""

    combine: Combine | None = Field(
        default=None,
        description="How the judges' scores become one. Default: majority for yes or no and words, median for numbers.",
    )
    quorum: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="The number of judges that must answer. Default: all."
    )


def names_of(judge: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The judges that an option names: none, one, or those of a panel."""
    if judge is None:
        return ()
    return (judge,) if isinstance(judge, str) else judge


def combinations_of(metric: Metric) -> tuple[Combine, ...]:
    """How a panel's scores of a metric can be combined; the first is the default."""
    return ("median", "mean") if metric.type == "number" else ("majority",)
