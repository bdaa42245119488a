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
    clock = Clock(monkeypatch)
    with watching(12) as listener:
        for at in range(12):
            clock.now += 4
            listener.record(record(sample_index=at, verdict="FAIL" if at % 2 else "PASS", cost_usd=0.5))
    out, errors = capsys.readouterr()
    assert out == ""
    assert errors.splitlines() == [
        "toy: 12 cells into runs/r",
        "3 of 12 cells: 2 pass 1 fail 0 error 1.50 USD",
        "6 of 12 cells: 3 pass 3 fail 0 error 3.00 USD",
        "9 of 12 cells: 5 pass 4 fail 0 error 4.50 USD; about 12 s left",
    ]


class Clock:
    """The time of the progress line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(progress, "monotonic", lambda: self.now)


def paced(clock: Clock, pace: progress.Pace, cells: int, every_s: float) -> None:
    """Finishes cells at a steady pace."""
    for _ in range(cells):
        clock.now += every_s
        pace.add()


def test_the_estimate_counts_the_last_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = progress.Pace(14_000)
    paced(clock, pace, 13_000, 0.0001)  # replayed
    assert pace.per_second == pytest.approx(10_000)
    paced(clock, pace, 31, 1)
    assert pace.per_second == pytest.approx(1, rel=0.05)
    assert pace.remaining_s == pytest.approx(969, rel=0.05)


def test_the_estimate_grows_while_no_cell_finishes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = progress.Pace(100)
    assert (pace.per_second, pace.remaining_s) == (0.0, None)
    paced(clock, pace, 7, 1)
    assert pace.remaining_s is None, "too few cells"
    paced(clock, pace, 3, 1)
    assert pace.remaining_s == pytest.approx(90)
    before = 90.0
    for _ in range(10):
        clock.now += 12
        assert (pace.remaining_s or 0) > before
        before = pace.remaining_s or 0


def test_slow_cells_are_estimated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = progress.Pace(20)
    paced(clock, pace, 10, 90)
    assert pace.remaining_s == pytest.approx(900)


def test_the_estimate_needs_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = progress.Pace(200_000)
    paced(clock, pace, 100_000, 0.001)
    assert len(pace._marks) < 70
    assert pace.remaining_s == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "00:00"), (61, "01:01"), (3599.6, "1:00:00"), (90_000, "25:00:00")]
)
def test_remaining_time_as_text(seconds: float, text: str) -> None:
    assert progress._clock(seconds) == text


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
