"""Judges that were never asked, offline or beyond the budget: no quorum, votes, ``optional`` or gate excuse that."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from fake_api import Fault, JudgeRequest
from gecko_script import judge as gecko_judge
from panel_runs import ABC, CACHE, COMMANDS, by_quality, is_incomplete, offline, record_of, set_answers, two_models
from suite_runner import LOOK, SuiteRunner

from visioneval import grade, load_run
from visioneval.records.baselines import baseline_path, read_baseline
from visioneval.records.between_cells import read_preferences
from visioneval.records.runs import asking_hint

pytestmark = pytest.mark.slow
pytest_plugins = ("panel_fixtures",)

Panel = Callable[..., SuiteRunner]
FILE = {"key": "file", "type": "properties"}
COUNT = """
from visioneval import Grade

class Count:
    def __init__(self, config):
        pass

    async def grade(self, context):
        try:
            return Grade({"dogs": (await context.ask("How many?", {"dogs": {"type": "integer"}}))["dogs"]})
        except Exception:
            return Grade({"dogs": 2})
"""
REQUIREMENT = {"requirement": "a tree", "question": "Is it?", "analysis": "Look.", "gap": "", "answer": True}
KINDS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "rubric": (LOOK, "nice", {"nice": True, "reason": "so", "verdict": "PASS"}),
    "rubric, per metric": ({**LOOK, "per_metric": True}, "nice", {"nice": True, "reason": "so", "verdict": "PASS"}),
    "alignment": ({"key": "fit", "type": "alignment"}, "fit >= 50", {"requirements": [REQUIREMENT], "score": 90}),
    "gecko": ({"key": "gecko", "type": "gecko"}, "gecko >= 0.9", gecko_judge(lambda name, asked: "yes")),
    "text": ({"key": "copy", "type": "text", "extract": "judge"}, "copy", {"lines": ["SALE"]}),
    "a class that catches every error": (
        {"key": "dogs", "type": "counts:Count", "writes": {"dogs": {"type": "number"}}},
        "dogs >= 2",
        {"dogs": 2},
    ),
}  # fmt: skip
CASE = {"id": "tree", "prompt": "a tree", "expect": {"text": {"required": ["SALE"]}}}


def write(panel: Panel, grader: dict[str, Any], verdict: str, reply: Any, **changes: Any) -> SuiteRunner:
    runner = panel(
        {}, **{"cases": [CASE], "graders": [grader, FILE], "verdict": [verdict, "not file.blank"], **changes}
    )
    (runner.folder / "counts.py").write_text(COUNT)
    runner.api.script.judge(reply)
    return runner


EACH = pytest.mark.parametrize(
    ("kind", "command"), [*((kind, "run") for kind in KINDS), *(("rubric", command) for command in COMMANDS[1:])]
)


@EACH
def test_a_quorum_excuses_no_judge_that_was_never_asked(panel: Panel, kind: str, command: str) -> None:
    grader, verdict, reply = KINDS[kind]
    runner = write(panel, {**grader, "judge": "a"}, verdict, reply)
    assert runner.run(*CACHE, "--trust-suite").exit_code == 0
    write(panel, {**grader, "judge": ["a", "b", "c"], "quorum": 1}, verdict, reply)
    before = runner.called
    result, run_id = offline(runner, command)
    assert (result.exit_code, runner.called) == (3, before), result.output
    record = record_of(runner, run_id)
    assert (record.verdict, record.error.kind) == ("ERROR", "offline")
    key, (measured, _) = grader["key"], record.graders
    assert {record.scores[name] for name in record.scores if not name.startswith("file")} == {None}
    assert (measured.never_asked, [answer.never_asked for answer in measured.judges]) == (True, [False, True, True])
    assert "1 of 3 judges answered, 3 must, as b and c were never asked; b: not in the cache" in measured.error
    text = f"never asked: {key} by b about 1 cell, {key} by c about 1 cell"
    assert text in " ".join(result.output.split())
    assert text in " ".join(runner("show", run_id, "--runs", runner.out).output.split())
    is_incomplete(runner, run_id)


@EACH
def test_an_optional_grader_that_was_never_asked_is_needed(panel: Panel, kind: str, command: str) -> None:
    grader, _, reply = KINDS[kind]
    optional = {**grader, "judge": "a", "optional": True}
    runner = write(panel, {**FILE, "key": "other"}, "not file.blank", reply)
    assert runner.run(*CACHE, "--trust-suite").exit_code == 0
    write(panel, optional, "not file.blank", Fault("server_error"))
    result, run_id = offline(runner, command)
    assert result.exit_code == 3, result.output
    assert record_of(runner, run_id).verdict == "ERROR"
    assert f"never asked: {grader['key']} about 1 cell" in " ".join(result.output.split())
    is_incomplete(runner, run_id)
    if "class" not in kind:  # it may do without an answer of a judge that is down
        assert runner.run("--reuse", "none", "--trust-suite", run_id="down").exit_code == 0
        assert runner.summary("down")["optional_unmeasured"] == {grader["key"]: 1}


@pytest.mark.parametrize("gates", [["pass_rate >= 0"], ["unmeasured_rate <= 1", "error_rate <= 1"]])
def test_a_grader_that_only_warns_is_needed_too_whatever_a_gate_allows(panel: Panel, gates: list[str]) -> None:
    grader, verdict, reply = KINDS["rubric"]
    rules = [{"rule": verdict, "level": "warn"}, "not file.blank"]
    runner = write(panel, {**grader, "judge": "a"}, verdict, reply)
    assert runner.run(*CACHE).exit_code == 0
    panel({}, cases=[CASE], graders=[{**grader, "judge": "b"}, FILE], verdict=rules, gates=gates)
    result, run_id = offline(runner, "run")
    assert (result.exit_code, record_of(runner, run_id).verdict) == (3, "ERROR")


@pytest.mark.parametrize(
    ("cached", "code", "command"), [(2, 3, "run"), (3, 0, "run"), (2, 3, "grade"), (2, 3, "resume")]
)
def test_votes_excuse_no_vote_that_was_never_asked(panel: Panel, cached: int, code: int, command: str) -> None:
    grader, verdict, reply = KINDS["rubric"]
    runner = write(panel, {**grader, "judge": "a", "votes": cached}, verdict, reply)
    assert runner.run(*CACHE).exit_code == 0
    write(panel, {**grader, "judge": "a", "votes": 3}, verdict, reply)
    result, run_id = offline(runner, command)
    assert result.exit_code == code, result.output
    record = record_of(runner, run_id)
    assert record.graders[0].details["votes"] == {"nice": [True] * cached + [None] * (3 - cached)}
    assert record.graders[0].never_asked is (code == 3)
    assert ("never asked: look about 1 cell" in result.output) is (code == 3)
    assert load_run(runner.out / run_id).exit_code == code


def test_a_vote_that_was_asked_in_vain_is_excused(panel: Panel) -> None:
    grader, verdict, _ = KINDS["rubric"]
    yes = {"nice": True, "reason": "so", "verdict": "PASS"}
    replies = iter([yes, Fault("server_error"), yes])
    runner = write(panel, {**grader, "judge": "a", "votes": 3}, verdict, lambda _: next(replies))
    assert runner.run("--max-concurrency", "1").exit_code == 0
    assert record_of(runner).graders[0].details["lost_votes"]


def test_the_replay_of_an_excused_outage_names_the_command_that_asks(panel: Panel) -> None:
    says = {"a": True, "b": Fault("server_error"), "c": True}
    runner = panel(says, "tree", graders=[{**ABC, "quorum": 2}])
    assert runner.run(*CACHE).exit_code == 0
    result, run_id = offline(runner, "run")
    assert result.exit_code == 3
    answers = record_of(runner, run_id).graders[0].judges
    assert [answer.never_asked for answer in answers] == [False, True, False], "no outage is cached as an answer"
    assert "did not answer" not in result.output
    set_answers(runner, {"a": False, "b": True, "c": False})
    before = runner.called
    asks = re.search(r"never asked: look by b about 1 cell; to ask: visioneval (.+)", result.stderr)
    assert runner(*shlex.split(asks[1]), *CACHE).exit_code == 0
    assert runner.called == (before[0], before[1] + 1)
    assert runner.summary(run_id)["never_asked"] == []


def test_a_graded_run_is_graded_again(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = panel({"a": True}, "tree", graders=[{**LOOK, "judge": "a"}])
    runner.run(*CACHE)
    panel({"a": True, "b": True, "c": True}, "tree", graders=[{**ABC, "quorum": 1}])
    suite = runner.folder / "suite.yaml"
    words = ("grade", "r", "--suite", suite, "--runs", runner.out, "--run-id", "offline", "--grader=look", *CACHE)
    words = (*map(str, words), "--offline", "--trust-suite")
    monkeypatch.setattr("sys.argv", ["visioneval", *words])
    result = runner(*words)
    (asks,) = re.findall(r"to ask: visioneval (.+), as a new run, without --offline", result.stderr)
    assert f"to ask: visioneval {asks}" in runner("show", "offline", "--runs", runner.out).stderr
    assert "--grader look" in asks
    assert "--trust-suite" not in asks
    info = runner.info("offline").model_copy(update={"command_line": ("grade", "r", "--judge", "b=x:y", "--var=n=1 2")})
    hint = asking_hint(runner.out / "offline", info, lacks_outputs=False)
    assert "visioneval grade r --judge b=x:y --var 'n=1 2', as a new run" in hint
    again = runner(*shlex.split(asks), "--run-id", "again")
    assert again.exit_code == 0, again.output
    assert [answer.judge for answer in record_of(runner, "again").graders[0].judges] == ["a", "b", "c"]
    assert runner.summary("again")["never_asked"] == []


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_run_graded_in_python_names_another_suite_only(panel: Panel, is_changed: bool) -> None:
    says = {"a": True, "b": Fault("server_error"), "c": True}
    runner = panel(says, "tree", graders=[{**LOOK, "judge": "a"} if is_changed else {**ABC, "quorum": 2}])
    assert runner.run(*CACHE).exit_code == 0
    suite = panel(says, "tree", graders=[{**ABC, "quorum": 2}]).folder / "suite.yaml" if is_changed else None
    graded = grade("r", suite, runs=runner.out, run_id="graded", cache="cache", offline=True)
    assert graded.exit_code == 3
    hint = asking_hint(graded.folder, graded.info, lacks_outputs=False)
    assert hint == f"to ask: visioneval grade r{f' --suite {suite}' * is_changed}, as a new run, without --offline"


@pytest.mark.parametrize("command", COMMANDS)
def test_only_an_offline_run_is_told_to_fill_the_cache(panel: Panel, command: str) -> None:
    grader, verdict, reply = KINDS["rubric"]
    runner = write(panel, {**grader, "judge": "a"}, verdict, reply)
    runner.run(*CACHE, "--trust-suite")
    write(panel, {**grader, "judge": "b"}, verdict, reply)
    result, run_id = offline(runner, command)
    advice = "offline: the cache lacks answers; run the suite once with a key and --cache FOLDER, without --offline"
    assert (result.exit_code, advice in " ".join(result.output.split())) == (3, True)
    again = ("run", "--resume", runner.out / run_id, "--keep-errors", "--trust-suite", *CACHE)
    for flags, is_told in (((), False), (("--offline",), True)) if command != "grade" else ():  # it cannot be resumed
        result = runner(*again, *flags)
        assert (result.exit_code, "the cache lacks answers" in " ".join(result.output.split())) == (3, is_told)


def test_changed_rules_do_not_excuse_it(panel: Panel) -> None:
    """Neither for a new run nor for the same: the stored scores are not complete."""
    grader, _, reply = KINDS["rubric"]
    runner = write(panel, {**grader, "judge": "a", "optional": True}, "not file.blank", reply)
    runner.run(*CACHE)
    write(panel, {**grader, "judge": "b", "optional": True}, "not file.blank", reply)
    offline(runner, "run")
    write(panel, {**grader, "judge": "b", "optional": True}, "file", reply)
    suite, flags = runner.folder / "suite.yaml", (*CACHE, "--offline")
    graded = runner("grade", "offline", "--suite", suite, "--runs", runner.out, "--run-id", "graded", *flags)
    resumed = runner("run", suite, "--resume", runner.out / "offline", *flags)
    assert (graded.exit_code, resumed.exit_code) == (3, 3)
    unrepeated = runner("run", suite, "--resume", runner.out / "offline", "--keep-errors", *flags)
    assert unrepeated.exit_code == 3


@pytest.mark.parametrize(("grader", "name"), [
    ({**LOOK, "judge": "a", "optional": True}, "look"),
    ({**ABC, "quorum": 1}, "look by b"),
    ({**ABC, "quorum": 1, "optional": True}, "look by b"),
    ({**LOOK, "judge": "a", "votes": 3, "optional": True}, "look"),
])  # fmt: skip
def test_a_budget_excuses_nothing_either(panel: Panel, grader: dict[str, Any], name: str) -> None:
    """Also in the resumed run: what the budget refused is asked, not kept."""
    says = {"a": True, "b": True, "c": True}
    usd = 0.0509 if grader["judge"] != "a" else 0.0409
    runner = panel(says, "tree", graders=[grader, FILE], verdict=["not file.blank"], budget_usd=usd)
    result = runner.run(*CACHE, "--max-concurrency", "1")
    assert result.exit_code == 3, result.output
    assert record_of(runner).verdict == "ERROR"
    assert f"never asked: {name} about 1 cell" in " ".join(result.output.split())
    before = runner.called
    again = runner("run", "--resume", runner.out / "r", *CACHE, "--offline")
    assert (again.exit_code, runner.called) == (3, before), "offline, nothing is asked"
    done = runner("run", "--resume", runner.out / "r", *CACHE, "--budget", "1")
    assert done.exit_code == 0, done.output
    assert runner.called > before
    assert runner.summary()["never_asked"] == []


@pytest.mark.parametrize("judge", ["a", ["a", "b", "c"]])
def test_a_class_that_catches_every_error_does_not_hide_a_refused_key(panel: Panel, judge: Any) -> None:
    grader, verdict, _ = KINDS["a class that catches every error"]
    runner = write(panel, {**grader, "judge": judge}, verdict, Fault("unauthorized"))
    result = runner.run("--trust-suite")
    assert result.exit_code == 3, result.output
    assert "the provider refused the API key" in result.stderr
    assert runner.info().stopped_by == "refused_key"


def test_shards_and_merge(panel: Panel) -> None:
    ids = ("tree", "boat", "lamp", "door")
    runner = panel({"a": True}, *ids, graders=[{**LOOK, "judge": "a"}])
    assert runner.run(*CACHE).exit_code == 0
    panel({}, *ids, graders=[{**ABC, "quorum": 1}])
    shards = [runner.run(*CACHE, "--offline", "--shard", f"{at}/2", run_id=f"s{at}") for at in (1, 2)]
    assert [shard.exit_code for shard in shards] == [3, 3]
    merged = runner("merge", "s1", "s2", "--runs", runner.out, "--run-id", "whole")
    assert merged.exit_code == 3
    assert "never asked: look by b about 4 cells, look by c about 4 cells" in " ".join(merged.output.split())
    is_incomplete(runner, "whole")


def test_a_comparison_misses_what_was_never_asked(panel: Panel) -> None:
    runner = panel({"a": True}, "tree", "boat", graders=[{**LOOK, "judge": "a"}])
    runner.run(*CACHE)
    assert runner("baseline", "set", "r", "--runs", runner.out).exit_code == 0
    panel({}, "tree", "boat", graders=[{**LOOK, "judge": "b", "optional": True}, FILE], verdict=["not file.blank"])
    offline(runner, "run")
    for a in ("r", "baseline"):
        result = runner("compare", a, "offline", "--runs", runner.out, "--fail-on", "regressed")
        assert result.exit_code == 3, result.output
    runner("baseline", "set", "offline", "--runs", runner.out, "--name", "b")
    assert [line.failed_graders for line in read_baseline(baseline_path("b"))[0].lines] == [("look",), ("look",)]


@pytest.mark.parametrize(("optional", "excuses"), [(True, 0), (False, 0), (None, 1)])
def test_a_comparison_excuses_only_what_the_suite_of_b_excuses(
    panel: Panel, optional: bool | None, excuses: int
) -> None:
    """``None``: a grader that A needs and was asked, and that is optional in B."""
    look = {**LOOK, "judge": "a", "optional": bool(optional)}
    suite = {"graders": [look, FILE], "verdict": ["not file.blank"]}
    runner = panel({"a": True}, "tree", "boat", **suite)
    runner.run(*CACHE, *([] if optional is None else ["--grader", "file"]), run_id="r")
    runner.run(*CACHE, "--reuse", "all", *([] if optional is None else ["--offline"]), run_id="before")
    runner("baseline", "set", "before", "--runs", runner.out)
    graders = [{**look, "optional": optional is not False}, FILE]
    panel({"a": True}, "tree", "boat", **{**suite, "graders": graders, "verdict": ["not file.blank", "file"]})
    runner.run(*CACHE, "--reuse", "all", run_id="after")
    for a in ("before", "baseline"):
        result = runner("compare", a, "after", "--runs", runner.out)
        assert result.output.count("excused in B") == excuses, result.output


@pytest.mark.parametrize("grader", [{**ABC, "quorum": 1}, {**LOOK, "judge": "b", "optional": True}])
def test_a_probe_that_could_not_ask_is_incomplete(panel: Panel, grader: dict[str, Any]) -> None:
    runner = panel({"a": True, "b": True, "c": True}, "tree", graders=[grader, FILE], verdict=["not file.blank"])
    runner.run(*CACHE)
    probe = ("probe", "r", "--runs", runner.out, "--judges", "--kinds", "pixels.blank", *CACHE)
    replay = runner(*probe, "--offline")
    assert replay.exit_code == 3
    assert "incomplete: a judge was never asked" in replay.output
    assert runner(*probe).exit_code == runner(*probe, "--offline").exit_code == 0


def test_an_export_says_so(panel: Panel) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    runner = panel({"a": True}, "tree", graders=[{**LOOK, "judge": "a"}])
    runner.run(*CACHE)
    panel({}, "tree", graders=[{**ABC, "quorum": 1}])
    offline(runner, "run")
    runner("export", "offline", "--runs", runner.out, "-o", "cells.parquet")
    ((grader,),) = pq.read_table("cells.parquet").column("graders").to_pylist()
    assert grader["never_asked"]
    assert [judge["never_asked"] for judge in grader["judges"]] == [False, True, True]


def pairs(panel: Panel, judge: Any, quorum: int | None, **changes: Any) -> SuiteRunner:
    """Two model runs whose outputs are compared."""
    grader = {"key": "better", "type": "pairwise", "judge": judge, "quorum": quorum}
    suite = {"models": two_models(panel), "graders": [FILE, grader], "verdict": ["not file.blank"], **changes}
    runner = panel({}, "tree", **suite)
    runner.api.script.generate(by_quality)
    runner.api.script.judge({"reason": "same", "answer": "tie"})
    return runner


class TestPairs:
    """Pairwise panels."""

    @pytest.mark.parametrize("command", COMMANDS)
    def test_a_quorum_excuses_no_judge_that_was_never_asked(self, panel: Panel, command: str) -> None:
        runner = pairs(panel, ["a"], None)
        assert runner.run(*CACHE).exit_code == 0
        pairs(panel, ["a", "b", "c"], 1)
        result, run_id = offline(runner, command)
        assert result.exit_code == 3, result.output
        if command != "grade":
            assert "1 pair could not be judged; to resume: visioneval run" in result.stderr
        never_asked = {line.judge for line in read_preferences(runner.out / run_id) if line.never_asked}
        assert never_asked == {"openai:gpt-5.4-mini", "openai:gpt-6-luna"}
        assert "never asked: openai:gpt-5.4-mini about 1 pair, openai:gpt-6-luna about 1 pair; to ask: visioneval" in (
            " ".join(result.output.split())
        )
        is_incomplete(runner, run_id)

    def test_the_command_pairwise(self, panel: Panel) -> None:
        runner = pairs(panel, ["a"], None)
        runner.run(*CACHE)
        pairs(panel, ["a", "b", "c"], 1)
        offline(runner, "run")
        result = runner("pairwise", "offline@m", "offline@n", "--runs", runner.out, "--json", *CACHE, "--offline")
        assert result.exit_code == 3
        assert "repeat the command without --offline" in result.stderr
        (finding,) = (entry for entry in json.loads(result.stdout)["preferences"] if "panel" in entry)
        assert [pair["result"] for pair in finding["pairs"]] == ["error"]
        asked = runner("pairwise", "offline@m", "offline@n", "--runs", runner.out, *CACHE)
        assert asked.exit_code == 0, asked.output
        assert load_run(runner.out / "offline").exit_code == 0

    def test_a_budget_excuses_nothing_either(self, panel: Panel) -> None:
        """Also where the run is read as if it were complete."""
        runner = pairs(panel, ["a", "b", "c"], 1, budget_usd=0.1009)
        result = runner.run(*CACHE, "--max-concurrency", "1")
        assert result.exit_code == 3, result.output
        assert len(read_preferences(runner.out / "r")) < 6
        resumed = runner("run", "--resume", runner.out / "r", *CACHE, "--offline")
        assert resumed.exit_code == 3, resumed.output
        assert runner("run", "--resume", runner.out / "r", *CACHE, "--budget", "1").exit_code == 0

    def test_a_judge_that_is_down_is_excused(self, panel: Panel) -> None:
        runner = pairs(panel, ["a", "b", "c"], 1)

        def reply(request: JudgeRequest) -> Any:
            return {"reason": "same", "answer": "tie"} if request.model == "gpt-5.4" else Fault("server_error")

        runner.api.script.judge(reply)
        assert runner.run(*CACHE).exit_code == 0
        assert load_run(runner.out / "r").exit_code == 0
        assert offline(runner, "run")[0].exit_code == 3
