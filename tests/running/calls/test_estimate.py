"""Cost estimates of ``plan``: from suite prices, from earlier runs, or unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toys import SECOND, Toy

from visioneval.analysis import planning as past
from visioneval.analysis.planning import PastCosts, read_past_costs
from visioneval.running.estimate import CostEstimate, estimate
from visioneval.running.loading import SuiteOptions, expand, run_labels
from visioneval.suite.load import load_suite

pytestmark = pytest.mark.slow

RUBRIC = {"key": "look", "type": "rubric", "metrics": {"good": {"type": "pass_fail", "description": "it is good"}}}
OPENAI = {"provider": "openai", "params": {"model": "gpt-image-2", "n": 2}}
JUDGES = {"default": {"provider": "openai", "model": "gpt-5.4"}}
PAID: dict[str, Any] = {"models": [OPENAI], "judges": JUDGES, "graders": [RUBRIC], "verdict": ["good"]}


def estimated(path: Path, runs: Path = Path("runs")) -> CostEstimate:
    loaded = load_suite(path, trust=True, run_labels=run_labels(runs))
    return estimate(expand(loaded, SuiteOptions(runs=runs)), lambda: read_past_costs(runs))


def costs(work: CostEstimate) -> dict[str, tuple[float | None, str, int]]:
    return {cost.name: (cost.usd and round(cost.usd, 9), cost.basis, cost.seen) for cost in work.costs}


def test_suite_prices_take_precedence(toy: Toy) -> None:
    prices = {"gpt-image-2": {"per_image": 0.04, "per_call": 0.01}, "gpt-5.4": {"per_call": 0.002}}
    graders = [{**RUBRIC, "votes": 3}]
    work = estimated(toy.write({}, {}, {}, **{**PAID, "graders": graders}, prices=prices, samples=2))
    assert (work.calls, work.cells) == (6, 12)
    assert costs(work) == {"gpt-image-2": (12 * 0.04 + 6 * 0.01, "prices", 0), "look by default": (0.072, "prices", 0)}
    assert work.usd == pytest.approx(0.54 + 0.072)
    assert work.unpriced == ()


def test_the_most_specific_price_applies(toy: Toy) -> None:
    prices = {name: {"per_call": usd} for name, usd in (("openai", 8), ("gpt-image-2", 4), ("openai:gpt-image-2", 2))}
    for first in (2, 4, 8):
        work = estimated(toy.write({}, **PAID, prices=prices))
        assert costs(work) == {"gpt-image-2": (first, "prices", 0), "look by default": (2 * 8, "prices", 0)}
        prices.popitem()


def test_earlier_runs_are_not_read_if_prices_suffice(toy: Toy) -> None:
    path = toy.write({}, **PAID, prices={"openai": {"per_call": 0.5}})

    def never() -> PastCosts:
        raise AssertionError

    plan = expand(load_suite(path, trust=True, run_labels=run_labels(Path("runs"))), SuiteOptions())
    assert estimate(plan, never).usd == 0.5 + 2 * 0.5


def test_unknown_cost_is_reported(toy: Toy) -> None:
    models = [{"provider": "openai", "label": "own", "params": {"model": "painter-9"}}]
    work = estimated(toy.write({}, **{**PAID, "models": models}))
    assert costs(work) == {"own": (None, "none", 0), "look by default": (0.02375, "tokens", 0)}
    text = " ".join(toy("plan", "suite.yaml").stdout.split())
    assert "unknown for 1 of 2" in text
    assert "own: 1 call, unknown: no price; add one under 'prices:'" in text
    assert "look by default: 1 call, 0.0238 USD, assuming typical token counts" in text


def test_token_prices_without_usage_assume_usual_answers(toy: Toy) -> None:
    prices = {"gpt-5.4": {"per_call": 1, "input_per_million": 10, "output_per_million": 4}}
    one = 1 + 10e-6 * (2_000 + 1_500) + 4e-6 * 1_000
    assert costs(estimated(toy.write({}, {}, **PAID, prices=prices)))["look by default"] == (
        pytest.approx(4 * one),
        "tokens",
        0,
    )


def test_assumed_tokens_follow_quality_images_and_crops(toy: Toy) -> None:
    toy.outputs("base.png")
    models = [
        {"provider": "openai", "label": quality, "params": {"model": "m", "quality": quality}}
        for quality in ("low", "medium", "high")
    ]
    graders = [{**RUBRIC, "zoom": {"max_crops": 2}}]
    prices = {
        "openai": {"input_per_million": 1e6, "output_per_million": 1},
        "openai:gpt-5.4": {"input_per_million": 1e6},
    }
    path = toy.write(
        {"prompt": "1234", "images": ["base.png"]}, **{**PAID, "models": models, "graders": graders}, prices=prices
    )
    assert [round(cost.usd or 0, 6) for cost in estimated(path).costs] == [
        1501.0004,
        1501.0016,
        1501.0062,
        3 * 3 * (2_000 + 2 * 1_500),
    ]


def test_judge_calls_and_local_measurements_are_counted_apart(toy: Toy) -> None:
    graders = [{**RUBRIC, "votes": 3}, {"key": "file", "type": "properties"}, SECOND]
    work = estimated(toy.write({}, {}, **{**PAID, "graders": graders}))
    assert (work.cells, work.judge_calls, work.local_measurements, work.other_gradings) == (4, 12, 4, 4)
    assert work.grader_calls == 12
    text = " ".join(toy("plan", "suite.yaml", "--trust-suite").stdout.split())
    assert "4 images, 12 judge calls, 4 local measurements, 4 other gradings" in text
    data = json.loads(toy("plan", "suite.yaml", "--trust-suite", "--json").stdout)
    assert (data["judge_calls"], data["local_measurements"]) == (12, 4)


def test_a_judge_whose_calls_are_unknown_is_not_counted_as_none(toy: Toy) -> None:
    gecko = {"key": "claims", "type": "gecko", "mode": "single"}
    path = toy.write({}, **{**PAID, "graders": [gecko], "verdict": ["claims >= 0.5"]})
    text = " ".join(toy("plan", path).stdout.split())
    assert "at least 0 judge calls" in text
    assert "unknown: no earlier run in this folder shows the number of calls" in text


def test_earlier_runs_give_mean_cost(toy: Toy) -> None:
    assert toy.run({}, {}, arguments=("--quiet",)).exit_code == 0
    work = estimated(toy.write({}, {}, {}))
    assert costs(work) == {"toy": (1.5, "earlier runs", 2)}
    text = toy("plan", "suite.yaml", "--trust-suite").stdout
    assert "about 1.50 USD" in text
    assert "toy: 3 calls, 1.5000 USD, based on 2 cells of earlier runs" in text
    work = estimated(toy.write({}, models=[{"provider": "mine:Generate", "label": "other"}]))
    assert costs(work) == {"other": (None, "none", 0)}


def test_dry_run_prints_the_same_estimate(toy: Toy) -> None:
    assert toy.run({}, arguments=("--quiet",)).exit_code == 0
    assert "about 0.50 USD" in toy("run", "suite.yaml", "--trust-suite", "--dry-run").stdout


def changed(folder: Path, **changes: Any) -> None:
    """Changes every record of a run."""
    path = folder / "results.jsonl"
    lines = [json.loads(line) | changes for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def grader(cost: float | None, *, cached: bool = False) -> dict[str, Any]:
    known = {"key": "look", "type": "rubric", "fingerprint": {"config_sha256": ""}}
    return {**known, "cost_usd": cost, "cached": cached}


def judged_run(toy: Toy, run_id: str, *gradings: dict[str, Any], **changes: Any) -> None:
    """A run of PAID whose records have these gradings."""
    toy.outputs("case0.png")
    models = [{"provider": "files", "label": "gpt-image-2", "path": "{case}.png"}]
    suite = {**PAID, "models": models, "prices": {"openai": {"per_call": 1}}, **changes}
    toy("run", toy.write({}, **suite), "--run-id", run_id, "--offline", "--quiet")
    changed(toy.folder / "runs" / run_id, graders=list(gradings))


def test_judgements_count_by_grader_and_judge_without_cached(toy: Toy) -> None:
    judged_run(toy, "a", grader(0.01), grader(0.0, cached=True), grader(None))
    judged_run(toy, "b", grader(0.03))
    judged_run(toy, "c", grader(9.0), judges={"default": {"provider": "openai", "model": "gpt-5.4-mini"}})
    work = estimated(toy.write({}, {}, **PAID))
    assert costs(work)["look by default"] == (0.02 * 4, "earlier runs", 2)


def test_cached_and_reused_images_are_excluded_from_mean(toy: Toy) -> None:
    assert toy.run({}, arguments=("--run-id", "a", "--quiet")).exit_code == 0
    assert toy.run({}, arguments=("--run-id", "b", "--quiet", "--reuse", "all")).exit_code == 0
    assert toy("grade", "a", "--run-id", "c", "--trust-suite", "--quiet").exit_code == 0
    assert costs(estimated(toy.write({}))) == {"toy": (0.5, "earlier runs", 1)}


def test_only_newest_readable_runs_are_read(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        assert toy.run({}, arguments=("--run-id", name, "--quiet")).exit_code == 0
    for at, name in enumerate("abc"):
        info = toy.folder / "runs" / name / "run.json"
        info.write_text(json.dumps(json.loads(info.read_text()) | {"started_at": f"2025-01-0{at + 1}T00:00:00+00:00"}))
        changed(toy.folder / "runs" / name, cost_usd=float(10**at))
    (toy.folder / "runs/c/results.jsonl").write_text("no record\n")
    path = toy.write({})
    monkeypatch.setattr(past, "MAX_RUNS", 2)
    assert costs(estimated(path)) == {"toy": (10.0, "earlier runs", 1)}


def test_pairs_count_twice(toy: Toy) -> None:
    models = [{"provider": "mock", "label": label} for label in "xyz"]
    pairwise = {"key": "better", "type": "pairwise"}
    graders = [{"key": "image", "type": "properties"}, pairwise]
    prices = {"openai": {"per_call": 0.1}}
    suite = {"models": models, "graders": graders, "judges": JUDGES, "verdict": ["image"], "prices": prices}
    path = toy.write({}, {}, **suite, samples=2)
    work = estimated(path)
    assert costs(work) == {"better by default": (pytest.approx(2 * 2 * 3 * 2 * 0.1), "prices", 0)}
    assert work.grader_calls == 12 + 12
    assert "OPENAI_API_KEY" in toy("plan", path).stdout


def test_questions_are_counted_per_rendered_prompt(toy: Toy) -> None:
    cases = [{"prompt": "{{ metadata.what }} on a hill", "metadata": {"what": what}} for what in ("dog", "cat", "cat")]
    prices = {"openai": {"per_call": 0.1}}
    gecko = {"key": "claims", "type": "gecko"}
    models = [{"provider": "mock"}]
    path = toy.write(*cases, models=models, graders=[gecko], judges=JUDGES, verdict=["claims >= 0.5"], prices=prices)
    assert costs(estimated(path)) == {"claims by default": (pytest.approx((3 + 2) * 0.1), "prices", 0)}


def test_free_providers_have_no_line(toy: Toy) -> None:
    path = toy.write({}, models=[{"provider": "mock"}], graders=[SECOND], verdict=["second"])
    work = estimated(path)
    assert (work.calls, work.cells, work.grader_calls, work.costs, work.usd) == (1, 1, 1, (), 0.0)
    assert "none: no paid calls" in toy("plan", path, "--trust-suite").stdout
