"""Questions in the forms in which people keep them, as raw questions of a case.

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
from collections.abc import Collection, Mapping, Sequence
from typing import Any

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
    ids = set(map(_id_of, (*before, *questions)))
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


def _id_of(question: Any) -> str:
    name = question.get("id") if isinstance(question, Mapping) else getattr(question, "id", None)
    return "" if name is None else str(name)


class _Unnamed(dict[str, Any]):
    """A raw question that gets its number as its id."""


def listed_questions(value: Any) -> Any:
    """Like ``question_list``, before they are numbered, so that lists can be put together."""
    if isinstance(value, str):
        return _in_text(value) if value.strip() else value
    if isinstance(value, list | tuple):
        return [question for item in value for question in _in_item(item)]
    if isinstance(value, Mapping):
        return _in_object(value)
    return value


def _in_item(item: Any) -> list[Any]:
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
    return [_of_key(key, item) for key, item in value.items()]


def _of_key(key: str, item: Any) -> Any:
    question = _Unnamed(question=item) if isinstance(item, str) else _question(item)
    return {"id": key, **question} if isinstance(question, Mapping) else question


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
        return [_single({**_at_key(values, key), "id": key}) for key in texts]
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


def _at_key(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    if bad := next((name for name, items in values.items() if isinstance(items, list | tuple)), None):
        raise ValueError(f"questions: {bad!r} must be an object by ID, like the questions")
    return {name: items.get(key) if isinstance(items, Mapping) else items for name, items in values.items()}


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
