"""Images and cases for ``copy_bar``: right copy, misspelt copy, mistakes planted in what is required or in the image."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np

from tests.support.images.card_designs import CARDS
from tests.support.images.cards import Card, blank, encoded
from tests.support.images.lone_words import draw_word, word_cells
from tests.support.images.typefaces import ONE_CASE
from visioneval.probing import copy
from visioneval.probing.subject import CannotPerturbError
from visioneval.suite.case import ExpectText

SHARED = Path(__file__).parents[3] / "shared" / "data" / "copy"
NEVER_FAIL = ("curved", "other-script")
"""Kinds of images that the grader need not read, but must not fail."""
PER_LINE = 4
"""Mistakes planted in a required line, besides a look-alike."""
BLANKS = 20
_ALIKE = ("Il1|", "O0o", "cC", "sS", "vV", "wW", "xX\u00d7", "zZ")
# A copy of what match.skeleton does today, so that the yardstick stays when the code moves.
_SKELETON = str.maketrans({char: shapes[0] for shapes in _ALIKE for char in shapes})

Part = Literal["shared", "cards", "words"]
Half = Literal["fit", "state"]
Group = Literal["right", "misspelt", "planted", "in image", "word", "blank"]
Edit = Callable[[str, np.random.Generator], str]


@dataclass(frozen=True, slots=True)
class Case:
    """What is expected of an image, and whether that must pass. ``mistake`` is the kind of the one planted."""

    name: str
    group: Group
    expect: ExpectText
    passes: bool
    mistake: str = ""
    is_alike: bool = False


@dataclass(frozen=True, slots=True)
class CopyImage:
    """An image with its cases. ``write`` returns its file, drawn in a folder where it is none of the shared ones."""

    name: str
    part: Part
    kind: str
    half: Half
    cases: tuple[Case, ...]
    write: Callable[[Path], Path]


def look_alike(line: str, random: np.random.Generator) -> str:
    """One letter or digit becomes another of the same shape."""
    spots = [(at, group) for at, letter in enumerate(line) for group in _ALIKE if letter in group]
    if not spots:
        raise CannotPerturbError("its line has no letter with a look-alike")
    at, group = spots[int(random.integers(len(spots)))]
    others = [letter for letter in group if letter != line[at] and letter.isascii()]
    return line[:at] + others[int(random.integers(len(others)))] + line[at + 1 :]


EDITS: tuple[Edit, ...] = (
    copy.letter_replaced,
    copy.letter_dropped,
    copy.letter_doubled,
    copy.letters_swapped,
    copy.case_changed,
    copy.punctuation_changed,
)


def copy_images(part: Part) -> Iterator[CopyImage]:
    """The images of a part; none of ``shared`` without its folder."""
    if part == "shared":
        yield from _shared() if (SHARED / "truth.json").is_file() else ()
    elif part == "cards":
        # Cards of a kind are in both halves, as there are few of each.
        mixed = sorted(CARDS, key=lambda card: (card.kind, sha256(card.name.encode()).digest()))
        for at, card in enumerate(mixed):
            yield from _cards(card, "state" if at % 2 else "fit")
    else:
        yield from _words()


def half_of(name: str) -> Half:
    """The half of an image that is no card, by a hash of its name."""
    return "fit" if sha256(name.encode()).digest()[0] % 2 else "state"


def _shared() -> Iterator[CopyImage]:
    for row in json.loads((SHARED / "truth.json").read_text(encoding="utf-8")):
        path = SHARED / "images" / row["file"]
        lines = tuple(row["lines"])
        cases = list(_required(row["file"], lines)) if lines else []
        for at, line in enumerate(row["not_on_it"]):
            expect = ExpectText(required=(line,))
            cases.append(Case(f"misspelt {at}", "misspelt", expect, passes=False, mistake="misspelt"))
        yield CopyImage(
            row["file"], "shared", row["kind"], half_of(row["file"]), tuple(cases), lambda _, path=path: path
        )


def _required(name: str, lines: tuple[str, ...]) -> Iterator[Case]:
    """The right lines, and each line with mistakes of up to four kinds and a look-alike."""
    yield Case("right", "right", ExpectText(required=lines), passes=True)
    for at, line in enumerate(lines):
        random = np.random.default_rng(zlib.crc32(f"{name} {at} {line}".encode()))
        edits = [EDITS[index] for index in random.permutation(len(EDITS))]
        changed = [(edit, text) for edit in edits if (text := _changed(edit, line, lines, random))][:PER_LINE]
        if alike := _changed(look_alike, line, lines, random):
            changed.append((look_alike, alike))
        for edit, text in changed:
            required = (*lines[:at], text, *lines[at + 1 :])
            case_name = f"planted {edit.__name__} {at}"
            expect = ExpectText(required=required)
            yield Case(case_name, "planted", expect, False, edit.__name__, _skeleton(text) == _skeleton(line))


def _changed(edit: Edit, line: str, lines: Sequence[str], random: np.random.Generator) -> str | None:
    """The line with a mistake that its image does not show; ``None`` if there is none."""
    try:
        text = edit(line, random)
    except CannotPerturbError:
        return None
    return None if is_shown(text, lines) else text


def is_shown(text: str, lines: Sequence[str]) -> bool:
    """Whether lines have the text between edges of words. Marks around a text are no part of it: "Rd" is in "Rd."."""
    pattern = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
    return any(pattern.search(shown) for shown in (*lines, " ".join(lines)))


def _skeleton(text: str) -> str:
    return text.translate(_SKELETON)


def _cards(card: Card, half: Half) -> Iterator[CopyImage]:
    """A card as it should be, and one drawn with a mistake."""
    name = card.file_name

    def write(folder: Path) -> Path:
        return _written(folder / name, encoded(card, card.lines))

    yield CopyImage(name, "cards", card.kind, half, tuple(_required(name, card.lines)), write)
    lines, mistake = _misdrawn(card)

    def write_wrong(folder: Path) -> Path:
        return _written(folder / f"wrong_{name}", encoded(card, lines))

    expect = ExpectText(required=card.lines)
    case = Case("in image", "in image", expect, passes=False, mistake=mistake)
    yield CopyImage(f"wrong_{name}", "cards", card.kind, half, (case,), write_wrong)


def _misdrawn(card: Card) -> tuple[tuple[str, ...], str]:
    """The lines of a card with one mistake that can be seen in its typeface, and its kind."""
    random = np.random.default_rng(zlib.crc32(f"wrong {card.name}".encode()))
    edits = [edit for edit in EDITS if card.face not in ONE_CASE or edit is not copy.case_changed]
    while True:
        at, edit = int(random.integers(len(card.lines))), edits[int(random.integers(len(edits)))]
        try:
            text = edit(card.lines[at], random)
        except CannotPerturbError:
            continue
        lines = (*card.lines[:at], text, *card.lines[at + 1 :])
        if not is_shown(card.lines[at], lines):
            return lines, edit.__name__


def _words() -> Iterator[CopyImage]:
    for cell in word_cells():
        if cell.how == "required":
            case = Case("word", "word", ExpectText(required=(cell.word,)), passes=True)
        else:
            case = Case("word", "word", ExpectText(forbidden=(cell.word,)), passes=False)
        name = f"{cell.name}.png".replace("/", "_")

        def write(folder: Path, cell=cell, name=name) -> Path:
            draw_word(cell).save(folder / name)
            return folder / name

        yield CopyImage(name, "words", cell.kind, half_of(cell.name.partition("_with_")[0]), (case,), write)
    for number in range(BLANKS):
        case = Case("blank", "blank", ExpectText(extra="forbid"), passes=True)
        name = f"blank_{number:02}.png"

        def write_blank(folder: Path, number=number, name=name) -> Path:
            blank(number).save(folder / name)
            return folder / name

        yield CopyImage(name, "words", "no text", half_of(name), (case,), write_blank)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
