"""Scores of rendered text that benchmarks report, beside the exact comparison of ``copy_check``. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from visioneval.graders.text.words import words


def word_accuracy(expected: Sequence[str], read: Sequence[str]) -> float:
    """The share (0 to 1) of the words of the expected lines that were read, in any order; 1 is best.

    A word that is expected twice must be read twice. Additional words do not matter. Raises ``ValueError`` if the
    expected lines have no word.

    Source: the word accuracy of J. Chang et al., "OneIG-Bench: Omni-dimensional Nuanced Evaluation for Image
    Generation" (2025), for one image; LongText-Bench of Z. Geng et al., "X-Omni" (2025), reports it too.
    """
    required = Counter(words(expected))
    if not required:
        raise ValueError("the expected lines contain no words")
    return (required & Counter(words(read))).total() / required.total()


def normalized_edit_distance(expected: Sequence[str], read: Sequence[str]) -> float:
    """The edit distance between all expected and all read text over the length of the longer, from 0 (equal) to 1.

    Counts Levenshtein edits of characters, without case, punctuation and white space, in the order of the reader.
    Additional text counts.

    Source: the normalized edit distance of ICDAR's competitions, such as C. K. Chng et al., "ICDAR2019 Robust Reading
    Challenge on Arbitrary-Shaped Text" (2019), and of Y. Tuo et al., "AnyText: Multilingual Visual Text Generation and
    Editing" (2024). Both report 1 minus it.
    """
    expected_text, read_text = ("".join(words(lines)) for lines in (expected, read))
    longest = max(len(expected_text), len(read_text))
    return levenshtein(expected_text, read_text) / longest if longest else 0.0


def levenshtein(a: str, b: str) -> int:
    """The fewest characters to insert, delete or replace to turn one text into the other.

    Source: V. I. Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", Soviet Physics
    Doklady 10 (1966).
    """
    shorter, longer = sorted((a, b), key=len)
    codes = np.array([ord(char) for char in longer], dtype=np.int64)
    steps = np.arange(len(longer) + 1, dtype=np.int64)
    row = steps
    for number, char in enumerate(shorter, 1):
        changed = row[:-1] + (codes != ord(char))
        row = np.minimum(row + 1, np.concatenate(([number], changed)))
        row = np.minimum.accumulate(row - steps) + steps  # insertions, one after another
    return int(row[-1])
