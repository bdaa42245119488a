"""Reads template files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jinja2


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
