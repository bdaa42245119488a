"""Questions about an image or a video: in the forms in which people keep them, the model, and checks of dependencies.

A case has them as:

- texts: ``[Is there a cat?, Is it black?]``
- pairs: ``[[Is there a cat?, yes], [Is it white?, no]]``
- objects by id: ``{q1: Is there a cat?, q2: {question: Is it black?, dependencies: [q1]}}``
- lists or objects of equal length: ``{questions: [...], answers: [...]}``
- records of Gecko (``{qas: [{question_id: ...}]}``), and text with ``Question:`` and ``Verdict:`` lines, also in
  ``<question>`` tags

Questions without an id are numbered ``q1``, ``q2``, past the ids that others have.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from visioneval.types import Frozen

_NAMES = {
    "question_id": "id",
    "question_type": "type",
    "dependencies": "depends_on",
    "dependency_id": "depends_on",
}
"""Other names of the keys of a question."""
_PLURALS = {"ids": "id", "questions": "question", "answers": "answer", "types": "type"}
"""Other names of keys whose values are lists with an item for each question."""
_RECORD = "qas"
_TAG = re.compile(r"</?question>")
_LABEL = re.compile(r"(?:^|(?<=\s))\**(Question|Answer|Verdict)\**:\**")
_MAY_BE_NULL = ("choices", "type", "justification", "depends_on")
_NO_PARENT = ("0", "")


def question_list(value: Any, before: Sequence[Any] = ()) -> Any:
    """A list of raw questions; unchanged if the value has no known form, so that the model reports it.

    ``before`` are questions of the same case that have their ids already. Raises ``ValueError`` for lists of different
    lengths.
    """
    questions = listed_questions(value)
    return _numbered(questions, before) if isinstance(questions, list) else questions


def _numbered(questions: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    """The same raw questions, each with an id, and with dependencies as lists of ids."""
    names = (q.get("id") if isinstance(q, Mapping) else getattr(q, "id", None) for q in (*before, *questions))
    ids = {"" if name is None else str(name) for name in names}
    listed: list[Any] = []
    number = len(before)
    for question in questions:
        number += 1
        if isinstance(question, _Unnamed):
            while f"q{number}" in ids:
                number += 1
            question = {"id": f"q{number}", **question}
            ids.add(question["id"])
        listed.append(question)
    return [
        {**question, "depends_on": _parents(question["depends_on"], ids)}
        if isinstance(question, Mapping) and "depends_on" in question
        else question
        for question in listed
    ]


class _Unnamed(dict[str, Any]):
    """A raw question that gets its number as its id."""


def listed_questions(value: Any) -> Any:
    """Like ``question_list``, before they are numbered, so that lists can be put together."""
    if isinstance(value, str):
        return _in_text(value) if value.strip() else value
    if isinstance(value, list | tuple):
        return [question for item in value for question in _in_list(item)]
    if isinstance(value, Mapping):
        return _in_object(value)
    return value


def _in_list(item: Any) -> list[Any]:
    if isinstance(item, Mapping) and _RECORD in item:
        questions = listed_questions(item[_RECORD])
        return questions if isinstance(questions, list) else [item]
    return _in_text(item) if isinstance(item, str) else [_question(item)]


def _in_text(text: str) -> list[Any]:
    """A text is a question, unless it begins with ``Question:``. A verdict was about one image, so it is ignored.

    Raises ``ValueError`` for text that belongs to no question, so that none is lost.
    """
    if "<question>" in text:
        blocks = [block for block in _TAG.split(text) if re.search(r"\w", block)]
        for block in blocks:
            if "Question:" not in block:
                raise _stray(block)
        return [question for block in blocks for question in _in_text(block[block.find("Question:") :])]
    parts = _LABEL.split(text.strip())
    if parts[0].strip() or len(parts) < 3:
        return [_Unnamed(question=text)]
    questions: list[Any] = []
    for label, content in zip(parts[1::2], parts[2::2], strict=True):
        if label == "Question":
            questions.append(_Unnamed(question=content.strip()))
            continue
        value, _, rest = content.strip().partition("\n")
        if not questions or "?" in value or re.search(r"\w", rest):
            raise _stray(rest if questions and "?" not in value else f"{label}: {value}")
        if label == "Answer":
            questions[-1]["answer"] = value.strip()
    return questions


def _stray(text: str) -> ValueError:
    first = text.strip().splitlines()[0]
    return ValueError(f"questions: {first!r:.80} belongs to no question: write 'Question:' before each question")


def _question(item: Any) -> Any:
    """A raw question from a pair or an object; anything else is unchanged."""
    if isinstance(item, _Unnamed):
        return item
    if isinstance(item, Mapping):
        return _with_name(_without_nulls(_renamed(item, _NAMES)))
    if isinstance(item, list | tuple) and len(item) == 2 and not any(isinstance(part, list | Mapping) for part in item):
        return _Unnamed(question=item[0], answer=_answer(item[1]))
    return item


def _in_object(value: Mapping[str, Any]) -> Any:
    if _RECORD in value:
        return listed_questions(value[_RECORD])
    named = _renamed(value, {**_NAMES, **_PLURALS})
    texts = named.get("question")
    if isinstance(texts, list | tuple) and any(isinstance(text, Mapping) for text in texts):
        return listed_questions(texts)  # what a judge replies: its questions beside the keywords of the prompt
    if isinstance(texts, list | tuple | Mapping):
        return parallel_questions(named)
    if isinstance(texts, str):
        return [_with_name(_without_nulls(named))]
    by_id = {key: _Unnamed(question=item) if isinstance(item, str) else _question(item) for key, item in value.items()}
    return [{"id": key, **item} if isinstance(item, Mapping) else item for key, item in by_id.items()]


def _with_name(question: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same question, to be numbered if it has no id."""
    name = question.get("id")
    if name is not None and not (isinstance(name, str) and not name.strip()):
        return question
    return _Unnamed({key: value for key, value in question.items() if key != "id"})


def parallel_questions(values: Mapping[str, Any]) -> list[Any]:
    """The raw questions of an object whose ``question`` is a text, or a list or an object with several.

    Other values are lists or objects of the same length, or one value for all questions. Raises ``ValueError`` if a
    length differs.
    """
    texts = values.get("question")
    if isinstance(texts, Mapping):
        listed = (name for name, items in values.items() if isinstance(items, list | tuple))
        if texts and (bad := next(listed, None)):
            raise ValueError(f"questions: {bad!r} must be an object by ID, like the questions")
        objects = {name: items for name, items in values.items() if isinstance(items, Mapping)}
        return [_single({**values, **{name: objects[name].get(key) for name in objects}, "id": key}) for key in texts]
    if not isinstance(texts, list | tuple):
        return [_single(values)]
    for key, items in values.items():
        if isinstance(items, list | tuple) and len(items) != len(texts):
            raise ValueError(f"questions: {len(texts)} questions, but {len(items)} values of {key!r}")
    if by_id := next((key for key, items in values.items() if isinstance(items, Mapping)), None):
        raise ValueError(f"questions: {by_id!r} must be a list, like the questions")
    return [
        _single({key: items[index] if isinstance(items, list | tuple) else items for key, items in values.items()})
        for index in range(len(texts))
    ]


def _single(values: Mapping[str, Any]) -> dict[str, Any]:
    """One raw question, without keys that have no value."""
    question = {key: _answer(value) if key == "answer" else value for key, value in values.items()}
    question = {key: value for key, value in question.items() if value not in (None, "")}
    return question if "id" in question else _Unnamed(question)


def _answer(value: Any) -> Any:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _renamed(question: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The keys of a question by their own names. A key that would replace another one keeps its name."""
    return {
        (names[key] if key in names and names[key] not in question else key): value for key, value in question.items()
    }


def _without_nulls(question: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: value for key, value in question.items() if value is not None or key not in _MAY_BE_NULL}
    return {**values, "answer": _answer(values["answer"])} if "answer" in values else values


def _parents(value: Any, ids: Collection[str]) -> Any:
    """The ids that a question depends on. Text may list several; 0 is none, unless a question has this id."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        value = str(value)
    if isinstance(value, str):
        parts: Sequence[str] = [value.strip()] if value.strip() in ids else [part.strip() for part in value.split(",")]
        return [part for part in parts if part in ids or part not in _NO_PARENT]
    if isinstance(value, list | tuple):
        parents = [_parents(item, ids) for item in value]
        return [entry for parent in parents for entry in (parent if isinstance(parent, list) else [parent])]
    return value


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

    id: QuestionId = Field(
        description="Unique in its case. Also `question_id`. Default: its number, `q1`, `q2`, past the IDs of other "
        "questions; those of `add_questions` go on from `questions`."
    )
    question: Line = Field(description="The question, on one line.")
    choices: tuple[Line, ...] = Field(
        default=YES_NO,
        max_length=MAX_CHOICES,
        json_schema_extra={"minItems": 2},
        description="Two or more possible answers. If they are not yes and no, `none of them` is added.",
    )
    answer: Line = Field(default="yes", description="The choice that matches the prompt.")
    type: QuestionType = Field(
        default="other",
        description="The type of claim, which has a score of its own: any word without quotes. Also `question_type`. "
        "Generated ones are, for images, `object`, `human`, `animal`, `food`, `activity`, `attribute`, `counting`, "
        "`color`, `material`, `spatial`, `location`, `shape` and `other`; for videos `entity`, `object`, `attribute`, "
        "`action`, `color`, `spatial relation`, `temporal relation`, `style` and `scene`.",
    )
    justification: str = Field(
        default="",
        description="The words of the prompt that it is about, for readers: in records, the report and `show`.",
    )
    depends_on: Annotated[
        tuple[QuestionId, ...],
        BeforeValidator(
            lambda value: [value] if isinstance(value, (str, int)) and not isinstance(value, bool) else value,
            json_schema_input_type=tuple[QuestionId, ...] | str | int,
        ),
    ] = Field(
        default=(),
        description="IDs of parent questions (also `dependencies` or `dependency_id`), as a list or as text such as "
        "`1, 2`; 0 means none, unless a question has this ID. Unless each is answered correctly, this one scores 0, "
        "and stays in the denominator. A parent's own answer counts; a grandparent's has no effect.",
    )

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
            message = f"type: {kind!r:.80} contains a quote"
            raise ValueError(f"{message}: remove it, since rules must be able to name the type")
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
        return parent in parents and child not in {parent, *reachable(parent, parents)}

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


def reachable(name: str, parents: Mapping[str, Iterable[str]]) -> set[str]:
    """All on which a name depends, directly or not; contains the name itself if it is in a cycle."""
    reached: set[str] = set()
    todo = [name]
    while todo:
        new = set(parents.get(todo.pop(), ())) - reached
        reached |= new
        todo += new
    return reached
