"""Tests of progress output."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import pytest
from record_factory import UNMEASURED, record
from rich.console import Console

from visioneval.cli import results
from visioneval.cli.options import ResultOptions
from visioneval.running.cells.services import Listener

RUN_INFO: Any = SimpleNamespace(suite=SimpleNamespace(models=(), cases=(), graders=(), judges={}), graded_from=None)
WAITING = [
    "openai:gpt-image-2: 1 generating, 32 waiting (60 requests per minute)",
    "openai:gpt-5.4-mini: 3 waiting 12 s (rate limit)",
]


def watching(cells: int, *, quiet: bool = False) -> AbstractContextManager[Listener]:
    """Shows the progress of a run with this number of cells."""
    prepared: Any = SimpleNamespace(
        notes=(),
        cells=cells,
        plan=SimpleNamespace(suite=SimpleNamespace(name="toy")),
        writer=SimpleNamespace(folder="runs/r", info=RUN_INFO),
    )
    return results.progress_of(ResultOptions(quiet=quiet), debug=False)(prepared)


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
        "3 of 12 cells: 2 pass 1 fail 0 error, 1.50 USD, 0.2 cells/s",
        "6 of 12 cells: 3 pass 3 fail 0 error, 3.00 USD, 0.2 cells/s",
        "9 of 12 cells: 5 pass 4 fail 0 error, 4.50 USD, 0.2 cells/s, about 12 s left",
    ]


class Clock:
    """The time of the progress line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(results, "monotonic", lambda: self.now)


def paced(clock: Clock, pace: results.Pace, cells: int, every_s: float) -> None:
    """Finishes cells at a steady pace."""
    for _ in range(cells):
        clock.now += every_s
        pace.add()


def test_the_estimate_counts_the_last_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = results.Pace(14_000)
    paced(clock, pace, 13_000, 0.0001)  # replayed
    assert pace.per_second == pytest.approx(10_000)
    paced(clock, pace, 31, 1)
    assert pace.per_second == pytest.approx(1, rel=0.05)
    assert pace.remaining_s == pytest.approx(969, rel=0.05)


def test_the_estimate_grows_while_no_cell_finishes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = results.Pace(100)
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
    pace = results.Pace(20)
    paced(clock, pace, 10, 90)
    assert pace.remaining_s == pytest.approx(900)


def test_the_estimate_needs_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = results.Pace(200_000)
    paced(clock, pace, 100_000, 0.001)
    assert len(pace._marks) < 70
    assert pace.remaining_s == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "00:00"), (61, "01:01"), (3599.6, "1:00:00"), (90_000, "25:00:00")]
)
def test_remaining_time_as_text(seconds: float, text: str) -> None:
    assert results._clock(seconds) == text


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(1, quiet=True) as listener:
        listener.record(record())
    assert capsys.readouterr() == ("", "")


def test_plain_lines_say_what_runs_and_waits_before_any_cell_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with watching(12) as listener:
        clock.now += 10
        listener.status(WAITING)
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"0 of 12 cells: 0 pass 0 fail 0 error, 0.0 cells/s; {WAITING[0]}; {WAITING[1]}"
    ]


@pytest.mark.parametrize(
    ("costs", "unpriced", "text"),
    [
        ((), 0, ""),
        ((0.0,), 0, ", 0.00 USD"),
        ((0.004, 0.0081), 0, ", 0.0121 USD"),
        ((None,), 1, ", cost unknown"),
        ((None, 1.2), 1, ", at least 1.20 USD"),
    ],
)
def test_an_unknown_cost_is_no_zero(costs: tuple[float | None, ...], unpriced: int, text: str) -> None:
    counter: Any = SimpleNamespace(unknown=Counter(m=unpriced), add=lambda _: None)
    counts = results.ProgressCounts(counter)
    for cost in costs:
        counts.add(record(cost_usd=cost))
    assert str(counts) == f"{len(costs)} pass 0 fail 0 error{text}"


@pytest.mark.parametrize("columns", [80, 120])
def test_live_lines_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large run that waits: nothing is cut off, and models beyond the first few are counted."""
    clock = Clock(monkeypatch)
    shown = results._LiveProgress(200_000, results.ProgressCounts())
    for at in range(9):
        clock.now += 1
        shown.add(record(sample_index=at, verdict="FAIL", cost_usd=1234.5))
    shown.set_calls([*WAITING * 3, "mock: 1 generating"])
    text = printed(shown, columns)
    first, counts, *calls = text.splitlines()
    assert max(len(line) for line in text.splitlines()) == len(first) == columns
    assert (first[:6], first[-23:]) == ("cells ", "9/200000  55:33:11 left")
    assert counts.rstrip() == "0 pass 9 fail 0 error, 11,110.50 USD, 1.0 cells/s"
    assert [line.rstrip() for line in calls] == [*WAITING * 2, WAITING[0], "and 2 more models"]


def test_a_resumed_run_without_a_cell_to_do() -> None:
    first, counts = printed(results._LiveProgress(0, results.ProgressCounts()), 80).splitlines()
    assert first.endswith("0/0  --:-- left")
    assert counts.rstrip() == "0 pass 0 fail 0 error, 0.0 cells/s"


def printed(shown: results._LiveProgress, columns: int) -> str:
    """The lines on a terminal, without color."""
    console = Console(width=columns, file=io.StringIO(), force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(shown.lines())
    return capture.get()


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
    assert "1 pass 0 fail 1 error, at least 0.2500 USD" in errors  # what the second cell cost is unknown
    assert errors.endswith("\x1b[2K")
