"""Tests of provider calls, their caching and their log."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from caches import answer_files
from concurrency import run_with_timeout, settle
from fake_api import Fault
from report_runs import png
from suite_runner import LOOK, SuiteRunner

from visioneval import CellRef, Generation, ProviderError, Question, Reply, TaskType
from visioneval.providers.base import Tool, Turn
from visioneval.providers.openai import OpenAIJudge
from visioneval.running.calls import cache as cache_module
from visioneval.running.calls.attempts import Budget, CallLog
from visioneval.running.calls.cache import Cache
from visioneval.running.calls.calls import Calls, Reuse
from visioneval.running.calls.judges import Judges, Meter, question_key
from visioneval.running.calls.prices import Prices
from visioneval.running.calls.throttle import Throttle
from visioneval.running.plan import Call
from visioneval.running.sanitize import Sanitizer
from visioneval.suite.entries.providers import Price

pytestmark = pytest.mark.slow


CONFIG = OpenAIJudge(provider="openai", model="gpt-5.4")
ABOUT = CellRef("one", "m", 0)


class SlowJudge:
    """A judge that answers on command, or fails."""

    def __init__(self, *errors: Exception | None) -> None:
        self.call_count = 0
        self.go = asyncio.Event()
        self.errors = list(errors)

    async def ask(self, question: Question, about: CellRef) -> Reply:
        self.call_count += 1
        await self.go.wait()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return Reply("yes", "gpt-5.4", usage={"input_tokens": 10})


def calls_of(**changes: Any) -> Calls:
    prices = Prices({"openai": Price(per_call=0.25)})
    return Calls(Throttle({}, 8), prices, Budget(), CallLog(), **changes)


async def test_concurrent_identical_questions_share_one_call() -> None:
    calls, judge, meters = calls_of(), SlowJudge(), [Meter() for _ in range(5)]
    judges = Judges({}, {}, calls)
    tasks = [asyncio.create_task(judges.answer(CONFIG, judge, Question(("?",)), ABOUT, meter)) for meter in meters]
    other = asyncio.create_task(judges.answer(CONFIG, judge, Question(("other?",)), ABOUT, Meter()))
    while judge.call_count < 2:  # noqa: ASYNC110 - its key is made in a thread
        await asyncio.sleep(0.001)
    judge.go.set()
    replies = await asyncio.gather(*tasks)
    await other
    assert judge.call_count == 2
    assert [reply.text for reply in replies] == ["yes"] * 5
    assert sorted((meter.cached, meter.cost_usd, len(meter.usage)) for meter in meters) == [
        (0, 0.25, 1), (1, 0.0, 0), (1, 0.0, 0), (1, 0.0, 0), (1, 0.0, 0)
    ]  # fmt: skip
    assert calls.budget.spent == 0.5


async def test_shared_call_shares_errors_but_not_cancellation() -> None:
    judges, judge = Judges({}, {}, calls_of()), SlowJudge(ProviderError("no", kind="invalid"))
    both = [asyncio.create_task(judges.answer(CONFIG, judge, Question(("?",)), ABOUT, Meter())) for _ in range(2)]
    await _wait_for_calls(judge, 1)
    await _wait_until_shared(judges, both)
    judge.go.set()
    message = await asyncio.gather(*both, return_exceptions=True)
    assert [str(item) for item in message] == ["no", "no"]
    assert judge.call_count == 1

    judge = SlowJudge()
    first = asyncio.create_task(judges.answer(CONFIG, judge, Question(("?",)), ABOUT, Meter()))
    await _wait_for_calls(judge, 1)
    second = asyncio.create_task(judges.answer(CONFIG, judge, Question(("?",)), ABOUT, Meter()))
    await _wait_until_shared(judges, [second])
    first.cancel()
    await _wait_for_calls(judge, 2)
    judge.go.set()
    assert (await second).text == "yes"


async def _wait_for_calls(judge: SlowJudge, many: int) -> None:
    while judge.call_count < many:  # noqa: ASYNC110 - a thread makes the key
        await asyncio.sleep(0.001)


async def _wait_until_shared(judges: Judges, tasks: list[asyncio.Task[Reply]]) -> None:
    """Waits until all tasks wait for the shared call."""
    await asyncio.sleep(0.05)
    await settle()
    assert len(judges.calls.pending) == 1
    assert not any(task.done() for task in tasks)


@pytest.mark.parametrize(("stored", "asked"), [(True, 1), (False, 3)])
def test_answers_are_cached_unless_refresh_is_requested(tmp_path: Path, stored: bool, asked: int) -> None:
    async def scenario(cache: Cache) -> None:
        calls, judge, meter = calls_of(cache=cache, reuse=Reuse(judgements=stored)), SlowJudge(), Meter()
        judges = Judges({}, {}, calls)
        judge.go.set()
        for _ in range(3):
            reply = await judges.answer(CONFIG, judge, Question(("?",)), ABOUT, meter)
            assert reply.text == "yes"
        assert (judge.call_count, meter.calls, meter.cached) == (asked, 3, 3 - asked)
        assert (meter.usage, meter.cost_usd) == ({"input_tokens": 10 * asked}, 0.25 * asked)

    cache = Cache(tmp_path)
    run_with_timeout(scenario(cache))


def test_offline_an_answer_past_the_cache_is_the_cached_one(tmp_path: Path) -> None:
    """A judge whose cached answers are unusable is asked past the cache, but never over the network offline."""

    async def scenario(cache: Cache) -> None:
        judge = SlowJudge()
        judge.go.set()
        for reuse, past_cache, asked in ((Reuse(), False, 1), (Reuse(), True, 2), (Reuse(offline=True), True, 2)):
            question = Question(("?",), past_cache=past_cache)
            reply = await Judges({}, {}, calls_of(cache=cache, reuse=reuse)).answer(
                CONFIG, judge, question, ABOUT, Meter()
            )
            assert (reply.text, judge.call_count) == ("yes", asked)
        other = Question(("other?",), past_cache=True)
        with pytest.raises(ProviderError, match="not in the cache"):
            await Judges({}, {}, calls_of(cache=cache, reuse=Reuse(offline=True))).answer(
                CONFIG, judge, other, ABOUT, Meter()
            )

    cache = Cache(tmp_path)
    run_with_timeout(scenario(cache))


def test_an_answer_with_a_key_is_not_cached(tmp_path: Path) -> None:
    async def scenario(cache: Cache) -> None:
        for secrets, asked in (("yes",), 2), (("no",), 1):
            judges, judge = Judges({}, {}, calls_of(cache=cache, sanitizer=Sanitizer(secrets))), SlowJudge()
            judge.go.set()
            for _ in range(2):
                assert (await judges.answer(CONFIG, judge, Question(("?",)), ABOUT, Meter())).text == "yes"
            assert judge.call_count == asked

    cache = Cache(tmp_path)
    run_with_timeout(scenario(cache))


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": ("other?",)},
        {"schema": {"type": "object"}},
        {"detail": "high"},
        {"vote": 1},
        {"must_answer": True},
        {"tools": (Tool("crop", "Zooms.", {}, lambda _: ()),)},
        {"turns": (Turn({}, ()),)},
    ],
)
def test_another_question_has_another_answer(changes: dict[str, Any]) -> None:
    question = Question(("?",))
    assert question_key(CONFIG, replace(question, **changes)) != question_key(CONFIG, question)
    assert question_key(CONFIG, replace(question, past_cache=True, names=("a",))) == question_key(CONFIG, question)


def test_unknown_cost_makes_total_unknown() -> None:
    meter = Meter()
    for cost in (0.5, None, 0.5):
        meter.add(Reply("", "m", cost_usd=cost), cached=False)
    assert meter.cost_usd is None


REUSED = [
    ((), (4, 2), [False, False], [True, True]),
    (("--reuse", "judges"), (4, 2), [False, False], [True, True]),
    (("--reuse", "none"), (4, 4), [False, False], [False, False]),
    (("--reuse", "all"), (2, 2), [True, True], [True, True]),
    (("--offline",), (2, 2), [True, True], [True, True]),
]


@pytest.mark.parametrize(("arguments", "called", "generated", "judged"), REUSED)
def test_second_run_uses_cache(
    runner: SuiteRunner, arguments: tuple[str, ...], called: tuple[int, int], generated: list[bool], judged: list[bool]
) -> None:
    runner.write()
    assert runner.run().exit_code == 0
    first = runner.records()
    assert [(r.cached, r.graders[0].cached, r.cost_usd) for r in first.values()] == [(False, False, 0.04)] * 2
    result = runner.run(*arguments, run_id="s")
    assert (result.exit_code, runner.called) == (0, called), result.output
    again = runner.records("s").values()
    assert [record.cached for record in again] == generated
    assert [record.graders[0].cached for record in again] == judged
    for record in again:
        assert record.cost_usd == (0.0 if record.cached else 0.04)
        assert record.graders[0].cost_usd == (0.0 if record.graders[0].cached else 0.01)
        assert (record.usage is None) == record.cached
        assert record.artifact_sha256 == first[record.test_id, 0].artifact_sha256
    assert ("oldest from" in result.stdout) == any(generated)


def test_offline_replay_needs_no_key_host_or_sdk(
    runner: SuiteRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.write()
    assert runner.run("--cache", tmp_path / "kept").exit_code == 0
    there = SuiteRunner(tmp_path / "there" / "deep", runner.api)
    moved = {"base_url": "https://elsewhere.example/v1", "api_key_env": "ANOTHER_KEY"}
    there.folder.mkdir(parents=True)
    there.write(
        judges={"default": {"provider": "openai", "model": "gpt-5.4", **moved}},
        models=[{"provider": "openai", "label": "m", "params": {"model": "gpt-image-2"}, **moved}],
    )
    shutil.copytree(tmp_path / "kept", there.folder / "cache")
    shutil.rmtree(tmp_path / "kept")
    monkeypatch.delenv("LOCAL_KEY")
    before = runner.called
    code = (
        "import sys; from visioneval.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as end: print('exit', end.code)\n"
        "print('sdks', *(name for name in ('openai', 'google.genai') if name in sys.modules))"
    )
    arguments = ("run", "suite.yaml", "--offline", "--cache", "cache", "--run-id", "r", "--trust-suite")
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=there.folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["exit 0", "sdks"], done.stdout + done.stderr
    assert runner.called == before
    message = {name: (r.verdict, r.cached, r.artifact_sha256) for name, r in there.records().items()}
    assert message == {name: (r.verdict, True, r.artifact_sha256) for name, r in runner.records().items()}
    text = b"".join(path.read_bytes() for path in answer_files(there.folder / "cache"))
    for secret in (str(tmp_path), "127.0.0.1", runner.api.key):
        assert secret.encode() not in text


def test_offline_run_reports_missing_answers(runner: SuiteRunner) -> None:
    runner.write("tree")
    assert runner.run().exit_code == 0
    runner.write("tree", "boat", graders=[LOOK, {**LOOK, "key": "other", "metrics": {"odd": {
        "type": "pass_fail", "description": "it is odd"}}}])  # fmt: skip
    result = runner.run("--offline", run_id="s")
    assert (result.exit_code, runner.called) == (3, (1, 1))
    actual = runner.records("s")
    tree, boat = actual["tree", 0], actual["boat", 0]
    assert (boat.error.kind, boat.error.message) == ("offline", "not in the cache: the generation of 'boat' by 'm'")
    assert (tree.verdict, tree.scores) == ("ERROR", {"nice": True, "odd": None})
    assert tree.graders[1].error == "not in the cache: the answer of openai:gpt-5.4 about 'tree' by 'm', sample 0"
    assert "not in the cache: the generation of 'boat' by 'm'" in " ".join(result.stdout.split())
    assert result.stdout.count("run the suite once with a key and --cache FOLDER") == 1
    generation = next(cost for cost in runner.summary("s")["costs"] if cost["what"] == "generation")
    assert (generation["cached"], generation["unknown"]) == (1, 0), "nobody was asked for the boat"


def test_refusals_are_cached(runner: SuiteRunner) -> None:
    runner.write("tree", cases=[{"id": "tree", "prompt": "a tree", "expect": {"refusal": True}}])
    runner.api.faults.queue(Fault("refusal"))
    assert runner.run().exit_code == 0
    result = runner.run("--offline", run_id="s")
    assert (result.exit_code, runner.called[0]) == (0, 1), result.output
    first, again = runner.records()["tree", 0], runner.records("s")["tree", 0]
    assert (again.status, again.cached, again.reasons) == ("refused", True, first.reasons)


def test_incomplete_generation_is_generated_again_if_that_is_asked_for(runner: SuiteRunner) -> None:
    host = {"base_url": runner.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    runner.write("tree", models=[{"provider": "openai", "params": {"model": "gpt-image-2", "n": 2}, **host}])
    runner.api.faults.queue(Fault("fewer_images"))
    assert runner.run().exit_code == 3
    error = runner.records()["tree", 1].error
    assert error.kind == "unusable"
    assert (runner("run", "--resume", runner.out / "r").exit_code, runner.called[0]) == (3, 1)
    result = runner("run", "--resume", runner.out / "r", "--retry-unusable")
    assert (result.exit_code, runner.called[0]) == (0, 2), result.output
    assert {record.verdict for record in runner.records().values()} == {"PASS"}
    assert runner.run("--offline", run_id="s").exit_code == 0


def test_log_has_one_line_per_attempt_without_content(runner: SuiteRunner, tmp_path: Path) -> None:
    runner.write("tree", limits={"openai": {"max_concurrency": 1}})
    runner.api.faults.queue(Fault("rate_limit", retry_after=0.01))
    log = tmp_path / "logs" / "calls.jsonl"
    assert runner.run("--log-file", log).exit_code == 0
    assert runner.run("--log-file", log, "--reuse", "all", run_id="s").exit_code == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["kind"], line["status"], line.get("attempt")) for line in lines] == [
        ("generate", "rate_limit", 1), ("generate", "ok", 2), ("judge", "ok", 1), ("generate", "cached", None),
        ("judge", "cached", None),
    ]  # fmt: skip
    generated = lines[1]
    assert (generated["provider"], generated["model"], generated["cost_usd"]) == ("openai", "gpt-image-2", 0.04)
    assert generated["tokens"]["output_image_tokens"] > 0
    assert generated["seconds"] == round(generated["seconds"], 6) >= 0
    assert generated["at"].endswith("+00:00")
    facts = {"at", "provider", "model", "kind", "status", "attempt", "seconds", "tokens", "cost_usd", "key"}
    assert set(generated) == facts
    assert set(lines[3]) == facts - {"attempt", "seconds", "tokens", "cost_usd"}
    assert len({line["key"] for line in lines}) == 2
    for content in ("a tree", "nice", "so it is", runner.api.key):
        assert content not in log.read_text(), content


def test_log_reports_refusals_and_timeouts(runner: SuiteRunner, tmp_path: Path) -> None:
    runner.write("tree", limits={"openai": {"timeout_s": 0.2, "max_attempts": 2}})
    runner.api.faults.queue(Fault("hang"), Fault("refusal"))
    assert runner.run("--log-file", tmp_path / "log").exit_code == 1
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(line["status"], line["attempt"]) for line in lines] == [("cancelled", 1), ("refused", 2)]


def test_debug_prints_each_call(runner: SuiteRunner) -> None:
    runner.write("tree")
    result = runner.run("--debug")
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert [line["status"] for line in lines] == ["ok", "ok"]
    assert not [line for line in runner.run(run_id="s").stderr.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("--log-file", "."), "--log-file .: cannot write: Is a directory"),
        (("--log-file", "a_file/calls.jsonl"), "--log-file a_file/calls.jsonl: cannot write: "),
        (("--cache", "a_file"), "a_file: the cache cannot be used (it is a file): choose another folder"),
    ],
)
def test_unusable_cache_or_log_is_reported_before_the_run(
    runner: SuiteRunner, arguments: tuple[str, ...], output: str
) -> None:
    Path("a_file").write_text("here first")
    runner.write()
    result = runner.run(*arguments)
    assert (result.exit_code, runner.called, runner.out.exists()) == (2, (0, 0), False)
    (line,) = result.stderr.splitlines()
    assert line.startswith(output)


def test_failing_log_loses_no_answers(runner: SuiteRunner) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    runner.write("tree", "boat")
    result = runner.run("--log-file", "/dev/full", "--debug")
    assert (result.exit_code, runner.called) == (0, (2, 2)), result.output
    assert len([line for line in result.stderr.splitlines() if line.startswith("{")]) == 4
    assert result.stderr.count("--log-file: cannot write; logging stopped: No space left on device") == 1


def test_a_damaged_file_of_the_cache_is_not_taken_for_an_output_that_could_not_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = png()
    cache = Cache(tmp_path / "cache")
    damaged = cache.path(sha256(image).hexdigest())
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_module, "write_whole", full)
    calls = calls_of(cache=cache)
    cell = {"case": SimpleNamespace(id="one"), "run": SimpleNamespace(label="m")}
    call = cast("Call", SimpleNamespace(task_type=TaskType.IMAGE_GENERATION, samples=(0,), **cell))
    (output,) = calls._cache_generation("generate:key", Generation(outputs=(image,)), 0.25, call).media
    assert (output.content, output.file, calls.broken is not None) == (image, None, True)
