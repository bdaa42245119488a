"""The text grader, exact copy in images and videos: its options and checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from visioneval.suite.case import ExpectText, TestCase
from visioneval.suite.entries.graders import (
    AMOUNT_DOWN,
    AMOUNT_UP,
    SHARE_DOWN,
    SHARE_UP,
    YES,
    BaseGrader,
    Share,
    is_video,
)
from visioneval.suite.entries.judges import JudgeNames, JudgeTemplate, PanelOptions, RecordedAnswer, is_texts
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems
    from visioneval.suite.model import Suite

_OCR_VERSION = "7"
"""Rises when the same image may get another score. A judge's text is compared as before."""

TextScore = Literal["word_accuracy", "ned", "complete"]
_SCORES: Mapping[TextScore, Metric] = {"word_accuracy": SHARE_UP, "ned": SHARE_DOWN, "complete": YES}

LIST, DESCRIBE, CHECK = "text/list.md.j2", "text/describe.md.j2", "text/check_description.md.j2"
"""The templates of a text grader with a judge; a suite may override them with files of the same names."""


TEXTS: Mapping[str, Any] = {"type": "array", "items": {"type": "string"}}
"""The JSON Schema of the lines that a judge reads."""


def text_contexts(case: TestCase, prompt: str, description: str, *, describe: bool) -> dict[str, dict[str, Any]]:
    """The templates to read text in an image, in order, with their variables."""
    if not describe:
        return {LIST: {}}
    return {DESCRIBE: {}, CHECK: {"prompt": prompt, "criteria": case.criteria, "description": description}}


def unreadable_characters(expected: ExpectText) -> list[str]:
    """The characters of the expected lines that OCR cannot read."""
    from visioneval.graders.text.alphabet import unreadable

    return unreadable("".join((*expected.required, *expected.forbidden, *expected.allowed)))


class TextGrader(BaseGrader, PanelOptions):
    """Exact, case-sensitive copy: the lines that the image or video must and must not show."""

    needs: ClassVar[Mapping[str, str]] = {
        "": "expect.text",
        ".recall": "expect.text.required",
        ".cer": "expect.text.required",
        ".shown_s": "task: video_generation and expect.text.required",
        ".doubtful_extra": "expect.text.extra: forbid",
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "": "required lines are there, forbidden ones are not, and with `extra: forbid` nothing else is",
        ".recall": "the share of the required lines that are there",
        ".cer": "edits between missing lines and the nearest readings, per character of the required lines, without "
        "white space",
        ".shown_s": "of a video: how many seconds in a row a line is shown, for the line with the shortest time",
        ".word_accuracy": "with `measure`: the share of the words of the required lines that were read, in any order "
        "(OneIG-Bench, LongText-Bench)",
        ".ned": "with `measure`: the normalized edit distance, 0 (equal) to 1: Levenshtein between all required and "
        "all read text, divided by the length of the longer one. AnyText and ICDAR report 1 minus it: "
        "`metrics: {similarity: 1 - copy.ned}`",
        ".complete": "with `measure`: whether that distance is 0. Its rate is OneIG-Bench's completion rate",
        ".doubtful_extra": "with `extra: forbid`: the number of signs that may be shapes",
    }

    type: Literal["text"]
    extract: Literal["ocr", "judge"] | Annotated[tuple[Literal["ocr"], Literal["judge"]], Field()] = Field(
        default="ocr",
        description="Who reads: `ocr`; `judge`; or `[ocr, judge]`: the judge too, where OCR does not pass or cannot "
        "read a line's characters.",
    )
    judge: JudgeNames = Field(
        default="default",
        description="A key of `judges`, or a list of keys for a panel; read only if `extract` names the judge.",
    )
    describe: bool = Field(
        default=False,
        description="`true`: the judge describes the image; a second call, which sees no image, lists the text and "
        "says whether the case's criteria are met, which they must be.",
    )
    min_confidence: Share = Field(
        default=0.5,
        description="Readings of OCR with a lower confidence do not count. Compared with 4 decimals: the last ones "
        "differ between processors, so choose a value away from those in `details`.",
    )
    spaces: Literal["exact", "loose"] = Field(
        default="loose",
        exclude_if=lambda spaces: spaces == "loose",  # the default: its hash stays the same
        description="`loose`: spaces do not matter. `exact`: a required line must have its spaces, and none within a "
        "word.",
    )

    other_scripts: Literal["tesseract"] | None = Field(
        default=None,
        exclude_if=lambda scripts: scripts is None,
        description="`tesseract`: the program Tesseract reads lines whose unreadable characters are all Greek, "
        "Cyrillic (Russian, Ukrainian), Hebrew, Arabic, Hindi, Thai, Vietnamese or Korean. With "
        "`extract: ocr` and of images only. Needs the program and its data, such as "
        "`apt install tesseract-ocr tesseract-ocr-ell`. A line passes if it is read exactly at `min_confidence` or "
        "more, fails if two sizes show the same one or two other characters at 0.8, and is `null` otherwise.",
    )

    measure: tuple[TextScore, ...] = Field(
        default=(),
        exclude_if=lambda measure: not measure,  # so that the hash of a grader without it stays the same
        description="More metrics, as benchmarks report them. They compare words in Unicode NFKC, without case, "
        "punctuation and white space (an ideograph or kana is one word), by OCR's first look; of a video, in the best "
        "frame. Look-alikes are errors.",
    )

    frames: Annotated[int, Field(ge=2, le=64, strict=True)] = Field(
        default=8,
        exclude_if=lambda frames: frames == 8,  # the default: its hash stays the same
        description="How many frames of a video OCR reads, each from the middle of an equal part of its duration. A "
        "line that is there for less than the duration divided by `frames` can be missed: raise it.",
    )
    min_frames: Annotated[int, Field(ge=1, le=64, strict=True)] = Field(
        default=2,
        exclude_if=lambda frames: frames == 2,
        description="How many of these frames must show a required line, in any place. With `extra: forbid`, other "
        "text in as many frames is extra. A forbidden line must be in none.",
    )

    @model_validator(mode="after")
    def _check_frames(self) -> Self:
        if self.min_frames > self.frames:
            raise ValueError(f"min_frames is {self.min_frames}, but only {self.frames} frames are read: raise frames")
        return self

    @model_validator(mode="after")
    def _who_describes(self) -> Self:
        if self.describe and self.extract == "ocr":
            raise ValueError("describe needs a judge: set extract to judge or [ocr, judge]")
        return self

    @model_validator(mode="after")
    def _who_reads_other_scripts(self) -> Self:
        if self.other_scripts is not None and self.extract != "ocr":
            raise ValueError("a judge reads all scripts: remove other_scripts, or set extract to ocr")
        return self

    @property
    def version(self) -> str | None:
        return None if self.extract == "judge" else _OCR_VERSION

    @property
    def judge_names(self) -> tuple[str, ...]:
        return () if self.extract == "ocr" else super().judge_names

    def extra_for(self, case: TestCase) -> str | None:
        """OCR reads first, unless a judge may read and OCR does not know the characters."""
        expected = case.expect.text
        if expected is None or self.extract == "judge":
            return None
        return None if self.extract != "ocr" and unreadable_characters(expected) else "ocr"

    @property
    def measures_locally(self) -> bool:
        return self.extract != "judge"

    def judge_templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[JudgeTemplate, ...]:
        return (JudgeTemplate(CHECK, "describe", ("description", "criteria")),) if self.describe else ()

    def templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[str, ...]:
        return (DESCRIBE, CHECK) if self.describe else (LIST,)

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        expected = case.expect.text
        if expected is None or (is_video(case) and self.extract != "ocr"):
            return {}
        metrics = {self.key: YES}
        if expected.required:
            metrics[f"{self.key}.recall"] = SHARE_UP
            metrics[f"{self.key}.cer"] = SHARE_DOWN
            if is_video(case):
                metrics[f"{self.key}.shown_s"] = AMOUNT_UP
        metrics |= {f"{self.key}.{name}": _SCORES[name] for name in self.measured(expected)}
        if expected.extra == "forbid":
            metrics[f"{self.key}.doubtful_extra"] = AMOUNT_DOWN
        return metrics

    def measured(self, expected: ExpectText) -> tuple[TextScore, ...]:
        """The scores of ``measure``; none without a word to compare."""
        from visioneval.graders.text.alphabet import words

        return self.measure if self.measure and words(expected.required) else ()

    def template_contexts(
        self,
        case: TestCase,
        prompt: str,
        *,
        variables: Mapping[str, Any],
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if self.judge_names and case.expect.text is not None:
            yield from text_contexts(case, prompt, "a description", describe=self.describe).items()

    def recorded_answers(self, case: TestCase) -> Mapping[str, RecordedAnswer]:
        if not self.metrics(case) or not self.judge_names:
            return {}
        lines = RecordedAnswer("a list of lines", is_texts, TEXTS, is_required=self.extract == "judge")
        if not self.describe:
            return {"lines": lines}
        met = RecordedAnswer("yes or no", lambda value: isinstance(value, bool), {"type": "boolean"}, is_required=False)
        return {"lines": lines, "criteria_met": met}

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int:
        return times * (2 if self.describe else 1)


def problems(suite: Suite, graders: Sequence[tuple[int, TextGrader]]) -> Problems:
    """Yields judges, and Tesseract, that would have to read a video."""
    for index, grader in graders:
        name = next((case.id for case in _cases(suite, grader) if is_video(case)), None)
        if name is None:
            continue
        if grader.other_scripts is not None:
            yield (
                ("graders", index, "other_scripts"),
                f"Tesseract reads copy in images only, but the case {name!r} is about a video: restrict 'when'",
            )
        if grader.extract != "ocr":
            yield (
                ("graders", index, "extract"),
                f"a judge reads copy in images only, but the case {name!r} is about a video: use 'extract: ocr'",
            )


def warnings(suite: Suite, graders: Sequence[tuple[int, TextGrader]]) -> Problems:
    """Yields the expected lines with characters that local OCR cannot read, if no judge may, and what to install."""
    from visioneval.graders.text.alphabet import languages, missing

    for index, grader in graders:
        if grader.extract == "ocr":
            yield from _unreadable_lines(suite, grader)
        if grader.other_scripts is not None:
            copies = (case.expect.text for case in _cases(suite, grader) if case.expect.text is not None)
            lines = (line for copy in copies for line in (*copy.required, *copy.forbidden, *copy.allowed))
            if problem := missing({name for line in lines for name in languages(line)}):
                yield ("graders", index, "other_scripts"), problem


def _cases(suite: Suite, grader: TextGrader) -> Iterator[TestCase]:
    """The cases with copy that the grader is for."""
    for case in suite.cases:
        if case.expect.text is not None and grader.is_for(case):
            yield case


def _unreadable_lines(suite: Suite, grader: TextGrader) -> Problems:
    from visioneval.graders.text.alphabet import cannot_read, languages, unreadable

    for index, case in enumerate(suite.cases):
        expected = case.expect.text
        if expected is None or not grader.is_for(case):
            continue
        for key in ("required", "forbidden", "allowed"):
            for at, line in enumerate(getattr(expected, key)):
                by_tesseract = languages(line)
                if (characters := unreadable(line)) and not (by_tesseract and grader.other_scripts):
                    advice = "" if is_video(case) else "; 'extract: [ocr, judge]' lets a judge read it"
                    advice += ", or 'other_scripts: tesseract' Tesseract" if advice and by_tesseract else ""
                    yield (
                        ("cases", index, "expect", "text", key, at),
                        f"{cannot_read(characters)}, so this line may be undecided (null){advice}",
                    )
