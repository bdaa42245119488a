"""Keys from a file: read for one command, behind what is set already."""

from __future__ import annotations

from typing import Any

import pytest
from toys import Toy

pytestmark = pytest.mark.slow

OPENAI: dict[str, Any] = {"models": [{"provider": "openai", "params": {"model": "gpt-image-2"}}]}


def planned(toy: Toy, text: str | bytes) -> tuple[int, str, str]:
    (toy.folder / ".env").write_bytes(text.encode() if isinstance(text, str) else text)
    path = toy.write({}, **OPENAI)
    program = toy.program("--env-file", ".env", "plan", path, "--trust-suite")
    out, errors = program.communicate(timeout=60)
    return program.returncode, out, errors


def test_a_key_in_the_file_is_known_to_the_command(toy: Toy) -> None:
    code, out, errors = planned(toy, "# keys\nexport OPENAI_API_KEY='sk-of-a-file'\nEMPTY\n")
    assert code == 0, errors
    assert "OPENAI_API_KEY" not in out + errors
    assert "sk-of-a-file" not in out + errors


def test_without_it_the_key_is_missing(toy: Toy) -> None:
    code, out, _ = planned(toy, "OTHER=1\n")
    assert code == 0
    assert "set OPENAI_API_KEY" in out


def test_existing_variables_override_the_env_file(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISIONEVAL_CACHE_MAX_GB", "none")
    (toy.folder / ".env").write_text("VISIONEVAL_CACHE_MAX_GB=1\n")
    result = toy("--env-file", toy.folder / ".env", "cache", "info")
    assert result.exit_code == 2
    assert "'none' is not a number of gigabytes" in result.stderr


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_missing_env_file_is_reported_in_one_line(toy: Toy, name: str) -> None:
    result = toy("--env-file", toy.folder / name, "schema")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "--env-file" in result.stderr


def test_a_binary_env_file_is_reported_in_one_line(toy: Toy) -> None:
    code, _, errors = planned(toy, b"\xff\xfe\x00KEY")
    assert (code, errors.count("\n")) == (2, 1)
    assert "not UTF-8" in errors
