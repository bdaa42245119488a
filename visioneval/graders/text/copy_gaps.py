"""Lines with characters that the reader cannot read: whether the rest of such a line was read. Pure.

A reader shows such a character as nothing, or as one or two others: "ť" as "t", "Œ" as "CE". So the line may be there
if everything else was read in its place. Of a line of another script, no reading says anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from visioneval.graders.text.alphabet import unreadable
from visioneval.graders.text.copy_match import Copy, Match, Page, assign, simplest_first, skeleton

_MOST_READ = 2
"""As so many characters, or fewer, an unreadable one is read."""


def has_gaps(line: Copy) -> bool:
    """Whether a character of the line cannot be read."""
    return bool(unreadable(line.text))


def is_illegible(line: Copy) -> bool:
    """Whether more than half of the line's letters and digits cannot be read; of other characters, if it has none."""
    pattern = _pattern(line)
    letters = [read for char, read in zip(line.chars, pattern, strict=True) if char.isalnum()] or pattern
    return 2 * letters.count(None) > len(letters)


def assign_gaps(
    page: Page, lines: Sequence[Copy], taken: Sequence[Match], legible: AbstractSet[str]
) -> list[Match | None]:
    """For each line the text that may be it, apart from ``taken``: empty for an illegible one that matches nothing.

    ``None`` for a line that is not there, and for one of ``legible``, which another reader can read.
    """
    options = [[] if line.text in legible else gap_occurrences(page, line) for line in lines]
    return [
        () if match is None and line.text not in legible and is_illegible(line) else match
        for line, match in zip(lines, assign(options, taken), strict=True)
    ]


def gap_occurrences(page: Page, line: Copy) -> list[Match]:
    """All matches of the line's readable characters with a gap for each of the others; none without a gap."""
    pattern = _pattern(line)
    if None not in pattern or not any(pattern):
        return []
    matches: dict[Match, None] = {}
    for index, edges in enumerate(page.edges):
        for start in sorted(edges):
            matches.update(dict.fromkeys(_matches_from(page, pattern, index, start)))
    return simplest_first(page, matches)


def _pattern(line: Copy) -> list[str | None]:
    """The characters to be found, look-alikes as one; ``None`` for each that cannot be read."""
    missing = {*unreadable(line.text)}
    sources = (line.text[position] for position in line.source)
    return [None if source in missing else char for source, char in zip(sources, skeleton(line.chars), strict=True)]


def _matches_from(page: Page, pattern: Sequence[str | None], index: int, start: int) -> Iterator[Match]:
    """The matches that begin at one place; of those that end at the same place, one."""
    seen: set[tuple[int, int, int]] = set()
    pending: list[tuple[int, int, int, int, Match]] = [(0, index, start, start, ())]
    while pending:
        done, index, first, position, before = pending.pop()
        if (done, index, position) in seen:
            continue
        seen.add((done, index, position))
        text = page.skeletons[index]
        span = (index, first, position)
        if done == len(pattern):
            if position > first and position in page.edges[index]:
                yield (*before, span)
            continue
        if position == len(text):
            if position > first:
                pending += [(done, after, 0, 0, (*before, span)) for after in page.follows[index]]
        elif pattern[done] == text[position]:
            pending.append((done + 1, index, first, position + 1, before))
        if pattern[done] is None:
            last = min(position + _MOST_READ, len(text))
            pending += [(done + 1, index, first, end, before) for end in range(last, position - 1, -1)]
