"""Pinned questions about an image or a video, and checks of their dependencies."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from visioneval.suite.cases.question_forms import question_list
from visioneval.types import Frozen

Media = Literal["image", "video"]
TYPES: Mapping[str, tuple[str, ...]] = {
    "image": (
        *("object", "human", "animal", "food", "activity", "attribute", "counting", "color", "material", "spatial"),
        *("location", "shape", "other"),
    ),
    "video": (
        *("entity", "object", "attribute", "action", "color", "spatial relation", "temporal relation", "style"),
        "scene",
    ),
}
"""The types of generated questions. Pinned questions may have other types."""
YES_NO = ("yes", "no")
MAX_QUESTIONS = 100
MAX_CHOICES = 20

_LINE = r"^[^\x00-\x1f\x7f]*$"
_ENDS = "\"'`“”‘’.!,;: "  # noqa: RUF001 - the quotes that answers come in


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, (str, int)) and not isinstance(value, bool) else value


QuestionId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=60, pattern=_LINE, strip_whitespace=True),
    BeforeValidator(_as_text, json_schema_input_type=str | int),
]
Line = Annotated[
    str,
    StringConstraints(min_length=1, max_length=2000, pattern=_LINE, strip_whitespace=True),
    BeforeValidator(_as_text, json_schema_input_type=str | int),
]
QuestionType = Annotated[str, StringConstraints(min_length=1, max_length=60, pattern=_LINE, strip_whitespace=True)]


class GeckoQuestion(Frozen):
    """One claim of a prompt as a question, with its choices, the correct answer, and its dependencies."""

    id: QuestionId = Field(description="Unique among the questions of a prompt.")
    question: Line = Field(description="A question about the output, on one line.")
    choices: tuple[Line, ...] = Field(
        default=YES_NO, max_length=MAX_CHOICES, json_schema_extra={"minItems": 2}, description="The possible answers."
    )
    answer: Line = Field(default="yes", description="The choice that matches the prompt.")
    type: QuestionType = Field(default="other", description="The kind of claim that it checks, for scores by type.")
    justification: str = Field(default="", description="The words of the prompt that it is about.")
    depends_on: Annotated[
        tuple[QuestionId, ...], BeforeValidator(_as_list, json_schema_input_type=tuple[QuestionId, ...] | str | int)
    ] = Field(default=(), description="IDs of the questions that must be correct for this one to count as correct.")

    @field_validator("choices")
    @classmethod
    def _check_choices(cls, choices: tuple[str, ...]) -> tuple[str, ...]:
        if len(choices) < 2:
            raise ValueError("choices: add at least two")
        folded = [folded_text(choice) for choice in choices]
        for at, choice in enumerate(choices):
            if folded[at] in folded[:at]:
                raise ValueError(f"choices: {choice!r} is listed twice")
        return choices

    @field_validator("type")
    @classmethod
    def _check_quotes(cls, kind: str) -> str:
        if "'" in kind or '"' in kind:
            raise ValueError(
                f"type: {kind!r:.80} contains a quote: remove it, since rules must be able to name the type"
            )
        return kind

    @model_validator(mode="after")
    def _answer_is_a_choice(self) -> Self:
        if folded_text(self.answer) not in map(folded_text, self.choices):
            raise ValueError(f"answer: {self.answer!r:.80} is not one of the choices ({', '.join(self.choices)[:200]})")
        return self

    @property
    def expected(self) -> int:
        """The index of the correct choice."""
        return list(map(folded_text, self.choices)).index(folded_text(self.answer))


_Written = tuple[GeckoQuestion | str | tuple[str, str | int | bool], ...] | dict[str, Any] | str
Questions = Annotated[
    tuple[GeckoQuestion, ...],
    Field(max_length=MAX_QUESTIONS),
    BeforeValidator(question_list, json_schema_input_type=_Written),
]


class PinnedQuestions(Frozen):
    """An entry of a file of pinned questions, for one case or for all cases with a prompt."""

    case: str | None = None
    prompt: str | None = Field(default=None, description="The prompt as rendered.")
    questions: Annotated[Questions, Field(min_length=1)]

    @model_validator(mode="after")
    def _prompt_or_case(self) -> Self:
        if (self.case is None) == (self.prompt is None):
            raise ValueError("an entry needs 'questions' and either 'case' or 'prompt'")
        return self


def folded_text(text: str) -> str:
    """Normalizes a choice or an answer for comparison: ignores case, width, extra spaces, quotes and a final period."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return plain.strip(_ENDS) or plain


def id_problems(questions: Sequence[GeckoQuestion]) -> Iterator[tuple[int, str]]:
    """Each question (by index) whose id is a duplicate."""
    seen: set[str] = set()
    for index, question in enumerate(questions):
        if question.id in seen:
            yield index, f"two questions have the ID {question.id!r}"
        seen.add(question.id)


def dependency_problems(questions: Sequence[GeckoQuestion]) -> Iterator[tuple[int, str]]:
    """Each question (by index) that depends on itself or on an unknown question, and the first cycle.

    Assumes unique ids.
    """
    ids = [question.id for question in questions]
    parents = {question.id: question.depends_on for question in questions}
    for index, question in enumerate(questions):
        for parent in question.depends_on:
            if parent == question.id:
                yield index, f"{question.id!r} depends on itself"
            elif parent not in parents:
                yield index, f"{question.id!r} depends on {parent!r}, but there is no such question"
    cycle = _cycle(
        {name: [parent for parent in dependencies if parent != name] for name, dependencies in parents.items()}
    )
    if cycle:
        yield ids.index(cycle[0]), f"the questions depend on each other in a cycle: {' -> '.join(cycle)}"


def _cycle(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """The first cycle of a graph, with its first id repeated at the end; empty if there is none."""
    done: set[str] = set()
    for start in parents:
        path: list[str] = []
        todo = [(start, iter(parents[start]))] if start not in done else []
        while todo:
            node, rest = todo[-1]
            path = [name for name, _ in todo]
            parent = next((name for name in rest if name in parents and name not in done), None)
            if parent is None:
                done.add(node)
                todo.pop()
            elif parent in path:
                return [*path[path.index(parent) :], parent]
            else:
                todo.append((parent, iter(parents[parent])))
    return []


def without_bad_dependencies(questions: Sequence[GeckoQuestion]) -> tuple[GeckoQuestion, ...]:
    """The same questions without the dependencies on unknown questions and those that are part of a cycle.

    Removes every dependency of a cycle, so that the order of the questions does not matter.
    """
    parents = {question.id: question.depends_on for question in questions}

    def is_valid(child: str, parent: str) -> bool:
        return parent in parents and child not in _with_ancestors(parent, parents)

    return _with_parents(questions, is_valid)


def without_dependencies_if_any_is_bad(questions: Sequence[GeckoQuestion]) -> tuple[GeckoQuestion, ...]:
    """The same questions without self-dependencies. If another dependency is invalid, all dependencies are removed.

    As in the script of the Davidsonian Scene Graph, on which its published figures depend.
    """
    others = _with_parents(questions, lambda child, parent: child != parent)
    if not any(dependency_problems(others)):
        return others
    return tuple(question.model_copy(update={"depends_on": ()}) for question in questions)


def _with_parents(
    questions: Sequence[GeckoQuestion], is_valid: Callable[[str, str], bool]
) -> tuple[GeckoQuestion, ...]:
    """The same questions with those dependencies (child, parent) that are valid."""
    return tuple(
        question.model_copy(update={"depends_on": tuple(p for p in question.depends_on if is_valid(question.id, p))})
        for question in questions
    )


def _with_ancestors(name: str, parents: Mapping[str, Sequence[str]]) -> set[str]:
    """A question and all on which it depends, directly or not."""
    reached: set[str] = set()
    todo = [name]
    while todo:
        if (current := todo.pop()) not in reached:
            reached.add(current)
            todo += parents.get(current, ())
    return reached
