"""The pytest plugin of a run with a planted bug: writes down which test failed and why, and what was imported."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

REPORT = "MUTANTS_REPORT"
"""The environment variable that names the file to write."""
_IMPORTS = (ImportError, NameError, SyntaxError)
_failures: list[dict[str, object]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers failed tests, and whether an error of an import or a name is the cause."""
    report = yield
    if report.failed:
        is_broken = call.excinfo is not None and isinstance(call.excinfo.value, _IMPORTS)
        reason = "" if call.excinfo is None else call.excinfo.exconly(tryshort=True)
        _failures.append({"test": item.nodeid, "is_broken": is_broken, "reason": reason})
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the report. ``foreign``: modules of the package that were not imported from the copy."""
    root = Path.cwd()
    modules = list(sys.modules.items())  # a thread of the program may still import
    files = {name: module.__file__ for name, module in modules if name.partition(".")[0] == "visioneval"}
    foreign = sorted(name for name, file in files.items() if not Path(file or root).is_relative_to(root))
    report = {"failures": _failures, "foreign": foreign, "imported": len(files)}
    Path(os.environ[REPORT]).write_text(json.dumps(report), encoding="utf-8")
