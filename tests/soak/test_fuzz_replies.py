"""Malformed replies: no wrong score, no exception, and no reply that takes too long."""

from __future__ import annotations

import faulthandler
import json
import random
import string
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from replies import KINDS, cuts

from visioneval.providers.reply_json import MAX_CHARS

SEED = 12
MUTATED = 5000
SLOW_S = 2.0
"""Seconds of computing; a reply that takes more is counted."""
HANGS_S = 900
"""After so long a reading that hangs is shown, and ends the test."""
DEGENERATE = (
    "{" * 200_000, "[" * 200_000, '{"' * 200_000, '{"a":' * 100_000, '{"a":[' * 80_000, "{}" * 200_000,
    '{"a":["' + "x" * 400_000, "{'" * 200_000, "{ " * 200_000, '{"layout": ' + "9" * 400_000 + "}", "```json\n" * 50_000,
    '{"a":[' + "{}," * 150_000, "<think>" * 50_000, '{"' + '\\"{' * 130_000, "\x00" * 400_000, "[{" * 200_000,
    '{"lines": [' + '"a",' * 100_000 + '"a"]}', '{"answers": [' + '{"id":"dog","answer":"yes"},' * 15_000 + "]}",
)  # fmt: skip
Change = Callable[[str, random.Random], str]


def replaced(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text))
    return text[:at] + chance.choice(string.printable) + text[at + 1 :]


def removed(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text))
    return text[:at] + text[at + chance.randint(1, 8) :]


def added(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text))
    return text[:at] + "".join(chance.choices("{}[]\"',:\n 0a\\`", k=chance.randint(1, 8))) + text[at:]


def repeated(text: str, chance: random.Random) -> str:
    single, other = sorted(chance.sample(range(len(text)), 2))
    return text[:other] + text[single:]


def noise(text: str, chance: random.Random) -> str:
    return "".join(chance.choices(string.printable + '{}"', k=len(text)))


CHANGES: tuple[Change, ...] = (replaced, removed, added, repeated, noise)


def plainly(text: str) -> Iterator[str]:
    """Every object in a text that the standard library reads: a changed digit makes another answer, and a good one."""
    decoder = json.JSONDecoder(strict=False)
    for at, mark in enumerate(text):
        if mark == "{":
            try:
                _, end = decoder.raw_decode(text, at)
            except ValueError:
                continue
            yield text[at:end]


class Fuzz:
    """Reads replies and counts what came of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.known: dict[tuple[str, str], object] = {}
        self.wrong: list[tuple[str, str]] = []

    def read(self, kind: str, text: str) -> object:
        """The answer in a reply; ``None`` if there is none or the reader fails, which is counted."""
        start = time.thread_time()
        try:
            return KINDS[kind].scored(text)
        except Exception as error:
            self.counts["exceptions"] += 1
            self.wrong.append((kind, f"{type(error).__name__}: {error}: {text[:200]!r}"))
            return None
        finally:
            self.counts["replies"] += 1
            self.counts["slow"] += time.thread_time() - start > SLOW_S

    def answer(self, kind: str, whole: str) -> object:
        """The answer in a reply, read once."""
        if (kind, whole) not in self.known:
            self.known[kind, whole] = KINDS[kind].scored(whole)
        return self.known[kind, whole]

    def expect(self, kind: str, text: str, *answers: object) -> None:
        """Counts a wrong score if a reply has an answer that is not expected."""
        result = self.read(kind, text)
        if result is not None and result not in answers:
            self.counts["wrong scores"] += 1
            self.wrong.append((kind, f"{result}: {text[-200:]!r}"))


def all_cuts() -> Iterator[tuple[str, str, str]]:
    for kind, known in KINDS.items():
        for whole in known.complete:
            yield from ((kind, whole, cut) for cut in cuts(whole))


@pytest.fixture(autouse=True)
def _watch() -> Iterator[None]:
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def test_five_thousand_mutated_replies_and_all_truncations(report: Callable[[str], None]) -> None:
    fuzz, chance = Fuzz(), random.Random(SEED)
    for kind, whole, cut in all_cuts():
        fuzz.expect(kind, cut, fuzz.answer(kind, whole))
    of_cuts = fuzz.counts["replies"]
    for _ in range(MUTATED):
        kind = chance.choice([*KINDS])
        whole = chance.choice(KINDS[kind].complete[:6])  # those without formatting errors
        change = chance.choice(CHANGES)
        text = change(whole, chance)
        output = (
            whole,
            *plainly(text),
            *([text] if change is repeated else []),
        )  # a second item is one more, and no slip
        answers = [fuzz.answer(kind, item) for item in output]
        fuzz.expect(kind, text, *answers)
        fuzz.expect(kind, text[: chance.randrange(len(text) + 1)], *answers)
    for kind in KINDS:
        for text in DEGENERATE:
            fuzz.expect(kind, text)
            fuzz.expect(kind, text[:MAX_CHARS])
    report(
        f"seed {SEED}: {of_cuts:,} cuts, {MUTATED:,} changed replies, whole and cut, and {2 * len(DEGENERATE) * len(KINDS)}"
        f" degenerate ones: {fuzz.counts['wrong scores']} wrong scores, {fuzz.counts['exceptions']} exceptions,"
        f" {fuzz.counts['slow']} that took over {SLOW_S:g} s of computing"
    )
    assert fuzz.wrong[:5] == []
