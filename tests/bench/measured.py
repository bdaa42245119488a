"""``make bench``: a replay from the cache with four local graders beside one without, in separate processes.

Nothing is measured in a replay, so its figures are the price of reading measurements. CPU seconds of 2,000 cells, less
those of one cell; not a test: machines are noisy.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from tests.bench.engine import measured

CELLS, VARIANTS, REPEATS = 2000, 8, 3
LINES = ("Butter & Flour", "Autumn Bread Week", "12 to 18 October", "Free tasting every morning")
CODE = f"""\
from pathlib import Path
from zlib import crc32
from visioneval import Generation, Grade


class Posters:
    def __init__(self, config): pass

    async def edit(self, request):
        variant = crc32(request.prompt.encode()) % {VARIANTS}
        return Generation(outputs=(Path(f"output{{variant}}.png").read_bytes(),), cost_usd=0.01)


class Nothing:
    def __init__(self, config): pass

    async def grade(self, context):
        return Grade(scores={{"nothing": True}})
"""
NOTHING = {"key": "nothing", "type": "posters:Nothing", "writes": {"nothing": {"type": "bool"}}}
LOCAL = [
    {"key": "copy", "type": "text"},
    {"key": "place", "type": "locality"},
    {"key": "like", "type": "reference"},
    {"key": "file", "type": "properties"},
]


def poster() -> Image.Image:
    """A poster of 1024 x 1024 pixels with copy on a noisy ground."""
    image = Image.new("RGB", (1024, 1024), (90, 120, 40))
    image.paste(Image.effect_noise((1024, 20), 100).convert("RGB"), (0, 1000))
    pen = ImageDraw.Draw(image)
    for row, line in enumerate(LINES):
        pen.rectangle((60, 60 + 110 * row, 900, 150 + 110 * row), fill="white")
        pen.text((70, 70 + 110 * row), line, font=ImageFont.load_default(size=56), fill="black")
    return image


def write(folder: Path) -> None:
    """The images, the plugin and a suite with local graders and one without."""
    base = poster()
    base.save(folder / "base.png")
    for variant in range(VARIANTS):
        edited = base.copy()
        ImageDraw.Draw(edited).rectangle((600, 600, 900, 900), fill=(30 * variant, 255 - 30 * variant, 120))
        edited.save(folder / f"output{variant}.png")
    mask = Image.new("RGBA", base.size, (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (590, 590, 910, 910))
    mask.save(folder / "mask.png")
    (folder / "posters.py").write_text(CODE, encoding="utf-8")
    case: dict[str, Any] = {"images": ["base.png"], "mask": "mask.png", "reference": "base.png"}
    case["expect"] = {"text": {"required": list(LINES), "extra": "forbid"}, "size": "1024x1024", "format": "png"}
    cases = [{"id": f"case{n}", "prompt": f"edit number {n}", **case} for n in range(CELLS)]
    for name, graders, rule in (("local", LOCAL, "file"), ("without", [NOTHING], "nothing")):
        suite = {"name": name, "cases": cases, "models": [{"provider": "posters:Posters", "label": "posters"}]}
        suite |= {"graders": graders, "verdict": [rule]}
        (folder / f"{name}.yaml").write_text(json.dumps(suite), encoding="utf-8")


def replay(folder: Path, suite: str, *flags: str) -> float:
    """CPU seconds of a replay."""
    command = [sys.executable, "-m", "visioneval", "run", f"{suite}.yaml", "--trust-suite", "--quiet"]
    return measured([*command, "--cache", "cache", *flags], folder).cpu


def main() -> None:
    """Prints the figures."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder)
        for suite in ("local", "without"):
            replay(folder, suite, "--reuse", "all")
            whole = median(replay(folder, suite, "--offline") for _ in range(REPEATS))
            single = median(replay(folder, suite, "--offline", "--limit", "1") for _ in range(REPEATS))
            seconds[suite] = (whole - single) / (CELLS - 1)
    rate, ratio = 1 / seconds["local"], seconds["local"] / seconds["without"]
    print(
        f"replay with text, locality, reference and properties: {1000 * seconds['local']:.2f} ms of CPU a cell,"
        f" {rate:.0f} cells a second, {ratio:.1f} times that without local graders"
    )


if __name__ == "__main__":
    main()
