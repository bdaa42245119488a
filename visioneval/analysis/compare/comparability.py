"""Why numbers of two runs may not be comparable: metrics that mean two things, cells that were graded differently, and
what B excuses and A does not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from visioneval.analysis.cells import Cell
from visioneval.analysis.compare.differences import PASS_RATE
from visioneval.analysis.compare.pairing import CellPair
from visioneval.analysis.sides import Side
from visioneval.records.model import Fingerprint, key_parts
from visioneval.rules import parse_rule
from visioneval.suite.metrics import ChangedMeaning, Meaning, describe_meaning, same_meaning
from visioneval.types import MUST_PASS, Metric, Verdict

_PARTS = {"rules": "verdict rules", "case": "prompt, criteria, expect, tags or metadata of the case"}
_PARTS |= {"optional": "optional graders", "metrics": "computed metrics"}
_PARTS |= {"images": "input images", "masks": "masks", "reference": "reference image"}
_HASH_LENGTH = 12
_EXCLUDES = {">=": (">",), ">": (">",), "<=": ("<",), "<": ("<",), "==": ("<", ">"), "!=": ("!=",)}
"""What each operator excludes: values below, above, or equal to the threshold. A yes/no rule excludes no or yes, and
a rule over words some of them."""


def changed_meanings(a: Side, b: Side) -> Iterator[ChangedMeaning]:
    """The metrics of both sides that mean two things. Of a file of records, only types and values are known."""
    for name, before in a.metrics.items():
        after = b.metrics.get(name)
        if after is None:
            continue
        if isinstance(before, Meaning) and isinstance(after, Meaning):
            is_same = same_meaning(before, after)
        else:
            is_same = before.type == after.type and _fits(a, name, after) and _fits(b, name, before)
            is_same = is_same and _has_words(before, after)
        if not is_same:
            yield ChangedMeaning(name, _describe(a, name, after), _describe(b, name, before))


def _has_words(before: Metric, after: Metric) -> bool:
    """Whether the words that records use are choices of the other side's metric. Records alone do not know more."""
    known, used = (before, after) if isinstance(before, Meaning) else (after, before)
    return not isinstance(known, Meaning) or set(used.choices) <= set(known.choices)


def _fits(side: Side, name: str, metric: Metric) -> bool:
    """Whether the values of a file of records are in the range of a metric."""
    low, high = metric.range or (None, None)
    lowest, highest = side.values.get(name, (low, high))
    return not (low is not None and lowest is not None and lowest < low) and not (
        high is not None and highest is not None and highest > high
    )


def _describe(side: Side, name: str, other: Metric) -> str:
    if name in side.values:
        return "number with values from {:g} to {:g}".format(*side.values[name])
    return describe_meaning(side.metrics[name], other)


@dataclass(slots=True)
class GradingDifference:
    """A metric's grading differs in ``what`` in ``pairs`` pairs. ``a`` and ``b`` are the values of one pair."""

    metric: str
    what: str
    a: str
    b: str
    pairs: int = 0


class Gradings:
    """Compares how the cells of each pair were graded."""

    def __init__(self) -> None:
        """No pairs."""
        self._parts: dict[str, GradingDifference] = {}
        """By the part of grading keys that differs, of the parts that do not belong to a grader."""
        self._graders: dict[str, dict[str, GradingDifference]] = {}
        """By grader, and by what differs in its fingerprints."""

    def add(self, pair: CellPair) -> None:
        """Compares a pair."""
        a, b = pair.a, pair.b
        if a.grade_key != b.grade_key and a.grade_key and b.grade_key:
            before, after = key_parts(a.grade_key), key_parts(b.grade_key)
            for part, what in _PARTS.items():
                if before.get(part) != after.get(part):
                    new = GradingDifference(PASS_RATE, what, before.get(part, "none"), after.get(part, "none"))
                    self._parts.setdefault(part, new).pairs += 1
        fingerprints = {grader.key: grader.fingerprint for grader in a.graders}
        for grader in b.graders:
            first = fingerprints.get(grader.key)
            if first is not None and first != grader.fingerprint:
                differences = self._graders.setdefault(grader.key, {})
                for what, value_a, value_b in _changed_fields(first, grader.fingerprint):
                    new = GradingDifference(grader.key, what, value_a, value_b)
                    differences.setdefault(what, new).pairs += 1

    def differences(self, metrics: Sequence[str], a: Side, b: Side) -> Iterator[GradingDifference]:
        """The differences by metric. Verdict rules and case data are listed under ``pass_rate``."""
        yield from (self._parts[part] for part in _PARTS if part in self._parts)
        writers = {**a.writers, **b.writers}
        for metric in metrics:
            is_computed = metric in a.sources or metric in b.sources
            sources = (*a.sources.get(metric, ()), *b.sources.get(metric, ())) if is_computed else (metric,)
            for key in dict.fromkeys(writers.get(name, name.partition(".")[0]) for name in sources):
                for difference in self._graders.get(key, {}).values():
                    yield replace(difference, metric=metric)


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


@dataclass(frozen=True, slots=True)
class Excuse:
    """What B excuses in some cells, and the cases of these cells."""

    what: str
    cells: int
    cases: tuple[str, ...]


class Excuses:
    """Finds pairs that could fail in A for a reason that cannot fail them in B."""

    def __init__(self, a: Side, b: Side) -> None:
        """No pairs of these sides."""
        self._rules_of_a, self._rules_of_b = a.rules_of, b.rules_of
        self._cases: dict[str, list[str]] = {}
        """By what is excused: the case of each cell."""
        self._ungraded: dict[str, list[str]] = {}
        """By grader: the cases of cells that it grades in A and not in B."""
        self._graders_of_b: set[str] = set()

    def add(self, pair: CellPair) -> None:
        """Compares a pair."""
        self._graders_of_b.update(grader.key for grader in pair.b.graders)
        for what in self._excused(pair.a, pair.b):
            self._cases.setdefault(what, []).append(pair.b.test_id)

    def _excused(self, a: Cell, b: Cell) -> Iterator[str]:
        if b.flaky and not a.flaky:
            yield "flaky"
        if MUST_PASS in a.tags and MUST_PASS not in b.tags:
            yield f"not tagged {MUST_PASS}"
        if a.grade_key and a.grade_key == b.grade_key:
            return  # the same rules and graders
        if (rules_of_b := self._rules_of_b(b.test_id, b.model_label)) is not None:
            rules_of_a = self._rules_of_a(a.test_id, a.model_label)  # records without a suite show those that failed
            for rule in dropped_rules(a.failed_rules if rules_of_a is None else rules_of_a, rules_of_b):
                yield f"not failed by the rule {rule!r}"
        if b.graders or b.verdict is Verdict.PASS:  # else nothing was generated that could be graded
            yield from self._ungraded_or_optional(a, b)

    def _ungraded_or_optional(self, a: Cell, b: Cell) -> Iterator[str]:
        in_b = {grader.key: grader for grader in b.graders}
        for grader in a.graders:
            if grader.is_optional or grader.never_asked:
                continue  # one that was never asked is not optional in the record, whatever the suite of A says
            if grader.key not in in_b:
                self._ungraded.setdefault(grader.key, []).append(b.test_id)
            elif in_b[grader.key].is_optional:
                yield f"not in need of the grader {grader.key!r}, which is optional"

    def result(self) -> Iterator[Excuse]:
        """The excuses. A grader that B has nowhere excuses nothing: its metrics are missing, or another writes them."""
        ungraded = {
            f"not graded by {key!r}": cases for key, cases in self._ungraded.items() if key in self._graders_of_b
        }
        for what, cases in {**self._cases, **ungraded}.items():
            yield Excuse(what, len(cases), tuple(dict.fromkeys(cases)))


@lru_cache(maxsize=1024)
def dropped_rules(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """The rules of ``before`` that neither ``after`` has, nor one with another threshold in their stead."""
    rules_after = set(after)
    replacing = {value for rule in rules_after.difference(before) for value in _excluded(rule)}
    return tuple(rule for rule in before if rule not in rules_after and not replacing.issuperset(_excluded(rule)))


def _excluded(text: str) -> Iterator[tuple[str, str]]:
    """The metric of a rule, with each kind of value that the rule excludes."""
    rule = parse_rule(text)
    if rule.words:
        return iter([(rule.metric, "words")])
    excluded = (("no",) if rule.expected else ("yes",)) if rule.op is None else _EXCLUDES[rule.op]
    return ((rule.metric, kind) for kind in excluded)
