"""The pairwise grader, which of two outputs a judge prefers: its options and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from visioneval.errors import did_you_mean
from visioneval.suite.case import TestCase, Text
from visioneval.suite.entries.graders import PAIR, GraderKind, ShowingGrader
from visioneval.suite.entries.judges import LOOKED_UP, JudgeNames
from visioneval.suite.filters import any_glob
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems, SuiteContext


class PairwiseGrader(ShowingGrader):
    """A judge's preference between the images of two model runs, asked after all cells are done."""

    kind: ClassVar[GraderKind] = PAIR

    type: Literal["pairwise"]
    judge: JudgeNames = Field(default="default", description="A key of `judges`, or a list of keys for a panel.")
    template: Text = Field(default="pairwise/pairwise.md.j2", description=LOOKED_UP)
    models: tuple[Text, ...] = Field(
        default=(),
        description="Labels or globs of the model runs to compare, two or more. Default: all.",
    )

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {}

    def prompt_variables(self, case: TestCase, prompt: str, **about: Any) -> dict[str, Any]:
        return super().prompt_variables(case, prompt, region=case.region, **about)

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int:
        return times * 2  # each pair, in both orders

    def compared(self, labels: Iterable[str]) -> list[str]:
        return [label for label in labels if not self.models or any_glob(self.models, label)]

    def narrowed(self, labels: Iterable[str]) -> Self | None:
        matching = self.compared(labels)
        models = tuple(pattern for pattern in self.models if any(any_glob([pattern], label) for label in matching))
        return self.model_copy(update={"models": models}) if len(matching) > 1 else None


def run_problems(view: SuiteContext, graders: Sequence[tuple[int, PairwiseGrader]]) -> Problems:
    """Yields unknown labels, too few model runs, recorded judges, and two graders with the same judge model."""
    labels = [label for label, _ in view.labels]
    graders_by_judge: dict[str, str] = {}
    for index, grader in graders:
        for position, pattern in enumerate(grader.models):
            if not any(any_glob([pattern], label) for label in labels):
                hint = did_you_mean(pattern, labels)
                yield ("graders", index, "models", position), f"no model run is labeled {pattern!r}{hint}"
        if (number := len(grader.compared(labels))) < 2:
            option = "models" if grader.models else "type"
            yield ("graders", index, option), f"a comparison needs at least two model runs, not {number}"
        loc = ("graders", index, "judge")
        for judge in filter(None, map(view.suite.judges.get, grader.judge_names)):
            if judge.is_recorded:
                yield loc, "recorded answers cover single images only: use another judge for pairs"
            if judge.title in graders_by_judge:
                other = graders_by_judge[judge.title]
                yield loc, f"{other!r} already asks this judge model: use one pairwise grader per judge model"
            graders_by_judge.setdefault(judge.title, grader.key)
