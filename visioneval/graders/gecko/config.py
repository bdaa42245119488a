"""What a gecko grader asks of a judge: its options, its templates, and what each of them sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from visioneval.suite.case import Name, TestCase, Text
from visioneval.suite.graders import SHARE_UP, BaseGrader
from visioneval.suite.outputs import FilePath, FrameCount
from visioneval.suite.prompts import rendered
from visioneval.suite.questions import TYPES, GeckoQuestion, Media, folded_text
from visioneval.types import Frozen, Metric, TaskType

CHECK = "gecko/check.md.j2"
"""The template of ``check_questions``; a suite may bring its own under the same name."""
NONE = "none of them"


class GeckoOptions(Frozen):
    """How questions are made and asked."""

    judge: Name = "default"
    media: Media = "image"
    questions: FilePath | None = Field(default=None, description="A file of pinned questions.")
    questions_template: Text | None = Field(default=None, description="Makes questions from a prompt.")
    answers_template: Text | None = Field(default=None, description="Asks them of an image.")
    mode: Literal["batch", "single"] = Field(
        default="batch", description="batch: all questions in one call; single: a call for each."
    )
    on_unanswered: Literal["error", "wrong", "skip"] = Field(
        default="error", description="What a question without a usable answer counts as, once it was asked again alone."
    )
    on_bad_dependency: Literal["error", "drop"] = Field(
        default="error", description="drop: a bad dependency takes all dependencies of that prompt's questions away."
    )
    frames: FrameCount = 8
    check_questions: bool = Field(
        default=False, description="Drop made questions whose answer does not follow from the prompt alone."
    )

    @property
    def template_for_questions(self) -> str:
        """The template that makes questions."""
        return self.questions_template or f"gecko/{self.media}_questions.md.j2"

    @property
    def template_for_answers(self) -> str:
        """The template that asks them."""
        return self.answers_template or f"gecko/{self.media}_answers.md.j2"

    @property
    def making_templates(self) -> tuple[str, ...]:
        """What made questions depend on."""
        return (self.template_for_questions, *([CHECK] if self.check_questions else []))

    @property
    def all_templates(self) -> tuple[str, ...]:
        """Every template that it may use."""
        return (*self.making_templates, self.template_for_answers)

    def types_of(self, case: TestCase) -> list[str]:
        """The types that a case's questions have, or, where they are still to be made, may have."""
        pinned = case.questions
        known = TYPES[self.media] if pinned is None else tuple(question.type for question in pinned)
        return list(dict.fromkeys([*known, *(question.type for question in case.add_questions)]))


def making_context(media: Media, prompt: str) -> dict[str, Any]:
    """What a template that makes questions sees."""
    return {"prompt": prompt, "types": list(TYPES[media])}


def asking_context(questions: Sequence[GeckoQuestion]) -> dict[str, Any]:
    """What a template that asks questions sees: never an expected answer."""
    return {"questions": [_as_asked(question) for question in questions]}


def checking_context(prompt: str, questions: Sequence[GeckoQuestion]) -> dict[str, Any]:
    """What the template of ``check_questions`` sees."""
    return {"prompt": prompt, **asking_context(questions)}


def _as_asked(question: GeckoQuestion) -> Mapping[str, Any]:
    return {
        "id": question.id,
        "question": question.question,
        "choices": [{"letter": letter, "text": text} for letter, text in lettered(question).items()],
    }


def lettered(question: GeckoQuestion) -> dict[str, str]:
    """Every answer on offer by its letter; last ``none of them``, but for a plain yes or no."""
    texts = list(question.choices)
    if offers_none(question):
        texts.append(NONE)
    return dict(zip("abcdefghijklmnopqrstuvwxyz", texts, strict=False))


def offers_none(question: GeckoQuestion) -> bool:
    """Whether the answer may be that no choice fits."""
    folded = {folded_text(choice) for choice in question.choices}
    return folded != {"yes", "no"} and NONE not in folded


class GeckoGrader(BaseGrader, GeckoOptions):
    """The share of a prompt's claims that an image or a video shows, asked one by one."""

    sees_videos: ClassVar[bool] = True
    asks_questions: ClassVar[bool] = True
    grades_records: ClassVar[bool] = True
    case_fields: ClassVar[frozenset[str]] = frozenset({"questions", "add_questions"})

    type: Literal["gecko"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if (case.task_type is TaskType.VIDEO_GENERATION) != (self.media == "video"):
            return {}
        return {self.key: SHARE_UP, **{f"{self.key}.{kind}": SHARE_UP for kind in self.types_of(case)}}

    def optional(self, case: TestCase) -> frozenset[str]:
        if case.questions is not None:
            return frozenset()
        sure = {question.type for question in case.add_questions}
        return frozenset(f"{self.key}.{kind}" for kind in self.types_of(case) if kind not in sure)

    @property
    def judge_name(self) -> str | None:
        return self.judge

    @property
    def templates(self) -> tuple[str, ...]:
        return self.all_templates

    def template_contexts(
        self,
        case: TestCase,
        prompt: str,
        *,
        rules: Sequence[str],
        variables: Mapping[str, Any],
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if not self.metrics(case):
            return
        asked = [*(case.questions or ()), *case.add_questions] or [GeckoQuestion(id="q1", question="Is it there?")]
        yield self.template_for_answers, asking_context(asked)
        if case.questions is None:
            yield self.template_for_questions, making_context(self.media, prompt)
            if self.check_questions:
                yield CHECK, checking_context(prompt, asked)

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int | None:
        if self.mode == "single":
            return None
        made = len({rendered(case, variables)[0] for case in cases if case.questions is None})
        return times + made * (2 if self.check_questions else 1)

    @property
    def question_file(self) -> str | None:
        return self.questions

    @property
    def drops_bad_dependencies(self) -> bool:
        return self.on_bad_dependency == "drop"
