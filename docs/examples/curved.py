"""A model without a key: of a prompt such as ``UPPER / lower``, it sets the first part on a curve, the second below."""

from __future__ import annotations

import io
import math

from PIL import Image, ImageDraw, ImageFont

from visioneval import Generation, GenerationRequest


class Curved:
    version = "1"

    def __init__(self, config: object) -> None: ...

    def generate(self, request: GenerationRequest) -> Generation:
        page, font = Image.new("RGB", (640, 640), "white"), ImageFont.load_default(44)
        upper, lower = request.prompt.split(" / ")
        ImageDraw.Draw(page).text((320, 560), lower, "black", font, anchor="mm")
        for at, letter in enumerate(upper):
            angle = 11 * (at - (len(upper) - 1) / 2)
            tile = Image.new("L", (90, 90))
            ImageDraw.Draw(tile).text((45, 45), letter, "white", font, anchor="mm")
            x, y = 320 + 220 * math.sin(math.radians(angle)), 320 - 220 * math.cos(math.radians(angle))
            page.paste("black", (int(x) - 45, int(y) - 45), tile.rotate(-angle, Image.Resampling.BICUBIC))
        buffer = io.BytesIO()
        page.save(buffer, "PNG")
        return Generation(outputs=(buffer.getvalue(),) * len(request.samples), cost_usd=0.0, run_params={})
