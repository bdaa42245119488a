"""Renders templates in the sandbox, and finds the variables whose values the result shows.

Undefined variables are errors, and work is limited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta

from visioneval.errors import TemplateError, did_you_mean
from visioneval.templates.sandbox import Sandbox
from visioneval.templates.steps import MAX_CHARACTERS, MAX_EXPRESSIONS, TooMuchWorkError, counted

_LITERAL = re.compile(r"(?<!\{)\{\s?(prompt|criteria|image_description)\s?\}(?!\})")
_UNSET = re.compile("'(.*)' is not set$")
_NO_FILTER = re.compile(r"No filter named '(.*)'\.?$")
_UNBALANCED = ("unexpected", "expected token")
_SIGNS = ("{{", "{%", "{#")
_EXPRESSION = re.compile(r"((?<!\{)\{\{(?!-)[^{}]*(?<!-)\}\}(?!\}))")
Folders = tuple[Path, ...]


@cache
def text_sandbox() -> Sandbox:
    """The environment for templates from text."""
    return Sandbox()


@lru_cache(maxsize=256)
def _compiled(text: str) -> jinja2.Template:
    return text_sandbox().from_string(text)


def render(text: str, context: Mapping[str, Any]) -> str:
    """Renders a template from text. Raises ``TemplateError`` with the line in the template."""
    if not any(sign in text for sign in _SIGNS):
        return text
    if len(text) > MAX_CHARACTERS:
        raise TemplateError(f"the template has more than {MAX_CHARACTERS:,} characters")
    return _render_parts("template", lambda: _parts(text), context)


def _parts(text: str) -> list[str | jinja2.Template]:
    """Splits a template at its ``{{ expressions }}`` if it has only those, so that prompts share compiled ones."""
    parts = _EXPRESSION.split(text)
    if len(parts) > 2 * MAX_EXPRESSIONS + 1:
        raise TemplateError(f"the template has more than {MAX_EXPRESSIONS:,} expressions")
    if len(parts) > 1 and not any(sign in part for part in parts[::2] for sign in _SIGNS):
        with suppress(jinja2.TemplateSyntaxError):
            return [_compiled(part) if index % 2 else part for index, part in enumerate(parts)]
    return [_compiled(text)]


class ReadOnceLoader(jinja2.FileSystemLoader):
    """Reads each template file once, so that a run renders and records one text of it, whoever edits it meanwhile.

    ``sources`` has what was read, by name: the text and the path.
    """

    def __init__(self, folders: tuple[Path, ...]) -> None:
        super().__init__(folders)
        self.sources: dict[str, tuple[str, str]] = {}

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """Text, path, and a function that says that both are up to date. Raises ``TemplateNotFound``."""
        if template not in self.sources:
            text, path, _ = super().get_source(environment, template)
            self.sources[template] = text, path
        return *self.sources[template], lambda: True


class Templates:
    """The template files of some folders, in search order. Each is read once: what it renders is what it has hashed.

    A pickled copy has the texts that were read, so that all workers of a run render the same.
    """

    def __init__(self, folders: Folders = (), sources: Mapping[str, tuple[str, str]] | None = None) -> None:
        self._folders = folders
        self._loader = ReadOnceLoader(folders)
        self._loader.sources.update(sources or {})
        self.environment = Sandbox(self._loader)
        self._digests: dict[tuple[str, ...], str] = {}

    def __reduce__(self) -> tuple[type[Templates], tuple[Folders, Mapping[str, tuple[str, str]]]]:
        return Templates, (self._folders, self._loader.sources)

    def render(self, name: str, context: Mapping[str, Any]) -> str:
        """Renders a template from the first folder that has it. Raises ``TemplateError``."""
        return _render_parts(f"template {name!r}", lambda: [self.environment.get_template(name)], context)

    def text(self, name: str) -> str:
        """The text of a template. Raises ``jinja2.TemplateNotFound``."""
        return self._loader.get_source(self.environment, name)[0]

    def files(self, name: str) -> dict[str, Path]:
        """The files of a template and of all templates that it includes, by name. Raises ``TemplateError``."""
        files, todo = dict[str, Path](), [name]
        current = name
        try:
            while todo:
                if (current := todo.pop()) in files:
                    continue
                text, path, _ = self._loader.get_source(self.environment, current)
                files[current] = Path(path)
                todo += _referenced(text, current)
        except (jinja2.TemplateNotFound, jinja2.TemplateSyntaxError) as error:
            raise _readable(error, current) from None
        except (RecursionError, ValueError) as error:
            raise _unusable(f"template {current!r}", error) from None
        return files

    def says(self, name: str, *texts: str) -> bool:
        """Whether a template, with those that it includes, has each of these texts. Raises ``TemplateError``."""
        sources = "\n".join(map(self.text, self.files(name)))
        return all(text in sources for text in texts)

    def names_in(self, name: str) -> tuple[set[str], tuple[str, ...]]:
        """The variables that a template names, or one that it includes or extends, and those in single braces, such as
        ``{prompt}``, which Jinja leaves as they are. Raises ``TemplateError``.
        """
        variables, literals = set[str](), list[str]()
        for file in self.files(name):
            text = self.text(file)
            try:
                variables |= meta.find_undeclared_variables(self.environment.parse(text, file))
            except jinja2.TemplateSyntaxError as error:
                raise _readable(error, file) from None
            except (RecursionError, ValueError) as error:
                raise _unusable(f"template {file!r}", error) from None
            data = (value for _, kind, value in self.environment.lex(text) if kind == "data")
            literals += (literal for value in data for literal in _LITERAL.findall(value))
        return variables, tuple(dict.fromkeys(literals))

    def digest(self, *names: str) -> str:
        """SHA-256 of the text of templates and all that they include, since a judge's answers depend on them.

        Raises ``TemplateError``.
        """
        if names not in self._digests:
            files = sorted({file for name in names for file in self.files(name)})
            texts = {file: self.text(file) for file in files}
            self._digests[names] = sha256(json.dumps(texts).encode()).hexdigest()
        return self._digests[names]


@lru_cache(maxsize=256)
def _referenced(text: str, name: str) -> tuple[str, ...]:
    """The templates that the template ``name`` includes or extends. Raises ``TemplateSyntaxError``.

    Raises ``TemplateError`` for names that only rendering computes: these files would be neither hashed nor checked.
    """
    if "include" not in text and "extends" not in text:
        return ()
    names = tuple(meta.find_referenced_templates(text_sandbox().parse(text)))
    if None in names:
        raise TemplateError(f"{name}: include and extends need the name of a template in quotes, not an expression")
    return tuple(filter(None, names))


def _readable(error: jinja2.TemplateNotFound | jinja2.TemplateSyntaxError, name: str) -> TemplateError:
    """Why the template ``name`` cannot be read."""
    if isinstance(error, jinja2.TemplateNotFound):
        where = "in the suite's folder, in templates_dir or among the built-in templates"
        return TemplateError(f"there is no template {error.name!r} {where}")
    text = str(error.message)
    if unknown := _NO_FILTER.match(text):
        similar = get_close_matches(unknown[1], text_sandbox().filters, n=1)
        text = f"there is no filter {unknown[1]!r}" + (f" (did you mean {similar[0]!r}?)" if similar else "")
    elif text.startswith(_UNBALANCED):
        text = f"{text.rstrip('.')}: write an expression as '{{{{ NAME }}}}', with two braces on each side"
    return TemplateError(f"{error.name or name}, line {error.lineno}: {text}")


def _unusable(name: str, error: Exception) -> TemplateError:
    """Why a template can be read, but not parsed or rendered."""
    if isinstance(error, RecursionError):
        return TemplateError(f"the {name} is nested too deeply")
    reason = "a number has too many digits" if "digits" in str(error) else str(error) or type(error).__name__
    return TemplateError(f"the {name} cannot be rendered: {reason}")


def _render_parts(name: str, get_parts: Callable[[], list[str | jinja2.Template]], context: Mapping[str, Any]) -> str:
    try:
        with counted():
            return _joined(get_parts(), context)
    except TooMuchWorkError as error:
        message = f"the {name} cannot be rendered: {error}"
        raise TooMuchWorkError(message, is_of_suite=error.is_of_suite) from None
    except TemplateError:
        raise
    except (jinja2.TemplateNotFound, jinja2.TemplateSyntaxError) as error:
        raise _readable(error, name) from None
    except jinja2.UndefinedError as error:
        unset = _UNSET.match(str(error.message))
        known = did_you_mean(unset[1], context) if unset else ""
        raise TemplateError(f"undefined template variable: {error.message}{known}") from None
    except Exception as error:
        raise _unusable(name, error) from None


def _joined(parts: list[str | jinja2.Template], context: Mapping[str, Any]) -> str:
    pieces: list[str] = []
    room = MAX_CHARACTERS
    for part in parts:
        for piece in [part] if isinstance(part, str) else part.generate(context):
            room -= len(piece)
            if room < 0:
                raise TemplateError(f"the rendered template has more than {MAX_CHARACTERS:,} characters")
            pieces.append(piece)
    return "".join(pieces)


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

    def is_verbatim(text: str) -> bool:
        return (len(text.strip()) >= VERBATIM and text.strip() in output) or (
            # an ID begins a line where a template numbers the questions itself: ``q1: Is there a cup?``
            text in ids and re.search(rf"^\W*{re.escape(text)}(?!\w)", output, re.MULTILINE) is not None
        )

    unclear = dict.fromkeys(text for parts in texts.values() for text in parts if not is_verbatim(text))
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


def _shown_texts(
    marks: Mapping[str, str], names: Iterable[str], context: Mapping[str, Any], output: str, render: Render
) -> set[str] | None:
    """The texts whose marks are visible; ``None`` if nothing can be rendered with marks."""
    shown: set[str] | None = None
    masked = {
        text: "".join(mark if char.isalnum() or (ord(char) > 127 and not char.isspace()) else char for char in text)
        for text, mark in marks.items()
    }  # as long, with the same lines, words and punctuation
    extended = {text: f"{text} {mark * ENOUGH}" for text, mark in marks.items()}  # conditions on words still find them
    for marked in (masked, extended):
        changed = dict(context)
        for variable, key in map(_split, names):
            changed[variable] = _replaced(changed.get(variable), key, marked)
        try:
            probe = render(changed)
        except TemplateError:
            continue
        needed = {text: min(ENOUGH, (marked[text].count(mark) + 1) // 2) for text, mark in marks.items()}
        visible = {text for text, mark in marks.items() if 0 < needed[text] <= probe.count(mark) - output.count(mark)}
        shown = visible if shown is None else shown | visible
        if len(shown) == len(marks):
            break
    return shown
