"""A budget is a hard limit: no call starts that could exceed it, including concurrent, repeated and retried calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, Fault, GenerationRequest, JudgeRequest
from paying import LOOK, PRICES, Paying
from typer.testing import Result

from visioneval.records.preferences import read_preferences

IMAGE, JUDGE = "openai:gpt-image-1.5", "openai:gpt-5.4"
IDS = tuple(f"case{at:02}" for at in range(12))
LOCAL: dict[str, Any] = {"graders": [{"key": "file", "type": "properties"}], "verdict": ["not file.blank"]}


@pytest.fixture
def api() -> Iterator[FakeAPI]:
    with FakeAPI() as server:
        yield server


@pytest.fixture
def paying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: FakeAPI) -> Paying:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", api.key)
    return Paying(tmp_path, api)


def images(paying: Paying) -> int:
    """Images that the server was asked for and gave."""
    return sum(
        entry.asked.n for entry in paying.api.requests if isinstance(entry.asked, GenerationRequest) and entry.paid
    )


def billed(paying: Paying, per_image: float = 0.04, per_judgement: float = 0.01) -> float:
    """US dollars, by the server's own count of what it served."""
    judged = sum(entry.paid for entry in paying.api.requests if isinstance(entry.asked, JudgeRequest))
    return images(paying) * per_image + judged * per_judgement


def of_three(paying: Paying, n: int = 3) -> list[dict[str, Any]]:
    host = {"base_url": paying.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    return [{"provider": "openai", "label": "m", "params": {"model": "gpt-image-1.5", "n": n}, **host}]


def refuses(result: Result, line: str) -> None:
    """Exit 3, and the line that says why."""
    assert result.exit_code == 3, result.output
    assert line in result.stderr.splitlines(), result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("most", ["1", "8", "64"])
def test_budget_too_small_for_first_call_makes_no_call(paying: Paying, most: str) -> None:
    paying.write(*IDS, models=of_three(paying), **LOCAL)
    result = paying.run("--budget", "0.01", "--max-concurrency", most)
    refuses(result, f"the budget of 0.01 USD is too small for one call of {IMAGE}, which may cost 0.12 USD")
    assert len(result.stderr.splitlines()) == 1
    assert (paying.called, paying.out.exists()) == ((0, 0), False)


def test_suites_of_one_command_share_its_budget_and_each_has_its_own(paying: Paying) -> None:
    first = paying.write("tree", "boat", models=of_three(paying, 1), **LOCAL)
    second = first.with_name("second.yaml")
    second.write_text(first.read_text().replace('"paid"', '"second"').replace("a tree", "a house"))
    options = ("--runs", paying.out, "--cache", paying.folder / "cache", "--max-concurrency", "1")
    result = paying("run", first, second, "--budget", "0.12", *options)
    used_up = f"the budget of 0.12 USD is used up: 0.12 USD spent, and the next call of {IMAGE} may cost 0.04 USD"
    assert (result.exit_code, images(paying), billed(paying)) == (3, 3, 0.12), result.output
    assert used_up in result.stderr
    for path in (first, second):
        path.write_text(path.read_text().replace('"cases"', '"budget_usd": 0.08, "cases"').replace("a ", "the "))
    assert paying("run", first, second, *options).exit_code == 0
    assert images(paying) == 7


def test_budget_too_small_for_judge_asks_no_judge(paying: Paying) -> None:
    paying.write("tree", prices={**PRICES, JUDGE: {"per_call": 2}})
    result = paying.run("--budget", "1")
    refuses(result, f"the budget of 1 USD is used up: 0.04 USD spent, and the next call of {JUDGE} may cost 2 USD")
    assert paying.called == (1, 0)
    again = paying("run", "--resume", paying.out / "r", "--budget", "1")
    refuses(again, f"the budget of 1 USD is too small for one call of {JUDGE}, which may cost 2 USD")
    assert paying.called == (1, 0)


@pytest.mark.parametrize("most", ["1", "3", "64"])
@pytest.mark.parametrize(("n", "usd", "calls"), [(1, "0.04", 1), (1, "0.2", 5), (3, "0.13", 1), (3, "0.35", 2)])
def test_concurrent_calls_stay_within_budget(paying: Paying, n: int, usd: str, calls: int, most: str) -> None:
    paying.write(*IDS, models=of_three(paying, n), **LOCAL)
    paying.api.latency["images"] = (0.01, 0.1)
    assert paying.run("--budget", usd, "--max-concurrency", most).exit_code == 3
    assert paying.called == (calls, 0)
    assert billed(paying) <= float(usd) + 1e-9
    assert len(paying.records()) == calls * n


@pytest.mark.parametrize("votes", [1, 3])
@pytest.mark.parametrize("most", ["1", "16"])
def test_samples_votes_and_concurrency_stay_within_budget_and_resume_pays_once(
    paying: Paying, votes: int, most: str
) -> None:
    paying.write(*IDS[:4], models=of_three(paying), graders=[{**LOOK, "votes": votes}])
    paying.api.latency.update({"images": (0.01, 0.05), "judge": (0.0, 0.03)})
    whole = 4 * 3 * (0.04 + votes * 0.01)
    before, starts = 0.0, 0
    code = paying.run("--budget", "0.2", "--max-concurrency", most).exit_code
    while code == 3:
        starts += 1
        assert starts < 12
        assert billed(paying) - before <= 0.2 + 1e-9
        before = billed(paying)
        result = paying("run", "--resume", paying.out / "r", "--budget", "0.2", "--max-concurrency", most)
        code = result.exit_code
    assert code == 0, result.output
    assert billed(paying) == pytest.approx(whole)
    assert starts >= whole / 0.2 - 1
    assert len(paying.records()) == 12


def test_cached_images_cost_nothing(paying: Paying) -> None:
    paying.write(*IDS, **LOCAL)
    assert paying.run().exit_code == 0
    generated = paying.called[0]
    assert paying.run("--reuse", "all", "--budget", "0.01", run_id="s").exit_code == 0
    assert paying.called[0] == generated
    paying.write(*IDS, "one_more", "two_more", **LOCAL)
    assert paying.run("--reuse", "all", "--budget", "0.05", run_id="t").exit_code == 3
    assert paying.called[0] == generated + 1


@pytest.mark.parametrize(
    ("fault", "generated"),
    [
        (Fault("rate_limit", retry_after=0.01), 3),
        (Fault("unavailable"), 3),
        (Fault("reset"), 2),
        (Fault("truncated_body"), 2),
        (Fault("bad_json"), 2),
    ],
)
def test_lost_reply_counts_towards_budget_but_rejected_call_does_not(
    paying: Paying, monkeypatch: pytest.MonkeyPatch, fault: Fault, generated: int
) -> None:
    paying.write(*IDS, **LOCAL)
    paying.api.faults.queue(fault)
    assert paying.run("--budget", "0.12", "--max-concurrency", "1").exit_code == 3
    assert images(paying) == generated


def test_timed_out_attempt_counts_towards_budget(paying: Paying, monkeypatch: pytest.MonkeyPatch) -> None:
    paying.write(*IDS, limits={"openai": {"timeout_s": 2}}, **LOCAL)
    paying.api.faults.queue(Fault("hang"))
    assert paying.run("--budget", "0.12", "--max-concurrency", "1").exit_code == 3
    assert images(paying) == 2


def test_unreachable_server_costs_nothing(paying: Paying, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [{**of_three(paying, 1)[0], "base_url": "http://127.0.0.1:9/v1"}]
    paying.write(*IDS, models=models, **LOCAL)
    result = paying.run("--budget", "0.05")
    assert result.exit_code == 3
    assert "budget" not in result.stderr
    assert {record.error.kind for record in paying.records().values() if record.error} == {"transient"}
    assert len(paying.records()) == len(IDS)


def test_repeated_answers_and_crops_stay_within_budget(paying: Paying) -> None:
    """Each repeated question is a call of its own."""
    paying.write("tree", prices={**PRICES, JUDGE: {"per_call": 0.1}})
    paying.api.faults.when(lambda asked: isinstance(asked, JudgeRequest), Fault("off_schema"))
    assert paying.run("--budget", "0.15").exit_code == 3
    assert paying.called == (1, 1), "the second answer does not fit"


def answering(paying: Paying) -> None:
    question = {
        "id": "q1", "keyword": 1, "question": "Is it there?", "type": "object", "choices": ["yes", "no"],
        "answer": "yes", "justification": "so", "depends_on": [],
    }  # fmt: skip
    created = {"keywords": "{1}[it]", "questions": [question]}
    answers = {"answers": [{"id": "q1", "answer": "yes", "reason": "seen"}]}
    paying.api.script.judge(lambda asked: answers if asked.images else created)


GECKO: dict[str, Any] = {"graders": [{"key": "g", "type": "gecko"}], "verdict": ["g >= 0"]}


@pytest.mark.parametrize("most", ["1", "16"])
def test_questions_and_answers_stay_within_budget(paying: Paying, most: str) -> None:
    answering(paying)
    paying.write(*IDS[:5], **GECKO)
    assert paying.run("--budget", "0.17", "--max-concurrency", most).exit_code == 3
    assert 0.1 < billed(paying) <= 0.17 + 1e-9


def test_question_generation_stops_at_budget_and_keeps_results(paying: Paying) -> None:
    answering(paying)
    paying.write(*IDS, budget_usd=0.05, **GECKO)
    result = paying("questions", paying.folder / "suite.yaml")
    refuses(
        result, f"the budget of 0.05 USD is used up: 0.05 USD spent, and the next call of {JUDGE} may cost 0.01 USD"
    )
    assert paying.called == (0, 5)
    assert result.stdout.count("Is it there?") == 5
    paying.write(*IDS, budget_usd=0.001, **GECKO)
    result = paying("questions", paying.folder / "suite.yaml", "--reuse", "none")
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        f"the budget of 0.001 USD is too small for one call of {JUDGE}, which may cost 0.01 USD"
    ]
    assert paying.called == (0, 5)


def test_grade_stays_within_budget(paying: Paying) -> None:
    paying.write(*IDS, **LOCAL)
    assert paying.run().exit_code == 0
    suite = paying.write(*IDS)
    result = paying("grade", "r", "--suite", suite, "--runs", paying.out, "--budget", "0.001")
    refuses(result, f"the budget of 0.001 USD is too small for one call of {JUDGE}, which may cost 0.01 USD")
    assert paying.called[1] == 0
    assert paying("grade", "r", "--suite", suite, "--runs", paying.out, "--budget", "0.05").exit_code == 3
    assert paying.called == (len(IDS), 5)
    assert paying("grade", "r", "--suite", suite, "--runs", paying.out, "--budget", "0.07").exit_code == 0
    assert paying.called == (len(IDS), len(IDS))


def test_pairwise_comparison_stays_within_budget(paying: Paying) -> None:
    paying.write(*IDS[:4], **LOCAL)
    assert paying.run(run_id="a").exit_code == 0
    paying.write(*IDS[:4], models=[{**of_three(paying, 1)[0], "params": {"model": "gpt-image-1.5", "quality": "high"}}],
                 **LOCAL)  # fmt: skip
    first = images(paying)
    paying.api.script.generate(lambda asked: None)
    from fake_api import images as outputs

    paying.api.script.generate(lambda asked: [outputs.generated(64, 64, "png", 5)])
    assert paying.run(run_id="b").exit_code == 0
    assert images(paying) == first + 4
    paying.api.script.judge({"answer": "A", "reason": "so"})
    words = ("pairwise", "a", "b", "--runs", paying.out, "--judge", "default", "--budget")
    result = paying(*words, "0.005")
    refuses(result, f"the budget of 0.005 USD is too small for one call of {JUDGE}, which may cost 0.01 USD")
    assert paying.called[1] == 0
    assert paying(*words, "0.03", "--max-concurrency", "16").exit_code == 3
    assert paying.called[1] == 3
    assert len(list(read_preferences(paying.out / "b"))) == 3
    assert paying(*words, "0.05").exit_code == 0
    assert paying.called[1] == 8


TOKENS: dict[str, Any] = {"prices": {**PRICES, JUDGE: {"input_per_million": 1, "output_per_million": 10}}}


def judge(paying: Paying, **params: Any) -> dict[str, Any]:
    host = {"base_url": paying.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    return {"judges": {"default": {"provider": "openai", "model": "gpt-5.4", "params": params, **host}}}


def test_stated_maximum_of_tokens_is_a_strict_bound(paying: Paying) -> None:
    """A call is counted at its maximum while it is in flight: one after the other fits, two at once do not."""
    paying.write(*IDS[:3], **TOKENS, **judge(paying, max_output_tokens=10_000))
    paying.api.latency["judge"] = 0.2
    result = paying.run("--budget", "0.3", "--max-concurrency", "16")
    assert result.exit_code == 0, result.output
    assert paying.summary()["cost_usd"] < 0.3
    paying.write(*IDS[:3], **TOKENS, **judge(paying, max_output_tokens=30_000))
    result = paying.run("--budget", "0.3", "--reuse", "none", run_id="s")
    assert result.exit_code == 3
    assert paying.called[1] == 3, "no call of the second run could be paid at its maximum"


def test_without_maximum_first_call_runs_alone_within_estimate(paying: Paying) -> None:
    paying.write(*IDS, **TOKENS, **judge(paying))
    paying.api.latency["judge"] = 0.05
    result = paying.run("--budget", "0.6", "--max-concurrency", "16")
    refuses_none = paying.summary()["cost_usd"]
    assert result.exit_code == 3 or refuses_none <= 0.6
    suite = paying.folder / "suite.yaml"
    result = paying("grade", "r", "--suite", suite, "--runs", paying.out, "--budget", "0.01", "--reuse", "none")
    assert result.exit_code == 3
    (line,) = [line for line in result.stderr.splitlines() if "too small for one call" in line]
    assert line.startswith(f"the budget of 0.01 USD is too small for one call of {JUDGE}, which may cost 0.1")
    assert line.endswith("USD; to lower this, set a maximum number of output tokens in its params")


def test_plan_warns_about_too_small_budget(paying: Paying) -> None:
    suite = paying.write("tree", models=of_three(paying), budget_usd=0.01)
    warning = f"the budget of 0.01 USD is too small for one call of {IMAGE}, which may cost 0.12 USD"
    shown = paying("plan", suite)
    assert shown.exit_code == 0
    assert warning in " ".join(shown.stdout.split())
    assert json.loads(paying("plan", suite, "--json").stdout)["budget_warnings"] == [warning]
    dry = paying("run", suite, "--dry-run", "--budget", "0.001")
    assert warning.replace("0.01 USD", "0.001 USD") in " ".join(dry.stdout.split())
    assert json.loads(paying("plan", paying.write("tree"), "--json").stdout)["budget_warnings"] == []
    assert paying.called == (0, 0)


def test_budget_is_enforced_during_and_after_refused_key(paying: Paying) -> None:
    paying.write(*IDS, **LOCAL)
    paying.api.latency["images"] = 0.3
    paying.api.faults.when(lambda asked: "case05" in getattr(asked, "prompt", ""), Fault("unauthorized"))
    result = paying.run("--budget", "0.3", "--max-concurrency", "6")
    assert result.exit_code == 3
    assert "refused the API key" in result.stderr
    assert (len(paying.records()), images(paying)) == (5, 5)
    paying.api.faults.clear()
    assert paying("run", "--resume", paying.out / "r", "--budget", "0.12").exit_code == 3
    assert images(paying) == 8
    assert paying("run", "--resume", paying.out / "r", "--budget", "0.16").exit_code == 0
    assert images(paying) == len(IDS)
