"""Exact copy: what local OCR reads in an image, against the lines that it must and must not show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from visioneval.aio import run_in_thread
from visioneval.errors import GraderError, ProviderError
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.text import judge as text_judge
from visioneval.graders.text import ocr
from visioneval.graders.text.alphabet import unreadable
from visioneval.graders.text.config import TextGrader
from visioneval.graders.text.copy_check import CopyCheck, CopyPair, Miss, check
from visioneval.graders.text.copy_match import Reading
from visioneval.judging.ask import OffSchemaError, total_cost, total_usage, words
from visioneval.media.images import load_rgb, room_for
from visioneval.providers.base import Reply
from visioneval.suite.case import ExpectText
from visioneval.types import Score

SHORT = 500
"""Characters that a judge read whose comparison takes less time than it takes to have a thread do it."""


class Text:
    """Grades an image's copy by local OCR, by a judge, or by OCR and then, where that finds a miss, a judge."""

    def __init__(self, config: TextGrader) -> None:
        self._config = config

    async def grade(self, subject: GradingContext) -> Grade:
        """Compares what was read. Raises ``GraderError`` where nothing can read the lines."""
        expected = subject.case.expect.text
        if expected is None:
            return Grade(scores={})
        by_judge = self._config.extract != "ocr"
        if self._config.extract == "judge" or (by_judge and _strange(expected)):
            return await self._by_judge(subject, expected)
        _refuse_unreadable(expected)
        readings = await asyncio.to_thread(_read, subject.generated.path)
        found = await asyncio.to_thread(
            lambda: check(readings, expected, fold=True, min_confidence=self._config.min_confidence)
        )
        told = replace(_grade(self._config, expected, readings, found, "ocr"), tool_versions=ocr.tool_versions())
        if found.passed or not by_judge:
            return told
        settled = await self._by_judge(subject, expected)
        return replace(settled, details={**settled.details, "ocr": told.details}, tool_versions=told.tool_versions)

    async def _by_judge(self, subject: GradingContext, expected: ExpectText) -> Grade:
        """The same comparison, unfolded: a judge can tell a dash from a hyphen."""
        try:
            said = await text_judge.read(subject, self._config)
        except OffSchemaError as error:
            return _unread(self._config, subject, error.replies, str(error))
        except ProviderError as error:
            return _unread(self._config, subject, (), str(error))
        size = sum(len(reading.text) for reading in said.readings)
        found = await run_in_thread(_unfolded, said.readings, expected, when=size > SHORT)
        graded = _grade(self._config, expected, said.readings, found, "judge")
        return replace(
            _with_criteria(graded, self._config.key, said),
            details={**graded.details, **said.details},
            usage=said.usage,
            cost_usd=said.cost_usd,
            judge_model=said.replies[-1].model,
            template_sha256=said.template_sha256,
            schema_sha256=said.schema_sha256,
        )


def _read(path: Path) -> list[Reading]:
    with room_for(path):
        return ocr.read(load_rgb(path))


def _unfolded(readings: Sequence[Reading], expected: ExpectText) -> CopyCheck:
    return check(readings, expected, fold=False, min_confidence=0.0)


def _unread(config: TextGrader, subject: GradingContext, replies: tuple[Reply, ...], why: str) -> Grade:
    """Nothing measured, with what the judge did say."""
    return Grade(
        scores=dict.fromkeys(config.metrics(subject.case)),
        details={"extract": "judge", "replies": words(replies)},
        error=why,
        usage=total_usage(replies),
        cost_usd=total_cost(replies),
        judge_model=replies[-1].model if replies else None,
    )


def _with_criteria(graded: Grade, key: str, said: text_judge.Read) -> Grade:
    """The copy may be right in an image that, as described, does not meet its criteria."""
    if said.criteria_met is not False:
        return graded
    reason = "; ".join(filter(None, [graded.reasons[key], f"criteria not met: {said.reason}"]))
    return replace(graded, scores={**graded.scores, key: False}, reasons={key: reason})


def _strange(expected: ExpectText) -> list[str]:
    """Characters of the expected lines that OCR cannot read."""
    return unreadable("".join((*expected.required, *expected.forbidden, *expected.allowed)))


def _refuse_unreadable(expected: ExpectText) -> None:
    if strange := _strange(expected):
        raise GraderError(f"local OCR cannot read {' '.join(strange[:10])}: use a vision judge, 'extract: judge'")


def _grade(
    config: TextGrader, expected: ExpectText, readings: Sequence[Reading], found: CopyCheck, reader: str
) -> Grade:
    key = config.key
    scores: dict[str, Score] = {key: found.passed}
    if expected.required:
        scores |= {f"{key}.recall": found.recall, f"{key}.cer": found.cer}
    doubts = "; ".join(_doubts(found))
    return Grade(
        scores=scores,
        reasons={key: "; ".join([*_faults(found), *_doubts(found)]) or _praise(expected)},
        details=_details(config, readings, found, reader),
        error=f"OCR cannot settle it: {doubts}" if doubts and None in scores.values() else None,
    )


def _faults(found: CopyCheck) -> Iterator[str]:
    yield from dict.fromkeys(map(_missing, found.missing))
    for pair in found.forbidden:
        yield f'forbidden "{pair.line}" is there' + ("" if pair.read == pair.line else f', read as "{pair.read}"')
    for text in found.extra:
        yield f"extra text: {text}"


def _missing(miss: Miss) -> str:
    text = f'missing "{miss.line}"'
    if miss.want > 1:
        text += f" ({miss.have} of {miss.want} found)"
    if miss.faint is not None:
        return f"{text}: read only at confidence {miss.faint:.2f}, which is too low to count"
    if miss.nearest is None:
        return f"{text}: nothing like it was read"
    return f'{text}: nearest is "{miss.nearest}" ({", ".join(miss.differences)})'


def _doubts(found: CopyCheck) -> Iterator[str]:
    for pair in found.unsettled:
        yield f'"{pair.line}" was read as "{pair.read}", which differs in look-alikes alone'
    for pair in found.unsettled_forbidden:
        yield f'forbidden "{pair.line}" may be there: "{pair.read}" differs in look-alikes or spaces alone'


def _praise(expected: ExpectText) -> str:
    many = len(expected.required)
    parts = ["the required line found" if many == 1 else f"all {many} required lines found"] if many else []
    parts += ["nothing forbidden"] if expected.forbidden else []
    parts += ["nothing extra"] if expected.extra == "forbid" else []
    return ", ".join(parts)


def _details(config: TextGrader, readings: Sequence[Reading], found: CopyCheck, reader: str) -> dict[str, Any]:
    """What was seen, ready for JSON. Boxes are four corners in pixels."""
    return {
        "extract": reader,
        "lines": [
            {
                "text": reading.text,
                "confidence": reading.confidence,
                "box": [list(corner) for corner in reading.corners or ()],
                "counted": reading.confidence >= config.min_confidence,
            }
            for reading in readings
        ],
        "found": _pairs(found.found),
        "missing": [
            {
                "line": miss.line,
                "nearest": miss.nearest,
                "differences": list(miss.differences),
                "edits": miss.edits,
            }
            for miss in found.missing
        ],
        "forbidden": _pairs(found.forbidden),
        "extra": list(found.extra),
        "unsettled": _pairs((*found.unsettled, *found.unsettled_forbidden)),
        "folded": dict(found.folded),
    }


def _pairs(pairs: Sequence[CopyPair]) -> list[dict[str, Any]]:
    return [{"line": pair.line, "read": pair.read, "readings": list(pair.readings)} for pair in pairs]
