"""Fixtures of the tests of providers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def wait_for() -> Callable[[Any], Any]:
    """The result of a coroutine, in an event loop of its own."""
    return asyncio.run
