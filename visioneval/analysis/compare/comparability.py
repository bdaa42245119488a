"""Differences in how two runs were graded, which may explain differences in their scores. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from visioneval.analysis.compare.differences import PASS_RATE
from visioneval.analysis.compare.pairing import CellPair
from visioneval.analysis.sides import Side
from visioneval.records.model import Fingerprint, key_parts

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


class GradingTally:
    """Counts how pairs of cells were graded."""

    def __init__(self) -> None:
        """No pairs."""
        self._changed: Counter[str] = Counter()
        """Pairs by the part of their grading keys that differs, of those that do not belong to a grader."""
        self._examples: dict[str, tuple[str, str]] = {}
        self._times: Counter[tuple[str, int, int]] = Counter()
        """Pairs by grader and identity of its fingerprints, as equal fingerprints are shared."""
        self._fingerprints: dict[int, Fingerprint] = {}

    def add(self, pair: CellPair) -> None:
        """Counts a pair."""
        a, b = pair.a, pair.b
        if a.grade_key != b.grade_key and a.grade_key and b.grade_key:
            self._add_keys(a.grade_key, b.grade_key)
        fingerprints = {grader.key: grader.fingerprint for grader in a.graders}
        for grader in b.graders:
            before = fingerprints.get(grader.key)
            if before is not None and before is not grader.fingerprint:
                self._add_fingerprints(grader.key, before, grader.fingerprint)

    def _add_keys(self, a: str, b: str) -> None:
        before, after = key_parts(a), key_parts(b)
        for part in _PARTS:
            if before.get(part) != after.get(part):
                self._changed[part] += 1
                self._examples.setdefault(part, (before.get(part, "none"), after.get(part, "none")))

    def _add_fingerprints(self, key: str, a: Fingerprint, b: Fingerprint) -> None:
        self._fingerprints[id(a)], self._fingerprints[id(b)] = a, b
        self._times[key, id(a), id(b)] += 1

    def differences(self, metrics: Sequence[str], a: Side, b: Side) -> tuple[GradingDifference, ...]:
        """The differences by metric. Verdict rules and case data are listed under ``pass_rate``."""
        sources = {name: (*a.sources.get(name, ()), *b.sources.get(name, ())) for name in {**a.sources, **b.sources}}
        return (*self._of_keys(), *self._of_graders(metrics, {**a.writers, **b.writers}, sources))

    def _of_keys(self) -> Iterator[GradingDifference]:
        return (
            GradingDifference(PASS_RATE, what, *self._examples[part], self._changed[part])
            for part, what in _PARTS.items()
            if self._changed[part]
        )

    def _of_graders(
        self, metrics: Sequence[str], writers: Mapping[str, str], sources: Mapping[str, Sequence[str]]
    ) -> Iterator[GradingDifference]:
        by_grader: dict[str, dict[str, tuple[str, str, int]]] = {}
        for (key, before, after), times in self._times.items():
            for what, a, b in _changed_fields(self._fingerprints[before], self._fingerprints[after]):
                examples = by_grader.setdefault(key, {})
                first_a, first_b, count = examples.get(what, (a, b, 0))
                examples[what] = first_a, first_b, count + times
        for metric in metrics:
            keys = dict.fromkeys(writers.get(name, name.partition(".")[0]) for name in sources.get(metric, (metric,)))
            for key in keys:
                for what, (a, b, times) in by_grader.get(key, {}).items():
                    yield GradingDifference(metric, what, a, b, times)


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
