"""Every kind of change with its strengths, from weak to strong. A kind's name starts with its group.

``pixels`` and ``copy`` are perturbations. ``harmless`` are changes that nobody would call a flaw: other encodings,
rounding errors of usual pipelines, and redraws.

A counter-prompt is a case's prompt with one word exchanged, so that its output no longer matches. A judge that likes
everything passes the output against the changed prompt too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from visioneval.errors import UsageError, did_you_mean
from visioneval.probing import additions, copy, pixels
from visioneval.probing.harmless import (
    gamma,
    grain,
    half_pixel_shift,
    jpeg,
    other_png,
    redrawn,
    resized_and_back,
    sharpened,
    webp,
    without_metadata,
)
from visioneval.probing.subject import (
    CannotPerturbError,
    Mask,
    Perturbed,
    PerturbedFile,
    Pixels,
    Random,
    Subject,
    encode,
    seeded,
)
from visioneval.running.plan import Call
from visioneval.suite.case import TestCase

Perturb = Callable[[Subject, float, Random], Perturbed | PerturbedFile]

HARMLESS = "harmless"
COPY = "copy"
VISIBLE = 2
"""A perturbation that changes no channel of any pixel by this many levels is none."""


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
    description: str
    levels: tuple[Level, ...]
    perturb: Perturb
    needs_region: bool = False

    @property
    def group(self) -> str:
        """``pixels``, ``copy`` or ``harmless``."""
        return self.name.partition(".")[0]


def perturbed(kind: Kind, level: Level, subject: Subject, seed: str) -> PerturbedFile:
    """The changed file; the same for the same subject, kind, level and seed. Raises ``CannotPerturbError``.

    All levels of a kind share the generator's state, so that perturbations of several strengths lie in similar places.
    """
    if kind.needs_region and not subject.region.any():
        raise CannotPerturbError("its mask covers all of it")
    result = kind.perturb(subject, level.value, seeded(seed, kind.name))
    if isinstance(result, PerturbedFile):
        return result
    is_same_size = result.image.shape == subject.image.shape
    step = np.abs(result.image.astype(np.int16) - subject.image).max() if is_same_size else VISIBLE
    if kind.group != HARMLESS and step < VISIBLE:
        raise CannotPerturbError("it would look the same")
    return PerturbedFile(encode(result.image, subject.mime), subject.mime, result.box)


def matching(patterns: Sequence[str]) -> tuple[Kind, ...]:
    """The kinds with these names, or whose names start with them at a dot. Raises ``UsageError`` for others."""
    for pattern in patterns:
        if not any(is_within(kind.name, pattern) for kind in KINDS):
            names = sorted({".".join(kind.name.split(".")[:count]) for kind in KINDS for count in (1, 2, 3)})
            raise UsageError(f"--kinds: no kind of change {pattern!r}{did_you_mean(pattern, names)}")
    return tuple(kind for kind in KINDS if not patterns or any(is_within(kind.name, name) for name in patterns))


def is_within(name: str, prefix: str) -> bool:
    """Whether a kind's name is ``prefix`` or starts with it at a dot."""
    return name == prefix or name.startswith(f"{prefix}.")


def _on_pixels(function: Callable[[Pixels, float, Random, Mask], Perturbed]) -> Perturb:
    return lambda subject, strength, random: function(subject.image, strength, random, subject.region)


def _in_region(
    name: str, description: str, levels: tuple[Level, ...], function: Callable[[Pixels, float, Random, Mask], Perturbed]
) -> Kind:
    return Kind(f"pixels.{name}", description, levels, _on_pixels(function), needs_region=True)


def _on_text(edit: Callable[[str, Random], str]) -> Perturb:
    return lambda subject, _strength, random: copy.set_line(subject, edit(subject.copy_line.text, random))


def _harmless(function: Callable[[Subject, float], Perturbed | PerturbedFile]) -> Perturb:
    return lambda subject, strength, _random: function(subject, strength)


def _other_format(subject: Subject, _strength: float, _random: Random) -> PerturbedFile:
    if subject.expect.format is None:
        raise CannotPerturbError("its case expects no format")
    mime = "image/webp" if subject.mime == "image/png" else "image/png"
    return PerturbedFile(encode(subject.image, mime), mime)


def _levels(unit: str, *numbers: float, scale: float = 1) -> tuple[Level, ...]:
    return tuple(Level(unit.format(f"{number:g}"), number * scale, number) for number in numbers)


YES = Level("", 1.0)
"""The strength of a kind that has one only."""
_PERCENT = "{} %"

KINDS: tuple[Kind, ...] = (
    _in_region("patch", "a square in a contrasting color", _levels("{} px", 4, 8, 12, 24, 48), pixels.patch),
    _in_region(
        "stroke", "a slanted line, as long as a quarter of the shorter side", _levels("{} px", 1, 2, 4), pixels.stroke
    ),
    _in_region(
        "recolor",
        "a square of a sixth of the shorter side, shifted in color (CIE76)",
        _levels("dE {}", 5, 10, 20, 40),
        pixels.recolor,
    ),
    _in_region("blur", "the whole image blurred (Gaussian, in pixels)", _levels("sigma {}", 0.5, 1, 2, 4), pixels.blur),
    _in_region(
        "noise",
        "noise over the whole image (Gaussian, in levels of 255)",
        _levels("sigma {}", 2, 5, 10, 20),
        pixels.noise,
    ),
    _in_region("shift", "the whole image moved", _levels(_PERCENT, 0.5, 1, 2, 5, scale=0.01), pixels.shift),
    _in_region(
        "zoom", "the whole image enlarged and cropped", _levels(_PERCENT, 0.5, 1, 2, 5, scale=0.01), pixels.zoom
    ),
    _in_region("flip", "mirrored left to right", (YES,), pixels.flip),
    _in_region(
        "erased",
        "the square of this size with the most detail, painted over from its surroundings, or made transparent",
        _levels(_PERCENT, 5, 10, 20, scale=0.01),
        pixels.erase,
    ),
    _in_region(
        "moved",
        "the square of a tenth of the shorter side with the most detail, moved sideways",
        _levels(_PERCENT, 2, 5, 10, scale=0.01),
        pixels.move,
    ),
    _in_region(
        "background",
        "all that looks like the border, in another color",
        _levels("dE {}", 5, 10, 20, 40),
        pixels.repaint_background,
    ),
    _in_region(
        "watermark",
        "the word SAMPLE in rows over the image, with this opacity",
        _levels(_PERCENT, 5, 10, 20, 40, scale=0.01),
        pixels.watermark,
    ),
    _in_region(
        "warped",
        "a square of a seventh of the shorter side with much detail, pulled sideways",
        _levels(_PERCENT, 1, 2, 4, scale=0.01),
        pixels.warp,
    ),
    _in_region(
        "letter", "a letter of this size in a contrasting color", _levels(_PERCENT, 3, 5, scale=0.01), pixels.letter
    ),
    Kind("pixels.alpha", "an image with transparency flattened on white", (YES,), _on_pixels(pixels.flatten)),
    Kind(
        "pixels.size",
        "the image smaller by this share of each side",
        _levels("-{} %", 5, 25, 50, scale=0.01),
        _on_pixels(pixels.resize),
    ),
    Kind("pixels.format", "another file format than the case expects", (YES,), _other_format),
    Kind("pixels.blank", "one flat color", (YES,), _on_pixels(pixels.blank)),
    Kind(
        "pixels.off_palette",
        "where the case has a palette: a disk of this share of the image in a color far from it",
        _levels(_PERCENT, 0.5, 1, 3, 10, scale=0.01),
        additions.off_palette,
    ),
    Kind(
        "pixels.code",
        "where the case has `codes`: one more QR code, this share of the shorter side wide",
        _levels(_PERCENT, 15, 20, 30, scale=0.01),
        additions.added_code,
    ),
    Kind(
        "pixels.painted_code",
        "the same with nothing to read between its corners, as models paint it",
        _levels(_PERCENT, 15, 20, 30, scale=0.01),
        additions.painted_code,
    ),
    Kind(
        "copy.erased",
        "a line of the copy erased",
        (YES,),
        lambda subject, *_: copy.erased_line(subject.image, subject.copy_line.corners),
    ),
    Kind("copy.letter.replaced", "a letter becomes one of another shape", (YES,), _on_text(copy.letter_replaced)),
    Kind("copy.letter.dropped", "a letter is missing", (YES,), _on_text(copy.letter_dropped)),
    Kind("copy.letter.doubled", "a letter is there twice", (YES,), _on_text(copy.letter_doubled)),
    Kind("copy.letter.swapped", "two neighboring letters change places", (YES,), _on_text(copy.letters_swapped)),
    Kind(
        "copy.added",
        "one more line, where the case forbids extra text",
        (YES,),
        lambda subject, _, random: copy.added_line(subject, random),
    ),
    Kind("copy.case", "a letter changes its case and its shape", (YES,), _on_text(copy.case_changed)),
    Kind(
        "copy.punctuation",
        "a mark is missing, or an exclamation mark is added",
        (YES,),
        _on_text(copy.punctuation_changed),
    ),
    Kind(
        "copy.faded",
        "a line in a color with this contrast ratio to what is behind it",
        _levels("{}:1", 4, 3, 2, 1.5),
        lambda subject, ratio, _: copy.faded_line(subject, ratio),
    ),
    Kind(
        "copy.smaller",
        "a line in letters that are smaller by this share",
        _levels("-{} %", 10, 25, 50, scale=0.01),
        lambda subject, share, _: copy.smaller_line(subject, share),
    ),
    Kind(
        "copy.swapped",
        "two lines of the copy, each in the place of the other",
        (YES,),
        lambda subject, _, random: copy.swapped_lines(subject, random),
    ),
    Kind("harmless.jpeg", "JPEG", _levels("q{}", 95, 90, 75, 60), _harmless(jpeg)),
    Kind("harmless.webp", "lossy WebP", _levels("q{}", 90, 75), _harmless(webp)),
    Kind(
        "harmless.resized",
        "scaled down and back",
        _levels("-{} %", 10, 25, scale=0.01),
        _harmless(resized_and_back),
    ),
    Kind("harmless.half_pixel", "shifted by half a pixel", (YES,), _harmless(half_pixel_shift)),
    Kind("harmless.gamma", "every channel raised to this power", (Level("0.98", 0.98, 0.98),), _harmless(gamma)),
    Kind(
        "harmless.metadata",
        "without metadata; a JPEG is not encoded again",
        (YES,),
        _harmless(without_metadata),
    ),
    Kind("harmless.png", "a PNG of another encoder", (YES,), _harmless(other_png)),
    Kind(
        "harmless.sharpened",
        "the whole image sharpened by an unsharp mask of 2 pixels",
        _levels(_PERCENT, 50, 100),
        _harmless(sharpened),
    ),
    Kind("harmless.grain", "grain, in levels of 255", _levels("sigma {}", 1, 3), grain),
    Kind(
        "harmless.redrawn",
        "painted again as by a model: moved smoothly by up to this, with another tone, smoothed and sharpened",
        _levels(_PERCENT, 0.2, 0.5, scale=0.01),
        redrawn,
    ),
)


_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_COLORS = ("red", "blue", "green", "yellow", "purple", "orange", "pink", "brown", "black", "white", "gray", "turquoise")
_PLACES = {
    "left": "right",
    "above": "below",
    "top": "bottom",
    "inside": "outside",
    "behind": "in front of",
    "under": "above",
    "foreground": "background",
    "indoors": "outdoors",
    "upper": "lower",
}
_PLACES |= {there: here for here, there in _PLACES.items() if there not in _PLACES}
_OBJECTS = (
    *("cat", "dog", "horse", "bird", "elephant", "car", "bicycle", "boat", "train", "airplane", "tree", "flower"),
    *("house", "bridge", "mountain", "beach", "table", "chair", "lamp", "sofa", "cup", "bottle", "apple", "pizza"),
    *("cake", "clock", "book", "guitar", "umbrella", "hat", "shoe", "robot", "castle", "lighthouse", "man", "woman"),
    *("bowl", "vase", "backpack", "camera", "phone", "kite", "snowman", "sandwich", "banana", "giraffe", "penguin"),
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A word of a text and what replaces it."""

    old: str
    new: str

    def applied(self, text: str) -> str:
        """The text with every occurrence of the word replaced, and its capital kept."""

        def replaced(match: re.Match[str]) -> str:
            return self.new[:1].upper() + self.new[1:] if match[0][:1].isupper() else self.new

        return re.sub(rf"(?<!\w){re.escape(self.old)}(?!\w)", replaced, text, flags=re.IGNORECASE)


def exchange_of(kind: str, case: TestCase, prompt: str, random: Random) -> Exchange:
    """The exchange of a kind for a case: ``number``, ``color``, ``place``, ``object`` or ``copy``.

    Raises ``CannotPerturbError`` if the prompt has nothing to exchange, or its questions are pinned.
    """
    if case.questions is not None:
        raise CannotPerturbError("its questions are pinned, so the prompt is not asked about")
    exchange = _MAKERS[kind](case, prompt, random)
    if exchange.applied(prompt) == prompt:
        raise CannotPerturbError(f"its prompt names no {kind} to exchange")
    return exchange


def _number(_case: TestCase, prompt: str, random: Random) -> Exchange:
    digits = re.search(r"(?<![\w.,$:-])([2-9])(?![\w.,:%-])", prompt)
    if digits is not None:
        return Exchange(digits[1], str(int(digits[1]) + 3))
    return _of_list("number", _NUMBERS)(_case, prompt, random)


def _of_list(kind: str, words: Collection[str]) -> Callable[[TestCase, str, Random], Exchange]:
    """Exchanges one of these words by another, or a place by its opposite."""

    def make(_case: TestCase, prompt: str, random: Random) -> Exchange:
        present = sorted(word for word in words if re.search(rf"(?<!\w){word}(?!\w)", prompt, re.IGNORECASE))
        if not present:
            raise CannotPerturbError(f"its prompt names no {kind} to exchange")
        old = present[int(random.integers(len(present)))]
        if old in _PLACES:
            return Exchange(old, _PLACES[old])
        absent = [word for word in words if word not in present]
        return Exchange(old, absent[int(random.integers(len(absent)))])

    return make


def _word_of_copy(case: TestCase, prompt: str, random: Random) -> Exchange:
    lines = case.expect.text.required if case.expect.text else ()
    words = sorted({word for line in lines for word in re.findall(r"[^\W\d_]{3,}", line) if word in prompt})
    if not words:
        raise CannotPerturbError("its prompt names no word of its copy")
    old = words[int(random.integers(len(words)))]
    return Exchange(old, old[::-1].capitalize() if old[0].isupper() else old[::-1])


_MAKERS: Mapping[str, Callable[[TestCase, str, Random], Exchange]] = {
    "number": _number,
    "color": _of_list("color", _COLORS),
    "place": _of_list("place", _PLACES),
    "object": _of_list("object", _OBJECTS),
    "copy": _word_of_copy,
}
PROMPT_KINDS: Mapping[str, str] = {
    "prompt.number": "another number in the prompt",
    "prompt.color": "another color in the prompt",
    "prompt.place": "the opposite place in the prompt: left becomes right, above becomes below",
    "prompt.object": "another object in the prompt",
    "prompt.copy": "a word of the copy written backwards in the prompt",
}
"""What each kind of counter-prompt changes."""


@dataclass(frozen=True, slots=True)
class Change:
    """A kind with a strength. ``image`` is the kind of image change; ``None`` for a counter-prompt."""

    name: str
    image: Kind | None = None
    level: Level = YES


def changes_of(kinds: Sequence[Kind], prompt_kinds: Sequence[str]) -> Iterator[Change]:
    """All changes: of the image, then of the prompt."""
    for kind in kinds:
        yield from (Change(kind.name, kind, level) for level in kind.levels)
    yield from (Change(name) for name in prompt_kinds)


def perturb(change: Change, subject: Subject, call: Call, seed: str) -> tuple[PerturbedFile, Call, str]:
    """The changed file, the call that grades it, and what changed in a prompt. Raises ``CannotPerturbError``."""
    if change.image is not None:
        return perturbed(change.image, change.level, subject, seed), call, ""
    kind = change.name.partition(".")[2]
    exchange = exchange_of(kind, call.case, call.graded_prompt, seeded(seed, change.name))
    criteria = None if call.case.criteria is None else exchange.applied(call.case.criteria)
    prompt = exchange.applied(call.graded_prompt)
    case = call.case.model_copy(update={"prompt": prompt, "criteria": criteria})
    counter = replace(call, case=case, graded_prompt=prompt)
    return PerturbedFile(subject.data, subject.mime), counter, f"{exchange.old} -> {exchange.new}"
