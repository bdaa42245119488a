"""Suites as text, one section per line, so that a test can state the position of a problem, and their problems."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visioneval import SuiteError, UsageError, plugins
from visioneval.suite.load import load_suite

_CLASSES = re.compile(r"'([A-Za-z_][\w.]*):([A-Za-z_]\w*)'")


def suite(
    *more: str,
    name: str = "name: demo",
    cases: str = "cases: [{id: one, prompt: a tree}]",
    models: str = "models: [{provider: mock}]",
    graders: str = "graders: [{key: image, type: properties}]",
    verdict: str = "verdict: [not image.blank]",
) -> str:
    """A small suite that loads: name on line 1, cases 2, models 3, graders 4, verdict 5, the rest from 6 on."""
    return "\n".join([name, cases, models, graders, verdict, *more]) + "\n"


def no_runs(run: str) -> list[str]:
    """An empty folder of runs."""
    raise UsageError(f"there is no run {run!r}")


def suite_problems(
    text: str | bytes, files: Mapping[str, str | bytes] | None = None, *, with_warnings: bool = False, **options: Any
) -> list[str]:
    """The error lines of ``suite.yaml`` in the working directory, where it and ``files`` are written.

    ``with_warnings``: those of a suite without errors are its warnings. Classes that a trusted suite names exist.
    """
    for name, content in {"suite.yaml": text, **(files or {})}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for module, name in _CLASSES.findall(str(text)) if options.get("trust") else ():
        path = Path(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"class {name}:\n    def __init__(self, config): ...\n"
            "    def grade(self, context): ...\n    def ask(self, question, about): ...\n"
            "    def generate(self, request): ...\n    edit = generate\n"
        )
    try:
        loaded = load_suite(Path("suite.yaml"), **{"run_labels": no_runs, **options})
    except SuiteError as error:
        return [str(problem) for problem in error.problems]
    return [str(warning) for warning in loaded.warnings] if with_warnings else []


@contextmanager
def forget_modules() -> Iterator[None]:
    """Forgets the modules beside suites that were loaded inside, as thousands of folders would slow down every import."""
    before = set(sys.modules)
    yield
    folders = plugins._SUITE_FOLDERS
    if not folders:
        return
    sys.path[:] = [path for path in sys.path if path not in folders]
    for name in [name for name in sys.modules if name not in before]:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(tuple(folders)):
            del sys.modules[name]
    folders.clear()
