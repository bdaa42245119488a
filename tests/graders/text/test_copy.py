"""A corpus of readings and expected copy: each file in ``copy`` is a subject, with all that a comparison finds.

After ``=== what it is about``, a line of JSON has what was read and what is expected, and each line behind ``>`` is a
part of the result; ``UPDATE_GOLDEN=1`` writes these. A case with ``looks`` is compared as with ``spaces: exact``. One
with ``views`` is looked at again: ``likely`` has the log-likelihood of a text in one view after the other.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

from visioneval.graders.text import TextGrader, networks, ocr
from visioneval.graders.text.check import CopyCheck, check, with_spaces
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.match import copy_of, skeleton
from visioneval.graders.text.reasons import MAX_QUOTED, details, quoted, reason
from visioneval.graders.text.second_look import FEW, POSSIBLE, is_needed, look_again
from visioneval.graders.text.spaces import LineLook
from visioneval.suite.case import ExpectText

CORPORA = sorted((Path(__file__).parent / "copy").glob("*.txt"))
COPY = ("required", "forbidden", "allowed", "extra")


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: path.stem)
def test_what_a_comparison_finds(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, lines = corpus.read_text(encoding="utf-8"), []
    for line in text.splitlines():
        if not line.startswith("> "):
            lines.append(line)
        if line.startswith("{"):
            lines += [f"> {part}" for part in _result(json.loads(line), monkeypatch)]
    result = "".join(f"{line}\n" for line in lines)
    if os.environ.get("UPDATE_GOLDEN"):
        corpus.write_text(result, encoding="utf-8")
    assert result == text


def _result(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    readings = [_reading(item) for item in case["read"]]
    expected = ExpectText.model_validate({name: case[name] for name in COPY if name in case})
    fold, limit = case.get("reader") != "judge", case.get("min_confidence", 0.0)
    if "views" in case:
        looks = _Looks(case["views"], monkeypatch)
        canvas = Image.new("RGB", tuple(case["views"].get("size", (1024, 1024))))
        readings = look_again([canvas] * case["views"].get("images", 1), readings, expected, limit)
        yield from looks.said()
        yield f"seen {json.dumps([_shown(reading) for reading in readings], ensure_ascii=False)}"
    found = check(readings, expected, fold=fold, min_confidence=limit, legible=frozenset(case.get("legible", ())))
    if "looks" in case:
        again = {int(at): look and LineLook(*map(tuple, look)) for at, look in case["looks"].items()}
        found = with_spaces(found, readings, fold=fold, looks=again)
    spaces = "exact" if "looks" in case else "loose"
    config = TextGrader(type="text", key="copy", min_confidence=limit or 0.5, spaces=spaces)
    yield from _findings(config, expected, readings, found, "ocr" if fold else "judge")


def _findings(
    config: TextGrader, expected: ExpectText, readings: Sequence[Reading], found: CopyCheck, reader: str
) -> Iterator[str]:
    word = {True: "passed", False: "failed", None: "undecided"}[found.passed]
    rates = ("-" if rate is None else f"{rate:.4g}" for rate in (found.recall, found.cer))
    yield f"{word}, recall {', cer '.join(rates)}: {reason(config, expected, readings, found, reader)}"
    doubts = {pair.line: pair.doubt for pair in found.unsettled}
    recorded = {**details(config, readings, found, reader), "doubts": doubts}
    for name in ("found", "missing", "forbidden", "extra", "doubtful_extra", "unsettled", "doubts", "spaces", "folded"):
        if value := recorded.get(name):
            yield f"{name} {json.dumps(value, ensure_ascii=False)}"


def _reading(item: Any) -> Reading:
    if isinstance(item, str):
        return Reading(item)
    text, *box = item.pop("text"), *item.pop("box", ())
    corners = item.pop("corners", None)
    if box:
        left, top, right, bottom = box
        corners = (left, top), (right, top), (right, bottom), (left, bottom)
    shown = tuple((at, sign) for at, sign in item.pop("shown", ()))
    return Reading(text, corners=corners and tuple(map(tuple, corners)), shown=shown, **item)


def _shown(reading: Reading) -> Any:
    known = {name: getattr(reading, name) for name in ("read_as", "possible", "shown")}
    notes = {name: value for name, value in known.items() if value}
    return [reading.text, notes] if notes else reading.text


class _Looks:
    """Closer looks with networks that say what a case says, and what was asked of them."""

    def __init__(self, views: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self._likely = views.get("likely", {})
        self._whole = views.get("whole", ["", 0.0])
        self._closer: list[str] = []
        self._weighed: Counter[str] = Counter()
        self._sizes: list[tuple[int, int]] = []
        self._rows: list[tuple[int, int]] = []
        for name in ("windows", "enlarged"):
            seen = [_reading(item) for item in views.get(name, ())]
            monkeypatch.setattr(ocr, f"read_{name}", lambda *_, name=name, seen=seen: self._closer.append(name) or seen)
        monkeypatch.setattr(
            networks,
            "crop",
            lambda _, box: Image.new("RGB", (round(box[2][0] - box[0][0]), round(box[2][1] - box[0][1]))),
        )
        monkeypatch.setattr(networks, "read_line", self._read_line)
        monkeypatch.setattr(networks, "log_likelihood", self._log_likelihood)

    def _read_line(self, line: Image.Image) -> networks.Line:
        self._rows.append(line.size)
        text, confidence = self._whole
        return networks.Line(text, confidence, (0.5,) * len(text.replace(" ", "")))

    def _log_likelihood(self, line: Image.Image, text: str) -> float:
        views = self._likely.get(text, [POSSIBLE - 1])
        self._weighed[text] += 1
        self._sizes.append(line.size)
        return float(views[(self._weighed[text] - 1) % len(views)])

    def said(self) -> Iterator[str]:
        yield f"looked closer {self._closer}"
        if self._weighed:
            yield f"weighed {dict(self._weighed)} in {sorted(set(self._sizes))}"
        if self._rows:
            yield f"read in one piece {self._rows}"


SMALL, LARGE = (1024, 1024), (2001, 2000)


@pytest.mark.parametrize(
    ("expected", "passed", "count", "size", "needed"),
    [
        ({"required": ["SALE"]}, True, 0, LARGE, False),
        ({"required": ["SALE"]}, False, 50, SMALL, True),
        ({"required": ["SALE"]}, None, 50, SMALL, True),
        ({"forbidden": ["SALE"]}, True, FEW, SMALL, True),
        ({"forbidden": ["SALE"]}, True, FEW + 1, SMALL, False),
        ({"forbidden": ["SALE"]}, True, FEW + 1, LARGE, True),
        ({"forbidden": ["SALE"]}, False, FEW + 1, SMALL, False),
        ({"forbidden": ["SALE"]}, True, FEW + 1, (2000, 2000), False),
        ({"extra": "forbid"}, True, 0, SMALL, True),
        ({"extra": "forbid"}, True, FEW + 1, SMALL, False),
        ({"extra": "forbid"}, False, FEW + 1, SMALL, False),
        ({"required": ["SALE"], "extra": "forbid"}, True, FEW, SMALL, True),
        ({"required": ["SALE"], "forbidden": ["NOW"]}, True, FEW + 1, SMALL, False),
        ({"required": ["SALE"], "allowed": ["NOW"]}, True, 0, SMALL, False),
    ],
)
def test_a_second_look_where_it_may_change_the_verdict(
    expected: dict[str, Any], passed: bool | None, count: int, size: tuple[int, int], needed: bool
) -> None:
    assert is_needed([Reading("Hey")] * count, ExpectText.model_validate(expected), passed=passed, size=size) is needed


def test_long_texts_are_one_line_and_cut_in_the_middle() -> None:
    line = f"{'word ' * 40}end."
    assert re.fullmatch(r'"word word.* \u2026 .*end\."', quoted(line))
    assert len(quoted(line)) <= MAX_QUOTED + 2
    assert quoted("a\n b") == '"a b"'
    assert quoted("x" * MAX_QUOTED) == f'"{"x" * MAX_QUOTED}"'


def compare(read: list[str], *, fold: bool = True, **expected: object) -> CopyCheck:
    return check([Reading(text) for text in read], ExpectText.model_validate(expected), fold=fold)


WORDS = st.text(alphabet="ABDEFGHJKLMN", min_size=2, max_size=7)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=5)


@given(LINES, st.data())
def test_cutting_readings_anywhere_loses_no_line(lines: list[str], data: st.DataObject) -> None:
    read: list[str] = []
    for line in lines:
        places = st.integers(0, len(line))
        cuts = sorted(data.draw(st.sets(places, max_size=3)) | {0, len(line)})
        read.extend(part for a, b in pairwise(cuts) if (part := line[a:b].strip()))
    assert compare(read, required=lines).recall == 1.0


@given(LINES, st.data())
def test_joining_readings_and_dropping_spaces_loses_no_line(lines: list[str], data: st.DataObject) -> None:
    text = "".join(line + data.draw(st.sampled_from(["", " "])) for line in lines)
    read = "".join(char for char in text if char != " " or data.draw(st.booleans()))
    assert compare([read], required=lines).recall == 1.0


@given(LINES, st.data())
def test_a_lost_character_is_always_a_near_miss(lines: list[str], data: st.DataObject) -> None:
    line = lines[0]
    at = data.draw(st.sampled_from([position for position, char in enumerate(line) if char != " "]))
    broken = line[:at] + line[at + 1 :]
    result = compare([broken], required=[line])
    assert result.passed is False
    assert result.missing[0].edits == 1
    assert result.missing[0].nearest is not None
    assert result.missing[0].differences[0].startswith(f"missing {line[at]} at ")


@given(LINES, st.lists(st.text(alphabet="PQRSTUVWXYZ 0123456789-!", max_size=12), max_size=4), st.randoms())
def test_more_text_breaks_no_line(lines: list[str], more: list[str], random: object) -> None:
    read = [*lines, *more]
    random.shuffle(read)  # type: ignore[attr-defined]
    assert compare(read, required=lines).recall == 1.0


@given(LINES)
def test_the_exact_copy_passes_with_and_without_folding(lines: list[str]) -> None:
    words = {word for line in lines for word in line.split()}
    assume(not any(a != b and a in b for a in words for b in words))
    for fold in (True, False):
        result = compare(lines, fold=fold, required=lines, extra="forbid")
        assert (result.passed, result.cer, result.extra) == (True, 0.0, ())


@given(st.text(alphabet="AB ", max_size=12), st.text(alphabet="AB", min_size=1, max_size=6))
def test_the_nearest_reading_has_the_fewest_edits_of_all_stretches(read: str, line: str) -> None:
    def distance(single: str, other: str) -> int:
        if not single or not other:
            return len(single) + len(other)
        changed = distance(single[1:], other[1:]) + (single[0] != other[0])
        return changed if single[0] == other[0] else min(changed, *(1 + distance(*p) for p in
            ((single[1:], other), (single, other[1:]))))  # fmt: skip

    words = read.split()
    stretches = ["".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1)]
    assume(line not in stretches)
    result = compare([read], fold=False, required=[line])
    assume(result.missing)
    assert result.missing[0].edits == min([len(line), *(distance(line, item) for item in stretches)])


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"])))
def test_any_text_matches_itself(text: str) -> None:
    for fold in (True, False):
        copy = copy_of(text, fold=fold)
        assert len(copy.chars) == len(copy.source) == len(skeleton(copy.chars))
        if copy.chars:
            assert compare([text], fold=fold, required=[text], extra="forbid").passed is True


@given(st.lists(st.text(alphabet="AaOo0Il1 -", max_size=8), max_size=6), st.text(alphabet="AaOo0Il1 -", min_size=1))
def test_scores_keep_their_ranges(read: list[str], line: str) -> None:
    result = compare(read, required=[line], forbidden=["O0"], extra="forbid")
    for rate in (result.recall, result.cer):
        assert rate is None or 0 <= rate <= 1
    if result.passed:
        assert (result.missing, result.forbidden, result.extra, result.unsettled) == ((), (), (), ())
