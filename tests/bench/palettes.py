"""``python -m tests.bench.palettes``: what ``palette`` finds in real images and in drawn ones, by its tolerance.

- *Own*: the six main colors of an image, as its palette; *foreign*: those of another image. Nobody chose either for
  the other, so a high score of a foreign palette is chance.
- *Drawn*: flat cards in a palette of four colors, each encoded, brightened or painted again as by a model, and cards on
  which a disk of another color was painted.

The default tolerance is the one of ``TOLERANCES`` with the most own and the fewest foreign palettes among the images
with an even number. The figures of the odd ones, and of cards, are in ``docs/reference/graders/palette.md``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from visioneval.graders.palette.grader import PaletteFinding, measure_palette
from visioneval.graders.pixels.color import ciede2000, to_lab
from visioneval.probing.kinds import KINDS, perturbed
from visioneval.probing.subject import Subject, decode, encode
from visioneval.suite.case import Expect

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SIDE = 384
TOLERANCES = (4, 6, 8, 10, 12, 15, 20)
COLORS = 6
HIGH = 0.9
"""A score from which a palette counts as found."""
REGION = 0.002
"""The share of a card from which a region off the palette counts as found."""
FOREIGN = 4
"""Foreign palettes of each image."""
PALETTES = (
    ("#F5E6CC", "#3B2A1E", "#D98E4A", "#FFFFFF"),
    ("#0B3D91", "#FFFFFF", "#FFC20E", "#111111"),
    ("#F7F3EE", "#B3202A", "#1A1A1A", "#8A8D8F"),
    ("#264653", "#2A9D8F", "#E9C46A", "#E76F51"),
    ("#FFE5EC", "#FB6F92", "#33415C", "#FFFFFF"),
    ("#101820", "#F2AA4C", "#EDEDED", "#5C6B73"),
    ("#2D6A4F", "#D8F3DC", "#1B4332", "#FFB703"),
    ("#F4F1DE", "#3D405B", "#81B29A", "#E07A5F"),
)
CHANGES = ("harmless.jpeg", "harmless.webp", "harmless.gamma", "harmless.grain", "harmless.resized", "harmless.redrawn")
DISKS = ((0.005, 40), (0.01, 40), (0.03, 40), (0.1, 40), (0.03, 10), (0.03, 15), (0.03, 20), (0.03, 30))
"""Share of the card and least distance of the disk's color from the palette (CIEDE2000)."""


def real_images() -> dict[str, np.ndarray]:
    found = {}
    for folder in ("copy/images", "generations", "screens"):
        for path in sorted((DATA / folder).iterdir()):
            if path.suffix in (".png", ".jpg", ".jpeg", ".tif"):
                image = Image.open(path).convert("RGB")
                image.thumbnail((SIDE, SIDE))
                found[path.name] = np.asarray(image)
    return found


def main_colors(image: np.ndarray) -> tuple[str, ...]:
    """The centers of k-means over its pixels."""
    pixels = image.reshape(-1, 3).astype(np.float32)
    cv2.setRNGSeed(0)
    rule = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 20, 1.0)
    _, _, centers = cv2.kmeans(pixels, COLORS, None, rule, 1, cv2.KMEANS_PP_CENTERS)
    centers = centers[np.isfinite(centers).all(axis=1)].clip(
        0, 255
    )  # an image of few colors leaves some without pixels
    return tuple("#{:02X}{:02X}{:02X}".format(*np.rint(center).astype(int)) for center in centers)


def card(palette: tuple[str, ...], seed: int) -> np.ndarray:
    """A flat card: a ground, shapes and a line of text in the colors of a palette."""
    random = np.random.default_rng(seed)
    image = Image.new("RGB", (4 * 512, 4 * 512), palette[0])
    pen = ImageDraw.Draw(image)
    for number in range(6):
        x, y, width, height = (int(value) for value in random.integers(200, 1200, 4))
        shape = pen.ellipse if number % 2 else pen.rectangle
        shape((x, y, x + width // 2, y + height // 2), fill=palette[1 + number % (len(palette) - 1)])
    pen.text((160, 60), "Autumn Bread Week", palette[1], ImageFont.load_default(size=180))
    return np.asarray(image.resize((512, 512), Image.Resampling.BOX))


def disk_color(palette: tuple[str, ...], distance: float, seed: int) -> tuple[int, int, int] | None:
    """A color about this far from the nearest color of a palette."""
    random = np.random.default_rng(seed)
    colors = random.integers(0, 256, (4000, 3)).astype(np.uint8)
    own = to_lab(np.array([[list(bytes.fromhex(color[1:])) for color in palette]], np.uint8))[0]
    lab = to_lab(colors[None])[0]
    least = np.min([ciede2000(lab, np.broadcast_to(color, lab.shape)) for color in own], axis=0)
    close = np.argmin(np.abs(least - distance))
    return None if abs(least[close] - distance) > 2 else tuple(int(level) for level in colors[close])


def with_disk(image: np.ndarray, share: float, color: tuple[int, int, int]) -> np.ndarray:
    painted = image.copy()
    radius = round((share * image.shape[0] * image.shape[1] / np.pi) ** 0.5)
    cv2.circle(painted, (340, 340), radius, color, -1, cv2.LINE_AA)
    return painted


def largest(finding: PaletteFinding) -> float:
    return finding.regions[0].share if finding.regions else 0.0


def main() -> None:
    images = real_images()
    palettes = [main_colors(image) for image in images.values()]
    print(f"{len(images)} real images")
    for tolerance in TOLERANCES:
        measure_real(list(images.values()), palettes, tolerance)
    for tolerance in TOLERANCES:
        measure_cards(tolerance)


def measure_real(images: list[np.ndarray], palettes: list[tuple[str, ...]], tolerance: float) -> None:
    """Prints how many own and foreign palettes score high in each half of the images."""
    scores: dict[tuple[str, int], list[tuple[float, bool]]] = defaultdict(list)
    for number, image in enumerate(images):
        others = [palettes[(number + 17 * step) % len(images)] for step in range(1, FOREIGN + 1)]
        for kind, palette in (("own", palettes[number]), *(("foreign", other) for other in others)):
            found = measure_palette(image, palette, tolerance)
            scores[kind, number % 2].append((1 - found.off, min(found.colors) >= 0.001))
    for half in (0, 1):
        print(f"tolerance {tolerance}, {('even', 'odd')[half]} images:", end=" ")
        for kind in ("own", "foreign"):
            found = scores[kind, half]
            high, used = (sum(score >= HIGH and (is_used or not both) for score, is_used in found) for both in (0, 1))
            print(f"{kind} {high} of {len(found)} at {HIGH:g} or more, {used} with each color used;", end=" ")
        print(flush=True)


def measure_cards(tolerance: float) -> None:
    """Prints in how many cards of each half a region off the palette is found."""
    rows: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for number, palette in enumerate(PALETTES * 2):
        image = card(palette, number)
        for name, shown in changed_cards(image, palette, number):
            rows[name, number % 2].append(largest(measure_palette(shown, palette, tolerance)) >= REGION)
    for half in (0, 1):
        print(
            f"tolerance {tolerance}, {('even', 'odd')[half]} cards: a region of {REGION:.1%} or more off the palette in"
        )
        for (name, at), found in rows.items():
            if at == half:
                print(f"  {name}: {sum(found)} of {len(found)}", flush=True)


def changed_cards(image: np.ndarray, palette: tuple[str, ...], number: int) -> Iterator[tuple[str, np.ndarray]]:
    """The card as it is, with each harmless change, and with each disk of another color."""
    yield "clean", image
    subject = Subject(image, encode(image, "image/png"), "image/png", np.ones((512, 512), bool), Expect())
    for kind in (kind for kind in KINDS if kind.name in CHANGES):
        for level in kind.levels:
            yield f"{kind.name} {level.label}", decode(perturbed(kind, level, subject, str(number)).data)
    for share, distance in DISKS:
        if color := disk_color(palette, distance, number):
            yield f"disk of {100 * share:g} %, dE {distance}", with_disk(image, share, color)


if __name__ == "__main__":
    main()
