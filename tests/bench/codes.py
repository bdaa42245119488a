"""``python -m tests.bench.codes``: which codes ``codes`` reads, sees and misses, and what it takes for one elsewhere.

The test draws a QR code and an EAN-13 on a white page and on five generated images, each with one flaw of one strength.
False alarms are counted in all real images of ``../shared/data``, none of which shows a code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from tests.support.images.codes import ean13, on_page, qr
from visioneval.graders.codes.reading import codes_in

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
ADDRESS, EAN = "https://example.com/menu", "4006381333931"
SIDES = ("right", "bottom", "left", "top")
Change = Callable[[np.ndarray], np.ndarray]


def pages() -> list[np.ndarray]:
    found = [np.full((1024, 1024, 3), 255, np.uint8)]
    for path in sorted((DATA / "generations").glob("*.[pj]*g")):
        image = np.asarray(Image.open(path).convert("RGB"))
        if min(image.shape[:2]) >= 700 and len(found) < 6:
            found.append(image)
    return found


def turned(code: np.ndarray, degrees: float) -> np.ndarray:
    image = Image.fromarray(code).rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    return np.asarray(image)


def cut(code: np.ndarray, share: float, side: str) -> np.ndarray:
    turned_by = SIDES.index(side)
    whole = np.rot90(code, turned_by)
    return np.rot90(whole[:, : round(whole.shape[1] * (1 - share))], -turned_by)


def faded(code: np.ndarray, contrast: float) -> np.ndarray:
    return np.asarray(128 + (code.astype(np.float64) - 128) * contrast, np.uint8)


def garbled(code: np.ndarray, kept: int, module: int = 6) -> np.ndarray:
    """Random modules in place of the content, as models paint a code, with so many of its three corners."""
    random, side = np.random.default_rng(1), code.shape[0] // module - 8
    modules = np.where(random.random((side, side)) < 0.5, 0, 255).astype(np.uint8)
    for row, column in ((0, 0), (0, side - 8), (side - 8, 0))[:kept]:
        start = (4 + row) * module, (4 + column) * module
        modules[row : row + 8, column : column + 8] = code[start[0] :: module, start[1] :: module, 0][:8, :8]
    painted = code.copy()
    painted[4 * module : -4 * module, 4 * module : -4 * module] = np.kron(modules, np.ones((module, module)))[..., None]
    return painted


def blurred(page: np.ndarray, sigma: float) -> np.ndarray:
    return np.asarray(cv2.GaussianBlur(page, (0, 0), sigma))


def jpeg(page: np.ndarray, quality: int) -> np.ndarray:
    return np.asarray(cv2.imdecode(cv2.imencode(".jpg", page, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], 1))


def noisy(page: np.ndarray, sigma: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, sigma, page.shape)
    return np.asarray(np.clip(page + noise, 0, 255), np.uint8)


def same(image: np.ndarray) -> np.ndarray:
    return image


def flaws(name: str) -> Iterator[tuple[str, np.ndarray, Change, Change]]:
    """The name of a flaw, the code, and what changes the code and the page with it."""
    drawn = partial(qr, ADDRESS) if name == "QR" else (lambda module: ean13(EAN, module // 2, 20 * module))
    code = drawn(6)
    yield from (
        (f"module of {size if name == 'QR' else size // 2} px", drawn(size), same, same) for size in (2, 4, 6, 10)
    )
    yield from ((f"turned by {by}", code, partial(turned, degrees=by), same) for by in (5, 15, 30, 45, 90, 180))
    yield from ((f"blur {sigma}", code, same, partial(blurred, sigma=sigma)) for sigma in (1, 2, 3, 4))
    yield from ((f"JPEG {quality}", code, same, partial(jpeg, quality=quality)) for quality in (50, 15))
    yield from ((f"noise {sigma}", code, same, partial(noisy, sigma=sigma)) for sigma in (20, 60))
    yield from ((f"contrast {part}", code, partial(faded, contrast=part), same) for part in (0.5, 0.2, 0.1))
    for side in SIDES:
        for share in (0.1, 0.2, 0.3, 0.5):
            yield f"cut at the {side} by {share:.0%}", code, partial(cut, share=share, side=side), same
    yield "inverted", code, lambda image: 255 - image, same
    if name == "QR":
        yield from ((f"no content, {kept} corners", code, partial(garbled, kept=kept), same) for kept in (3, 2, 0))


def main() -> None:
    for name, content in (("QR", ADDRESS), ("EAN-13", EAN)):
        for flaw, code, of_code, of_page in flaws(name):
            counts: Counter[str] = Counter()
            for number, page in enumerate(pages()):
                shown = of_page(on_page(of_code(code), page, 30 + 9 * number, 40))
                found = {code.content for code in codes_in(np.ascontiguousarray(shown))}
                counts[
                    "read" if content in found else "wrong" if found - {None} else "seen" if found else "missed"
                ] += 1
            print(f"{name}, {flaw}:", ", ".join(f"{kind} {count}" for kind, count in counts.items()), flush=True)
    found = {}
    images = [
        path
        for folder in ("copy/images", "generations", "screens", "edits", "redraws")
        for path in (DATA / folder).iterdir()
    ]
    images = [path for path in images if path.suffix in (".png", ".jpg", ".jpeg", ".tif") and "mask" not in path.name]
    for path in images:
        if codes := codes_in(np.asarray(Image.open(path).convert("RGB"))):
            found[path.name] = codes
    print(f"false alarms: {len(found)} of {len(images)} images", *found.items())


if __name__ == "__main__":
    main()
