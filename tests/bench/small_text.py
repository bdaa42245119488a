"""The smallest text of which ``locality`` catches a changed digit outside the mask, in generated flyers of 1024 x 1024.

    python -m tests.bench.small_text

Every second flyer has a blurred background, and each has three lines of print far from the mask, in one color. The
edit inside the mask is as asked; of one line, a digit is another. The output is then as it is (identical elsewhere), or
encoded or resampled again. Unchanged flyers in each form count the false alarms. All with the default limits.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from visioneval.graders.pixels import LocalityGrader
from visioneval.graders.pixels.color import Mask, Pixels
from visioneval.graders.pixels.locality import measure_locality, outside_failure

SIDE = 1024
HEIGHTS = (12, 16, 20, 24, 32, 48, 64)
COLORS = {
    "black on cream": ((20, 20, 20), (246, 238, 220)),
    "white on blue": ((255, 255, 255), (30, 60, 120)),
    "red on cream": ((190, 30, 40), (246, 238, 220)),
    "grey on white": ((150, 150, 150), (255, 255, 255)),
}
DIGITS = (("12", "17"), ("30", "38"))
"""The days that the base and the output show."""
LIMITS = LocalityGrader(type="locality", key="place")
Change = Callable[[Image.Image], Image.Image]


def encoded(kind: str, quality: int) -> Change:
    """An encoding of this quality."""

    def change(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, kind, quality=quality)
        return Image.open(file).convert("RGB")

    return change


def resampled(image: Image.Image) -> Image.Image:
    """Scaled down by a tenth and back."""
    size = round(image.width * 0.9), round(image.height * 0.9)
    return image.resize(size, Image.Resampling.LANCZOS).resize(image.size, Image.Resampling.LANCZOS)


FORMS: dict[str, Change] = {
    "identical elsewhere": lambda image: image,
    "JPEG q95": encoded("JPEG", 95),
    "JPEG q75": encoded("JPEG", 75),
    "resized -10 %": resampled,
}


def flyers(height: int, day: str) -> Iterator[tuple[str, Image.Image]]:
    """A flyer of each color, every second one with a blurred background."""
    for at, (name, (ink, paper)) in enumerate(COLORS.items()):
        image = Image.new("RGB", (SIDE, SIDE), paper)
        if at % 2:
            grain = np.random.default_rng(at).integers(0, 256, (64, 64, 3), dtype=np.uint8)
            image.paste(Image.fromarray(grain).resize((SIDE, 500), Image.Resampling.BICUBIC))
        pen = ImageDraw.Draw(image)
        for row, text in enumerate((f"Valid until {day} May", "Free delivery from EUR 40", "All prices include VAT")):
            pen.text((80, 560 + row * height * 1.6), text, font=ImageFont.load_default(height), fill=ink)
        yield name, image


def mask() -> Mask:
    """Where the edit may be: at the top left."""
    inside = np.zeros((SIDE, SIDE), np.bool_)
    inside[60:260, 60:300] = True
    return inside


def edited(image: Image.Image) -> Image.Image:
    """The image with an edit inside the mask."""
    result = image.copy()
    ImageDraw.Draw(result).ellipse((70, 70, 280, 250), fill=(240, 160, 20))
    return result


def fails(base: Pixels, output: Pixels) -> bool:
    """Whether the default limits outside the mask are exceeded."""
    finding = measure_locality(base, output, mask(), exact=False, dilate=LIMITS.dilate)
    return outside_failure(finding, LIMITS) is not None


def main() -> None:
    """Prints the figures of docs/reference/measured.md."""
    print(f"| text | {' | '.join(FORMS)} |\n{'|---' * (len(FORMS) + 1)}|")
    alarms = dict.fromkeys(FORMS, 0)
    for height in HEIGHTS:
        caught = dict.fromkeys(FORMS, 0)
        for before, after in DIGITS:
            pairs = zip(flyers(height, before), flyers(height, after), strict=True)
            for (_, base), (_, changed) in pairs:
                for form, change in FORMS.items():
                    caught[form] += fails(np.asarray(base), np.asarray(change(edited(changed))))
                    if (before, after) == DIGITS[0]:
                        alarms[form] += fails(np.asarray(base), np.asarray(change(edited(base))))
        counts = [f"{count} of {len(DIGITS) * len(COLORS)}" for count in caught.values()]
        print(f"| {height} px | {' | '.join(counts)} |", flush=True)
    print(f"| no change | {' | '.join(f'{count} of {len(HEIGHTS) * len(COLORS)}' for count in alarms.values())} |")


if __name__ == "__main__":
    main()
