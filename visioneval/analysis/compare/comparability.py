"""Differences in how two runs were graded, which may explain differences in their scores. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from visioneval.analysis.cells import Side
from visioneval.analysis.compare.differences import PASS_RATE
from visioneval.analysis.compare.pairing import CellPair
from visioneval.records.keys import key_parts
from visioneval.records.model import Fingerprint

_PARTS = {"rules": "verdict rules", "case": "prompt, criteria, expect, tags or metadata of the case"}
_PARTS |= {"optional": "optional graders", "metrics": "computed metrics"}
_PARTS |= {"images": "input images", "masks": "masks", "reference": "reference image"}
_HASH_LENGTH = 12


@dataclass(frozen=True, slots=True)
class GradingDifference:
    """A metric's grading differs in ``what`` in ``pairs`` pairs. ``a`` and ``b`` are the values of one pair."""

    metric: str
    what: str
    a: str
    b: str
    pairs: int


def grading_differences(
    metrics: Sequence[str], pairs: Sequence[CellPair], a: Side, b: Side
) -> tuple[GradingDifference, ...]:
    """Finds grading differences by metric. Verdict rules and case data are listed under ``pass_rate``."""
    sources = {name: (*a.sources.get(name, ()), *b.sources.get(name, ())) for name in {**a.sources, **b.sources}}
    return (*_key_differences(pairs), *_grader_differences(metrics, pairs, {**a.writers, **b.writers}, sources))


def _key_differences(pairs: Sequence[CellPair]) -> Iterator[GradingDifference]:
    """Compares the parts of the grading keys that do not belong to a grader."""
    changed: Counter[str] = Counter()
    example: dict[str, tuple[str, str]] = {}
    for pair in pairs:
        if pair.a.grade_key != pair.b.grade_key and pair.a.grade_key and pair.b.grade_key:
            before, after = key_parts(pair.a.grade_key), key_parts(pair.b.grade_key)
            for part in _PARTS:
                if before.get(part) != after.get(part):
                    changed[part] += 1
                    example.setdefault(part, (before.get(part, "none"), after.get(part, "none")))
    return (
        GradingDifference(PASS_RATE, what, *example[part], changed[part])
        for part, what in _PARTS.items()
        if changed[part]
    )


def _grader_differences(
    metrics: Sequence[str],
    pairs: Sequence[CellPair],
    writers: Mapping[str, str],
    sources: Mapping[str, Sequence[str]],
) -> Iterator[GradingDifference]:
    by_grader: dict[str, dict[str, tuple[str, str, int]]] = {}
    for (key, before, after), times in _fingerprint_pairs(pairs):
        for what, a, b in _changed_fields(before, after):
            examples = by_grader.setdefault(key, {})
            first_a, first_b, count = examples.get(what, (a, b, 0))
            examples[what] = first_a, first_b, count + times
    for metric in metrics:
        keys = dict.fromkeys(writers.get(name, name.partition(".")[0]) for name in sources.get(metric, (metric,)))
        for key in keys:
            for what, (a, b, times) in by_grader.get(key, {}).items():
                yield GradingDifference(metric, what, a, b, times)


def _fingerprint_pairs(pairs: Sequence[CellPair]) -> Iterator[tuple[tuple[str, Fingerprint, Fingerprint], int]]:
    """Counts the pairs of fingerprints of each grader. Compares by identity, as equal fingerprints are shared."""
    times: Counter[tuple[str, int, int]] = Counter()
    by_id: dict[int, Fingerprint] = {}
    for pair in pairs:
        before = {grader.key: grader.fingerprint for grader in pair.a.graders}
        for grader in pair.b.graders:
            earlier = before.get(grader.key)
            if earlier is not None:
                by_id[id(earlier)], by_id[id(grader.fingerprint)] = earlier, grader.fingerprint
                times[grader.key, id(earlier), id(grader.fingerprint)] += 1
    for (key, a, b), count in times.items():
        yield (key, by_id[a], by_id[b]), count


def _changed_fields(before: Fingerprint, after: Fingerprint) -> Iterator[tuple[str, str, str]]:
    """Compares versions, and fields that both fingerprints have. A judge that only one side asked is no difference."""
    fields = (
        ("version", before.version or "none", after.version or "none"),
        ("judge model", before.judge_model, after.judge_model),
        ("template", _short_hash(before.template_sha256), _short_hash(after.template_sha256)),
        ("schema", _short_hash(before.schema_sha256), _short_hash(after.schema_sha256)),
        ("config", _short_hash(before.config_sha256), _short_hash(after.config_sha256)),
    )
    yield from ((what, a, b) for what, a, b in fields if a and b and a != b)
    tools = before.tool_versions
    yield from (
        (f"{name} version", tools[name], b) for name, b in after.tool_versions.items() if tools.get(name, b) != b
    )


def _short_hash(digest: str | None) -> str:
    return (digest or "")[:_HASH_LENGTH]
