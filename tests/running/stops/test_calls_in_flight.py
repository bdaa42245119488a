"""A run that stops while paid calls are in flight: they finish and are cached, and no new call starts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from api_runs import KEY, MODELS, ApiRun, case_id, image_for, prompt, quality, wait_until
from fake_api import FakeAPI, Fault, GenerationRequest, JudgeRequest
from fork_server import COMMAND, ForkedProgram
from typer.testing import CliRunner

from visioneval import read_info
from visioneval.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("local_api")]

Service = Literal["openai", "gemini"]
CELLS = 12
IN_FLIGHT = 5
REFUSED = IN_FLIGHT
"""The case whose call is refused immediately, while the calls of earlier cases are in flight."""


def is_generation(at: int) -> Callable[[Any], bool]:
    return lambda asked: isinstance(asked, GenerationRequest) and prompt(at) in asked.prompt


def is_judgement(at: int) -> Callable[[Any], bool]:
    return lambda asked: isinstance(asked, JudgeRequest) and prompt(at) in asked.text


def refuse_key_later(
    api: FakeAPI, answer: Callable[[Any], Any], refused: Callable[[Any], bool], *, once: bool = False
) -> list[bool]:
    """Judges, and refuses the key of some calls after their latency, while all others are in flight.

    What it gives is cleared to end that.
    """
    armed = [True]

    def judge(asked: JudgeRequest) -> Any:
        if not (armed and refused(asked)):
            return answer(asked)
        if once:
            armed.clear()
        return Fault("unauthorized")

    api.script.judge(judge)
    return armed


WORDS = {"unauthorized": ": the provider refused the API key: 4", "quota": ": the quota at {} is spent: 429: "}


def check_stopped_by_key(result: Any, prefix: str, words: str = ": the provider refused the API key: ") -> None:
    """Checks for exit code 3 and one line about the key, or about what ``words`` say."""
    assert result.exit_code == 3, result.output
    assert result.stderr.count(words) == 1, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if words in line]
    assert line.startswith(f"{prefix}{words}")
    assert "Traceback" not in result.output


def check_resume(api_run: ApiRun, api: FakeAPI, generated: int = CELLS, judged: int = CELLS) -> None:
    """A resumed run pays only for missing calls."""
    api.faults.clear()
    api.latency.clear()
    result = api_run.run(resume=True)
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (generated, judged, 0)


@pytest.mark.parametrize(("provider", "kind"), [("openai", "quota"), ("gemini", "unauthorized")])
def test_refused_model_key_saves_images_in_flight(tmp_path: Path, api: FakeAPI, provider: Service, kind: str) -> None:
    api_run = ApiRun(tmp_path, api, CELLS, provider)
    api.latency.update({"images": 0.6, "gemini": 0.6})
    api.faults.when(is_generation(REFUSED), Fault(kind))
    result = api_run.run("--max-concurrency", str(IN_FLIGHT + 1), "--quiet")
    check_stopped_by_key(result, "m", WORDS[kind].format(provider))
    assert len(api.requests) == IN_FLIGHT + 1, "no call begins once the key is refused"
    assert (api_run.generated, api_run.judged) == (IN_FLIGHT, 0)
    assert read_info(api_run.run_folder).state == "interrupted"
    check_resume(api_run, api)


def test_spent_judge_quota_saves_answers_in_flight(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, CELLS)
    api.latency["judge"] = 0.6
    api.latency["images"] = 0.3
    api.faults.when(is_judgement(IN_FLIGHT - 1), Fault("quota"))
    result = api_run.run("--max-concurrency", str(IN_FLIGHT), "--quiet")
    check_stopped_by_key(result, "the judge 'eye'", WORDS["quota"].format("openai"))
    assert api_run.judged == len(api_run.records), "each answer in flight completes its cell"
    assert api_run.judged >= 1
    for record in api_run.records:
        api_run.check(record)
    assert api_run.generated < CELLS
    check_resume(api_run, api)


def test_samples_and_votes_in_flight_are_saved(tmp_path: Path, api: FakeAPI) -> None:
    """One call generates three images, each judged by three votes: one vote on the second image is refused."""
    look = {"key": "look", "type": "rubric", "judge": "eye", "votes": 3, "metrics": {"quality": METRIC}}
    api_run = ApiRun(
        tmp_path, api, 1, models=[custom(api, "openai", label="m", params={"model": MODELS["openai"][0], "n": 3})],
        graders=[look],
    )  # fmt: skip
    images = [image_for(f"sample {at}") for at in range(3)]
    api.script.generate(lambda asked: images)
    api.latency["judge"] = 1.5
    armed = refuse_key_later(
        api,
        lambda asked: {"quality": quality(asked.images[0].data), "reason": "", "verdict": "PASS"},
        lambda asked: asked.images[0].data == images[1],
        once=True,
    )
    check_stopped_by_key(api_run.run("--quiet"), "the judge 'eye'")
    assert (api_run.generated, api_run.judged) == (1, 8)
    assert sorted(record.sample_index for record in api_run.records) == [0, 2], "both whose votes are all there"
    armed.clear()
    assert api_run.run(resume=True).exit_code == 0
    assert (api_run.generated, api_run.judged) == (1, 9)
    assert {r.sample_index: r.scores["quality"] for r in api_run.records} == {n: quality(images[n]) for n in range(3)}


def test_cell_with_two_judges_saves_answer_of_accepted_judge(tmp_path: Path, api: FakeAPI) -> None:
    other = custom(api, "gemini", model=MODELS["gemini"][1])
    api_run = ApiRun(
        tmp_path, api, 1,
        judges={"eye": custom(api, "openai", model=MODELS["openai"][1]), "other": other},
        graders=[
            {"key": "look", "type": "rubric", "judge": "eye", "metrics": {"quality": METRIC}},
            {"key": "again", "type": "rubric", "judge": "other", "metrics": {"second": METRIC}},
        ],
    )  # fmt: skip
    api.latency["judge"] = 1.5
    armed = refuse_key_later(
        api,
        lambda asked: {("quality" if asked.provider == "openai" else "second"): 3, "reason": "", "verdict": "PASS"},
        lambda asked: asked.provider == "openai",
    )
    check_stopped_by_key(api_run.run("--quiet"), "the judge 'eye'")
    assert (api_run.generated, api_run.judged, api_run.records) == (1, 1, [])
    armed.clear()
    assert api_run.run(resume=True).exit_code == 0
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (1, 2, 0)


def test_grade_saves_answers_in_flight(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, CELLS)
    api.faults.when(lambda asked: isinstance(asked, JudgeRequest), Fault("bad_request"))
    assert api_run.run().exit_code == 3
    api.faults.clear()
    api.latency["judge"] = 0.6
    api.faults.when(is_judgement(REFUSED), Fault("unauthorized"))
    arguments = ["grade", "r", "--runs", "runs", "--trust-suite", "--cache", str(api_run.cache), "--quiet"]
    result = CliRunner().invoke(app, [*arguments, "--max-concurrency", str(IN_FLIGHT + 1)], env={KEY: api.key})
    check_stopped_by_key(result, "the judge 'eye'")
    served = api_run.judged
    assert served >= 1
    assert sum(entry.fault == "unauthorized" for entry in api.requests) == 1
    api.faults.clear()
    result = CliRunner().invoke(app, arguments, env={KEY: api.key})
    assert result.exit_code == 0, result.output
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (CELLS, CELLS, 0)


def pair_answers(api: FakeAPI) -> None:
    api.script.judge(lambda asked: {"answer": "A", "reason": "so"})


def test_pairwise_of_two_runs_saves_answers_in_flight(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, CELLS, graders=[{"key": "file", "type": "properties"}], verdict=["not file.blank"])
    assert api_run.run(run_id="a").exit_code in (0, 1)
    api.script.generate(lambda asked: [image_for(asked.prompt + " anew")] * asked.n)
    assert api_run.run(run_id="b").exit_code in (0, 1)
    pair_answers(api)
    api.latency["judge"] = 0.6
    api.faults.when(is_judgement(2), Fault("unauthorized"))
    arguments = ["pairwise", "a", "b", "--runs", "runs", "--judge", "eye", "--trust-suite", "--quiet"]
    arguments += ["--cache", str(api_run.cache)]
    result = CliRunner().invoke(app, [*arguments, "--max-concurrency", "5"], env={KEY: api.key})
    check_stopped_by_key(result, "the judge 'eye'")
    assert len((tmp_path / "runs/b/preferences.jsonl").read_text().splitlines()) == api_run.judged >= 1
    api.faults.clear()
    result = CliRunner().invoke(app, arguments, env={KEY: api.key})
    assert result.exit_code == 0, result.output
    assert api_run.judged == 2 * CELLS, "none is asked again"


def test_pairwise_within_a_run_saves_answers_in_flight(tmp_path: Path, api: FakeAPI) -> None:
    name = MODELS["openai"][0]
    models = [custom(api, "openai", label=label, params={"model": name, "background": kind})
              for label, kind in (("x", "opaque"), ("y", "auto"))]  # fmt: skip
    graders = [{"key": "file", "type": "properties"}, {"key": "duel", "type": "pairwise", "judge": "eye"}]
    api_run = ApiRun(tmp_path, api, 6, models=models, graders=graders, verdict=["not file.blank"])
    api.script.generate(lambda asked: [image_for(f"{asked.prompt} {asked.params.get('background')}")])
    pair_answers(api)
    api.latency["judge"] = 0.6
    api.faults.when(is_judgement(2), Fault("unauthorized"))
    check_stopped_by_key(api_run.run("--max-concurrency", "5", "--quiet"), "the judge 'eye'")
    assert len((api_run.run_folder / "preferences.jsonl").read_text().splitlines()) == api_run.judged >= 1
    api.faults.clear()
    api_run.run(resume=True)
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (12, 12, 0)


def answer_with_questions(asked: JudgeRequest) -> dict[str, Any]:
    if asked.images:
        return {"answers": [{"id": "q1", "answer": "yes", "reason": "seen"}]}
    return {"keywords": "{1}[image]", "questions": [QUESTION]}


def gecko(tmp_path: Path, api: FakeAPI, cells: int = CELLS) -> ApiRun:
    api.script.judge(answer_with_questions)
    return ApiRun(tmp_path, api, cells, graders=[{"key": "g", "type": "gecko", "judge": "eye"}], verdict=["g >= 0"])


def questions_command(api_run: ApiRun, *flags: str) -> list[str]:
    return ["questions", "suite.yaml", "--trust-suite", "--cache", str(api_run.cache), *flags]


def test_question_generation_saves_answers_in_flight(tmp_path: Path, api: FakeAPI) -> None:
    api_run = gecko(tmp_path, api)
    api.latency["judge"] = 0.6
    api.faults.when(is_judgement(3), Fault("unauthorized"))
    result = CliRunner().invoke(app, questions_command(api_run), env={KEY: api.key})
    check_stopped_by_key(result, "the judge 'eye'")
    assert api_run.judged == 7, "eight are made at once"
    assert len(api.requests) == 8
    api.faults.clear()
    result = CliRunner().invoke(app, questions_command(api_run), env={KEY: api.key})
    assert result.exit_code == 0, result.output
    assert (api_run.judged, api_run.repeated_calls) == (CELLS, 0)


def test_questions_generated_by_a_run_are_saved(tmp_path: Path, api: FakeAPI) -> None:
    api_run = gecko(tmp_path, api, 6)
    api.latency["judge"] = 1.5
    armed = refuse_key_later(api, answer_with_questions, is_judgement(3))
    check_stopped_by_key(api_run.run("--quiet"), "the judge 'eye'")
    assert api_run.generated == 6
    assert 5 <= api_run.judged < 12, "on a busy machine some answers are asked for before the refusal comes"
    armed.clear()
    result = api_run.run(resume=True)
    assert result.exit_code == 0, result.output
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (6, 12, 0)


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_interrupted_question_generation_saves_answers_in_flight(tmp_path: Path, api: FakeAPI) -> None:
    api_run = gecko(tmp_path, api)
    api.latency["judge"] = 1.5
    program = start_program(api_run, *questions_command(api_run))
    wait_until(lambda: len(api.requests) == 8, program)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors
    assert "stopping: waiting for 8 calls" in errors
    assert (api_run.judged, len(api.requests)) == (8, 8)
    api.latency.clear()
    result = CliRunner().invoke(app, questions_command(api_run), env={KEY: api.key})
    assert result.exit_code == 0, result.output
    assert (api_run.judged, api_run.repeated_calls) == (CELLS, 0)


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize("command", ["run", "questions"])
def test_second_interrupt_ends_at_once(tmp_path: Path, api: FakeAPI, command: str) -> None:
    api_run = gecko(tmp_path, api) if command == "questions" else ApiRun(tmp_path, api, CELLS)
    api.latency.update({"images": 600, "judge": 600})
    api.faults.when(is_generation(3) if command == "run" else is_judgement(3), Fault("unauthorized"))
    arguments = api_run.arguments("--max-concurrency", "5") if command == "run" else questions_command(api_run)
    program = start_program(api_run, *arguments)
    wait_until(lambda: any(entry.status == 401 for entry in api.requests), program)
    time.sleep(0.3)
    assert program.poll() is None, "it waits for the calls in flight"
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode in (3, 130), errors
    assert errors.count("refused the API key") == 1
    assert "Traceback" not in errors
    assert len(api.requests) == (5 if command == "run" else 8)


def test_wait_for_calls_in_flight_ends_with_their_timeout(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, CELLS, limits={"openai": {"timeout_s": 1.5}})
    api.latency["images"] = 600
    api.faults.when(is_generation(3), Fault("unauthorized"))
    check_stopped_by_key(api_run.run("--max-concurrency", "5", "--quiet"), "m")
    assert len(api.requests) == 5, "a call that fails meanwhile is not tried again"


def test_waiting_calls_do_not_start_after_refused_key(tmp_path: Path, api: FakeAPI) -> None:
    """Calls that wait for a rate limit, a retry or a first price do not start."""
    limits = {"openai": {"requests_per_minute": 300, "max_concurrency": 4}}
    prices = {"openai": {"per_call": 0.01}}
    api_run = ApiRun(tmp_path, api, CELLS, limits=limits, prices=prices, budget_usd=10)
    api.latency["images"] = 0.5
    api.faults.when(is_generation(1), Fault("unauthorized"))
    api.faults.when(is_generation(0), Fault("unavailable"))
    check_stopped_by_key(api_run.run("--quiet"), "m")
    assert sum(entry.status == 401 for entry in api.requests) == 1
    refused = next(at for at, entry in enumerate(api.requests) if entry.status == 401)
    assert len(api.requests) <= refused + 4
    begun = len(api.requests)
    api.faults.clear()
    assert api_run.run(resume=True).exit_code == 0
    assert api_run.repeated_calls == 0
    assert len(api.requests) > begun


def test_unwritable_cache_saves_answers_in_flight_in_the_run(tmp_path: Path, api: FakeAPI) -> None:
    """A cell with all its answers is recorded although the cache cannot be written."""
    api_run = ApiRun(tmp_path, api, CELLS)
    api.latency["images"], api.latency["judge"] = 0.05, 0.3
    small = (
        "import sys; sys.argv[0] = 'visioneval';"
        "from visioneval.running.calls import cache; store, left = cache.store_content, iter(range(10))\n"
        "def full(*content):\n"
        "    if next(left, None) is None: raise OSError(28, 'No space left on device')\n"
        "    store(*content)\n"
        "cache.store_content = full\n"
        "from visioneval.cli import main; main()"
    )
    program = start_program(api_run, *api_run.arguments("--max-concurrency", "4"), code=small)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 3, errors
    assert "cannot write to the cache" in errors.splitlines()[-1], errors
    assert "Traceback" not in errors
    for record in api_run.records:
        api_run.check(record)
    stored = len(api_run.records)
    assert (api_run.generated, api_run.judged) == (stored, stored), "each answer is in a record, cached or not"
    check_resume(api_run, api)


def test_unwritable_run_saves_answers_in_flight_in_the_cache(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, CELLS)
    api.latency["judge"] = (0.1, 0.6)
    small = (
        "import resource, sys; sys.argv[0] = 'visioneval';"
        "from visioneval.records.writer import RunWriter; from visioneval.errors import StorageError; append = RunWriter.append\n"
        "def full(self, record):\n"
        "    if self._end: raise StorageError('runs/r: cannot write a record: No space left on device')\n"
        "    append(self, record)\n"
        "RunWriter.append = full\n"
        "from visioneval.cli import main; main()"
    )
    program = start_program(api_run, *api_run.arguments("--max-concurrency", "6"), code=small)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 3, errors
    assert errors.splitlines()[-1] == "runs/r: cannot write a record: No space left on device"
    assert len(api_run.records) == 1
    assert api_run.generated + api_run.judged < 2 * CELLS
    check_resume(api_run, api)


def test_cells_with_all_answers_are_recorded(tmp_path: Path, api: FakeAPI) -> None:
    cases = [{"id": case_id(0), "prompt": prompt(0)}]
    cases += [
        {"id": case_id(at), "prompt": prompt(at), "output_of": case_id(0), "expect": {"aligned": False}}
        for at in (1, 2)
    ]  # type: ignore[dict-item]
    api_run = ApiRun(tmp_path, api, 3, cases=cases)
    api.latency["judge"] = 0.5
    api.faults.when(is_judgement(1), Fault("unauthorized"))
    check_stopped_by_key(api_run.run("--quiet"), "the judge 'eye'")
    assert sorted(record.test_id for record in api_run.records) == [case_id(0)] or len(api_run.records) == 2
    served = api_run.judged
    api.faults.clear()
    result = api_run.run(resume=True)
    assert result.exit_code in (0, 3), result.output
    assert len(api_run.records) == 3
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (1, 3, 0), served


METRIC = {"type": "score", "scale": [0, 5], "description": "How good is it?", "anchors": {"0": "bad", "5": "good"}}
QUESTION = {
    "id": "q1", "keyword": 1, "question": "Is there an image?", "type": "object", "choices": ["yes", "no"], "answer": "yes",
    "justification": "the prompt", "depends_on": [],
}  # fmt: skip


def custom(api: FakeAPI, provider: str, **more: Any) -> dict[str, Any]:
    url = api.gemini_base_url if provider == "gemini" else api.openai_base_url
    return {"provider": provider, "base_url": url, "api_key_env": KEY, **more}


def start_program(api_run: ApiRun, *arguments: str, code: str = COMMAND) -> ForkedProgram:
    """Runs a command in a process of its own."""
    return ForkedProgram(*arguments, cwd=api_run.folder, environment={KEY: api_run.api.key}, code=code)


def test_summary_of_stopped_run_counts_recorded_cells(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, CELLS)
    api.latency["judge"] = 0.3
    api.faults.when(is_generation(REFUSED), Fault("unauthorized"))
    result = api_run.run("--max-concurrency", "2", "--json", "--quiet")
    check_stopped_by_key(result, "m")
    summary = json.loads(result.stdout.splitlines()[0])
    assert summary["counts"]["cells"] == len(api_run.records)
    assert summary["exit_code"] in (3, 130)
    check_resume(api_run, api)


def test_internal_error_saves_answers_in_flight(tmp_path: Path, api: FakeAPI) -> None:
    """Whoever reads the progress leaves: the run ends, and what it has paid for is there."""
    api_run = ApiRun(tmp_path, api, 24)
    api.latency["images"] = (0.2, 0.6)
    code = (
        "from visioneval.cli.results import _PlainProgress\n"
        "def leaves(self, record): raise BrokenPipeError\n"
        "_PlainProgress.add = leaves\n"
        "from visioneval.cli import main; main()"
    )
    program = start_program(api_run, *api_run.arguments("--max-concurrency", "6"), code=code)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 141, errors
    assert 0 < api_run.generated < 24
    check_resume(api_run, api, 24, 24)


def test_answers_of_a_deleted_run_with_the_same_id_are_not_reused(api: FakeAPI, tmp_path: Path) -> None:
    """As in a nightly job that always names its run alike: what it resumes must not be last night's images."""
    run = ApiRun(tmp_path, api, 3)
    assert run.run().exit_code == 0
    shutil.rmtree(run.run_folder)
    api.faults.when(is_generation(1), Fault("bad_request"))
    assert run.run().exit_code == 3
    api.faults.clear()
    api.requests.clear()
    assert run.run(resume=True).exit_code == 0
    assert run.generated == 1
    run.check_complete()
