"""A model without a key: it paints a gradient for each prompt. Its cost comes from the prices of the suite."""

from __future__ import annotations

import io
import zlib

from PIL import Image, ImageOps

from visioneval import Generation, GenerationRequest


class Painter:
    version = "1"

    def __init__(self, config: object) -> None: ...

    def generate(self, request: GenerationRequest) -> Generation:
        red, green, blue, _ = zlib.crc32(request.prompt.encode()).to_bytes(4, "big")
        buffer = io.BytesIO()
        ImageOps.colorize(Image.linear_gradient("L"), "black", (red, green, blue)).save(buffer, "PNG")
        return Generation(outputs=(buffer.getvalue(),) * len(request.samples), run_params={})
