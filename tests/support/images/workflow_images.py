"""Images for the cases of the shipped suites, rendered by the mock: they show the copy that a case expects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from fake_api import GenerationRequest

from visioneval import CaseFiles, TaskType
from visioneval.installation import builtin
from visioneval.providers import base
from visioneval.providers.mock.generator import Mock
from visioneval.suite.case import rendered
from visioneval.suite.load import load_suite
from visioneval.suite.model import Suite

SIZE = "640x640"


@cache
def shipped_suite(name: str) -> Suite:
    """A shipped suite, loaded."""
    return load_suite(builtin("suites") / name / "suite.yaml", run_labels=lambda run: []).suite


def generated_copy(name: str) -> Callable[[GenerationRequest], list[bytes]]:
    """A script for the fake API: each case of a suite of generations gets an image with its copy."""
    return lambda request: [_image(name, request.prompt)] * request.n


@cache
def _image(name: str, prompt: str) -> bytes:
    suite = shipped_suite(name)
    case = next(case for case in suite.cases if rendered(case, suite.vars)[0] == prompt)
    request = base.GenerationRequest(
        case=case,
        task_type=TaskType.IMAGE_GENERATION,
        prompt=prompt,
        model_label="mock",
        params={"size": SIZE},
        files=CaseFiles(),
        samples=(0,),
        folder=Path(),
    )
    with ThreadPoolExecutor(1) as pool:  # the server that asks has an event loop of its own in this thread
        return pool.submit(asyncio.run, Mock(None).generate(request)).result().outputs[0]
