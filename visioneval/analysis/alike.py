"""Where two runs were not graded alike, so that a difference may be the graders' and not the pictures'. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from visioneval.analysis.cells import Mark, Side
from visioneval.analysis.differences import PASS_RATE
from visioneval.analysis.pairing import Pair

_PARTS = {"rules": "verdict rules", "case": "prompt, criteria, expect, tags or metadata of the case"}
_PARTS |= {"images": "input images", "masks": "masks", "reference": "reference picture"}
_SHOWN_HASH = 12


@dataclass(frozen=True, slots=True)
class Unlike:
    """``what`` differs between A and B for a metric, in ``pairs`` pairs; ``a`` and ``b`` are an example."""

    metric: str
    what: str
    a: str
    b: str
    pairs: int


def unlike_metrics(metrics: Sequence[str], pairs: Sequence[Pair], a: Side, b: Side) -> tuple[Unlike, ...]:
    """What was not graded alike, by metric; the verdict rules stand under ``pass_rate``."""
    return (*_unlike_parts(pairs), *_unlike_marks(metrics, pairs, {**a.writers, **b.writers}))


def _unlike_parts(pairs: Sequence[Pair]) -> Iterator[Unlike]:
    """By the parts of the two grading keys that are not the graders' own."""
    changed: Counter[str] = Counter()
    example: dict[str, tuple[str, str]] = {}
    for pair in pairs:
        if pair.a.grade_key != pair.b.grade_key and pair.a.grade_key and pair.b.grade_key:
            before, after = _words(pair.a.grade_key), _words(pair.b.grade_key)
            for part in _PARTS:
                if before.get(part) != after.get(part):
                    changed[part] += 1
                    example.setdefault(part, (before.get(part, "none"), after.get(part, "none")))
    return (Unlike(PASS_RATE, what, *example[part], changed[part]) for part, what in _PARTS.items() if changed[part])


def _words(key: str) -> dict[str, str]:
    return {name: value for name, _, value in (word.rpartition(":") for word in key.split())}


def _unlike_marks(metrics: Sequence[str], pairs: Sequence[Pair], writers: Mapping[str, str]) -> Iterator[Unlike]:
    kinds = Counter((pair.a.marks, pair.b.marks) for pair in pairs if pair.a.marks != pair.b.marks)
    by_grader: dict[str, dict[str, tuple[str, str, int]]] = {}
    for (before, after), times in kinds.items():
        known = {mark.key: mark for mark in before}
        for mark in after:
            if mark.key in known:
                _count(known[mark.key], mark, times, by_grader.setdefault(mark.key, {}))
    for metric in metrics:
        found = by_grader.get(writers.get(metric, metric.partition(".")[0]), {})
        for what, (a, b, times) in found.items():
            yield Unlike(metric, what, a, b, times)


def _count(before: Mark, after: Mark, times: int, found: dict[str, tuple[str, str, int]]) -> None:
    for what, a, b in _differing(before, after):
        first_a, first_b, so_far = found.get(what, (a, b, 0))
        found[what] = first_a, first_b, so_far + times


def _differing(before: Mark, after: Mark) -> Iterator[tuple[str, str, str]]:
    """What both sides name and name differently: a judge that one side did not have to ask is no difference."""
    told = (
        ("judge model", before.judge_model, after.judge_model),
        ("template", _short(before.template), _short(after.template)),
        ("schema", _short(before.schema), _short(after.schema)),
        ("config", _short(before.config), _short(after.config)),
    )
    yield from ((what, a, b) for what, a, b in told if a and b and a != b)
    tools = dict(before.tools)
    yield from ((f"{name} version", tools[name], b) for name, b in after.tools if tools.get(name, b) != b)


def _short(digest: str | None) -> str:
    return (digest or "")[:_SHOWN_HASH]
