"""A panel of three judges on the local server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fake_api import Fault, JudgeRequest
from suite_runner import LOOK, SuiteRunner

MODELS = {"a": "gpt-5.4", "b": "gpt-5.4-mini", "c": "gpt-6-luna"}
ABC = {**LOOK, "judge": ["a", "b", "c"]}
PRICES = {
    "openai:gpt-image-2": {"per_image": 0.04},
    "openai:gpt-5.4": {"per_call": 0.01},
    "openai:gpt-5.4-mini": {"per_call": 0.002},
    "openai:gpt-6-luna": {"per_call": 0.001},
}
Verdicts = Mapping[str, Any]


def set_answers(runner: SuiteRunner, says: Verdicts) -> None:
    by_model = {MODELS[name]: value for name, value in says.items()}

    def reply(request: JudgeRequest) -> Any:
        value = by_model[request.model]
        if callable(value):
            value = value(request)
        if isinstance(value, (Fault, str, dict)):
            return value
        return {"nice": value, "reason": f"because {request.model}", "verdict": "PASS" if value else "FAIL"}

    runner.api.script.judge(reply)


def record_of(runner: SuiteRunner, run_id: str = "r", case: str = "tree") -> Any:
    return runner.records(run_id)[case, 0]
