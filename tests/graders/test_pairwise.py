"""``visioneval pairwise`` and the grader ``pairwise``: pairs of images before a judge, in both orders."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, Fault, JudgeRequest, Script
from pairwise_judges import colour_of, judge_of
from PIL import Image
from toys import Toy

from visioneval.installation import builtin
from visioneval.records.between_cells import Preference, append_preferences, read_preferences
from visioneval.templates.render import Templates

pytestmark = pytest.mark.slow

RED, BLUE = "#d01010", "#1010d0"


PAIRWISE = {"key": "better", "type": "pairwise"}
GRADERS = [{"key": "image", "type": "properties"}, PAIRWISE]


@pytest.fixture(autouse=True)
def _around(monkeypatch: pytest.MonkeyPatch, api: FakeAPI) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("JUDGE_KEY", api.key)


def suite(toy: Toy, api: FakeAPI, cases: int = 3, provider: str = "openai", **changes: Any) -> Path:
    """Model ``x`` drew in red, ``y`` in blue; no two images are the same file."""
    for at in range(cases):
        for label, colour in (("x", RED), ("y", BLUE)):
            path = toy.folder / f"{label}/case{at}.png"
            path.parent.mkdir(exist_ok=True)
            image = Image.new("RGB", (32, 24 + at), colour)
            image.paste("green", (8, 8, 20, 16))
            image.save(path)
    known: dict[str, Any] = {
        "models": [{"provider": "files", "label": label, "path": f"{label}/{{case}}.png"} for label in "xy"],
        "judges": {"default": judge_of(api, provider)},
        "graders": [{"key": "image", "type": "properties"}],
        "verdict": ["image"],
        "prices": {provider: {"per_call": 0.01}},
    }
    return toy.write(*({"criteria": "it is calm"} for _ in range(cases)), **{**known, **changes})


def prefers(colour: str) -> Callable[[JudgeRequest], Any]:
    def answer(request: JudgeRequest) -> Any:
        a, b = (colour_of(image.data) for image in request.images)
        assert a != b
        return {"reason": f"the {colour} one is calm", "answer": "A" if a == colour else "B"}

    return answer


def run(toy: Toy, path: Path, run_id: str = "r") -> None:
    result = toy("run", path, "--run-id", run_id, "--quiet")
    assert result.exit_code == 0, result.output


def run_pairwise(toy: Toy, *arguments: str, code: int = 0) -> dict[str, Any]:
    result = toy("pairwise", "r@x", "r@y", "--json", *arguments)
    assert result.exit_code == code, result.output
    (actual,) = json.loads(result.stdout)["preferences"]
    return dict(actual)


def counts(result: dict[str, Any]) -> tuple[int, ...]:
    return tuple(result[key] for key in ("judged", "b_wins", "a_wins", "ties", "flips", "errors"))


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_a_judge_that_prefers_a_colour_prefers_it_in_both_orders(
    toy: Toy, api: FakeAPI, script: Script, provider: str
) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api, provider=provider))
    result = run_pairwise(toy)
    assert counts(result) == (3, 3, 0, 0, 0, 0)
    assert (result["a"], result["b"], result["b_win_rate"]) == ("r@x", "r@y", 1.0)
    assert result["interval"] == pytest.approx([0.05 ** (1 / 3), 1.0])  # the exact limit of three wins of three
    assert len(api.requests) == 6
    lines = (toy.folder / "runs/r/preferences.jsonl").read_text().splitlines()
    assert len(lines) == 6
    judge = {"openai": "openai:gpt-5.4", "gemini": "gemini:gemini-3.5-flash"}[provider]
    assert json.loads(min(lines)) == {
        "schema_version": 2,
        "template_sha256": Templates((builtin("prompts"),)).digest("pairwise/pairwise.md.j2"),
        "test_id": "case0",
        "sample_index": 0,
        "a": "r@x",
        "b": "r@y",
        "first": "a",
        "answer": "b",
        "reason": "the blue one is calm",
        "judge": judge,
        "error": None,
        "cost_usd": 0.01,
    }
    assert {json.loads(line)["answer"] for line in lines} == {"b"}


def test_a_position_biased_judge_gives_ties_by_flip(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge({"reason": "it comes first", "answer": "A"})
    run(toy, suite(toy, api))
    result = run_pairwise(toy)
    assert counts(result) == (3, 0, 0, 3, 3, 0)
    assert result["b_win_rate"] == 0.5
    assert [(item.first, item.answer) for item in read_preferences(toy.folder / "runs/r")].count(("b", "b")) == 3


def test_the_judge_sees_the_request_and_both_images_without_names(toy: Toy, api: FakeAPI, script: Script) -> None:
    seen: list[JudgeRequest] = []

    def answer(request: JudgeRequest) -> Any:
        seen.append(request)
        return {"reason": "alike", "answer": "tie"}

    script.judge(answer)
    run(toy, suite(toy, api, cases=1))
    assert counts(run_pairwise(toy)) == (1, 0, 0, 1, 0, 0)
    orders = [[colour_of(image.data) for image in request.images] for request in seen]
    assert sorted(orders) == [["blue", "red"], ["red", "blue"]]
    for request in seen:
        labels = [part for part in request.parts if isinstance(part, str)]
        assert labels[-2:] == ["A: the image A", "B: the image B"]
        assert "a tree" in request.text
        assert "it is calm" in request.text
        assert "r@x" not in request.text
        assert "case0" not in request.text


def test_stored_preferences_are_reused_unless_disabled(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api))
    run_pairwise(toy)
    result = toy("pairwise", "r@x", "r@y")
    assert (result.exit_code, len(api.requests)) == (0, 6)
    assert "asked 0 questions" in result.stderr
    script.judge(prefers("red"))
    assert counts(run_pairwise(toy, "--reuse", "none")) == (3, 0, 3, 0, 0, 0)
    assert len(api.requests) == 12
    assert len(read_preferences(toy.folder / "runs/r")) == 6
    text = toy("pairwise", "r@x", "r@y").stdout
    assert "A preferred: case0 [0], case1 [0], case2 [0]" in text


@pytest.mark.parametrize("fault", [Fault("refusal"), Fault("off_schema")])
def test_refusals_and_off_schema_answers_are_errors_and_not_losses(
    toy: Toy, api: FakeAPI, script: Script, fault: Fault
) -> None:
    fine = prefers("blue")

    def answer(request: JudgeRequest) -> Any:
        height = min(image.size[1] for image in request.images)
        return fault if height == 24 and colour_of(request.images[0].data) == "red" else fine(request)

    script.judge(answer)
    run(toy, suite(toy, api))
    result = run_pairwise(toy, code=3)
    assert counts(result) == (2, 2, 0, 0, 0, 1)
    assert {"test_id": "case0", "sample_index": 0, "result": "error"} in result["pairs"]
    (line,) = (item for item in read_preferences(toy.folder / "runs/r") if item.error)
    assert (line.test_id, line.first, line.answer, line.reason) == ("case0", "a", None, None)
    script.judge(fine)
    assert counts(run_pairwise(toy, "--reuse", "none")) == (3, 3, 0, 0, 0, 0)


def pairwise_costs(toy: Toy) -> tuple[Any, ...]:
    """The cost of pairs in the summary of the run ``r``: total, part, and of its judge USD, paid, cached and unknown."""
    summary = json.loads((toy.folder / "runs/r/summary.json").read_text())
    (cost,) = (cost for cost in summary["costs"] if cost["what"] == "pairwise")
    assert cost["name"] == "openai:gpt-5.4"
    usd = (pytest.approx(value) for value in (summary["cost_usd"], summary["pairwise_usd"], cost["usd"]))
    return (*usd, cost["paid"], cost["cached"], cost["unknown"])


def test_answers_about_pairs_are_part_of_the_cost_of_a_run(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api))
    assert toy.summary["pairwise_usd"] is None
    run_pairwise(toy)
    assert pairwise_costs(toy) == (0.06, 0.06, 0.06, 6, 0, 0)
    shown = " ".join(toy("show", "r", COLUMNS="120").stdout.split())
    assert "pairwise openai:gpt-5.4 0.0600 6 0 0 all 0.0600" in shown
    toy("report", "r", "-o", "page")
    page = " ".join((toy.folder / "page/index.html").read_text().split())
    assert "<b>0.0600</b> USD" in page
    assert re.search(r">\s*pairwise\s*<", page)


def test_no_answer_about_a_pair_is_counted_twice(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api))
    for _ in range(2):
        run_pairwise(toy)
    assert pairwise_costs(toy) == (0.06, 0.06, 0.06, 6, 0, 0)
    (toy.folder / "runs/r/preferences.jsonl").unlink()
    run_pairwise(toy)  # from the cache
    assert pairwise_costs(toy) == (0.0, 0.0, 0.0, 0, 6, 0)
    run_pairwise(toy, "--reuse", "none")  # replaces all answers, and is paid
    assert pairwise_costs(toy) == (0.06, 0.06, 0.06, 6, 6, 0)
    assert "pairwise" not in toy("show", "r@x").stdout  # no pair belongs to one model run


def test_answers_of_unknown_cost_are_named(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api))
    run_pairwise(toy)
    path = toy.folder / "runs/r/preferences.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[0]["cost_usd"]  # as written by an earlier version
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    run_pairwise(toy)  # asks nothing
    assert pairwise_costs(toy) == (0.05, 0.05, 0.05, 5, 0, 1)
    assert "pairwise openai:gpt-5.4 >= 0.0500 5 0 1" in " ".join(toy("show", "r", COLUMNS="120").stdout.split())


def test_only_pairs_of_a_selection_are_judged(toy: Toy, api: FakeAPI, script: Script) -> None:
    fine = prefers("blue")
    script.judge(lambda request: Fault("refusal") if request.images[0].size[1] == 24 else fine(request))
    run(toy, suite(toy, api))
    assert counts(run_pairwise(toy, code=3)) == (2, 2, 0, 0, 0, 1)
    assert counts(run_pairwise(toy, "--case", "case1")) == (1, 1, 0, 0, 0, 0)
    assert counts(run_pairwise(toy, "--limit", "1", code=3)) == (0, 0, 0, 0, 0, 1)


def test_unpaired_cells_are_reported(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    path = suite(toy, api)
    run(toy, path)
    shutil.copy(toy.folder / "x/case1.png", toy.folder / "y/case1.png")
    (toy.folder / "y/case2.png").write_bytes(b"not an image")
    toy("run", path, "--run-id", "s", "--quiet")
    result = toy("pairwise", "r@x", "s@y")
    assert result.exit_code == 0, result.output
    assert "1 pair; 1 pair without an image; 1 pair with two identical images" in result.stderr
    assert not (toy.folder / "runs/r/preferences.jsonl").exists()
    assert {(item.a, item.b) for item in read_preferences(toy.folder / "runs/s")} == {("r@x", "s@y")}
    result = toy("pairwise", "r@x", "r@y", "--case", "case2")
    assert "1 pair" in result.stderr.splitlines()[0]
    assert "alone" not in result.stderr


def test_a_image_that_was_changed_is_an_error(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api, cases=1))
    output = next((toy.folder / "runs/r/artifacts").rglob("x/*.png"))
    output.unlink()
    Image.new("RGB", (32, 24), "green").save(output)
    assert counts(run_pairwise(toy, code=3)) == (0, 0, 0, 0, 0, 1)
    assert not api.requests


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("r@x", "r@x"), "A and B are the same run"),
        (("r@x", "r@z"), "no model run 'z'"),
        (
            ("r@x", "r@y", "--judge", "second"),
            "B's suite has no judge 'second' (known: default); add one with --judge second=PROVIDER:MODEL",
        ),
        (
            ("r@x", "r@y", "--judge", "default=claude:x"),
            "write PROVIDER:MODEL with the provider openai, gemini or litellm",
        ),
        (("r@x", "r@y", "--judge", "new=gemini:gemini-3.5-flash"), "GEMINI_API_KEY"),
        (("r@x", "nowhere"), "no such run"),
    ],
)
def test_a_usage_error_is_one_line(toy: Toy, api: FakeAPI, arguments: tuple[str, ...], message: str) -> None:
    run(toy, suite(toy, api, cases=1))
    result = toy("pairwise", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_budget_stops_it_and_the_same_command_continues(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api))
    result = toy("pairwise", "r@x", "r@y", "--budget", "0.025", "--max-concurrency", "1")
    assert result.exit_code == 3
    assert "the budget is used up: to continue, repeat the command\n" in result.stderr
    assert len(api.requests) == 2  # a third one would be likely to cost more than is left
    assert counts(run_pairwise(toy)) == (3, 3, 0, 0, 0, 0)
    assert len(api.requests) == 6


def test_with_reuse_none_the_same_command_does_not_continue(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api))
    few = ("--budget", "0.025", "--max-concurrency", "1")
    result = toy("pairwise", "r@x", "r@y", "--reuse", "none", *few)
    assert (
        "the budget is used up: to continue, repeat the command without --reuse none, which would ask about all pairs again"
        in result.stderr
    )
    assert counts(run_pairwise(toy)) == (3, 3, 0, 0, 0, 0)
    assert len(api.requests) == 6


@pytest.mark.parametrize("within", [True, False])
def test_a_refused_key_stops_it_with_one_line(toy: Toy, api: FakeAPI, within: bool) -> None:
    path = suite(toy, api, graders=GRADERS if within else GRADERS[:1])
    result = toy("run", path, "--run-id", "r", JUDGE_KEY="sk-wrong-key-of-somebody")
    if not within:
        assert result.exit_code == 0
        result = toy("pairwise", "r@x", "r@y", JUDGE_KEY="sk-wrong-key-of-somebody")
    assert result.exit_code == 3, result.output
    assert "the judge 'default': the provider refused the API key" in result.stderr
    assert "sk-wrong-key-of-somebody" not in result.output
    assert "Traceback" not in result.output
    assert not (toy.folder / "runs/r/preferences.jsonl").exists()


def test_the_command_works_offline_from_the_cache(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    run(toy, suite(toy, api, cases=1))
    run_pairwise(toy)
    (toy.folder / "runs/r/preferences.jsonl").unlink()
    assert counts(run_pairwise(toy, "--offline")) == (1, 1, 0, 0, 0, 0)
    assert len(api.requests) == 2


def test_a_pairwise_grader_compares_the_model_runs_after_the_cells(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    result = toy("run", suite(toy, api, graders=GRADERS), "--run-id", "r")
    assert result.exit_code == 0, result.output
    assert "Preferences" in result.stdout
    assert "better: 3 pairs; asked 6 questions, 0 of them answered from the cache; cost: 0.0600 USD" in result.stderr
    assert result.stdout.splitlines()[-2].startswith("run: runs/r")
    actual = read_preferences(toy.folder / "runs/r")
    assert [(item.a, item.b, item.answer) for item in actual] == [("r@x", "r@y", "b")] * 6
    assert "better" not in json.dumps(toy.records["case0"].scores)
    assert "Preferences" in toy("show", "r").stdout
    assert counts(run_pairwise(toy)) == (3, 3, 0, 0, 0, 0)
    assert len(api.requests) == 6, "prefer finds what the run has asked"


def test_a_pair_that_was_not_judged_leaves_the_run_incomplete(toy: Toy, api: FakeAPI, script: Script) -> None:
    fine = prefers("blue")
    script.judge(lambda asked: Fault("refusal") if colour_of(asked.images[0].data) == "red" else fine(asked))
    result = toy("run", suite(toy, api, graders=GRADERS), "--run-id", "r")
    assert result.exit_code == 3
    assert "3 pairs could not be judged; to resume: visioneval run --resume runs/r" in result.stderr
    assert json.loads((toy.folder / "runs/r/summary.json").read_text())["exit_code"] == 3
    script.judge(fine)
    again = toy("run", "--resume", "runs/r")
    assert again.exit_code == 0, again.stderr
    assert "could not be judged" not in again.stderr


def test_a_resumed_run_asks_only_about_changed_pairs(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    path = suite(toy, api, graders=GRADERS)
    run(toy, path)
    image = Image.new("RGB", (32, 40), RED)
    image.paste("green", (8, 8, 20, 16))
    image.save(toy.folder / "x/case1.png")
    result = toy("run", "--resume", "r", "--quiet")
    assert (result.exit_code, len(api.requests)) == (0, 8), result.output
    assert counts(run_pairwise(toy)) == (3, 3, 0, 0, 0, 0)
    result = toy("run", "--resume", "r", "--quiet")
    assert len(api.requests) == 8


def test_selecting_one_model_run_leaves_nothing_to_compare(toy: Toy, api: FakeAPI) -> None:
    path = suite(toy, api, graders=GRADERS)
    assert toy("run", path, "--run-id", "r", "--model", "x", "--quiet").exit_code == 0
    assert toy("grade", "r", "--quiet").exit_code == 0
    assert not api.requests
    result = toy("run", path, "--model", "x", "--grader", "better")
    assert (result.exit_code, "nothing to grade: a comparison needs at least two model runs" in result.stderr) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graders": [*GRADERS[:1], {**PAIRWISE, "models": ["x", "q*"]}]}, "no model run is labeled 'q*'"),
        ({"graders": [*GRADERS[:1], {**PAIRWISE, "models": ["x"]}]}, "a comparison needs at least two model runs, not 1"),
        ({"graders": [*GRADERS, {**PAIRWISE, "key": "again"}]}, "'better' already asks this judge model"),
        ({"graders": [*GRADERS[:1], {**PAIRWISE, "judge": "none"}]}, "there is no judge 'none'"),
        ({"graders": [*GRADERS[:1], {**PAIRWISE, "template": "x.j2"}]}, "x.j2"),
    ],
)  # fmt: skip
def test_a_suite_without_comparisons_is_reported(toy: Toy, api: FakeAPI, changes: dict[str, Any], message: str) -> None:
    result = toy("validate", suite(toy, api, **changes))
    assert result.exit_code == 2
    assert message in result.stderr


def test_preferences_survive_a_cut_off_line(tmp_path: Path) -> None:
    line = Preference(
        test_id="one", sample_index=0, a="r@x", b="r@y", first="a", answer="tie", reason="", judge="j", error=None
    )
    append_preferences(tmp_path, [line])
    with (tmp_path / "preferences.jsonl").open("a") as file:
        file.write('{"schema_version":2,"test_id":"tw')
    assert read_preferences(tmp_path) == [line]
    append_preferences(tmp_path, [line.model_copy(update={"first": "b"})])
    assert [item.first for item in read_preferences(tmp_path)] == ["a", "b"]


def test_answers_of_a_grader_and_of_the_command_rank_model_runs(toy: Toy, api: FakeAPI, script: Script) -> None:
    script.judge(prefers("blue"))
    path = suite(toy, api, cases=6, graders=GRADERS)
    run(toy, path)
    run(toy, path, "s")
    result = toy("rank", "r", "--json")
    assert result.exit_code == 0, result.output
    (ranking,) = json.loads(result.stdout)["rankings"]
    assert [(entry["name"], entry["rank"], entry["wins"]) for entry in ranking["model_runs"]] == [
        ("y", 1, 6),
        ("x", 2, 0),
    ]
    assert toy("pairwise", "r@x", "s@y", "--quiet").exit_code == 0
    result = toy("rank", "r", "s", "--judge", "default", "--json")
    assert result.exit_code == 3, result.output
    (ranking,) = json.loads(result.stdout)["rankings"]
    assert {entry["name"]: entry["pairs"] for entry in ranking["model_runs"]} == {
        "r@x": 12, "r@y": 6, "s@x": 6, "s@y": 12
    }  # fmt: skip
    assert ranking["gaps"] == ["no answers show which is better: r@x and s@x; r@y and s@x; r@y and s@y"]
