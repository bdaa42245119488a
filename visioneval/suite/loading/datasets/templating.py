"""Templates of a dataset: paths with the suite's variables, and text that is rendered for each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jinja2 import TemplateSyntaxError, meta

from visioneval.errors import TemplateError, count_of
from visioneval.suite.loading.datasets.rows import NUMBER, Row
from visioneval.suite.loading.messages import Loc
from visioneval.suite.secrets import SECRET_NAME, environment_secrets
from visioneval.templates.render import render, text_sandbox

_SIGNS = ("{{", "{%")


@lru_cache(maxsize=4096)
def is_template(text: str) -> bool:
    """Whether a text contains an expression or a statement."""
    return any(sign in text for sign in _SIGNS)


@lru_cache(maxsize=1024)
def uses_row(text: str) -> bool:
    """Whether a text is a template that reads ``row``."""
    if "row" not in text or not is_template(text):
        return False
    try:
        return "row" in meta.find_undeclared_variables(text_sandbox().parse(text))
    except TemplateSyntaxError:
        return True  # rendering it reports the error


def row_texts(value: Any) -> Iterator[str]:
    """All texts in a value that read ``row``."""
    if isinstance(value, str):
        if uses_row(value):
            yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from row_texts(item)


@dataclass(slots=True)
class TemplateFaults:
    """The templates of a dataset that fail: each is one problem, at its own place, for however many rows it fails."""

    _first: dict[Loc, tuple[int, str]] = field(default_factory=dict)
    """The line of the first row, and what is wrong there."""
    _rows: Counter[Loc] = field(default_factory=Counter)

    def add(self, loc: Loc, line: int, error: TemplateError) -> None:
        """Notes that the template at ``loc``, a path below the dataset, fails for the row in a line."""
        self._first.setdefault(loc, (line, f"{loc[1]}: {error}"))
        self._rows[loc] += 1

    def problems(self, name: str) -> Iterator[tuple[Loc, str]]:
        """What is wrong with each template for its first row in the file ``name``."""
        for loc, (line, message) in self._first.items():
            others = self._rows[loc] - 1
            more = f", and {count_of(others, 'more row')}" if others else ""
            yield loc, f"{message} (line {line} of {name}{more})"


class Variables:
    """The suite's variables, in the templates of datasets. Secret ones are left out, as runs store what is rendered."""

    def __init__(self, values: Any) -> None:
        declared = values if isinstance(values, dict) else {}
        secrets = environment_secrets()
        public = {
            name: value
            for name, value in declared.items()
            if not SECRET_NAME.fullmatch(str(name)) and not any(secret in str(value) for secret in secrets)
        }
        self._context = {**public, "vars": public}

    def path(self, text: str) -> str:
        """A path or URL with its variables replaced. Raises ``TemplateError``."""
        return render(text, self._context)

    def text(self, text: str, row: Row) -> str:
        """A text with values of ``row``. Raises ``TemplateError``."""
        return render(text, {**self._context, "row": {NUMBER: row.number, **row.cells}})

    def filled(self, value: Any, row: Row) -> Any:
        """A value with every text that reads ``row`` rendered. Raises ``TemplateError``."""
        if isinstance(value, str):
            return self.text(value, row) if uses_row(value) else value
        if isinstance(value, dict):
            return {key: self.filled(item, row) for key, item in value.items()}
        return [self.filled(item, row) for item in value] if isinstance(value, list) else value
