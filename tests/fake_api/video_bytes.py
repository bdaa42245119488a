"""Small videos, as a video model's answers."""

from __future__ import annotations

import colorsys
import io
from fractions import Fraction
from functools import lru_cache


@lru_cache(maxsize=32)
def video_bytes(seconds: float = 1.0, hue: int = 0, fps: int = 8) -> bytes:
    """An MP4 of 64 x 48 pixels in one of 16 colors, which gets brighter."""
    import av
    from PIL import Image

    target = io.BytesIO()
    with av.open(target, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(fps))
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        count = max(1, round(seconds * fps))
        for number in range(count):
            red, green, blue = colorsys.hsv_to_rgb(hue % 16 / 16, 0.8, 0.4 + 0.5 * number / count)
            image = Image.new("RGB", (64, 48), (int(255 * red), int(255 * green), int(255 * blue)))
            container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode())
    return target.getvalue()
