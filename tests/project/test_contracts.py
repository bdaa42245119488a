"""Checks that the contracts on options in ``pyproject.toml`` name every package of graders and of providers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["graders", "providers"])
def test_a_contract_keeps_the_options_of_every_package_apart_from_its_work(folder: str) -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    (contract,) = (
        contract
        for contract in tool["importlinter"]["contracts"]
        if contract["name"].startswith("options") and f" of {folder} " in contract["name"]
    )
    packages = {path.parent.name for path in (ROOT / "visioneval" / folder).glob("*/__init__.py")}
    assert set(contract["source_modules"]) == {f"visioneval.{folder}.{name}" for name in packages}
