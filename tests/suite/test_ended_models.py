"""Models that their providers have ended or will end: a warning with the successor, where the provider's own names count."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from visioneval.cli import app

VERTEX = {"google": {"project": "shop", "location": "global"}}
SERVER = {"base_url": "https://models.example/v1", "api_key_env": "SHOP_KEY"}
NANO = "'gemini-3.1-flash-image' was shut down on 2026-10-29 (Gemini API): use 'gemini-nano-banana-2.1'"
IMAGEN = "Imagen was shut down on the Gemini API on 2026-08-17"
LOOK = {"key": "look", "type": "rubric", "metrics": {"good": {"type": "pass_fail", "description": "it is good"}}}


@pytest.fixture(autouse=True)
def _on_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    it_is(monkeypatch, "2026-11-25")


def it_is(monkeypatch: pytest.MonkeyPatch, day: str) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Clock:
            return cls.fromisoformat(day).replace(hour=12, tzinfo=UTC)

    monkeypatch.setattr("visioneval.providers.ended_models.datetime", Clock)


def entry(provider: str, model: str, **more: Any) -> dict[str, Any]:
    return {"provider": provider, "params": {"model": model}, **more}


def judge(provider: str, model: str, **more: Any) -> dict[str, Any]:
    return {"provider": provider, "model": model, **more}


def command(folder: Path, *words: str, **suite: Any) -> Any:
    """A command on a suite of one case, whose judge answers a rubric."""
    data = {
        "name": "ends",
        "models": [{"provider": "mock"}],
        "judges": {"default": judge("openai", "gpt-5.4")},
        "cases": [{"id": "tree", "prompt": "a tree"}],
        "graders": [LOOK],
        "verdict": ["good"],
        **suite,
    }
    path = folder / "suite.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    return CliRunner().invoke(app, [words[0], str(path), "--trust-suite", *words[1:]])


def warnings(folder: Path, *words: str, **suite: Any) -> list[str]:
    """The warnings of ``validate`` about models that end, without their positions."""
    result = command(folder, "validate", *words, **suite)
    assert result.exit_code == 0, result.output
    lines = [line.partition(": warning: ")[2] for line in result.output.splitlines() if ": warning: " in line]
    return [line for line in lines if "shut down" in line or "deprecated" in line]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (entry("gemini", "gemini-3.1-flash-image"), NANO),
        (entry("gemini", "models/gemini-3.1-flash-image"), NANO.replace("'gemini-3", "'models/gemini-3")),
        (entry("gemini", "gemini-3.1-flash-image", base_url="https://generativelanguage.googleapis.com"), NANO),
        (entry("gemini", "gemini-3.1-flash-image", **VERTEX), None),
        (entry("gemini", "gemini-3.1-flash-image", **SERVER), None),
        (entry("gemini", "gemini-nano-banana-2.1"), None),
        (
            entry("gemini", "gemini-2.5-flash-image"),
            "'gemini-2.5-flash-image' will be shut down on 2027-03-15 (Gemini API): use 'gemini-3.1-flash-lite-image'",
        ),
        (
            entry("openai", "gpt-image-1"),
            "'gpt-image-1' was shut down on 2026-10-23 (OpenAI): use 'gpt-image-2.5-flare'",
        ),
        (
            entry("openai", "gpt-image-1", base_url="https://api.openai.com/v1"),
            "'gpt-image-1' was shut down on 2026-10-23 (OpenAI): use 'gpt-image-2.5-flare'",
        ),
        (
            entry("openai", "gpt-image-1.5-2025-12-16"),
            "'gpt-image-1.5-2025-12-16' will be shut down on 2026-12-01 (OpenAI): use 'gpt-image-2.5-flare'",
        ),
        (entry("openai", "gpt-image-1", **SERVER), None),
        (entry("openai", "gpt-image-2"), None),
        (entry("openai", "gpt-image-10"), None),
        (entry("litellm", "openai/gpt-image-1", api_key_env="OPENAI_API_KEY"), None),
        ({"provider": "mock", "label": "gpt-image-1"}, None),
        ({"provider": "command", "argv": ["true"], "label": "gpt-image-1", "params": {"model": "gpt-image-1"}}, None),
    ],
)
def test_a_generating_model(model: dict[str, Any], expected: str | None, tmp_path: Path) -> None:
    assert warnings(tmp_path, models=[model]) == [expected] * (expected is not None)


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (judge("openai", "gpt-4o"), "'gpt-4o' will be shut down on 2027-01-14 (OpenAI): use 'gpt-6-luna'"),
        (
            judge("openai", "gpt-4o-2024-05-13"),
            "'gpt-4o-2024-05-13' was shut down on 2026-10-23 (OpenAI): use 'gpt-5.6-sol'",
        ),
        (
            judge("openai", "ft:gpt-4.1-2025-04-14:shop::a1"),
            "'ft:gpt-4.1-2025-04-14:shop::a1' will be shut down on 2027-01-14 (OpenAI): use 'gpt-6-luna'",
        ),
        (judge("openai", "gpt-4o", **SERVER), None),
        (judge("openai", "gpt-5.4"), None),
        (
            judge("gemini", "gemini-2.5-pro"),
            "'gemini-2.5-pro' will be shut down on 2026-12-01 (Gemini API): use 'gemini-3.8-flash'",
        ),
        (
            judge("gemini", "gemini-2.5-pro", **VERTEX),
            "'gemini-2.5-pro' was shut down on 2026-10-20 (Vertex AI): use 'gemini-3.8-flash'",
        ),
        (
            judge(
                "gemini",
                "gemini-2.5-pro",
                base_url="https://us-central1-aiplatform.googleapis.com",
                api_key_env="SHOP_KEY",
            ),
            "'gemini-2.5-pro' was shut down on 2026-10-20 (Vertex AI): use 'gemini-3.8-flash'",
        ),
        (
            judge("gemini", "gemini-2.5-flash-lite"),
            "'gemini-2.5-flash-lite' is deprecated (Gemini API): use 'gemini-3.5-flash-lite'",
        ),
        (judge("litellm", "anthropic/claude-sonnet-4-5", api_key_env="ANTHROPIC_API_KEY"), None),
    ],
)
def test_a_judge(used: dict[str, Any], expected: str | None, tmp_path: Path) -> None:
    assert warnings(tmp_path, judges={"default": used}) == [expected] * (expected is not None)


def test_each_judge_of_a_panel_and_one_of_the_command_line(tmp_path: Path) -> None:
    judges = {
        "a": judge("openai", "gpt-4.1"),
        "b": judge("openai", "gpt-5.4"),
        "c": judge("gemini", "gemini-3.5-flash"),
    }
    panel = [{**LOOK, "judge": ["a", "b", "c"]}]
    assert [line.split("'")[1] for line in warnings(tmp_path, judges=judges, graders=panel)] == ["gpt-4.1"]
    replaced = ("--judge", "a=openai:gpt-5.4-mini", "--judge", "c=gemini:gemini-2.5-flash")
    names = [line.split("'")[1] for line in warnings(tmp_path, *replaced, judges=judges, graders=panel)]
    assert names == ["gemini-2.5-flash"]


def test_without_a_successor_the_source_helps(tmp_path: Path) -> None:
    model = entry("gemini", "veo-3.0-generate-001", **VERTEX)
    (line,) = warnings(tmp_path, models=[model], task="video_generation")
    assert line.startswith("'veo-3.0-generate-001' was shut down on 2026-06-30 (Vertex AI): see https://docs.cloud")


def test_each_value_of_a_grid_has_its_position(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(
        """\
name: grid
models:
  - {provider: openai, grid: {model: [gpt-image-2, gpt-image-1], quality: [low, high]}}
cases: [{id: tree, prompt: a tree}]
graders: [{key: size, type: properties}]
verdict: [not size.blank]
"""
    )
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert "shut down" in result.output, result.output
    lines = [line for line in result.output.splitlines() if "shut down" in line]
    assert [line.partition(": warning")[0] for line in lines] == [f"{path}:3:52"]


@pytest.mark.parametrize(("day", "words"), [("2026-11-30", "will be shut down"), ("2026-12-01", "was shut down")])
def test_a_model_has_ended_on_its_day(day: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it_is(monkeypatch, day)
    assert warnings(tmp_path, models=[entry("openai", "gpt-image-1.5")]) == [
        f"'gpt-image-1.5' {words} on 2026-12-01 (OpenAI): use 'gpt-image-2.5-flare'"
    ]


@pytest.mark.parametrize(
    "suite",
    [
        {"models": [entry("gemini", "imagen-4.0-generate-001")]},
        {"models": [entry("gemini", "models/imagen-4.0-fast-generate-001")]},
        {"models": [entry("gemini", "imagen-3.0-generate-002", **VERTEX)]},
        {"models": [{"provider": "gemini", "grid": {"model": ["gemini-nano-banana-2.1", "imagen-4.0-generate-001"]}}]},
        {"judges": {"default": judge("gemini", "imagen-4.0-ultra-generate-001")}},
    ],
)
def test_imagen_is_an_error_that_says_where_it_went(suite: dict[str, Any], tmp_path: Path) -> None:
    for words in (["validate"], ["run", "--offline", "--runs", str(tmp_path)]):
        result = command(tmp_path, *words, **suite)
        assert result.exit_code == 2
        assert IMAGEN in result.stderr
        assert "use 'gemini-nano-banana-2.1'" in result.stderr
        assert result.stderr.startswith(f"{tmp_path / 'suite.yaml'}:1:")


@pytest.mark.parametrize(
    "model",
    [
        entry("gemini", "imagen-4.0-generate-001", **SERVER),
        entry("litellm", "vertex_ai/imagen-4.0-generate-001", api_key_env="SHOP_KEY"),
        entry("gemini", "gemini-imagen-like"),
    ],
)
def test_another_server_may_have_an_imagen(model: dict[str, Any], tmp_path: Path) -> None:
    assert IMAGEN not in command(tmp_path, "validate", models=[model]).output


def test_run_and_plan_show_the_warning(tmp_path: Path) -> None:
    suite = {
        "judges": {"default": judge("gemini", "gemini-3.1-flash-image")},
        "graders": [{"key": "size", "type": "properties"}],
        "verdict": ["not size.blank"],
    }
    for words in (["run", "--runs", str(tmp_path)], ["run", "--dry-run"], ["plan"]):
        result = command(tmp_path, *words, **suite)
        assert result.exit_code == 0, result.output
        assert NANO in " ".join(result.stderr.split())


def test_a_dry_run_warns_of_a_judge_of_the_command_line(tmp_path: Path) -> None:
    suite = {"judges": {"default": judge("openai", "gpt-5.4-mini")}, "graders": [LOOK]}
    for name, is_warned in (("gpt-4-vision-preview", True), ("gpt-5.4-mini", False)):
        result = command(tmp_path, "run", "--dry-run", "--judge", f"default=openai:{name}", **suite)
        assert result.exit_code == 0, result.output
        assert (f"'{name}' was shut down on 2024-12-06" in result.stderr) is is_warned
        assert "shut down" not in result.stdout
