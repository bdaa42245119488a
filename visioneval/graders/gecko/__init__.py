"""The Gecko grader, questions made from a prompt and answered from an output: its options, templates and checks.

The choices of a question come first, and which of them an answer names: a letter or the exact text of a choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from visioneval.suite.case import TestCase, Text
from visioneval.suite.entries.graders import QUESTIONS, SHARE_UP, BaseGrader, GraderKind
from visioneval.suite.entries.judges import JudgeNames, JudgeTemplate, PanelOptions, RecordedAnswer, names_of
from visioneval.suite.files import FilePath, FrameCount, QuestionRows
from visioneval.suite.questions import TYPES, GeckoQuestion, Media, dependency_problems, folded_text, id_problems
from visioneval.types import Metric, TaskType

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems, SuiteContext
    from visioneval.suite.messages import Loc


NONE = "none of them"
_LETTER = re.compile(r"\(?([a-z])[).:\]]?", re.ASCII)
_LETTER_AND_TEXT = re.compile(r"\(?([a-z])[).:\]]\s*(.+)", re.ASCII)
NONE_OF_THEM = {"none", "none of them", "none of these", "none of the above", "none of the choices"}


def lettered_choices(question: GeckoQuestion) -> dict[str, str]:
    """The possible answers by letter; ``none of them`` is last, except for yes/no questions."""
    texts = list(question.choices)
    if offers_none(question):
        texts.append(NONE)
    return dict(zip("abcdefghijklmnopqrstuvwxyz", texts, strict=False))


def offers_none(question: GeckoQuestion) -> bool:
    """Whether ``none of them`` is one of the possible answers."""
    folded = {folded_text(choice) for choice in question.choices}
    return folded != {"yes", "no"} and NONE not in folded


def choice_of(question: GeckoQuestion, answer: str) -> int | None:
    """The index of the choice that an answer names; the index after the last choice means ``none of them``.

    Accepts a letter, a choice's text, or both if they agree; never a part of a sentence.
    """
    offered = {letter: folded_text(text) for letter, text in lettered_choices(question).items()}
    texts = list(offered.values())
    folded = folded_text(answer)
    if folded in texts:
        return texts.index(folded)
    if offers_none(question) and folded in NONE_OF_THEM:
        return len(texts) - 1
    plain = " ".join(answer.casefold().split()).strip("\"'`* ")
    letter_match = _LETTER.fullmatch(plain)
    if letter_match and letter_match[1] in offered:
        return list(offered).index(letter_match[1])
    full_match = _LETTER_AND_TEXT.fullmatch(plain)
    if full_match and offered.get(full_match[1]) == folded_text(full_match[2]):
        return list(offered).index(full_match[1])
    return None


def answer_text(value: Any) -> str:
    """The text of an answer, also of one that was recorded as true or false."""
    return ("yes" if value else "no") if isinstance(value, bool) else "" if value is None else str(value).strip()


def names_choice(question: GeckoQuestion, answer: Any) -> bool:
    """Whether an answer names a choice."""
    return choice_of(question, answer_text(answer)) is not None


_IDS = ("questions.id",)
VERDICTS = ("Question:", "Verdict:")
"""What a template contains that asks for a verdict after each question, as that of the published Gecko does."""
CHECK = "gecko/check.md.j2"
"""The template of ``check_questions``; a suite may override it with a file of the same name."""


def making_context(media: Media, prompt: str) -> dict[str, Any]:
    """The variables of a template that generates questions."""
    return {"prompt": prompt, "types": list(TYPES[media])}


def asking_context(questions: Sequence[GeckoQuestion]) -> dict[str, Any]:
    """The variables of a template that asks questions. They never include expected answers."""
    lettered = ((question, lettered_choices(question).items()) for question in questions)
    return {
        "questions": [
            {
                "id": question.id,
                "question": question.question,
                "choices": [{"letter": letter, "text": text} for letter, text in choices],
            }
            for question, choices in lettered
        ]
    }


class GeckoGrader(BaseGrader, PanelOptions):
    """The share of a prompt's claims that an image or a video shows."""

    kind: ClassVar[GraderKind] = QUESTIONS
    grades_records: ClassVar[bool] = True
    scores_match: ClassVar[bool] = True
    case_fields: ClassVar[frozenset[str]] = frozenset({"questions", "add_questions"})

    type: Literal["gecko"]
    judge: JudgeNames = Field(
        default="default",
        description="A key of `judges`: it writes the questions and answers them. Of a list, a panel, the first "
        "writes them.",
    )
    media: Media = Field(
        default="image",
        description="`image`: questions about images, yes or no; `video`: about outputs of `video_generation`, four "
        "choices.",
    )
    questions: FilePath | QuestionRows | None = Field(
        default=None,
        description="A file of pinned questions, as `visioneval questions` writes it, or a dataset of them; one per "
        "suite. For prompts that it lacks, questions are generated.",
    )
    questions_template: Text | None = Field(
        default=None,
        description="The template that generates questions. Default: `gecko/image_questions.md.j2`, or "
        "`video_questions`. One that asks for the form of the published Gecko works as it is: "
        '`{"keywords": ..., "qas": [{"question_id": 1, ...}]}`, where `question_id` is the number of the item that '
        "the question is about.",
    )
    answers_template: Text | None = Field(
        default=None,
        description="The template that asks them. Default: `gecko/image_answers.md.j2`, or `video_answers`. It must "
        "show the ID of each question, except with `mode: single`, or if it contains `Question:` and `Verdict:`: then "
        "the judge is asked for text, and the verdict below each question that it repeats word for word is the answer.",
    )
    mode: Literal["batch", "single"] = Field(
        default="batch", description="`batch`: all questions in one call; `single`: one call for each."
    )
    on_unanswered: Literal["error", "wrong", "skip"] = Field(
        default="error",
        description="How a question counts that has no usable answer after one retry: `error`: its scores are `null`; "
        "`wrong`; `skip`: it is left out. After a failed call or an unreadable reply, scores are `null` with any of "
        "these.",
    )
    on_bad_dependency: Literal["error", "drop", "drop_all"] = Field(
        default="error",
        description="For an unknown parent or a cycle: `error`; `drop` removes these dependencies; `drop_all` "
        "removes all of that prompt's, except that a question that depends on itself loses only that "
        "one.",
    )
    dependencies: Literal["use", "ignore"] = Field(
        default="use",
        description="`ignore`: questions are scored without their dependencies, which may then be invalid.",
    )
    frames: FrameCount = 8
    check_questions: bool = Field(
        default=False,
        description="`true`: one more call, which sees only the prompt, drops generated questions whose answer does "
        "not follow from it.",
    )

    @property
    def question_writer(self) -> str:
        """The judge that writes the questions: the first of a panel, since all its judges answer the same ones."""
        return names_of(self.judge)[0]

    @property
    def template_for_questions(self) -> str:
        """The template that generates questions."""
        return self.questions_template or f"gecko/{self.media}_questions.md.j2"

    @property
    def template_for_answers(self) -> str:
        """The template that asks questions."""
        return self.answers_template or f"gecko/{self.media}_answers.md.j2"

    @property
    def making_templates(self) -> tuple[str, ...]:
        """The templates that affect generated questions."""
        return (self.template_for_questions, *([CHECK] if self.check_questions else []))

    def types_of(self, case: TestCase) -> list[str]:
        """The types of a case's questions; if they are not generated yet, all possible types."""
        pinned = case.questions
        known = TYPES[self.media] if pinned is None else tuple(question.type for question in pinned)
        return list(dict.fromkeys([*known, *(question.type for question in case.add_questions)]))

    @property
    def needs_no_bytes(self) -> bool:
        return True

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        if (case.task_type is TaskType.VIDEO_GENERATION) != (self.media == "video"):
            return {}
        return {self.key: SHARE_UP, **{f"{self.key}.{kind}": SHARE_UP for kind in self.types_of(case)}}

    def omissible(self, case: TestCase) -> frozenset[str]:
        if case.questions is not None:
            return frozenset()
        certain = {question.type for question in case.add_questions}
        return frozenset(f"{self.key}.{kind}" for kind in self.types_of(case) if kind not in certain)

    def judge_templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[JudgeTemplate, ...]:
        making = [JudgeTemplate(self.template_for_questions, "questions_template", ("prompt",))]
        if self.check_questions:
            making.append(
                JudgeTemplate(CHECK, "check_questions", ("prompt", "questions"), ids=_IDS, without_ids=VERDICTS)
            )
        ids = () if self.mode == "single" else _IDS  # a question alone can be answered by a letter
        asking = JudgeTemplate(
            self.template_for_answers, "answers_template", ("questions",), ids=ids, without_ids=VERDICTS
        )
        return (*making, asking)

    def template_contexts(
        self, case: TestCase, prompt: str, *, variables: Mapping[str, Any]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if not self.metrics(case):
            return
        questions = [*(case.questions or ()), *case.add_questions] or [GeckoQuestion(id="q1", question="Is it there?")]
        yield self.template_for_answers, asking_context(questions)
        if case.questions is None:
            yield self.template_for_questions, making_context(self.media, prompt)
            if self.check_questions:
                yield CHECK, {"prompt": prompt, **asking_context(questions)}

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int | None:
        return None if self.mode == "single" else times

    def shared_calls(self, prompts: Iterable[tuple[TestCase, str]]) -> int:
        generated = len({prompt for case, prompt in prompts if case.questions is None})
        return generated * (2 if self.check_questions else 1)

    def recorded_answers(self, case: TestCase) -> Mapping[str, RecordedAnswer]:
        """Without ``on_unanswered: error``, any answer counts, and a question may be without one."""
        is_error = self.on_unanswered == "error"
        return {
            question.id: RecordedAnswer(
                f"a choice: {', '.join(f'{letter}) {text}' for letter, text in lettered_choices(question).items())}",
                partial(names_choice, question) if is_error else lambda _: True,
                text=question.question,
                is_required=is_error,
            )
            for question in ((*(case.questions or ()), *case.add_questions) if self.metrics(case) else ())
        }

    @property
    def question_file(self) -> str | QuestionRows | None:
        return self.questions

    @property
    def drops_bad_dependencies(self) -> bool:
        return self.on_bad_dependency != "error" or self.dependencies == "ignore"

    @property
    def version(self) -> str | None:
        """``"2"`` is what ``drop`` removes; with another value, nothing changed."""
        return "2" if self.on_bad_dependency == "drop" else None


def run_problems(view: SuiteContext, graders: Sequence[tuple[int, GeckoGrader]]) -> Problems:
    """Yields the problems with the questions of each case that a gecko grader applies to."""
    for index, case in enumerate(view.suite.cases):
        for _, grader in graders:
            if grader.is_for(case) and grader.metrics(case):
                judge = view.suite.judges.get(grader.question_writer)
                for loc, message in _questions(case, grader, recorded=judge is not None and judge.is_recorded):
                    yield ("cases", index, *loc), message


def _questions(case: TestCase, grader: GeckoGrader, *, recorded: bool) -> Iterator[tuple[Loc, str]]:
    pinned = case.questions or ()
    questions = (*pinned, *case.add_questions)
    if case.questions is not None and not questions:
        yield ("questions",), "must not be empty; remove the key to have questions generated"
    if case.questions is None and recorded:
        yield (), f"the judge {grader.question_writer!r} replays recorded answers: add 'questions:' to the case"
    elif case.questions is None and not case.prompt:
        yield (), "questions cannot be generated without a prompt: add 'questions:' to the case"
    duplicates = list(id_problems(questions))
    bad_dependencies = [] if duplicates or grader.drops_bad_dependencies else list(dependency_problems(questions))
    for index, message in (*duplicates, *bad_dependencies):
        key, position = ("questions", index) if index < len(pinned) else ("add_questions", index - len(pinned))
        yield (key, position, "id" if duplicates else "depends_on"), message
