"""Tests of progress output."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import pytest
from record_factory import UNMEASURED, record

from visioneval.cli import progress
from visioneval.cli.options import ResultOptions
from visioneval.engine.listener import Listener


def watching(cells: int, *, quiet: bool = False) -> AbstractContextManager[Listener]:
    """Shows the progress of a run with this number of cells."""
    prepared: Any = SimpleNamespace(
        notes=(),
        cells=cells,
        plan=SimpleNamespace(suite=SimpleNamespace(name="toy")),
        writer=SimpleNamespace(folder="runs/r"),
    )
    return progress.progress_of(ResultOptions(quiet=quiet), debug=False)(prepared)


def test_prints_plain_progress_lines_without_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(0, 1000, 4))
    monkeypatch.setattr(progress, "monotonic", lambda: float(next(seconds)))
    with watching(12) as listener:
        for at in range(12):
            listener.record(record(sample_index=at, verdict="FAIL" if at % 2 else "PASS", cost_usd=0.5))
    out, errors = capsys.readouterr()
    assert out == ""
    assert errors.splitlines() == [
        "toy: 12 cells into runs/r",
        "3 of 12 cells: 2 pass 1 fail 0 error 1.50 USD",
        "6 of 12 cells: 3 pass 3 fail 0 error 3.00 USD",
        "9 of 12 cells: 5 pass 4 fail 0 error 4.50 USD; about 12 s left",
    ]


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(1, quiet=True) as listener:
        listener.record(record())
    assert capsys.readouterr() == ("", "")


def test_live_line_shows_verdicts_and_cost_and_is_removed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with watching(2) as listener:
        listener.record(record(cost_usd=0.25))
        listener.record(record(sample_index=1, verdict="ERROR", error=UNMEASURED))
    errors = capsys.readouterr().err
    assert "2/2" in errors
    assert "1 pass 0 fail 1 error 0.25 USD" in errors
    assert errors.endswith("\x1b[2K")
