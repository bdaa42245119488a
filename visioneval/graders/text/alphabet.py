"""The characters that local OCR can read, and the languages in which Tesseract reads others. Cheap to import.

The alphabet is the character dictionary of the recognition model in RapidOCR (``PP-OCRv6_rec_small``): Latin with its
accents, digits, punctuation, Greek without accents, kana, Chinese and Japanese ideographs, arrows and signs. No
Cyrillic, Hangul, Arabic, Hebrew, Thai or Devanagari.

What becomes of a line with other characters:

- required, and the rest of it is read, with up to two characters in place of each: `null`
- required, and something else is read, or nothing: FAIL; `null` if more than half of its letters and digits cannot be
  read
- forbidden, and the rest of it is read; or nothing, but more than half of it cannot be read: `null`
- expected, with `extra: forbid`, and other text is read that may be this line: `null`, not extra
"""

# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

import subprocess
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from shutil import which

from visioneval.media import is_ignorable

HYPHEN, BULLET, ELLIPSIS, APOSTROPHE, QUOTE = "-", "•", "…", "'", '"'
COMMA, LOW_QUOTE, DEGREE = ",", "„", "°"

# One glyph in most typefaces, or a difference of a pixel or two: the reader picks one at random.
_SAME_GLYPH = {
    HYPHEN: "‐‑‒–—―−⁃﹘﹣－─━",
    BULLET: "·∙⋅‧・･●▪◦‣⦁",
    ELLIPSIS: "⋯︙",
    COMMA: "‚",
    LOW_QUOTE: "⹂",
    APOSTROPHE: "‘’‛′`´ʼʹˈ＇｀",
    QUOTE: "“”‟″〃＂",
    "/": "⁄∕",
    ":": "∶",
    "~": "〜∼",
    "|": "∣│┃",
    "<": "‹",
    ">": "›",
    "✓": "✔√",
    "□": "☐▢",
    "Δ": "∆",
    "Σ": "∑",
    "Π": "∏",
    "Ș": "Ş",
    "ș": "ş",
    "Ț": "Ţ",
    "ț": "ţ",
}
_FOLDS = {char: unified for unified, chars in _SAME_GLYPH.items() for char in chars}
_FOLDS |= dict(zip("ΑΒΕΗΙΚΜΝΟΡΤΧΥΖο", "ABEHIKMNOPTXYZo", strict=True))  # Greek letters of Latin shape

_FOLDER = Path(__file__).parent
_SELDOM_READ = frozenset((_FOLDER / "seldom_read.txt").read_text(encoding="utf-8")) - {"\n"}
"""Characters that the model could read, and seldom does: of each, fewer than three in four drawings were read right.

Measured with rapidocr 3.10.0 on the recognizer alone: black on white, 40 px, in a word or beside one (``naťa``,
``PEÆ``, ``✗ No``), 9 to 25 drawings in up to five typefaces: DejaVu Sans, Sans Bold and Serif, Noto Sans and Serif.
They are read as others; those that the model lacks, too, but ``„`` and ``¡`` as nothing. Read right:

- never: Æ Đ Ď Ľ Ĺ Ń Ň Ť Ű Ů Ź Œ Ą, ď ľ ĺ ť þ ÿ, ‰ † ₽ ✗, but as AE D D L L Ñ Ñ T Ü Ú Ż CE A, d' l' í t b ý, %o t p x
- Ę Ě Ł ģ ų in 20%, 25%, 60%, 25% and 56%, else as E, É, L, ġ, u
- ✓ ✔ never, but as √, v or nothing
- á č ě ň ř š ů ž, ł ń ś ź ż ą ę, ő, ă â î ș ț, ğ ş in at least 78% each, so they are not listed
"""
_MAX_NAMED = 10
"""Unreadable characters in a sentence."""


@lru_cache(maxsize=65536)
def fold_character(char: str) -> str:
    """The form in which a character is compared: dashes, bullets, ellipses, quotes and compatibility forms are unified.

    The result may be several characters (a ligature), or none (a joiner, a variation selector).
    """
    if is_ignorable(char):
        return ""
    if char in _FOLDS or char == ELLIPSIS:
        return _FOLDS.get(char, char)
    wide = unicodedata.normalize("NFKC", char)
    if wide[:1].isspace():  # a lone accent decomposes to a space and a mark, which is another text
        return char
    return "".join(_FOLDS.get(part, part) for part in wide)


def unreadable(text: str) -> list[str]:
    """The characters of ``text`` that local OCR cannot read, or seldom does, in order, without duplicates."""
    characters = dict.fromkeys(unicodedata.normalize("NFC", text))
    return [char for char in characters if not (char.isspace() or _is_readable(char))]


def cannot_read(characters: Sequence[str]) -> str:
    """The first unreadable characters, and the number of others."""
    named, others = " ".join(characters[:_MAX_NAMED]), len(characters) - _MAX_NAMED
    return f"local OCR cannot read {named}" + (f" and {others} more" if others > 0 else "")


@lru_cache(maxsize=65536)
def _is_readable(char: str) -> bool:
    return char not in _SELDOM_READ and alphabet().issuperset(fold_character(char))


@cache
def alphabet() -> frozenset[str]:
    """The characters in the dictionary of the recognition model: all that it can output, besides the space."""
    return frozenset((_FOLDER / "alphabet.txt").read_text(encoding="utf-8")) - {"\n"}


_APOSTROPHES = "'\u2019\u02bc"
_SINGLE = ("CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA")
"""Names of characters that are words of their own, as their scripts have no spaces."""


def words(texts: Iterable[str]) -> list[str]:
    """The words of texts, in order, of letters, digits and marks, case-folded and in the form NFKC.

    An apostrophe is left out, other punctuation separates words, and each ideograph and kana is a word.
    """
    complete: list[str] = []
    for text in texts:
        current = ""
        for char in unicodedata.normalize("NFKC", text).casefold():
            is_single = unicodedata.name(char, "").startswith(_SINGLE)
            if char in _APOSTROPHES:
                continue
            if unicodedata.category(char)[0] in "LNM" and not is_single:
                current += char
                continue
            complete += [current] if current else []
            complete += [char] if is_single and char.isalnum() else []
            current = ""
        complete += [current] if current else []
    return complete


_LANGUAGE_RANGES = {
    "ell": ((0x370, 0x3FF), (0x1F00, 0x1FFF)),
    "rus": ((0x400, 0x52F),),
    "heb": ((0x590, 0x5FF), (0xFB1D, 0xFB4F)),
    "ara": ((0x600, 0x6FF), (0x750, 0x77F)),
    "hin": ((0x900, 0x97F),),
    "tha": ((0xE00, 0xE7F),),
    "vie": ((0x1A0, 0x1A1), (0x1AF, 0x1B0), (0x1EA0, 0x1EF9)),
    "kor": ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7A3)),
}
_UKRAINIAN = frozenset("ґєіїҐЄІЇ")
_ALSO_READ = "eng"
"""Read besides: without it, "50%" in a line of Greek is misread."""
_WAIT_S = 60


def language(char: str) -> str | None:
    """The language in which Tesseract reads a character; ``None`` if it is in none of them."""
    if char in _UKRAINIAN:
        return "ukr"
    code = ord(char)
    for name, ranges in _LANGUAGE_RANGES.items():
        if any(first <= code <= last for first, last in ranges):
            return name
    return None


def languages(line: str) -> tuple[str, ...]:
    """The languages of a line whose characters local OCR cannot read; empty if Tesseract cannot read one of them."""
    names = {language(char) for char in unreadable(line)}
    if not names or None in names:
        return ()
    names -= {"rus"} if "ukr" in names else set()
    return (*sorted(filter(None, names)), _ALSO_READ)


def missing(names: Iterable[str]) -> str | None:
    """What to install to read these languages, in one line; ``None`` if all is there."""
    installed = _data()
    absent = [name for name in sorted(set(names)) if name not in installed]
    packages = [*(() if which("tesseract") else ("tesseract-ocr",)), *(f"tesseract-ocr-{name}" for name in absent)]
    return f"'other_scripts: tesseract' needs Tesseract: run apt install {' '.join(packages)}" if packages else None


def tool_versions(names: Iterable[str]) -> dict[str, str]:
    """The version of Tesseract, and the first digits of the SHA-256 of the data of each language."""
    data = _data()
    hashes = {f"tesseract_{name}": sha256(data[name].read_bytes()).hexdigest()[:16] for name in sorted(set(names))}
    return {"tesseract": _output("--version").split()[1], **hashes}


@cache
def _data() -> Mapping[str, Path]:
    """The files of the installed languages; empty without Tesseract."""
    first, *names = _output("--list-langs").splitlines() or [""]
    folder = Path(first.partition('"')[2].rpartition('"')[0])
    return {name: path for name in names if (path := folder / f"{name}.traineddata").is_file()}


@cache
def _output(option: str) -> str:
    command = which("tesseract")
    if command is None:
        return ""
    done = subprocess.run(  # noqa: S603 - its own option
        [command, option], capture_output=True, text=True, encoding="utf-8", timeout=_WAIT_S, check=False
    )
    return done.stdout or done.stderr
