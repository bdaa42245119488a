"""A panel of three judges on the local server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from fake_api import Fault, GenerationRequest, JudgeRequest
from PIL import Image
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


def two_models(panel: Callable[..., SuiteRunner]) -> list[dict[str, Any]]:
    """Two model runs, ``m`` and ``n``, which differ in their quality."""
    host = {"base_url": panel({}).api.openai_base_url, "api_key_env": "LOCAL_KEY", "provider": "openai"}
    qualities = {"m": "low", "n": "high"}
    return [{**host, "label": label, "params": {"model": "gpt-image-2", "quality": quality}}
            for label, quality in qualities.items()]  # fmt: skip


def by_quality(request: GenerationRequest) -> list[bytes]:
    """An image of another color for each quality."""
    out = BytesIO()
    image = Image.new("RGB", (32, 24), "red" if request.params.get("quality") == "low" else "blue")
    image.paste("white", (4, 4, 20, 20))
    image.save(out, "PNG")
    return [out.getvalue()] * request.n
