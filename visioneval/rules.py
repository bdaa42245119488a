"""Verdict rules and gates: parses them and evaluates them on scores. No I/O.

A verdict rule is ``metric``, ``not metric``, ``metric OP number``, ``metric == "word"``, ``metric != "word"``,
``metric in ["word", "word"]`` or ``metric not in [...]``; a gate is ``FN OP number`` with FN one of
``pass_rate``, ``error_rate``, ``unmeasured_rate``, ``refusal_rate``, ``duplicate_rate``, ``mean(metric)``,
``rate(metric)``, ``separation(metric)`` and the quantiles ``p1(metric)`` to ``p99(metric)``. A metric name with other
characters than letters, digits, ``_``, ``-`` and ``.`` needs quotes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Literal

from visioneval.types import Metric, Score, Verdict, plain_word

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_OPPOSITE = {">=": "<", "<": ">=", "<=": ">", ">": "<=", "==": "!=", "!=": "=="}
RATES: Mapping[str, str] = {
    "pass_rate": "PASS of PASS and FAIL",
    "error_rate": "ERROR of all cells",
    "unmeasured_rate": "of all cells, those with a failed grader that is not optional, also FAIL",
    "refusal_rate": "refusals of the cells that were generated or refused",
    "duplicate_rate": "near-duplicates of outputs of other cases, of those that a `duplicates` grader compared",
}
"""The functions of a gate that count cells, and what they count."""
OF_METRIC: Mapping[str, str] = {
    "mean(METRIC)": "the mean of a number",
    "rate(METRIC)": "the share of yes of a yes-or-no metric",
    "p1(METRIC)": "a quantile, up to `p99(METRIC)`",
    "separation(METRIC)": "the mean of aligned cells minus that of counter-examples",
}
"""The functions of a gate that are about a metric, for the reference, by their form."""
COUNTING = tuple(RATES)
MEASURING = ("mean", "rate", "separation", *(f"p{percent}" for percent in range(1, 100)))
WEIGHTABLE = ("pass_rate", "mean", "rate")
"""The functions whose value can be weighted by tag."""

_NAME = r"(?:'(?P<single>[^']+)'|\"(?P<double>[^\"]+)\"|(?P<plain>[A-Za-z_][\w.\-]*))"
_NUMBER = r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
_COMPARE = rf"\s*(?P<op>>=|<=|==|!=|>|<)\s*{_NUMBER}"
_WORD = r"(?:'[^']+'|\"[^\"]+\")"
_LIST = rf"\[(?P<words>\s*{_WORD}(?:\s*,\s*{_WORD})*\s*,?\s*)\]"
_WORDS = rf"\s*(?P<equal>==|!=)\s*(?P<word>{_WORD})|\s+(?P<in>(?:not\s+)?in)\s*{_LIST}"
_RULE = re.compile(rf"\s*(?P<not>not\s+)?{_NAME}(?:{_COMPARE}|{_WORDS})?\s*", re.ASCII)
_GATE = re.compile(rf"\s*(?P<fn>[a-z_]+[0-9]{{0,2}})\s*(?P<call>\(\s*{_NAME}\s*\))?{_COMPARE}\s*", re.ASCII)
_FUNCTIONS = (*COUNTING, "mean", "rate", "separation")
_SLIPS = {
    "=>": ">=",
    "=<": "<=",
    "\u2265": ">=",
    "\u2264": "<=",
    "\u2260": "!=",
    r"(?<![<>=!])=(?!=)": "==",
    "<>": "!=",
    r"^\s*not\s+(\S+)\s*==\s*(['\"]?[A-Za-z_].*)$": r"\1 != \2",
    r"^\s*not\s+(\S+)\s*!=\s*(['\"]?[A-Za-z_].*)$": r"\1 == \2",
    r"^\s*(\S+)\s*==\s*(?:yes|true)\s*$": r"\1",
    r"^\s*(\S+)\s*==\s*(?:no|false)\s*$": r"not \1",
    r"^\s*([\w.\-]+)\s*(==|!=)\s*([A-Za-z_][\w-]*)\s*$": r'\1 \2 "\3"',
}
"""What people write in rules and gates, and what it means here."""
_IN = re.compile(r"\s*(not\s+)?(\S+)\s+(not\s+)?in\b\s*(?:\[([^][()]+)\]|\(([^][()]+)\)|([^][()]+))\s*", re.IGNORECASE)
"""A rule with a list of words that may lack quotes or brackets."""
_YES_OR_NO = re.compile(r"\s*([\w.\-]+)\s*==?\s*(yes|true|no|false)\s*")

NOISE = 1e-9
"""Values closer than this, relative to the threshold if it is above 1, are equal: sums of decimals are not exact."""

MAX_RULE = 1000
"""Maximum length of a rule or gate, in characters."""

Outcome = Literal["passed", "failed", "unmeasured", "skipped"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One verdict rule. ``op`` is ``None`` for a yes/no metric, which must equal ``expected``, and for a metric of
    ``words``, which must be one of them, or none of them if not ``expected``."""

    text: str
    metric: str
    op: str | None = None
    threshold: float = 0.0
    expected: bool = True
    words: tuple[str, ...] = ()

    @property
    def reads(self) -> Literal["bool", "number", "one_of"]:
        """The type of the metric that it is a rule for."""
        return "one_of" if self.words else "bool" if self.op is None else "number"

    def outcome(self, scores: Mapping[str, Score]) -> Outcome:
        """Evaluates the rule on the scores of a cell."""
        if self.metric not in scores:
            return "skipped"
        score = scores[self.metric]
        if score is None:
            return "unmeasured"
        if isinstance(score, str):
            if not self.words:
                return "unmeasured"
            is_met = (score in self.words) is self.expected
        elif self.words:
            return "unmeasured"
        else:
            is_met = bool(score) is self.expected if self.op is None else is_true(score, self.op, self.threshold)
        return "passed" if is_met else "failed"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate over many cells."""

    text: str
    fn: str
    metric: str | None
    op: str
    threshold: float

    @property
    def is_about_errors(self) -> bool:
        """Whether a failed gate means that the run is incomplete rather than that a model is bad."""
        return self.fn in ("error_rate", "unmeasured_rate")

    @property
    def counts(self) -> bool:
        """Whether it is about a number of cells, not about a metric."""
        return self.fn in COUNTING

    @property
    def forbids_errors(self) -> bool:
        """Whether a single error fails it, whatever the other cells are."""
        return self.is_about_errors and self.op in ("==", "<=") and self.threshold == 0

    @property
    def is_minimum(self) -> bool:
        """Whether the value has to be at least, or above, the threshold."""
        return self.op in (">=", ">")

    @property
    def has_side(self) -> bool:
        """Whether it limits the value on one side."""
        return self.op not in ("==", "!=")

    @property
    def quantile(self) -> float | None:
        """The quantile that it is about, from 0.01 to 0.99; ``None`` for another function."""
        return int(self.fn[1:]) / 100 if self.fn[1:].isdigit() else None


@lru_cache(maxsize=4096)
def parse_rule(text: str) -> Rule:
    """Parses a verdict rule. Raises ``ValueError`` with the expected form."""
    _check_length(text, "rule")
    match = _RULE.fullmatch(text)
    compares = match is not None and any(match[group] for group in ("op", "equal", "in"))
    if match is None or (match["not"] and compares) or not _finite(match["number"]):
        suggestion = _suggestion(text, _RULE)
        if suggestion is not None:
            answer = _YES_OR_NO.fullmatch(text)
            of_word = f'{answer[1]} == "{answer[2]}"' if answer else ""
            word = f", or {of_word!r} if that is one word of a list" if answer else ""
            raise ValueError(f"{text!r} is not a valid rule: write {suggestion!r}{word}")
        raise ValueError(
            f"{text!r} is not a valid rule: write 'METRIC' or 'not METRIC' for a yes/no metric, 'METRIC OP NUMBER'"
            ' with OP one of >= > <= < == !=, or \'METRIC == "WORD"\' or \'METRIC in ["WORD", "WORD"]\' (put names with'
            " special characters in quotes)"
        )
    metric = match["single"] or match["double"] or match["plain"]
    if match["equal"] or match["in"]:
        words = tuple(plain_word(word[1:-1]) for word in re.findall(_WORD, match["word"] or match["words"]))
        return Rule(text.strip(), metric, expected=match["equal"] == "==" or match["in"] == "in", words=words)
    if match["op"] is None:
        return Rule(text.strip(), metric, expected=not match["not"])
    return Rule(text.strip(), metric, match["op"], float(match["number"]))


@lru_cache(maxsize=4096)
def parse_gate(text: str) -> Gate:
    """Parses a gate. Raises ``ValueError`` with the expected form."""
    _check_length(text, "gate")
    match = _GATE.fullmatch(text)
    fn = match["fn"] if match else None
    if match is None or fn not in (MEASURING if match["call"] else COUNTING) or not _finite(match["number"]):
        suggestion = _suggestion(text, _GATE)
        if suggestion is not None:
            raise ValueError(f"{text!r} is not a valid gate: write {suggestion!r}")
        raise ValueError(
            f"{text!r} is not a valid gate: write 'FN OP NUMBER' with FN one of {', '.join(COUNTING)},"
            " mean(METRIC), rate(METRIC), separation(METRIC) or a quantile such as p95(METRIC),"
            " and OP one of >= > <= < == !="
        )
    metric = match["single"] or match["double"] or match["plain"]
    return Gate(text.strip(), match["fn"], metric, match["op"], float(match["number"]))


def _suggestion(text: str, form: re.Pattern[str]) -> str | None:
    """What was probably meant, for usual slips: another operator, a percentage, yes or no, a misspelled function."""
    original = text
    for pattern, replacement in _SLIPS.items():
        text = re.sub(pattern, replacement, text)
    if form is _RULE and (listed := _IN.fullmatch(text)):
        text = _with_list(listed) or text
    text = re.sub(r"(\d+(?:\.\d+)?)\s*%", lambda share: f"{float(share[1]) / 100:.12g}", text)
    if form is _GATE and (word := re.match(r"[A-Za-z_]+[0-9]*", text)) and word[0] not in (*COUNTING, *MEASURING):
        matches = get_close_matches(word[0].lower(), _FUNCTIONS, n=1)
        if not matches:
            return None
        text = text.replace(word[0], matches[0], 1)
    return text if text != original and form.fullmatch(text) else None


def _with_list(listed: re.Match[str]) -> str | None:
    """A rule with its words in quotes and brackets; ``None`` if it is not clear which words are meant."""
    negated, name, inner, *bodies = listed.groups()
    words = [part.strip() for part in next(filter(None, bodies)).split(",") if part.strip()]
    if not words or any(re.search("['\"]", word) and not re.fullmatch(_WORD, word) for word in words):
        return None
    quoted = ", ".join(word if re.fullmatch(_WORD, word) else f'"{word}"' for word in words)
    return f"{name} {'not in' if bool(negated) is not bool(inner) else 'in'} [{quoted}]"


def _check_length(text: str, kind: str) -> None:
    if len(text) > MAX_RULE:
        raise ValueError(f"the {kind} has {len(text):,} characters, over the limit of {MAX_RULE:,}")


def _finite(number: str | None) -> bool:
    return number is None or math.isfinite(float(number))


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """The verdict of a cell, with the text of its rules by outcome."""

    verdict: Verdict
    failed: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()


def judge_cell(
    rules: Sequence[tuple[Rule, bool]],
    scores: Mapping[str, Score],
    *,
    failed_graders: Collection[str] = (),
    optional_metrics: Collection[str] = (),
    is_ungraded: bool = False,
) -> CellVerdict:
    """Applies ``(rule, warn_only)`` pairs to the scores of a generated cell.

    Any failed rule makes the cell a FAIL. Otherwise, an unmeasured rule, a failed grader, or no rule that could be
    evaluated, makes it an ERROR. A rule on an unmeasured metric of ``optional_metrics`` is skipped. Without graders and
    rules, there is nothing to decide.
    """
    if is_ungraded:
        return CellVerdict(Verdict.NONE)
    rules_by_outcome: dict[tuple[bool, Outcome], list[str]] = {}
    for rule, warn in rules:
        outcome = rule.outcome(scores)
        if outcome == "unmeasured" and rule.metric in optional_metrics:
            outcome = "skipped"
        rules_by_outcome.setdefault((warn, outcome), []).append(rule.text)
    failed = rules_by_outcome.get((False, "failed"), [])
    unmeasured = rules_by_outcome.get((False, "unmeasured"), [])
    if failed:
        verdict = Verdict.FAIL
    elif unmeasured or failed_graders or (False, "passed") not in rules_by_outcome:
        verdict = Verdict.ERROR
    else:
        verdict = Verdict.PASS
    skipped = rules_by_outcome.get((False, "skipped"), []) + rules_by_outcome.get((True, "skipped"), [])
    warned = rules_by_outcome.get((True, "failed"), [])
    return CellVerdict(verdict, tuple(failed), tuple(warned), tuple(skipped), tuple(unmeasured))


def gate_passes(gate: Gate, value: float | None) -> bool:
    """Whether a value passes the gate."""
    return value is not None and is_true(value, gate.op, gate.threshold)


def is_true(value: float, op: str, threshold: float) -> bool:
    """Compares a value with a threshold, ignoring floating-point noise."""
    return OPERATORS[op](threshold if is_equal(value, threshold) else value, threshold)


def can_fail(rule: Rule, metric: Metric) -> bool:
    """Whether a score in the range, or among the choices, of its metric fails a rule."""
    if rule.words:
        return not metric.choices or any((word in rule.words) is not rule.expected for word in metric.choices)
    return rule.op is None or not is_never_met(metric, _OPPOSITE[rule.op], rule.threshold)


def is_never_met(metric: Metric, op: str, threshold: float) -> bool:
    """Whether no score in the range of its metric meets a comparison."""
    low, high = metric.range or (None, None)
    above = high is not None and (threshold > high if op in (">=", "==") else op == ">" and threshold >= high)
    below = low is not None and (threshold < low if op in ("<=", "==") else op == "<" and threshold <= low)
    return metric.type == "number" and (above or below)


def is_equal(value: float, threshold: float) -> bool:
    """Whether a value differs from a threshold by no more than floating-point noise."""
    return abs(value - threshold) <= NOISE * max(1.0, abs(threshold))


def show_beside(value: float, threshold: float, digits: int = 4, style: Literal["g", "f"] = "g") -> str:
    """``value`` with enough digits, at least ``digits``, to show on which side of ``threshold`` it lies.

    ``digits`` are significant digits, or decimals in the style ``f``.
    """

    def side(number: float) -> tuple[bool, bool]:
        return number > threshold, number < threshold

    if is_equal(value, threshold):
        value = threshold
    texts = (f"{value:.{count}{style}}" for count in range(digits, 20))
    return next((text for text in texts if side(float(text)) == side(value)), repr(value))


def show_failed(rule: str, score: Score) -> str:
    """A failed rule over a number or a word as what is true of it, such as ``hierarchy 2 < 3`` or ``style is photo, not
    flat``; empty for another rule."""
    parsed = parse_rule(rule)
    if parsed.words and isinstance(score, str):
        required = f", not {' or '.join(parsed.words)}" if parsed.expected else ""
        return f"{parsed.metric} is {score}{required}"
    if parsed.op is None or score is None or isinstance(score, (bool, str)):
        return ""
    limit = parsed.text.rpartition(parsed.op)[2].strip()
    return f"{parsed.metric} {show_score(score, parsed.threshold)} {_OPPOSITE[parsed.op]} {limit}"


def show_score(score: Score, threshold: float | None = None) -> str:
    """A score in a table: ``yes``, ``no``, a word, a number, or ``not measured``."""
    if score is None:
        return "not measured"
    if isinstance(score, bool):
        return ("no", "yes")[score]
    if isinstance(score, str):
        return score
    return f"{score:.4g}" if threshold is None else show_beside(score, threshold)
