"""Long tests, collected only when named, as by ``make soak``."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a measurement, bypassing pytest's capture."""

    def print_line(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", flush=True)

    return print_line
