"""Exact copy: compares the text in an image with the lines that it must and must not show.

Local OCR reads it, or a vision judge: line by line from the image, or from a description of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from visioneval.errors import ProviderError
from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.pixels.difference import SCORE_DIGITS
from visioneval.graders.text import (
    CHECK,
    DESCRIBE,
    LIST,
    TEXTS,
    TextGrader,
    ocr,
    reasons,
    second_look,
    text_contexts,
    unreadable_characters,
)
from visioneval.graders.text.check import CopyCheck, check, other_spaces, with_spaces
from visioneval.graders.text.edits import normalized_edit_distance, word_accuracy
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.spaces import LineLooks, look_at_lines
from visioneval.graders.text.tesseract import ImageText, read_other_scripts
from visioneval.graders.text.video import grade_video
from visioneval.judging.ask import (
    MAX_REPLY_CHARS,
    Answer,
    OffSchemaError,
    answer_details,
    ask_for_json,
    object_schema,
    reply_texts,
)
from visioneval.media.images import load_image, room_for, size_of
from visioneval.providers.base import Question
from visioneval.records.model import digest
from visioneval.suite.case import ExpectText
from visioneval.types import Score


class Text:
    """Grades an image's copy by local OCR, by a judge, or by OCR with a judge for everything that OCR does not pass.

    A video's copy is read by OCR (see ``video``).
    """

    def __init__(self, config: TextGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Reads and compares. Raises ``GraderError``."""
        expected = context.case.expect.text
        if expected is None:
            return Grade(scores={})
        by_judge = self._config.extract != "ocr"
        if self._config.extract == "judge" or (by_judge and unreadable_characters(expected)):
            return await self._by_judge(context, expected)
        if context.generated.is_video:
            return await grade_video(self._config, context, expected)
        first, text, comparison = await context.once_per_panel("ocr", lambda: self.read(context, expected))
        # Benchmarks report what a reader reads that does not know the answer.
        measured = await self._measured(first, expected)
        tools = {**ocr.tool_versions(), **text.tool_versions}
        ocr_grade = _grade(self._config, expected, text.readings, comparison, "ocr", measured, tools)
        if comparison.passed or not by_judge:
            return ocr_grade
        judge_grade = await self._by_judge(context, expected)
        return replace(
            judge_grade,
            details={**judge_grade.details, "ocr": ocr_grade.details},
            tool_versions=ocr_grade.tool_versions,
        )

    async def read(
        self, context: GradingContext, expected: ExpectText
    ) -> tuple[Sequence[Reading], ImageText, CopyCheck]:
        """The readings of the first look, the text after as many looks as it takes, and its comparison."""
        path, limit = context.generated.path, self._config.min_confidence
        first = (await ocr.measured(context, "text", partial(_read, path), OcrReadings)).readings
        text = ImageText(first)
        comparison = await self._compare(context, text, expected)
        if second_look.is_needed(first, expected, passed=comparison.passed, size=size_of(path)):
            again = await ocr.measured(
                context,
                "second look at text",
                partial(_look_again, path, first, expected, limit),
                OcrReadings,
                expected=expected.model_dump(),
                min_confidence=limit,
                readings=list(first),
            )
            text = ImageText(again.readings)
        if self._config.other_scripts is not None:
            text = await read_other_scripts(context, text.readings, expected, limit)
        if text != ImageText(first):
            comparison = await self._compare(context, text, expected)
        if comparison.spaces and self._config.spaces == "exact":
            indices = other_spaces(comparison, text.readings)
            doubted = [text.readings[index] for index in indices]
            run = partial(look_at_lines, path, doubted)
            looks = (await ocr.measured(context, "spaces of lines", run, LineLooks, readings=doubted)).looks
            by_index = dict(zip(indices, looks, strict=True))
            comparison = with_spaces(comparison, text.readings, fold=True, looks=by_index)
        return first, text, comparison

    async def _compare(self, context: GradingContext, text: ImageText, expected: ExpectText) -> CopyCheck:
        """A measure of its own, so that other expected lines need no OCR, and a replay no comparison."""
        limit, readings, legible = self._config.min_confidence, text.readings, text.legible
        return await ocr.measured(
            context,
            "comparison of copy",
            lambda: check(readings, expected, fold=True, min_confidence=limit, legible=legible),
            CopyCheck,
            expected=expected.model_dump(),
            min_confidence=limit,
            readings=list(readings),
            legible=sorted(legible),
        )

    async def _measured(self, readings: Sequence[Reading], expected: ExpectText) -> dict[str, Score]:
        """The scores of ``measure``, over all readings that count."""
        config = self._config
        names = config.measured(expected)
        if not names:
            return {}
        read = [reading.text for reading in readings if reading.confidence >= config.min_confidence]
        distance = await asyncio.to_thread(normalized_edit_distance, expected.required, read)
        scores: dict[str, Score] = {
            "word_accuracy": round(word_accuracy(expected.required, read), SCORE_DIGITS),
            "ned": round(distance, SCORE_DIGITS),
            "complete": distance == 0,
        }
        return {f"{config.key}.{name}": scores[name] for name in names}

    async def _by_judge(self, context: GradingContext, expected: ExpectText) -> Grade:
        """The same comparison without folding: a judge can tell a dash from a hyphen."""
        config, key = self._config, self._config.key
        try:
            answers = await _ask_for_lines(context, describe=config.describe)
        except (OffSchemaError, ProviderError) as error:
            replies = error.replies if isinstance(error, OffSchemaError) else ()
            return Grade(
                scores=dict.fromkeys(config.metrics(context.case)),
                details={"extract": "judge", "replies": reply_texts(replies)},
                error=str(error),
                judge_model=replies[-1].model if replies else None,
            )
        last = answers[-1]
        readings = [Reading(line) for item in last.data["lines"] for line in item.splitlines() if line.strip()]
        comparison = await asyncio.to_thread(check, readings, expected, fold=False)
        if config.spaces == "exact":
            comparison = with_spaces(comparison, readings, fold=False)
        measured = await self._measured(readings, expected)
        graded = _grade(config, expected, readings, comparison, "judge", measured, {})
        details = {**graded.details, **answer_details(*answers)}
        templates, properties = [LIST], _LINES
        if config.describe:
            templates, properties = [DESCRIBE, CHECK], {**_DESCRIBED, **_CHECKED}
            details["description"] = _description(answers[0])[:MAX_REPLY_CHARS]
            if context.case.criteria and last.data.get("criteria_met") is False:  # fails even with the right copy
                unmet = f"criteria not met: {last.data.get('reason', '')}"
                reason = "; ".join(filter(None, [graded.reasons[key], unmet]))
                graded = replace(graded, scores={**graded.scores, key: False}, reasons={key: reason})
        return replace(
            graded,
            details=details,
            judge_model=last.replies[-1].model,
            template_sha256=context.templates.digest(*templates),
            schema_sha256=digest(properties),
        )


@dataclass(frozen=True, slots=True)
class OcrReadings:
    """What local OCR reads in an image, at any confidence."""

    readings: tuple[Reading, ...]


def _read(path: Path) -> OcrReadings:
    with room_for(path):
        return OcrReadings(tuple(ocr.read(load_image(path))))


def _look_again(path: Path, readings: Sequence[Reading], expected: ExpectText, limit: float) -> OcrReadings:
    with room_for(path):
        images = ocr.on_backgrounds(load_image(path))
        return OcrReadings(tuple(second_look.look_again(images, readings, expected, limit)))


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
        reasons={key: reasons.reason(config, expected, readings, comparison, reader)},
        details=reasons.details(config, readings, comparison, reader),
        error=f"OCR cannot decide: {doubts}" if doubts and None in scores.values() else None,
        tool_versions=tool_versions,
    )


_LINES = {"lines": TEXTS}
_DESCRIBED = {"description": {"type": "string"}}
_CHECKED = {**_LINES, "criteria_met": {"type": "boolean"}, "reason": {"type": "string"}}

MAX_LINES = 1000
"""The most lines in a reply; no image shows more."""
MAX_LINE_CHARS = 20_000
"""The most characters in all lines of a reply."""


async def _ask_for_lines(context: GradingContext, *, describe: bool) -> list[Answer]:
    """The judge's answers, of which the last has the lines.

    Raises ``OffSchemaError`` if no reply matches the schema, and ``ProviderError``.
    """
    ask = context.ask_own_judge
    part = await asyncio.to_thread(context.show, context.generated.path)
    if not describe:
        question = _question(_instructions(LIST, context), _LINES, part)
        return [await ask_for_json(ask, question, partial(_reply_problems, _LINES))]
    question = _question(_instructions(DESCRIBE, context), _DESCRIBED, part)
    described = await ask_for_json(ask, question, _description_problems, {"description": "-"})
    question = _question(_instructions(CHECK, context, _description(described)), _CHECKED)  # it sees no image
    needed = _CHECKED if context.case.criteria else _LINES  # without criteria, nothing reads the rest
    example = {"criteria_met": True, "reason": ""}
    try:
        return [described, await ask_for_json(ask, question, partial(_reply_problems, needed), example)]
    except OffSchemaError as error:
        raise OffSchemaError(str(error), (*described.replies, *error.replies)) from None


def _description(answer: Answer) -> str:
    return str(answer.data.get("description", ""))


def _description_problems(data: Any) -> list[str]:
    """The description is a value in a JSON object, since truncated prose cannot be recognized."""
    text = data.get("description") if isinstance(data, dict) else None
    return [] if isinstance(text, str) and text.strip() else ["'description' is not text or is empty"]


def _instructions(template: str, context: GradingContext, description: str = "") -> str:
    template_context = text_contexts(context.case, context.prompt, description, describe=template != LIST)
    return context.templates.render(template, template_context[template])


def _question(instructions: str, properties: Mapping[str, Any], *parts: Any) -> Question:
    return Question(parts=(instructions, *parts), schema=object_schema(properties), names=tuple(properties))


def _reply_problems(names: Collection[str], data: Any) -> list[str]:
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    if missing := [name for name in names if name not in data]:
        return [f"the key {name!r} is missing" for name in missing]
    lines = data["lines"]
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return ["'lines' is not a list of strings"]
    if len(lines) > MAX_LINES or sum(map(len, lines)) > MAX_LINE_CHARS:
        return [f"'lines' has over {MAX_LINES} lines or {MAX_LINE_CHARS:,} characters"]
    if "criteria_met" in names and not isinstance(data["criteria_met"], bool):
        return ["'criteria_met' is not true or false"]
    return []
