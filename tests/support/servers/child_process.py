"""Waits for child processes."""

from __future__ import annotations

import time
from collections.abc import Callable

from fork_server import ForkedProgram


def wait_until(condition: Callable[[], bool], program: ForkedProgram) -> None:
    """Waits until a condition holds while the program runs."""
    end = time.monotonic() + 60
    while not condition():
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
