"""A grader, a provider and a judge: the example of docs/how_to/write_a_grader.md."""

import io
import json
from typing import Any

from PIL import Image, ImageDraw
from pydantic import BaseModel, Field

import visioneval as ve


class CountGrader:
    """Asks a judge to count what the case's metadata names."""

    version = "1"

    class Options(BaseModel):
        tolerance: int = Field(default=0, ge=0)

    def __init__(self, config: Any) -> None:
        self.key, self.options = config.key, config.options

    def metrics(self, case: ve.TestCase) -> dict[str, ve.Metric]:
        if "count" not in case.metadata:
            return {}
        counted = ve.Metric(type="number", range=(0, None), better="none")
        return {self.key: ve.Metric(), f"{self.key}.counted": counted}

    async def grade(self, context: ve.GradingContext) -> ve.Grade:
        expected = context.case.metadata["count"]
        if not isinstance(expected, int):
            raise ve.GraderError(f"metadata.count is {expected!r}, not a whole number")
        question = f"How many {context.case.metadata['things']} does the output show?"
        answer = await context.ask(question, {"count": {"type": "integer", "minimum": 0}})
        correct = abs(answer["count"] - expected) <= self.options.tolerance
        return ve.Grade(
            scores={self.key: correct, f"{self.key}.counted": answer["count"]},
            reasons={} if correct else {self.key: f"{answer['count']} instead of {expected}"},
        )


class CirclesProvider:
    """Draws as many circles as `params` says: no model, but a complete provider."""

    class Options(BaseModel):
        color: str = "navy"

    def __init__(self, config: Any) -> None:
        self.options = config.options

    def generate(self, request: ve.GenerationRequest) -> ve.Generation:
        count = request.params["count"]
        image = Image.new("RGB", (64 * count, 64), "white")
        for left in range(8, 64 * count, 64):
            ImageDraw.Draw(image).ellipse((left, 8, left + 48, 56), fill=self.options.color)
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return ve.Generation(outputs=(buffer.getvalue(),), cost_usd=0.0, run_params=dict(request.params))


class FixedJudge:
    """Answers each question by the name of its answer, to try a grader without a key."""

    class Options(BaseModel):
        answers: dict[str, Any]

    def __init__(self, config: Any) -> None:
        self.options = config.options

    def ask(self, question: ve.Question, about: Any) -> ve.Reply:
        answers = {name: self.options.answers[name] for name in question.names}
        return ve.Reply(text=json.dumps(answers), model="fixed", cost_usd=0.0)
