"""A model of the diffusers library as a provider: ``provider: local_diffusers:LocalDiffusers``.

Needs ``pip install diffusers transformers accelerate torch`` and a machine for the model.
"""

from __future__ import annotations

import functools
import io
import threading
from typing import Any, Literal

import torch
from diffusers import DiffusionPipeline
from PIL import Image, ImageOps
from pydantic import BaseModel

from visioneval import Generation, GenerationRequest

_LOADING = threading.Lock()
_RUNNING = threading.Lock()


@functools.cache
def _load(model: str, dtype: str, device: str) -> Any:
    return DiffusionPipeline.from_pretrained(model, torch_dtype=getattr(torch, dtype)).to(device)


def pipeline(model: str, dtype: str, device: str) -> Any:
    """The pipeline of a model, which all model runs share."""
    with _LOADING:
        return _load(model, dtype, device)


class LocalDiffusers:
    """Generates and edits with one pipeline. ``params`` has ``model``, ``seed`` and the pipeline's own arguments."""

    version = "1"

    class Options(BaseModel):
        device: str = "cuda"
        dtype: Literal["float16", "bfloat16", "float32"] = "bfloat16"
        mask: bool = False
        """Whether the pipeline takes ``mask_image``: white may change, black must not."""

    def __init__(self, config: Any) -> None:
        self.options = config.options

    def generate(self, request: GenerationRequest) -> Generation:
        """Generates from the prompt."""
        return self._run(request, {})

    def edit(self, request: GenerationRequest) -> Generation:
        """Edits the first image; a pipeline that takes several gets the others as references."""
        images = [Image.open(path).convert("RGB") for _, path in request.files.images]
        inputs: dict[str, Any] = {"image": images if len(images) > 1 else images[0]}
        if self.options.mask and "editable" in request.files.masks:
            alpha = Image.open(request.files.masks["editable"]).convert("RGBA").getchannel("A")
            inputs["mask_image"] = ImageOps.invert(alpha)
        return self._run(request, inputs)

    def _run(self, request: GenerationRequest, inputs: dict[str, Any]) -> Generation:
        params = dict(request.params)
        pipe = pipeline(params.pop("model"), self.options.dtype, self.options.device)
        seed = params.pop("seed", 0)
        outputs = []
        for sample in request.samples:
            generator = torch.Generator(self.options.device).manual_seed(seed + sample)
            with _RUNNING:  # a pipeline is not safe for threads
                image = pipe(prompt=request.prompt, generator=generator, **inputs, **params).images[0]
            outputs.append(encoded(image))
        return Generation(outputs=tuple(outputs), cost_usd=0.0, run_params=request.params)


def encoded(image: Image.Image) -> bytes:
    """An image as a PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
