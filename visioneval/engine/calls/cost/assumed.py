"""Assumed sizes of calls, for the plan of a run whose models are priced by token and were never called here.

They are what a call commonly takes, not a bound: a first run replaces them by its own costs.
"""

from __future__ import annotations

from collections.abc import Iterable

from visioneval.engine.calls.cost.bounds import CallSize, generation_size
from visioneval.expansion.plan import Call
from visioneval.suite.cases.case import TestCase
from visioneval.suite.entries.graders import BaseGrader, is_video
from visioneval.types import TaskType

ANSWER_TOKENS = 1_000
"""Output tokens of a judge's answer, thinking included."""
INSTRUCTION_TOKENS = 2_000
"""Input tokens of a judge's instructions."""
IMAGE_TOKENS = 1_500
"""Input tokens of an image that is sent."""
VIDEO_TOKENS = 10_000
"""Input tokens of a video that is sent, as a whole or as frames."""
GENERATED_TOKENS = 1_300
"""Output tokens of a generated image, where no quality is known."""
_GENERATED_BY_QUALITY = {"low": 400, "medium": 1_600, "high": 6_200}
"""Of OpenAI's image models, for an image of 1024 x 1536 pixels; a square one takes a third less."""
_BYTES_PER_TOKEN = 4


def assumed_generation(call: Call) -> CallSize:
    """The assumed size of a generation or an edit; of a video, that of the longest one."""
    if call.task_type is TaskType.VIDEO_GENERATION:
        return generation_size(call)
    sent = IMAGE_TOKENS * (len(call.files.images) + len(call.files.masks))
    tokens = _GENERATED_BY_QUALITY["high"] if call.run.provider == "openai" else GENERATED_TOKENS
    tokens = _GENERATED_BY_QUALITY.get(str(call.params.get("quality")), tokens)
    images = len(call.samples)
    return CallSize(images, len(call.sent_prompt.encode()) // _BYTES_PER_TOKEN + sent, None, tokens * images)


def assumed_answer(grader: BaseGrader, cases: Iterable[TestCase]) -> CallSize:
    """The assumed size of a judge's call for a grader, for the case that sends most."""
    outputs = 2 if grader.after_run else 1
    sent = (
        (VIDEO_TOKENS if is_video(case) else IMAGE_TOKENS) * outputs
        + IMAGE_TOKENS * (_input_images(case) + (len(case.masks.model_fields_set) if case.masks else 0))
        for case in cases
    )
    tokens = INSTRUCTION_TOKENS + max(sent, default=0)
    rounds = grader.rounds_per_call
    return CallSize(0, tokens * rounds, None, ANSWER_TOKENS * rounds)


def _input_images(case: TestCase) -> int:
    """The input images of a case, and the output that it edits if it is a later turn."""
    return len(case.images) + (case.previous_turn is not None)
