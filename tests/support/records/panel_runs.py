"""A panel of three judges on the local server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fake_api import Fault, JudgeRequest
from suite_runner import LOOK, SuiteRunner
from typer.testing import Result

from visioneval import load_run

MODELS = {"a": "gpt-5.4", "b": "gpt-5.4-mini", "c": "gpt-6-luna"}
ABC = {**LOOK, "judge": ["a", "b", "c"]}
PRICES = {
    "openai:gpt-image-2": {"per_image": 0.04},
    "openai:gpt-5.4": {"per_call": 0.01},
    "openai:gpt-5.4-mini": {"per_call": 0.002},
    "openai:gpt-6-luna": {"per_call": 0.001},
}
CACHE = ("--cache", "cache")
COMMANDS = ("run", "grade", "resume")
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


def offline(runner: SuiteRunner, command: str) -> tuple[Result, str]:
    """The result of a command that asks nobody, and the id of its run. ``r`` is the run before it."""
    suite, flags = runner.folder / "suite.yaml", (*CACHE, "--offline", "--trust-suite")
    if command == "grade":
        words = ("grade", "r", "--suite", suite, "--runs", runner.out, "--run-id", "offline")
        return runner(*words, *flags), "offline"
    if command == "resume":
        return runner("run", suite, "--resume", runner.out / "r", *flags), "r"
    return runner.run(*flags, run_id="offline"), "offline"


def is_incomplete(runner: SuiteRunner, run_id: str) -> None:
    """Whoever reads the run comes to the same result."""
    assert load_run(runner.out / run_id).exit_code == runner.summary(run_id)["exit_code"] == 3
