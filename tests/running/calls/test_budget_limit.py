"""A budget is a hard limit: no call starts that could exceed it, including concurrent, repeated and retried calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_api import Fault, GenerationRequest, JudgeRequest
from fake_api import images as outputs
from suite_runner import LOOK, PRICES, SuiteRunner
from typer.testing import Result

pytestmark = pytest.mark.slow


IMAGE, JUDGE = "openai:gpt-image-2", "openai:gpt-5.4"
IDS = tuple(f"case{at:02}" for at in range(12))
LOCAL: dict[str, Any] = {"graders": [{"key": "file", "type": "properties"}], "verdict": ["not file.blank"]}


def images(runner: SuiteRunner) -> int:
    """Images that the server was asked for and gave."""
    return sum(
        entry.asked.n for entry in runner.api.requests if isinstance(entry.asked, GenerationRequest) and entry.paid
    )


def billed(runner: SuiteRunner, per_image: float = 0.04, per_judgement: float = 0.01) -> float:
    """US dollars, by the server's count of paid calls."""
    judged = sum(entry.paid for entry in runner.api.requests if isinstance(entry.asked, JudgeRequest))
    return images(runner) * per_image + judged * per_judgement


def three_per_call(runner: SuiteRunner, n: int = 3) -> list[dict[str, Any]]:
    host = {"base_url": runner.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    return [{"provider": "openai", "label": "m", "params": {"model": "gpt-image-2", "n": n}, **host}]


def check_refused(result: Result, line: str) -> None:
    """Checks for exit code 3 and its message."""
    assert result.exit_code == 3, result.output
    assert line in result.stderr.splitlines(), result.stderr
    assert "Traceback" not in result.output


def test_budget_too_small_for_first_call_makes_no_call(runner: SuiteRunner) -> None:
    runner.write(*IDS, models=three_per_call(runner), **LOCAL)
    result = runner.run("--budget", "0.01", "--max-concurrency", "64")
    check_refused(result, f"the budget of 0.01 USD is too small for one call of {IMAGE}, which may cost 0.12 USD")
    assert len(result.stderr.splitlines()) == 1
    assert (runner.called, runner.out.exists()) == ((0, 0), False)


def test_suites_of_one_command_share_its_budget_and_each_has_its_own(runner: SuiteRunner) -> None:
    first = runner.write("tree", "boat", models=three_per_call(runner, 1), **LOCAL)
    second = first.with_name("second.yaml")
    second.write_text(first.read_text().replace('"paid"', '"second"').replace("a tree", "a house"))
    options = ("--runs", runner.out, "--cache", runner.folder / "cache", "--max-concurrency", "1")
    result = runner("run", first, second, "--budget", "0.12", *options)
    used_up = f"the budget of 0.12 USD is used up: 0.12 USD spent, and the next call of {IMAGE} may cost 0.04 USD"
    assert (result.exit_code, images(runner), billed(runner)) == (3, 3, 0.12), result.output
    assert used_up in result.stderr
    for path in (first, second):
        path.write_text(path.read_text().replace('"cases"', '"budget_usd": 0.08, "cases"').replace("a ", "the "))
    assert runner("run", first, second, *options).exit_code == 0
    assert images(runner) == 7


def test_budget_too_small_for_judge_asks_no_judge(runner: SuiteRunner) -> None:
    runner.write("tree", prices={**PRICES, JUDGE: {"per_call": 2}})
    result = runner.run("--budget", "1")
    check_refused(
        result, f"the budget of 1 USD is used up: 0.04 USD spent, and the next call of {JUDGE} may cost 2 USD"
    )
    assert runner.called == (1, 0)
    again = runner("run", "--resume", runner.out / "r", "--budget", "1")
    check_refused(again, f"the budget of 1 USD is too small for one call of {JUDGE}, which may cost 2 USD")
    assert runner.called == (1, 0)


@pytest.mark.parametrize(
    ("n", "usd", "calls", "most"),
    [(1, "0.04", 1, "64"), (1, "0.2", 5, "3"), (1, "0.2", 5, "64"), (3, "0.13", 1, "1"), (3, "0.35", 2, "64")],
)
def test_concurrent_calls_stay_within_budget(runner: SuiteRunner, n: int, usd: str, calls: int, most: str) -> None:
    runner.write(*IDS, models=three_per_call(runner, n), **LOCAL)
    runner.api.latency["images"] = (0.01, 0.1)
    assert runner.run("--budget", usd, "--max-concurrency", most).exit_code == 3
    assert runner.called == (calls, 0)
    assert billed(runner) <= float(usd) + 1e-9
    assert len(runner.records()) == calls * n


@pytest.mark.parametrize(("votes", "most"), [(1, "16"), (3, "1"), (3, "16")])
def test_samples_votes_and_concurrency_stay_within_budget_and_resume_pays_once(
    runner: SuiteRunner, votes: int, most: str
) -> None:
    runner.write(*IDS[:4], models=three_per_call(runner), graders=[{**LOOK, "votes": votes}])
    runner.api.latency.update({"images": (0.01, 0.05), "judge": (0.0, 0.03)})
    whole = 4 * 3 * (0.04 + votes * 0.01)
    before, starts = 0.0, 0
    code = runner.run("--budget", "0.2", "--max-concurrency", most).exit_code
    while code == 3:
        starts += 1
        assert starts < 12
        assert billed(runner) - before <= 0.2 + 1e-9
        before = billed(runner)
        result = runner("run", "--resume", runner.out / "r", "--budget", "0.2", "--max-concurrency", most)
        code = result.exit_code
    assert code == 0, result.output
    assert billed(runner) == pytest.approx(whole)
    assert starts >= whole / 0.2 - 1
    assert len(runner.records()) == 12


def test_cached_images_cost_nothing(runner: SuiteRunner) -> None:
    runner.write(*IDS, **LOCAL)
    assert runner.run().exit_code == 0
    generated = runner.called[0]
    assert runner.run("--reuse", "all", "--budget", "0.01", run_id="s").exit_code == 0
    assert runner.called[0] == generated
    runner.write(*IDS, "one_more", "two_more", **LOCAL)
    assert runner.run("--reuse", "all", "--budget", "0.05", run_id="t").exit_code == 3
    assert runner.called[0] == generated + 1


@pytest.mark.parametrize(
    ("fault", "generated"),
    [
        (Fault("rate_limit", retry_after=0.01), 3), (Fault("unavailable"), 3), (Fault("reset"), 2),
        (Fault("truncated_body"), 2), (Fault("bad_json"), 2), (Fault("hang"), 2),
    ],
)  # fmt: skip
def test_lost_reply_counts_towards_budget_but_rejected_call_does_not(
    runner: SuiteRunner, fault: Fault, generated: int
) -> None:
    runner.write(*IDS, limits={"openai": {"timeout_s": 2}}, **LOCAL)
    runner.api.faults.queue(fault)
    assert runner.run("--budget", "0.12", "--max-concurrency", "1").exit_code == 3
    assert images(runner) == generated


def test_unreachable_server_costs_nothing(runner: SuiteRunner) -> None:
    models = [{**three_per_call(runner, 1)[0], "base_url": "http://127.0.0.1:9/v1"}]
    runner.write(*IDS, models=models, **LOCAL)
    result = runner.run("--budget", "0.05")
    assert result.exit_code == 3
    assert "budget" not in result.stderr
    assert {record.error.kind for record in runner.records().values() if record.error} == {"transient"}
    assert len(runner.records()) == len(IDS)


def test_repeated_answers_and_crops_stay_within_budget(runner: SuiteRunner) -> None:
    """Each repeated question is a separate call."""
    runner.write("tree", prices={**PRICES, JUDGE: {"per_call": 0.1}})
    runner.api.faults.when(lambda asked: isinstance(asked, JudgeRequest), Fault("off_schema"))
    assert runner.run("--budget", "0.15").exit_code == 3
    assert runner.called == (1, 1), "the second answer does not fit"


def script_questions(runner: SuiteRunner) -> None:
    question = {
        "id": "q1", "keyword": 1, "question": "Is it there?", "type": "object", "choices": ["yes", "no"],
        "answer": "yes", "justification": "so", "depends_on": [],
    }  # fmt: skip
    created = {"keywords": "{1}[it]", "questions": [question]}
    answers = {"answers": [{"id": "q1", "answer": "yes", "reason": "seen"}]}
    runner.api.script.judge(lambda asked: answers if asked.images else created)


GECKO: dict[str, Any] = {"graders": [{"key": "g", "type": "gecko"}], "verdict": ["g >= 0"]}


@pytest.mark.parametrize("most", ["1", "16"])
def test_questions_and_answers_stay_within_budget(runner: SuiteRunner, most: str) -> None:
    script_questions(runner)
    runner.write(*IDS[:5], **GECKO)
    assert runner.run("--budget", "0.17", "--max-concurrency", most).exit_code == 3
    assert 0.1 < billed(runner) <= 0.17 + 1e-9


def test_question_generation_stops_at_budget_and_saves_results(runner: SuiteRunner) -> None:
    script_questions(runner)
    runner.write(*IDS, budget_usd=0.05, **GECKO)
    result = runner("questions", runner.folder / "suite.yaml")
    check_refused(
        result, f"the budget of 0.05 USD is used up: 0.05 USD spent, and the next call of {JUDGE} may cost 0.01 USD"
    )
    assert runner.called == (0, 5)
    assert result.stdout.count("Is it there?") == 5
    runner.write(*IDS, budget_usd=0.001, **GECKO)
    result = runner("questions", runner.folder / "suite.yaml", "--reuse", "none")
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        f"the budget of 0.001 USD is too small for one call of {JUDGE}, which may cost 0.01 USD"
    ]
    assert runner.called == (0, 5)


def test_grade_stays_within_budget(runner: SuiteRunner) -> None:
    runner.write(*IDS, **LOCAL)
    assert runner.run().exit_code == 0
    suite = runner.write(*IDS)
    result = runner("grade", "r", "--suite", suite, "--runs", runner.out, "--budget", "0.001")
    check_refused(result, f"the budget of 0.001 USD is too small for one call of {JUDGE}, which may cost 0.01 USD")
    assert runner.called[1] == 0
    assert runner("grade", "r", "--suite", suite, "--runs", runner.out, "--budget", "0.05").exit_code == 3
    assert runner.called == (len(IDS), 5)
    assert runner("grade", "r", "--suite", suite, "--runs", runner.out, "--budget", "0.07").exit_code == 0
    assert runner.called == (len(IDS), len(IDS))


def test_pairwise_comparison_stays_within_budget(runner: SuiteRunner) -> None:
    runner.write(*IDS[:4], **LOCAL)
    assert runner.run(run_id="a").exit_code == 0
    runner.write(*IDS[:4], models=[{**three_per_call(runner, 1)[0], "params": {"model": "gpt-image-2", "quality": "high"}}],
                 **LOCAL)  # fmt: skip
    first = images(runner)
    runner.api.script.generate(lambda asked: [outputs.generated(64, 64, "png", 5)])
    assert runner.run(run_id="b").exit_code == 0
    assert images(runner) == first + 4
    runner.api.script.judge({"answer": "A", "reason": "so"})
    arguments = ("pairwise", "a", "b", "--runs", runner.out, "--judge", "default", "--budget")
    result = runner(*arguments, "0.005")
    check_refused(result, f"the budget of 0.005 USD is too small for one call of {JUDGE}, which may cost 0.01 USD")
    assert runner.called[1] == 0
    assert runner(*arguments, "0.03", "--max-concurrency", "16").exit_code == 3
    assert runner.called[1] == 3
    assert len((runner.out / "b" / "preferences.jsonl").read_text().splitlines()) == 3
    assert runner(*arguments, "0.05").exit_code == 0
    assert runner.called[1] == 8


TOKENS: dict[str, Any] = {"prices": {**PRICES, JUDGE: {"input_per_million": 1, "output_per_million": 10}}}


def judge(runner: SuiteRunner, **params: Any) -> dict[str, Any]:
    host = {"base_url": runner.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    return {"judges": {"default": {"provider": "openai", "model": "gpt-5.4", "params": params, **host}}}


def test_stated_maximum_of_tokens_is_a_strict_bound(runner: SuiteRunner) -> None:
    """A call is counted at its maximum while it is in flight: one after the other fits, two at once do not."""
    runner.write(*IDS[:3], **TOKENS, **judge(runner, max_output_tokens=10_000))
    runner.api.latency["judge"] = 0.2
    result = runner.run("--budget", "0.3", "--max-concurrency", "16")
    assert result.exit_code == 0, result.output
    assert runner.summary()["cost_usd"] < 0.3
    runner.write(*IDS[:3], **TOKENS, **judge(runner, max_output_tokens=30_000))
    result = runner.run("--budget", "0.3", "--reuse", "none", run_id="s")
    assert result.exit_code == 3
    assert runner.called[1] == 3, "no call of the second run could be paid at its maximum"


def test_without_maximum_the_first_call_runs_alone_within_the_estimate(runner: SuiteRunner) -> None:
    runner.write(*IDS, **TOKENS, **judge(runner))
    runner.api.latency["judge"] = 0.05
    result = runner.run("--budget", "0.6", "--max-concurrency", "16")
    refuses_none = runner.summary()["cost_usd"]
    assert result.exit_code == 3 or refuses_none <= 0.6
    suite = runner.folder / "suite.yaml"
    result = runner("grade", "r", "--suite", suite, "--runs", runner.out, "--budget", "0.01", "--reuse", "none")
    assert result.exit_code == 3
    (line,) = [line for line in result.stderr.splitlines() if "too small for one call" in line]
    assert line.startswith(f"the budget of 0.01 USD is too small for one call of {JUDGE}, which may cost 0.1")
    assert line.endswith("USD; to lower this, set a maximum number of output tokens in its params")


def test_plan_warns_about_too_small_budget(runner: SuiteRunner) -> None:
    suite = runner.write("tree", models=three_per_call(runner), budget_usd=0.01)
    warning = f"the budget of 0.01 USD is too small for one call of {IMAGE}, which may cost 0.12 USD"
    shown = runner("plan", suite)
    assert shown.exit_code == 0
    assert warning in " ".join(shown.stdout.split())
    assert json.loads(runner("plan", suite, "--json").stdout)["budget_warnings"] == [warning]
    dry = runner("run", suite, "--dry-run", "--budget", "0.001")
    assert warning.replace("0.01 USD", "0.001 USD") in " ".join(dry.stdout.split())
    assert json.loads(runner("plan", runner.write("tree"), "--json").stdout)["budget_warnings"] == []
    assert runner.called == (0, 0)


def test_budget_is_enforced_during_and_after_refused_key(runner: SuiteRunner) -> None:
    runner.write(*IDS, **LOCAL)
    runner.api.latency["images"] = 0.3
    runner.api.faults.when(lambda asked: "case05" in getattr(asked, "prompt", ""), Fault("unauthorized"))
    result = runner.run("--budget", "0.3", "--max-concurrency", "6")
    assert result.exit_code == 3
    assert "refused the API key" in result.stderr
    assert (len(runner.records()), images(runner)) == (5, 5)
    runner.api.faults.clear()
    assert runner("run", "--resume", runner.out / "r", "--budget", "0.12").exit_code == 3
    assert images(runner) == 8
    assert runner("run", "--resume", runner.out / "r", "--budget", "0.16").exit_code == 0
    assert images(runner) == len(IDS)
