"""Exact copy: compares the text in an image with the lines that it must and must not show."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import unidata_version

from visioneval.aio import run_in_thread
from visioneval.errors import GraderError, ProviderError
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.measures import Measure
from visioneval.graders.pixels.difference import SCORE_DIGITS, TOOL_VERSIONS
from visioneval.graders.text import judge as text_judge
from visioneval.graders.text import reasons
from visioneval.graders.text.config import TextGrader, unreadable_characters
from visioneval.graders.text.copy_check import CopyCheck, check, other_spaces, with_spaces
from visioneval.graders.text.copy_match import Corners, Reading
from visioneval.graders.text.reading import contrast, ocr
from visioneval.graders.text.reading.second_look import SecondLooks, look_again
from visioneval.graders.text.text_scores import normalized_edit_distance, word_accuracy
from visioneval.graders.text.video import grade_video
from visioneval.judging.ask import OffSchemaError, reply_texts
from visioneval.media.images import encode_png, load_image, on_background, room_for
from visioneval.providers.base import Reply
from visioneval.suite.cases.case import ExpectText
from visioneval.types import Score

_MAX_CROPS = 20
SHORT = 500
"""Up to this many characters are compared in the event loop: a thread would take longer."""


class Text:
    """Grades an image's copy by local OCR, by a judge, or by OCR with a judge for everything that OCR does not pass.

    A video's copy is read by OCR (see ``video``).
    """

    def __init__(self, config: TextGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Reads and compares. Raises ``GraderError`` if OCR cannot read the expected characters."""
        expected = context.case.expect.text
        if expected is None:
            return Grade(scores={})
        by_judge = self._config.extract != "ocr"
        if self._config.extract == "judge" or (by_judge and unreadable_characters(expected)):
            return await self._by_judge(context, expected)
        _refuse_unreadable(expected)
        if context.generated.is_video:
            return await grade_video(self._config, context, expected, _tool_versions)
        path = context.generated.path
        readings = (await context.once_per_panel("ocr", lambda: context.measure(_reading(path)))).readings
        comparison = await context.once_per_panel(
            "comparison", lambda: context.measure(self._comparison(path, readings, expected))
        )
        if comparison.spaces and self._config.spaces == "exact":
            comparison = await context.once_per_panel("spaces", lambda: _with_spaces(context, readings, comparison))
        measured = await self._measured(readings, expected)
        ocr_grade = _grade(self._config, expected, readings, comparison, "ocr", measured, ocr.tool_versions())
        if comparison.doubtful_extra:
            doubtful = await asyncio.to_thread(_doubtful_extra, self._config, context, readings, comparison)
            ocr_grade = replace(ocr_grade, details={**ocr_grade.details, "doubtful_extra": doubtful})
        if comparison.passed or not by_judge:
            return ocr_grade
        judge_grade = await self._by_judge(context, expected)
        return replace(
            judge_grade,
            details={**judge_grade.details, "ocr": ocr_grade.details},
            tool_versions=ocr_grade.tool_versions,
        )

    def _comparison(self, path: Path, readings: Sequence[Reading], expected: ExpectText) -> Measure[CopyCheck]:
        """A measure of its own, so that other expected lines need no OCR, and a replay no comparison."""
        limit = self._config.min_confidence
        return Measure(
            "comparison of copy",
            {"output": path},
            lambda: check(readings, expected, fold=True, min_confidence=limit),
            CopyCheck,
            options={"expected": expected.model_dump(), "min_confidence": limit, "readings": list(readings)},
            tool_versions=_tool_versions(),
        )

    async def _measured(self, readings: Sequence[Reading], expected: ExpectText) -> dict[str, Score]:
        """The scores of ``measure``, over all readings that count."""
        config = self._config
        names = config.measured(expected)
        if not names:
            return {}
        read = [reading.text for reading in readings if reading.confidence >= config.min_confidence]
        size = sum(map(len, read))
        distance = await run_in_thread(normalized_edit_distance, expected.required, read, when=size > SHORT)
        scores: dict[str, Score] = {
            "word_accuracy": round(word_accuracy(expected.required, read), SCORE_DIGITS),
            "ned": round(distance, SCORE_DIGITS),
            "complete": distance == 0,
        }
        return {f"{config.key}.{name}": scores[name] for name in names}

    async def _by_judge(self, context: GradingContext, expected: ExpectText) -> Grade:
        """The same comparison without folding: a judge can tell a dash from a hyphen."""
        try:
            judge_reading = await text_judge.read(context, self._config)
        except OffSchemaError as error:
            return _unread_grade(self._config, context, error.replies, str(error))
        except ProviderError as error:
            return _unread_grade(self._config, context, (), str(error))
        size = sum(len(reading.text) for reading in judge_reading.readings)
        comparison = await run_in_thread(_check_unfolded, judge_reading.readings, expected, when=size > SHORT)
        if self._config.spaces == "exact":
            comparison = with_spaces(comparison, judge_reading.readings, fold=False)
        measured = await self._measured(judge_reading.readings, expected)
        graded = _grade(self._config, expected, judge_reading.readings, comparison, "judge", measured, {})
        return replace(
            _with_criteria(graded, self._config.key, judge_reading),
            details={**graded.details, **judge_reading.details},
            judge_model=judge_reading.replies[-1].model,
            template_sha256=judge_reading.template_sha256,
            schema_sha256=judge_reading.schema_sha256,
        )


@dataclass(frozen=True, slots=True)
class OcrReadings:
    """What local OCR reads in an image, at any confidence."""

    readings: tuple[Reading, ...]


def _reading(path: Path) -> Measure[OcrReadings]:
    return Measure("text", {"output": path}, partial(_read, path), OcrReadings, tool_versions=_tool_versions())


def _tool_versions() -> dict[str, str]:
    """The versions of OCR, and of what prepares images for it and looks at glyphs."""
    return {**TOOL_VERSIONS, "unicode": unidata_version, **ocr.tool_versions(), **ocr.library_versions()}


def _read(path: Path) -> OcrReadings:
    with room_for(path):
        return OcrReadings(tuple(contrast.read(load_image(path))))


async def _with_spaces(context: GradingContext, readings: Sequence[Reading], comparison: CopyCheck) -> CopyCheck:
    """The comparison with spaces, after a second look at lines that were read with other ones."""
    path = context.generated.path
    indices = other_spaces(comparison, readings)
    doubted = [readings[index] for index in indices]
    measure = Measure(
        "second look at lines",
        {"output": path},
        lambda: look_again(path, doubted),
        SecondLooks,
        options={"readings": doubted},
        tool_versions=_tool_versions(),
    )
    looks = (await context.measure(measure)).looks
    return with_spaces(comparison, readings, fold=True, looks=dict(zip(indices, looks, strict=True)))


def _doubtful_extra(
    config: TextGrader, context: GradingContext, readings: Sequence[Reading], comparison: CopyCheck
) -> list[dict[str, Any]]:
    """The doubtful text for the record, with a crop of each of the first signs."""
    path = context.generated.path
    with room_for(path):
        loaded = load_image(path)
        image = on_background(loaded, contrast.backgrounds(loaded)[0])
    items: list[dict[str, Any]] = []
    for number, extra in enumerate(comparison.doubtful_extra, 1):
        item = {"text": extra.text, "confidence": extra.confidence, "reading": extra.reading}
        corners = readings[extra.reading].corners
        if corners is not None and number <= _MAX_CROPS:
            data = encode_png(image.crop(_around(corners, image.size)))
            item["crop"] = context.save(f"{config.key}.doubtful_extra.{number}.png", data)
        items.append(item)
    return items


def _around(corners: Corners, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The upright box around the corners, with a margin of half its smaller side."""
    (left, top), (right, bottom) = map(min, zip(*corners, strict=True)), map(max, zip(*corners, strict=True))
    margin = min(right - left, bottom - top) / 2
    return (
        max(int(left - margin), 0),
        max(int(top - margin), 0),
        min(int(right + margin) + 1, size[0]),
        min(int(bottom + margin) + 1, size[1]),
    )


def _check_unfolded(readings: Sequence[Reading], expected: ExpectText) -> CopyCheck:
    return check(readings, expected, fold=False, min_confidence=0.0)


def _unread_grade(config: TextGrader, context: GradingContext, replies: tuple[Reply, ...], error: str) -> Grade:
    """A grade without scores, with the replies of the judge."""
    return Grade(
        scores=dict.fromkeys(config.metrics(context.case)),
        details={"extract": "judge", "replies": reply_texts(replies)},
        error=error,
        judge_model=replies[-1].model if replies else None,
    )


def _with_criteria(graded: Grade, key: str, judge_reading: text_judge.JudgeReading) -> Grade:
    """Fails a grade if the description does not meet the criteria, even with the right copy."""
    if judge_reading.criteria_met is not False:
        return graded
    reason = "; ".join(filter(None, [graded.reasons[key], f"criteria not met: {judge_reading.reason}"]))
    return replace(graded, scores={**graded.scores, key: False}, reasons={key: reason})


def _refuse_unreadable(expected: ExpectText) -> None:
    if characters := unreadable_characters(expected):
        raise GraderError(f"local OCR cannot read {' '.join(characters[:10])}: use a text grader with 'extract: judge'")


def _grade(
    config: TextGrader,
    expected: ExpectText,
    readings: Sequence[Reading],
    comparison: CopyCheck,
    reader: str,
    measured: Mapping[str, Score],
    tool_versions: Mapping[str, str],
) -> Grade:
    key = config.key
    scores: dict[str, Score] = {key: comparison.passed}
    if expected.required:
        scores |= {f"{key}.recall": comparison.recall, f"{key}.cer": comparison.cer}
    scores |= measured
    if expected.extra == "forbid":
        scores[f"{key}.doubtful_extra"] = len(comparison.doubtful_extra)
    doubts = reasons.doubts(config, comparison)
    return Grade(
        scores=scores,
        reasons={key: reasons.reason(config, expected, comparison, reader)},
        details=reasons.details(config, readings, comparison, reader),
        error=f"OCR cannot decide: {doubts}" if doubts and None in scores.values() else None,
        tool_versions=tool_versions,
    )
