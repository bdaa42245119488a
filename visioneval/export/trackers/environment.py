"""Settings of trackers' clients that are environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def client_environment(settings: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[None]:
    """Sets variables meanwhile. ``defaults`` are for those that the user has not set."""
    changed = {**{name: value for name, value in defaults.items() if name not in os.environ}, **settings}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
