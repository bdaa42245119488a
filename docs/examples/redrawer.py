"""A model without a key that redraws: it writes the last word of the prompt's first sentence into the mask, and warps,
darkens and blurs the whole image a little. With ``damage``, it also removes a loaf from the image of the starter suite.
"""

from __future__ import annotations

import io

from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

from visioneval import Generation, GenerationRequest


class Redrawer:
    version = "1"

    def __init__(self, config: object) -> None: ...

    def edit(self, request: GenerationRequest) -> Generation:
        page = Image.open(request.files.base).convert("RGB")
        mask = Image.open(request.files.masks["editable"]).convert("RGBA").getchannel("A")
        left, top, right, bottom = mask.point([255, *[0] * 255]).getbbox()
        word, pen = request.prompt.partition(".")[0].split()[-1], ImageDraw.Draw(page)
        pen.rectangle((left, top, right, bottom), page.getpixel((left, top)))
        pen.text(((left + right) / 2, (top + bottom) / 2), word, "white", ImageFont.load_default(72), anchor="mm")
        if request.params["damage"]:
            page.paste(page.getpixel((250, 320)), (256, 340, 328, 398))
        width, height = page.size
        corners = (0, 0, 2, height, width - 3, height - 2, width, 3)
        page = page.transform(page.size, Image.Transform.QUAD, corners, Image.Resampling.BICUBIC)
        page = ImageEnhance.Brightness(page.filter(ImageFilter.GaussianBlur(0.6))).enhance(0.95)
        buffer = io.BytesIO()
        page.save(buffer, "PNG")
        return Generation(outputs=(buffer.getvalue(),) * len(request.samples), cost_usd=0.0, run_params=request.params)
