"""The variables whose values a rendered template shows, found by rendering it again with other values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from visioneval.errors import TemplateError

VERBATIM = 12
"""Characters of a text that occurs in the output only if the template shows it."""
ENOUGH = 8
"""Characters of a text that must be visible; half of them if the text is short."""
_ID = "id"
_FIRST_MARK, _MARKS = 0x13000, 1000
"""Egyptian hieroglyphs: letters that no filter changes, and that prompts and templates do not contain."""

Render = Callable[[Mapping[str, Any]], str]


def set_values(names: Iterable[str], context: Mapping[str, Any]) -> frozenset[str]:
    """Those of ``names`` whose value has text: others have nothing that a template could show.

    ``questions.id`` names the IDs of questions.
    """
    return frozenset(name for name in names if any(_texts_of(name, context)))


def shown_values(names: Collection[str], context: Mapping[str, Any], output: str, render: Render) -> frozenset[str]:
    """Those of ``names`` whose value is visible in ``output``, which ``render(context)`` returned.

    A value is also visible if it is shortened, or in another form such as upper case or JSON. One that only decides
    a condition is not. To find out, ``render`` is called with marked values. If it raises ``TemplateError`` for those,
    the value counts as visible. Of questions, all must be visible.
    """
    texts = {name: list(_texts_of(name, context)) for name in names}
    ids = {text for name, parts in texts.items() if _split(name)[1] == _ID for text in parts}
    unclear = dict.fromkeys(
        text
        for parts in texts.values()
        for text in parts
        if not _is_verbatim(text, output) and not (text in ids and _begins_line(text, output))
    )
    marks = {text: chr(_FIRST_MARK + index % _MARKS) for index, text in enumerate(unclear)}
    shown = _shown_texts(marks, names, context, output, render) if marks else set[str]()
    if shown is None and len(names) > 1:  # which of the values cannot be replaced?
        return frozenset().union(*(shown_values([name], context, output, render) for name in names))
    hidden = set[str]() if shown is None else marks.keys() - shown
    return frozenset(name for name, parts in texts.items() if parts and hidden.isdisjoint(parts))


def _split(name: str) -> tuple[str, str]:
    """The variable of a name, and the key of its questions."""
    variable, _, key = name.partition(".")
    return variable, key or "question"


def _texts_of(name: str, context: Mapping[str, Any]) -> Iterator[str]:
    variable, key = _split(name)
    yield from _texts(context.get(variable), key)


def _texts(value: Any, key: str) -> Iterator[str]:
    """The texts of a value: of a text or of the key of a question one, of a list those of its items."""
    if isinstance(value, str):
        yield from [value] if value.strip() else []
    elif isinstance(value, Mapping):
        yield from _texts(value.get(key), key)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item, key)


def _replaced(value: Any, key: str, texts: Mapping[str, str]) -> Any:
    """A copy of a value with its texts replaced."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, Mapping):
        return {**value, key: _replaced(value.get(key), key, texts)}
    return [_replaced(item, key, texts) for item in value] if isinstance(value, Sequence) else value


def _begins_line(text: str, output: str) -> bool:
    """Whether an ID begins a line, as where a template numbers the questions itself: ``q1: Is there a cup?``."""
    return re.search(rf"^\W*{re.escape(text)}(?!\w)", output, re.MULTILINE) is not None


def _is_verbatim(text: str, output: str) -> bool:
    return len(text.strip()) >= VERBATIM and text.strip() in output


def _shown_texts(
    marks: Mapping[str, str], names: Iterable[str], context: Mapping[str, Any], output: str, render: Render
) -> set[str] | None:
    """The texts whose marks are visible; ``None`` if nothing can be rendered with marks."""
    shown: set[str] | None = None
    for mark_text in (_masked, _extended):
        marked = {text: mark_text(text, mark) for text, mark in marks.items()}
        changed = dict(context)
        for variable, key in map(_split, names):
            changed[variable] = _replaced(changed.get(variable), key, marked)
        try:
            probe = render(changed)
        except TemplateError:
            continue
        visible = {text for text, mark in marks.items() if _is_visible(mark, marked[text], output, probe)}
        shown = visible if shown is None else shown | visible
        if len(shown) == len(marks):
            break
    return shown


def _masked(text: str, mark: str) -> str:
    """The text with a mark for each letter and digit: as long, with the same lines, words and punctuation."""
    return "".join(mark if char.isalnum() or (ord(char) > 127 and not char.isspace()) else char for char in text)


def _extended(text: str, mark: str) -> str:
    """The text with marks after it: a template with a condition on its words still finds them."""
    return f"{text} {mark * ENOUGH}"


def _is_visible(mark: str, marked: str, output: str, probe: str) -> bool:
    needed = min(ENOUGH, (marked.count(mark) + 1) // 2)
    return needed > 0 and probe.count(mark) - output.count(mark) >= needed
