"""``--confirm`` is advised exactly where it is not refused: where new samples of B can be generated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image
from toys import LOOK, Toy

BAD: list[dict[str, Any]] = [{"metadata": {"look": "bad"}}] * 4
NICE: dict[str, Any] = {"type": "pass_fail", "description": "it is nice"}


def run_b(toy: Toy, **changes: Any) -> str:
    toy.run(*BAD, arguments=("--run-id", "b", "--no-fail"), **changes)
    return "b"


def baseline(toy: Toy) -> str:
    assert toy("baseline", "set", run_b(toy), "--name", "b").exit_code == 0
    return "baseline:b"


def records(toy: Toy) -> str:
    shutil.copy(toy.folder / "runs" / run_b(toy) / "results.jsonl", toy.folder / "b.jsonl")
    return "b.jsonl"


def regraded(toy: Toy) -> str:
    toy("grade", run_b(toy), "--run-id", "graded", "--trust-suite")
    return "graded"


def interrupted(toy: Toy) -> str:
    path = toy.folder / "runs" / run_b(toy) / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": "interrupted"}))
    return "b"


def existing_outputs(toy: Toy) -> str:
    Image.new("RGB", (32, 24), "red").save(toy.folder / "x.png")
    return run_b(toy, models=[{"provider": "files", "label": "toy", "path": "x.png"}])


def another_model_reads(toy: Toy) -> str:
    """Only the compared model run must generate."""
    Image.new("RGB", (32, 24), "red").save(toy.folder / "x.png")
    files = {"provider": "files", "label": "x", "path": "x.png"}
    return run_b(toy, models=[{"provider": "mine:Generate", "label": "toy"}, files]) + "@toy"


def recorded_judge(toy: Toy) -> str:
    rows = "".join(f"case{at},nice,true\n" for at in range(4))
    (toy.folder / "answers.csv").write_text(f"case,question,answer\n{rows}")
    judges = {"default": {"provider": "recorded", "path": "answers.csv"}}
    rubric = {"key": "seen", "type": "rubric", "metrics": {"nice": NICE}}
    return run_b(toy, judges=judges, graders=[LOOK, rubric])


B: list[tuple[Callable[[Toy], str], str]] = [
    (run_b, ""),
    (another_model_reads, ""),
    (baseline, "baseline:b is not a run"),
    (records, "b.jsonl is not a run"),
    (regraded, "grades the outputs of b"),
    (interrupted, "b is interrupted"),
    (existing_outputs, "reads existing outputs"),
    (recorded_judge, "looks up recorded answers"),
]


@pytest.mark.parametrize(("make_b", "refusal"), B, ids=[make.__name__ for make, _ in B])
def test_new_samples_are_advised_only_where_they_can_be_generated(
    toy: Toy, make_b: Callable[[Toy], str], refusal: str
) -> None:
    toy.run(*[{}] * 4, arguments=("--run-id", "a"))
    b = make_b(toy)
    flags = ("--allow", "excuses", "--allow", "missing-metrics", "--trust-suite")
    compared = json.loads(toy("compare", "a", b, "--json", *flags[:4]).stdout)
    (message,) = [gate["message"] for gate in compared["gates"] if gate["fail_on"] == "regressed"]
    cure = "more cases" if refusal else "1 new sample of each in B (--confirm 1)"
    assert message == f"4 of 4 cells broke; 4 cases x 1 sample cannot show it at 5 %: {cure} would"
    confirmed = toy("compare", "a", b, "--confirm", "1", "--fail-on", "regressed", *flags)
    assert confirmed.exit_code == (2 if refusal else 1), confirmed.output
    assert refusal in confirmed.stderr
    if make_b is existing_outputs:
        nothing = toy("compare", b, b, "--confirm", "1", "--fail-on", "regressed", "--trust-suite")
        assert nothing.exit_code == 0, "nothing is in doubt, so that nothing must be generated"
