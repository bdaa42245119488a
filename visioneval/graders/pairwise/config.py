"""The configuration of a pairwise grader, and the variables of its template."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from visioneval.suite.cases.case import TestCase, Text
from visioneval.suite.cases.outputs import FrameCount
from visioneval.suite.cases.prompts import context
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judge_prompt import (
    ASKED,
    REASON,
    SHOWN,
    JudgeNames,
    JudgeTemplate,
    PanelOptions,
    ShowOptions,
    media_of,
    template_name,
)
from visioneval.suite.filters import any_glob
from visioneval.types import Metric

ANSWER = "answer"
FIRST, SECOND, TIE = "A", "B", "tie"
"""The names for the first image, the second, and neither in a reply."""


class PairwiseOptions(PanelOptions, ShowOptions):
    """The options of a pairwise grader."""

    judge: JudgeNames = Field(default="default", description="The judge that compares the outputs.")
    template: Text = Field(
        default="pairwise/pairwise.md.j2",
        description="Looked up in the suite's folder, then among the built-in templates.",
    )
    models: tuple[Text, ...] = Field(
        default=(),
        description="Labels of the model runs to compare, in all pairs; * and ? are wildcards. Default: all.",
    )
    frames: FrameCount = 8


def pairwise_schema() -> dict[str, Any]:
    """The properties of the judge's reply. The reason comes first, so that the judge looks before it answers."""
    return {REASON: {"type": "string"}, ANSWER: {"type": "string", "enum": [FIRST, SECOND, TIE]}}


def pairwise_context(
    case: TestCase,
    prompt: str,
    options: PairwiseOptions,
    *,
    images: Sequence[Mapping[str, str]],
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    """The variables of a pairwise template."""
    variables_of_template = {
        **context(case, variables),
        "task_type": str(case.task_type),
        "media": media_of(case),
        "prompt": prompt,
        "criteria": case.criteria,
        "region": case.region,
        "images": list(images),
        "show": list(options.parts),
    }
    return options.visible(variables_of_template)


class PairwiseGrader(BaseGrader, PairwiseOptions):
    """A judge's preference between the images of two model runs, asked after all cells are done."""

    after_run: ClassVar[bool] = True
    sees_videos: ClassVar[bool] = True

    type: Literal["pairwise"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {}

    def judge_templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[JudgeTemplate, ...]:
        name = template_name(self.template, case, variables)
        asked = tuple(part for part in ASKED if part in self.parts)
        return (JudgeTemplate(name, "template", asked, hidden=self.withheld, show=self.parts),)

    def template_contexts(
        self,
        case: TestCase,
        prompt: str,
        *,
        variables: Mapping[str, Any],
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        name = template_name(self.template, case, variables)
        yield name, pairwise_context(case, prompt, self, images=SHOWN, variables=variables)

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int:
        return times * 2  # each pair, in both orders

    def compared(self, labels: Iterable[str]) -> list[str]:
        return [label for label in labels if not self.models or any_glob(self.models, label)]

    def narrowed(self, labels: Iterable[str]) -> Self | None:
        matching = self.compared(labels)
        models = tuple(pattern for pattern in self.models if any(any_glob([pattern], label) for label in matching))
        return self.model_copy(update={"models": models}) if len(matching) > 1 else None
