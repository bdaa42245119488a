"""What tests of custom classes and plug-ins share."""

from __future__ import annotations

import pytest
from classes import OwnClasses
from packages import Site
from toys import Toy


@pytest.fixture
def site(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A suite that uses the plug-ins of a package that is not installed yet; the working directory is its folder."""
    return Site(toy, monkeypatch)


@pytest.fixture
def ours(toy: Toy) -> OwnClasses:
    """A suite that uses the classes of a module beside it; the working directory is its folder."""
    return OwnClasses(toy)
