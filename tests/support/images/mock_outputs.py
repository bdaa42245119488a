"""Requests to the provider mock, and what it generates."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from visioneval import CaseFiles, Generation, GenerationRequest, TaskType, TestCase
from visioneval.providers.mock.generator import Mock


def request(
    expect: Mapping[str, Any] | None = None, *, sample: int = 0, files: CaseFiles | None = None, **params: Any
) -> GenerationRequest:
    metadata = {"text": params.pop("draw")} if "draw" in params else {}
    case = TestCase.model_validate(
        {"id": "c", "prompt": params.pop("prompt", "a flyer"), "expect": expect or {}, "metadata": metadata}
    )
    return GenerationRequest(
        case=case,
        task_type=TaskType.IMAGE_EDITING if files else TaskType.IMAGE_GENERATION,
        prompt=case.prompt,
        model_label="mock",
        params=params,
        files=files or CaseFiles(),
        samples=(sample,),
        folder=Path(),
    )


def generated(asked: GenerationRequest) -> Generation:
    mock = Mock(None)
    return asyncio.run(mock.edit(asked) if asked.files.images else mock.generate(asked))


def output(asked: GenerationRequest) -> Image.Image:
    (data,) = generated(asked).outputs
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def text(*required: str, **more: Any) -> dict[str, Any]:
    return {"text": {"required": required, **more}}
