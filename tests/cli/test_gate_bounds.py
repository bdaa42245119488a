"""Gates that the bound decides, through the commands: run, show, grade, resume, shards and merge, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys import Toy

FEW: list[dict[str, Any]] = [{}] * 9 + [{"metadata": {"look": "bad"}}]  # 0.9 [0.60, 0.98]
BOUND = {"rule": "pass_rate >= 0.7", "decide": "bound"}


def test_a_run_whose_bound_is_too_low_exits_3_wherever_it_is_shown(toy: Toy) -> None:
    result = toy.run(*FEW, gates=[BOUND], arguments=("--run-id", "a"))
    assert result.exit_code == 3, result.output
    text = " ".join(result.stdout.split())
    assert "1 of 3 gates cannot tell (exit code 3)" in text
    assert "CANNOT TELL" in toy("show", "a", COLUMNS="120").stdout
    assert "0.9 [0.60, 0.98]" in text
    assert "cannot tell: the value passes, its lower bound 0.60 does not" in text
    assert toy("show", "a").exit_code == 0
    assert "CANNOT TELL" in toy("show", "a").stdout
    gate = toy.summary["gates"][0]
    assert (gate["state"], gate["value"], gate["n"]) == ("cannot_tell", 0.9, 10)
    assert gate["low"] == pytest.approx(0.5958, abs=1e-3)
    assert 0 < gate["repeat_fails"] < 0.2
    assert toy("report", "a").exit_code == 0
    page = (toy.latest / "report" / "index.html").read_text()
    assert "cannot tell" in page
    assert "a repeat fails" in page
    assert toy("run", "--resume", "a", "--trust-suite").exit_code == 3


@pytest.mark.parametrize(("limit", "code"), [(0.59, 0), (0.6, 3), (0.9, 3), (0.91, 1)])
def test_exit_codes_on_both_sides_of_value_and_bound(toy: Toy, limit: float, code: int) -> None:
    result = toy.run(*FEW, gates=[{"rule": f"pass_rate >= {limit}", "decide": "bound"}])
    assert result.exit_code == code, result.output


def test_grading_again_changes_what_decides(toy: Toy) -> None:
    toy.run(*FEW, gates=[BOUND], arguments=("--run-id", "a"))
    path = toy.write(*FEW, gates=["pass_rate >= 0.7"])
    assert toy("grade", "a", "--suite", path, "--trust-suite").exit_code == 0
    path = toy.write(*FEW, gates=[{"rule": "pass_rate >= 0.5", "decide": "bound"}])
    assert toy("grade", "a", "--suite", path, "--trust-suite").exit_code == 0
    path = toy.write(*FEW, gates=[BOUND])
    assert toy("grade", "a", "--suite", path, "--trust-suite").exit_code == 3


def test_shards_leave_the_bound_to_merge(toy: Toy) -> None:
    path = toy.write(*FEW, gates=[BOUND])
    for number in (1, 2):
        shard = toy("run", path, "--trust-suite", "--shard", f"{number}/2", "--run-id", f"part{number}")
        assert shard.exit_code == 0, shard.output
    merged = toy("merge", "part1", "part2", "--run-id", "whole")
    assert merged.exit_code == 3, merged.output
    assert "CANNOT TELL" in merged.stdout


BAD = [
    ({"rule": "pass_rate == 1", "decide": "bound"}, "'pass_rate == 1' has no bound to decide by"),
    ({"rule": "pass_rate >= 0.7", "decide": "lower"}, "decide"),
    ({"rule": "pass_rate >= 0.7", "decide": None}, "decide"),
    ({"rule": "pass_rate >= 0.7", "decides": "bound"}, "decides"),
]


@pytest.mark.parametrize(("gate", "problem"), BAD)
def test_bad_gates_are_errors_at_their_line(toy: Toy, gate: dict[str, Any], problem: str) -> None:
    path = toy.write(*FEW, gates=[gate])
    result = toy("validate", path, "--trust-suite")
    assert result.exit_code == 2
    assert problem in result.stderr
    assert f"{path.name}:" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("is_judged", [False, True])
def test_a_run_of_existing_outputs_without_a_judge_cannot_turn_out_otherwise(toy: Toy, is_judged: bool) -> None:
    """So its gates do not say how often a repeated run would fail; with a judge they do, as its answers can differ."""
    Image.new("RGB", (64, 64), "red").save("a.png")
    graders: list[dict[str, Any]] = [{"key": "file", "type": "properties"}]
    if is_judged:
        Path("answers.csv").write_text("case,question,answer\na,usable,yes\n")
        graders.append(
            {"key": "look", "type": "rubric", "metrics": {"usable": {"type": "pass_fail", "description": "d"}}}
        )
    suite = {
        "name": "s",
        "cases": [{"id": "a", "prompt": "red", "expect": {"size": "64x64"}}],
        "models": [{"provider": "files", "path": "{case}.png"}],
        "judges": {
            "default": {
                "provider": "recorded",
                "path": "answers.csv",
                "fields": {"case": "case", "question": "question", "answer": "answer"},
            }
        }
        if is_judged
        else {},
        "graders": graders,
        "verdict": ["file.size"],
        "gates": ["pass_rate >= 0.5"],
    }
    Path("existing.yaml").write_text(json.dumps(suite))
    result = toy("run", "existing.yaml", "--json")
    assert result.exit_code == 0, result.output
    (gate, *_) = json.loads(result.stdout)["gates"]
    assert (gate["repeat_fails"] is not None) == is_judged
