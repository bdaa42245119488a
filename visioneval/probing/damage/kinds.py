"""Every kind of change with its strengths, from weak to strong. A kind's name starts with its group.

``pixels`` and ``copy`` are damage, ``harmless`` is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from visioneval.errors import UsageError, did_you_mean
from visioneval.probing.damage import copy_edits, harmless, lettering, pixels
from visioneval.probing.damage.subject import (
    CannotPlantError,
    Mask,
    Pixels,
    Planted,
    PlantedFile,
    Subject,
    encode,
)

Random = np.random.Generator
Plant = Callable[[Subject, float, Random], Planted | PlantedFile]

HARMLESS = "harmless"
COPY = "copy"
VISIBLE = 2
"""Damage that changes no channel of any pixel by this many levels is no damage."""


@dataclass(frozen=True, slots=True)
class Level:
    """A strength: its text and number in tables, and the value that the function gets."""

    label: str
    value: float
    number: float = 1.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of change. ``needs_region``: it changes what a mask does not allow to change."""

    name: str
    levels: tuple[Level, ...]
    plant: Plant
    needs_region: bool = False

    @property
    def group(self) -> str:
        """``pixels``, ``copy`` or ``harmless``."""
        return self.name.partition(".")[0]


def planted(kind: Kind, level: Level, subject: Subject, seed: str) -> PlantedFile:
    """The changed file; the same for the same subject, kind, level and seed. Raises ``CannotPlantError``.

    All levels of a kind share the generator's state, so that damage of several strengths lies in similar places.
    """
    if kind.needs_region and not subject.region.any():
        raise CannotPlantError("its mask covers all of it")
    random = np.random.default_rng(int.from_bytes(sha256(f"{seed}\0{kind.name}".encode()).digest()[:8]))
    result = kind.plant(subject, level.value, random)
    if isinstance(result, PlantedFile):
        return result
    if kind.group != HARMLESS and not _is_visible(result.image, subject.image):
        raise CannotPlantError("it would look the same")
    return PlantedFile(encode(result.image, subject.mime), subject.mime, result.box)


def matching(patterns: Sequence[str]) -> tuple[Kind, ...]:
    """The kinds with these names, or whose names start with them at a dot. Raises ``UsageError`` for others."""
    for pattern in patterns:
        if not any(is_within(kind.name, pattern) for kind in KINDS):
            names = sorted({prefix for kind in KINDS for prefix in _prefixes(kind.name)})
            raise UsageError(f"--kinds: no kind of change {pattern!r}{did_you_mean(pattern, names)}")
    return tuple(kind for kind in KINDS if not patterns or any(is_within(kind.name, name) for name in patterns))


def is_within(name: str, prefix: str) -> bool:
    """Whether a kind's name is ``prefix`` or starts with it at a dot."""
    return name == prefix or name.startswith(f"{prefix}.")


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _is_visible(damaged: Pixels, image: Pixels) -> bool:
    if damaged.shape != image.shape:
        return True
    return int(np.abs(damaged.astype(np.int16) - image).max()) >= VISIBLE


def _on_pixels(function: Callable[[Pixels, float, Random, Mask], Planted]) -> Plant:
    return lambda subject, strength, random: function(subject.image, strength, random, subject.region)


def _on_text(edit: Callable[[str, Random], str]) -> Plant:
    return lambda subject, _strength, random: lettering.set_line(subject, edit(subject.copy_line.text, random))


def _harmless(function: Callable[[Subject, float], Planted | PlantedFile]) -> Plant:
    return lambda subject, strength, _random: function(subject, strength)


def _erased_line(subject: Subject, _strength: float, _random: Random) -> Planted:
    return lettering.erased_line(subject.image, subject.copy_line.corners)


def _added_line(subject: Subject, _strength: float, random: Random) -> Planted:
    return lettering.added_line(subject, random)


def _other_format(subject: Subject, _strength: float, _random: Random) -> PlantedFile:
    if subject.expect.format is None:
        raise CannotPlantError("its case expects no format")
    mime = "image/webp" if subject.mime == "image/png" else "image/png"
    return PlantedFile(encode(subject.image, mime), mime)


def _levels(unit: str, *numbers: float, scale: float = 1) -> tuple[Level, ...]:
    return tuple(Level(unit.format(f"{number:g}"), number * scale, number) for number in numbers)


_YES = (Level("", 1.0),)
_PERCENT = "{} %"

KINDS: tuple[Kind, ...] = (
    Kind("pixels.patch", _levels("{} px", 4, 8, 12, 24, 48), _on_pixels(pixels.patch), needs_region=True),
    Kind("pixels.stroke", _levels("{} px", 1, 2, 4), _on_pixels(pixels.stroke), needs_region=True),
    Kind("pixels.recolor", _levels("dE {}", 5, 10, 20, 40), _on_pixels(pixels.recolor), needs_region=True),
    Kind("pixels.blur", _levels("sigma {}", 0.5, 1, 2, 4), _on_pixels(pixels.blur), needs_region=True),
    Kind("pixels.noise", _levels("sigma {}", 2, 5, 10, 20), _on_pixels(pixels.noise), needs_region=True),
    Kind("pixels.shift", _levels(_PERCENT, 0.5, 1, 2, 5, scale=0.01), _on_pixels(pixels.shift), needs_region=True),
    Kind("pixels.zoom", _levels(_PERCENT, 0.5, 1, 2, 5, scale=0.01), _on_pixels(pixels.zoom), needs_region=True),
    Kind("pixels.flip", _YES, _on_pixels(pixels.flip), needs_region=True),
    Kind("pixels.erased", _levels(_PERCENT, 5, 10, 20, scale=0.01), _on_pixels(pixels.erase), needs_region=True),
    Kind("pixels.moved", _levels(_PERCENT, 2, 5, 10, scale=0.01), _on_pixels(pixels.move), needs_region=True),
    Kind(
        "pixels.background", _levels("dE {}", 5, 10, 20, 40), _on_pixels(pixels.repaint_background), needs_region=True
    ),
    Kind(
        "pixels.watermark",
        _levels(_PERCENT, 5, 10, 20, 40, scale=0.01),
        _on_pixels(pixels.watermark),
        needs_region=True,
    ),
    Kind("pixels.warped", _levels(_PERCENT, 1, 2, 4, scale=0.01), _on_pixels(pixels.warp), needs_region=True),
    Kind("pixels.letter", _levels(_PERCENT, 3, 5, scale=0.01), _on_pixels(pixels.letter), needs_region=True),
    Kind("pixels.alpha", _YES, _on_pixels(pixels.flatten)),
    Kind("pixels.size", _levels("-{} %", 5, 25, 50, scale=0.01), _on_pixels(pixels.resize)),
    Kind("pixels.format", _YES, _other_format),
    Kind("pixels.blank", _YES, _on_pixels(pixels.blank)),
    Kind("copy.erased", _YES, _erased_line),
    Kind("copy.letter.replaced", _YES, _on_text(copy_edits.letter_replaced)),
    Kind("copy.letter.dropped", _YES, _on_text(copy_edits.letter_dropped)),
    Kind("copy.letter.doubled", _YES, _on_text(copy_edits.letter_doubled)),
    Kind("copy.letter.swapped", _YES, _on_text(copy_edits.letters_swapped)),
    Kind("copy.added", _YES, _added_line),
    Kind("copy.case", _YES, _on_text(copy_edits.case_changed)),
    Kind("copy.punctuation", _YES, _on_text(copy_edits.punctuation_changed)),
    Kind("harmless.jpeg", _levels("q{}", 95, 90, 75, 60), _harmless(harmless.jpeg)),
    Kind("harmless.webp", _levels("q{}", 90, 75), _harmless(harmless.webp)),
    Kind("harmless.resized", _levels("-{} %", 10, 25, scale=0.01), _harmless(harmless.resized_and_back)),
    Kind("harmless.half_pixel", _YES, _harmless(harmless.half_pixel_shift)),
    Kind("harmless.gamma", (Level("0.98", 0.98, 0.98),), _harmless(harmless.gamma)),
    Kind("harmless.metadata", _YES, _harmless(harmless.without_metadata)),
    Kind("harmless.png", _YES, _harmless(harmless.other_png)),
    Kind("harmless.sharpened", _levels(_PERCENT, 50, 100), _harmless(harmless.sharpened)),
    Kind("harmless.grain", _levels("sigma {}", 1, 3), harmless.grain),
    Kind("harmless.redrawn", _levels(_PERCENT, 0.2, 0.5, scale=0.01), harmless.redrawn),
)
