"""Reads the cells of a comparison from records, in half the time that checking whole records takes.

An ordinary line is parsed once and only the fields of ``Cell`` are looked at. Values that many cells share are checked
when they first occur. Any line with a surprise is checked in full, so that the same lines are accepted or refused, and
with the same message, as by ``Cell`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from visioneval.analysis.cells import Cell, CellGrader, CellJudge
from visioneval.records.fields import ModelLabel, RuleText
from visioneval.records.files.lines import is_current, parse_line
from visioneval.records.files.untrusted_json import has_long_number
from visioneval.records.model import Fingerprint
from visioneval.suite.cases.case import CaseId
from visioneval.types import MAX_NUMBER, Score, Verdict

_CELL: TypeAdapter[Cell] = TypeAdapter(Cell)
_FINGERPRINT: TypeAdapter[Fingerprint] = TypeAdapter(Fingerprint)
_CASE: TypeAdapter[str] = TypeAdapter(CaseId)
_LABEL: TypeAdapter[str] = TypeAdapter(ModelLabel)
_RULES: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[RuleText, ...])
_VERDICTS = {verdict.value: verdict for verdict in Verdict}
_MOST_SAMPLES = 1_000_000
_EMPTY: list[Any] = []
_NONE: dict[str, Any] = {}
_LONGEST_PATH = 4096


class _SurpriseError(Exception):
    """A value that may be valid, but is not of the usual form."""


class CellReader:
    """Reads lines of records. Equal values of its cells are the same objects, to save memory."""

    def __init__(self) -> None:
        """Has seen no values."""
        self._cases: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._rules: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._texts: dict[str, str] = {}
        self._lists: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._fingerprints: dict[bytes, Fingerprint] = {}
        self._equal_fingerprints: dict[tuple[Any, ...], Fingerprint] = {}

    def read(self, line: bytes, where: str) -> Cell | None:
        """The cell of a line; ``None`` for a truncated last line. Raises the errors of ``parse_line``."""
        if is_current(line) and not has_long_number(line):
            try:
                return self._cell(orjson.loads(line))
            except (orjson.JSONDecodeError, ValidationError, _SurpriseError, KeyError, TypeError, AttributeError):
                pass  # checked in full
        cell = next(parse_line("record", line, where, _CELL), None)
        return None if cell is None else self._shared(cell)

    def _cell(self, data: Mapping[str, Any]) -> Cell:
        """The cell of a parsed record. Raises any of the errors that ``read`` catches for an unusual one."""
        get = data.get
        sample, graders, attempts, flaky = data["sample_index"], get("graders", _EMPTY), get("attempts"), get("flaky")
        if (
            type(sample) is not int
            or not 0 <= sample <= _MOST_SAMPLES
            or get("error") is not None
            or type(graders) is not list
            or not (flaky is False or flaky is True or "flaky" not in data)
            or not (attempts is None or type(attempts) is int)
        ):
            raise _SurpriseError
        cost, seconds, sent_prompt = get("cost_usd"), get("seconds"), get("sent_prompt")
        texts, lists = self._texts, self._list
        provider = get("provider", "")
        return Cell(
            _checked(data["test_id"], self._cases, _CASE),
            _checked(data["model_label"], self._labels, _LABEL),
            sample,
            _VERDICTS[data["verdict"]],
            _scores(get("scores", _NONE)),
            _reasons(get("reasons", _NONE)),
            _text(get("prompt", "")),
            None if sent_prompt is None else _text(sent_prompt),
            () if (tags := get("tags", _EMPTY)) == _EMPTY else lists(tags),
            bool(flaky),
            () if (unmeasured := get("unmeasured_metrics", _EMPTY)) == _EMPTY else lists(unmeasured),
            () if (rules := get("failed_rules", _EMPTY)) == _EMPTY else _checked(_tuple(rules), self._rules, _RULES),
            () if (failures := get("failure_tags", _EMPTY)) == _EMPTY else lists(failures),
            None,
            _path(get("artifact_path")),
            _text_or_none(get("artifact_sha256")),
            texts[provider] if provider in texts else self._text(provider),
            None if cost is None else _number(cost),
            None if seconds is None else _number(seconds),
            attempts,
            _text(get("grade_key", "")),
            tuple([self._grader(grader) for grader in graders]),
        )

    def _grader(self, data: Mapping[str, Any]) -> CellGrader:
        get, texts = data.get, self._texts
        key, kind, judges, cost = data["key"], data["type"], get("judges", _EMPTY), get("cost_usd")
        unmeasured, optional = get("is_unmeasured", False), get("is_optional", False)
        never_asked = get("never_asked", False)
        if not type(unmeasured) is type(optional) is type(never_asked) is bool or type(judges) is not list:
            raise _SurpriseError
        fingerprint = self._fingerprints.get(orjson.dumps(data["fingerprint"]))
        return CellGrader(
            texts[key] if key in texts else self._text(key),
            texts[kind] if kind in texts else self._text(kind),
            self._fingerprint(data["fingerprint"]) if fingerprint is None else fingerprint,
            None if cost is None else _number(cost),
            unmeasured,
            optional,
            never_asked,
            tuple([CellJudge(self._text(judge["judge"]), _text_or_none(judge.get("model"))) for judge in judges])
            if judges
            else (),
        )

    def _fingerprint(self, data: Any) -> Fingerprint:
        text = orjson.dumps(data)
        if text not in self._fingerprints:
            self._fingerprints[text] = self._same(_FINGERPRINT.validate_json(text))
        return self._fingerprints[text]

    def _same(self, fingerprint: Fingerprint) -> Fingerprint:
        """The first fingerprint that equals this one: a comparison compares them by identity."""
        values = fingerprint.model_dump()
        key = (*(value for name, value in values.items() if name != "tool_versions"), *values["tool_versions"].items())
        return self._equal_fingerprints.setdefault(key, fingerprint)

    def _text(self, value: Any) -> str:
        text = _text(value)
        return self._texts.setdefault(text, text)

    def _list(self, value: Any) -> tuple[str, ...]:
        texts = _tuple(value)
        if texts not in self._lists:
            self._lists[tuple(map(_text, texts))] = texts
        return self._lists[texts]

    def _shared(self, cell: Cell) -> Cell:
        """A cell that was checked in full, with the shared values."""
        return replace(
            cell,
            test_id=self._cases.setdefault(cell.test_id, cell.test_id),
            model_label=self._labels.setdefault(cell.model_label, cell.model_label),
            tags=self._lists.setdefault(cell.tags, cell.tags),
            failed_rules=self._rules.setdefault(cell.failed_rules, cell.failed_rules),
            graders=tuple(replace(grader, fingerprint=self._same(grader.fingerprint)) for grader in cell.graders),
        )


def _checked(value: Any, known: dict[Any, Any], adapter: TypeAdapter[Any]) -> Any:
    """A value that was checked when it first occurred."""
    if value not in known:
        known[value] = adapter.validate_json(orjson.dumps(value))
    return known[value]


def _tuple(value: Any) -> tuple[Any, ...]:
    if type(value) is not list:
        raise _SurpriseError
    return tuple(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _SurpriseError
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _path(value: Any) -> str | None:
    """The usual path of an output."""
    if value is None:
        return None
    usual = type(value) is str and value.startswith("artifacts/") and len(value) <= _LONGEST_PATH
    if not usual or ".." in value or "\\" in value or "\0" in value:
        raise _SurpriseError
    return str(value)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= MAX_NUMBER:
        raise _SurpriseError
    return float(value)


def _scores(value: Any) -> Mapping[str, Score]:
    if type(value) is not dict:
        raise _SurpriseError
    for score in value.values():
        if score is not None and (type(score) not in (bool, int, float) or not -MAX_NUMBER <= score <= MAX_NUMBER):
            raise _SurpriseError
    return value


def _reasons(value: Any) -> Mapping[str, str]:
    if type(value) is not dict:
        raise _SurpriseError
    for reason in value.values():
        if type(reason) is not str:
            raise _SurpriseError
    return value
