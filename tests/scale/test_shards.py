"""``run --shard I/N`` and ``merge``: parts of a suite on several machines, and one run of all of them."""

from __future__ import annotations

import fcntl
import gc
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gecko_script
import pytest
from fake_api import JudgeRequest
from suite_runner import SuiteRunner

import visioneval
from visioneval import Record, TestCase, UsageError, read_info, read_records
from visioneval.records.between_cells import Preference, read_preferences
from visioneval.records.labels import Label, append_labels, read_labels
from visioneval.records.questions import read_questions
from visioneval.suite.runs import Shard, cases_of_shard

pytestmark = pytest.mark.slow


CASES: list[dict[str, Any]] = [
    *({"id": f"case{at}", "prompt": f"{at} red boats", "tags": ["odd" if at % 2 else "even"]} for at in range(6)),
    {"id": "same", "prompt": "3 red boats"},
    {"id": "counter", "prompt": "a green tree", "output_of": "case1", "expect": {"aligned": False}},
]
SUITE: dict[str, Any] = {
    "cases": CASES,
    "models": [{"provider": "mock", "params": {"size": "64x64"}, "grid": {"flaw": ["none", "blank"]}}],
    "samples": 2,
    "graders": [
        {"key": "file", "type": "properties"},
        {"key": "gecko", "type": "gecko"},
        {"key": "better", "type": "pairwise"},
    ],
    "verdict": ["not file.blank"],
    "gates": ["pass_rate >= 0.4", {"rule": "pass_rate == 1", "tags": ["odd"], "models": ["*none"]}],
    "prices": {"openai:gpt-5.4": {"per_call": 0.01}},
}
TIMES = {"run_id", "seconds", "waited_seconds", "cached"}
PAID = {"usage", "cost_usd"}
"""Of cells that share an answer, the first pays, so only the sums are the same in every run."""


@pytest.fixture
def suite(runner: SuiteRunner) -> SuiteRunner:
    about_cells = gecko_script.judge(lambda name, request: "yes")

    def answer(request: JudgeRequest) -> Any:
        assert request.schema is not None
        asks_for_pair = "keywords" not in request.schema["properties"] and "answers" not in request.schema["properties"]
        return {"reason": "by looks", "answer": "tie"} if asks_for_pair else about_cells(request)

    runner.api.script.judge(answer)
    return runner


def run_shards(suite: SuiteRunner, count: int, *flags: str, prefix: str = "s") -> list[str]:
    names = [f"{prefix}{number}" for number in range(1, count + 1)]
    for number, name in enumerate(names, 1):
        done = suite.run("--shard", f"{number}/{count}", "--cache", suite.folder / f"cache-{name}", *flags, run_id=name)
        assert done.exit_code == 0, done.output
    return names


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test that needs the shards of ``LOCAL`` makes them for all."""
    return tmp_path_factory.mktemp("built") / "shards"


@pytest.fixture
def shards(suite: SuiteRunner, built: Path) -> SuiteRunner:
    """The runs ``s1`` and ``s2`` of both shards of ``LOCAL``."""
    if not built.exists():
        first = SuiteRunner(built, suite.api)
        first.write(**LOCAL)
        run_shards(first, 2)
    shutil.copytree(built, suite.folder, dirs_exist_ok=True)
    for path in suite.out.glob("*/run.json"):
        path.write_text(path.read_text().replace(str(built), str(suite.folder)))
    return suite


def merge(suite: SuiteRunner, *names: str, run_id: str = "all", **streams: Any) -> Any:
    return suite("merge", *names, "--runs", suite.out, "--run-id", run_id)


def contents(record: Record) -> dict[str, Any]:
    """A record without what differs between two runs of the same suite."""
    data = record.model_dump(mode="json", exclude=TIMES)
    data["graders"] = [
        {name: value for name, value in grader.items() if name not in TIMES | PAID} for grader in data["graders"]
    ]
    return data


# assignment


def cases_of(*prompts: str, **sources: str) -> list[TestCase]:
    cases = [TestCase(id=f"c{at}", prompt=prompt, task="image_generation") for at, prompt in enumerate(prompts)]
    return [
        *cases,
        *(
            TestCase(id=name, prompt=f"another {name}", output_of=source, task="image_generation")
            for name, source in sources.items()
        ),
    ]


def shards_by_case(cases: list[TestCase], count: int) -> dict[str, int]:
    parts = [cases_of_shard(cases, Shard(number=number, count=count)) for number in range(1, count + 1)]
    found = {name: number for number, part in enumerate(parts, 1) for name in part}
    assert sum(map(len, parts)) == len(found) == len(cases)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_every_case_is_in_exactly_one_shard(count: int) -> None:
    shards_by_case(cases_of(*(f"prompt {at}" for at in range(40)), counter="c3", other="c9"), count)


def test_cases_that_share_a_prompt_or_an_output_stay_together() -> None:
    cases = cases_of(*(f"prompt {at}" for at in range(30)), "prompt 4", counter="c7", both="c4")
    cases.append(TestCase(id="link", prompt="another counter", task="image_generation"))
    where = shards_by_case(cases, 11)
    assert where["c4"] == where["c30"] == where["both"]
    assert where["c7"] == where["counter"] == where["link"]  # by the prompt that "counter" and "link" share
    assert len(set(where.values())) > 4


def test_added_cases_move_no_other_case_and_order_does_not_matter() -> None:
    before = cases_of(*(f"prompt {at}" for at in range(30)), counter="c7")
    added = [TestCase(id=f"new{at}", prompt=f"new {at}", task="image_generation") for at in range(30)]
    after = shards_by_case([*added, *reversed(before)], 6)
    assert shards_by_case(before, 6) == {name: number for name, number in after.items() if not name.startswith("new")}


def test_shards_are_of_similar_size() -> None:
    sizes = [0] * 8
    for number in shards_by_case(cases_of(*(f"a thing {at}" for at in range(4000))), 8).values():
        sizes[number - 1] += 1
    assert min(sizes) > 400
    assert max(sizes) < 600


@pytest.mark.parametrize("text", ["3/2", "0/2", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_a_wrong_shard_is_one_line(text: str, suite: SuiteRunner) -> None:
    suite.write(**SUITE)
    done = suite.run("--shard", text)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert f"--shard {text}: use I/N" in done.stderr
    with pytest.raises(UsageError):
        Shard.parse(text)


@pytest.mark.parametrize("text", ["1/100001", "1/1000000000000"])
def test_too_many_shards_say_how_many_there_can_be(text: str) -> None:
    with pytest.raises(UsageError, match=f"^--shard {text}: there can be 100,000 shards at most$"):
        Shard.parse(text)


# merging


def test_merged_shards_equal_the_run_in_one_piece(suite: SuiteRunner) -> None:
    metrics = {"late": "early + attempts", "early": "where(tag(odd), attempts, 2 * file.blank)"}
    suite.write(**host(suite), metrics=metrics)
    whole = suite.run(run_id="whole")
    asked = suite.called[1]
    for rounds, count in enumerate((2, 5), 2):
        names = run_shards(suite, count, prefix=f"of{count}-")
        assert suite.called[1] == asked * rounds  # nothing is asked twice because of the shards
        merged = merge(suite, *names)
        assert merged.exit_code == whole.exit_code
        check_whole(suite, names)
        shutil.rmtree(suite.out / "all")


def check_whole(suite: SuiteRunner, names: Sequence[str]) -> None:
    """The run ``all`` is the run ``whole``, merged from the runs with these names."""
    one = {record.cell: contents(record) for record in read_records(suite.out / "whole")}
    assert len(one) == 32
    assert {record.cell: contents(record) for record in read_records(suite.out / "all")} == one
    assert {record.run_id for record in read_records(suite.out / "all")} == {"all"}
    for record in read_records(suite.out / "all"):
        assert record.artifact_path
        assert (suite.out / "all" / record.artifact_path).read_bytes() == (
            suite.out / "whole" / record.artifact_path
        ).read_bytes()

    infos = [read_info(suite.out / name) for name in ("whole", "all")]
    skipped = {"run_id", "started_at", "ended_at", "command_line", "merged_from", "reused_since"}
    assert infos[0].model_dump(exclude=skipped) == infos[1].model_dump(exclude=skipped)
    assert infos[1].merged_from == tuple(names)
    summaries = [suite.summary(name) for name in ("whole", "all")]
    same = ("counts", "gates", "tags", "exit_code", "unjudged_pairs", "questions", "separations", "metrics", "cost_usd")
    for name in same:
        assert summaries[0][name] == summaries[1][name], name

    def questions(name: str) -> set[str]:
        return {entry.model_dump_json() for entry in read_questions(suite.out / name)}

    def pairs(name: str) -> set[Any]:
        return {
            (pair.test_id, pair.sample_index, pair.a.replace(name, ""), pair.b.replace(name, ""), pair.first)
            for pair in read_preferences(suite.out / name)
        }

    assert questions("all") == questions("whole")
    assert len(questions("all")) == 7
    assert pairs("all") == pairs("whole")
    assert all(pair.is_within("all") for pair in read_preferences(suite.out / "all"))


def host(suite: SuiteRunner) -> dict[str, Any]:
    judge = {
        "provider": "openai",
        "model": "gpt-5.4",
        "base_url": suite.api.openai_base_url,
        "api_key_env": "LOCAL_KEY",
    }
    # no two images are the same: a judge is asked once about equal images, and shards share no answers
    models = [
        {"provider": "mock", "label": "none", "params": {"seed": 1, "size": "64x64"}},
        {"provider": "mock", "label": "two", "params": {"seed": 50, "size": "64x64"}},
    ]
    return {**SUITE, "judges": {"default": judge}, "models": models}


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_pairs_that_were_judged_with_another_template_are_not_merged(suite: SuiteRunner, is_elsewhere: bool) -> None:
    template = suite.folder / "pair.md.j2"
    template.write_text("{{ prompt }}")
    path = suite.write(
        **{**host(suite), "graders": [SUITE["graders"][0], {**SUITE["graders"][2], "template": "pair.md.j2"}]}
    )
    assert suite.run("--shard", "1/2", run_id="s1").exit_code == 0
    template.write_text("Look: {{ prompt }}")
    assert suite.run("--shard", "2/2", run_id="s2").exit_code == 0
    text = path.read_text()
    if is_elsewhere:
        path.unlink()
    refused = merge(suite, "s1", "s2")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "the template pair.md.j2 or what it includes of the grader 'better'" in refused.stderr
    path.write_text(text)
    asked = suite.called[1]
    assert suite("run", "--resume", "s1", "--runs", suite.out).exit_code == 0
    assert suite.called[1] > asked
    assert merge(suite, "s1", "s2").exit_code == 0


LOCAL: dict[str, Any] = {**SUITE, "samples": 1, "graders": [SUITE["graders"][0]], "judges": {}, "prices": {}}


def test_a_shard_decides_no_gate(suite: SuiteRunner) -> None:
    suite.write(**{**LOCAL, "gates": ["pass_rate == 1"]})
    run_shards(suite, 2)
    for name in ("s1", "s2"):
        summary = suite.summary(name)
        assert {gate["state"] for gate in summary["gates"]} == {"deferred"}
        assert summary["shard"] == {"number": int(name[1]), "count": 2}
    assert merge(suite, "s1", "s2").exit_code == 1
    assert {gate["state"] for gate in suite.summary("all")["gates"]} == {"failed", "passed"}
    shown = suite.run("--shard", "1/2", run_id="again").stdout
    assert "shard 1/2" in shown
    assert "'visioneval merge' combines all 2 shards" in shown


@pytest.mark.parametrize(("gates", "code"), [(["pass_rate >= 0"], 3), (["error_rate <= 0.9"], 0)])
def test_an_error_in_a_shard_is_no_success_if_the_suite_allows_none(
    gates: list[str], code: int, suite: SuiteRunner
) -> None:
    rows = "".join(f"{case['id']},gone.png\n" for case in CASES if "output_of" not in case)
    (suite.folder / "d.csv").write_text(f"id,file\n{rows}")
    table = {"path": "d.csv", "fields": {"id": "id", "output": "file"}}
    models = [{"provider": "files", "label": "x", "dataset": table}]
    suite.write(**{**LOCAL, "models": models, "gates": gates, "samples": 1})
    for number in (1, 2):
        done = suite.run("--shard", f"{number}/2", run_id=f"s{number}")
        assert suite.summary(f"s{number}")["counts"]["errors"] > 0
        assert done.exit_code == code
    assert {gate["state"] for gate in suite.summary("s1")["gates"]} == (
        {"failed", "deferred"} if code else {"deferred"}
    )
    assert merge(suite, "s1", "s2").exit_code == 3


def test_a_shard_without_cases_is_a_run_too(suite: SuiteRunner) -> None:
    suite.write(**{**LOCAL, "cases": CASES[:1], "gates": ["pass_rate >= 0.4"]})
    names = run_shards(suite, 4)
    sizes = [read_info(suite.out / name).planned_cells for name in names]
    assert sorted(sizes) == [0, 0, 0, 2]
    done = suite.run("--shard", f"{sizes.index(0) + 1}/4", run_id="empty")
    assert "has no cases: nothing to run" in done.stderr
    assert merge(suite, *names).exit_code == 0
    assert suite.summary("all")["counts"]["cells"] == 2


def test_flags_select_before_the_shard(suite: SuiteRunner) -> None:
    suite.write(**LOCAL)
    names = run_shards(suite, 3, "--tag", "odd", "--limit", "2", "--model", "*none")
    assert merge(suite, *names).exit_code == 0
    cells = [record.test_id for record in read_records(suite.out / "all")]
    assert sorted(cells) == ["case1", "case3"]
    assert read_info(suite.out / "all").selection.tags == ("odd",)


def test_plan_counts_the_cells_of_a_shard(suite: SuiteRunner) -> None:
    path = suite.write(**LOCAL)
    cells = [json.loads(suite("plan", path, "--json", "--shard", f"{at}/3").stdout)["cells"] for at in (1, 2, 3)]
    assert sum(cells) == json.loads(suite("plan", path, "--json").stdout)["cells"]


def test_a_shard_is_resumed_as_a_shard(shards: SuiteRunner) -> None:
    path = shards.folder / "suite.yaml"
    results = shards.out / "s1/results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    results.write_text("".join(lines[:-2]))
    resumed = shards("run", path, "--resume", shards.out / "s1", "--runs", shards.out)
    assert resumed.exit_code == 0
    assert len(results.read_text().splitlines()) == len(lines)
    assert merge(shards, "s1", "s2").exit_code == 0
    refused = shards("run", path, "--resume", shards.out / "s1", "--runs", shards.out, "--shard", "2/2")
    assert refused.exit_code == 2
    assert "leave out --case" in refused.stderr


def test_an_interrupted_shard_makes_an_interrupted_run_that_can_be_resumed(shards: SuiteRunner) -> None:
    path = shards.folder / "suite.yaml"
    info = json.loads((shards.out / "s2/run.json").read_text())
    (shards.out / "s2/run.json").write_text(json.dumps({**info, "state": "interrupted"}))
    results = shards.out / "s2/results.jsonl"
    results.write_text("".join(results.read_text().splitlines(keepends=True)[:-2]))
    merged = merge(shards, "s1", "s2")
    assert merged.exit_code == 130
    assert "--resume" in merged.stderr
    assert shards.summary("all")["counts"]["cells"] == 14
    assert shards("run", path, "--resume", shards.out / "all", "--runs", shards.out).exit_code == 0
    assert shards.summary("all")["counts"]["cells"] == 16


def edited_info(**changes: Any) -> Callable[[SuiteRunner], list[str]]:
    def edit(suite: SuiteRunner) -> list[str]:
        path = suite.out / "s2/run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        return ["s1", "s2"]

    return edit


def foreign_case(suite: SuiteRunner) -> list[str]:
    lines = (suite.out / "s1/results.jsonl").read_text().splitlines(keepends=True)
    with (suite.out / "s2/results.jsonl").open("a") as results:
        results.write(lines[0])
    return ["s1", "s2"]


def another_version(suite: SuiteRunner) -> list[str]:
    suite.write(**{**LOCAL, "description": "edited"})
    suite.run("--shard", "2/2", run_id="new")
    return ["s1", "new"]


def other_flags(suite: SuiteRunner) -> list[str]:
    suite.run("--shard", "2/2", "--tag", "odd", run_id="odd")
    return ["s1", "odd"]


def whole_run(suite: SuiteRunner) -> list[str]:
    suite.run(run_id="whole")
    return ["s1", "whole"]


def other_count(suite: SuiteRunner) -> list[str]:
    suite.run("--shard", "2/3", run_id="third")
    return ["s1", "third"]


def regrade(suite: SuiteRunner) -> list[str]:
    suite("grade", "s2", "--runs", suite.out, "--run-id", "again")
    return ["s1", "again"]


def copied(suite: SuiteRunner) -> list[str]:
    shutil.copytree(suite.out / "s2", suite.out / "copy")
    return ["s1", "s2", "copy"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (lambda suite: ["s1"], "missing shards: 2/2"),
        (copied, "copy: is shard 2/2, the same as"),
        (another_version, "s1 in the suite\n"),
        (other_flags, "odd: was run with different selection flags than"),
        (whole_run, "whole: is not a shard"),
        (other_count, "third: is shard 2/3, but"),
        (regrade, "again: is a regrade of a shard"),
        (foreign_case, "does not belong to its shard"),
        (edited_info(visioneval_version="0.0.9"), "s1 in the version of visioneval"),
        (edited_info(source_sha256="0" * 64), "s1 in the suite file"),
        (lambda suite: ["s1", "s2", "s9"], "'s9': no such run"),
    ],
)
def test_missing_repeated_and_foreign_shards_are_named(
    names: Callable[[SuiteRunner], list[str]], message: str, shards: SuiteRunner
) -> None:
    done = merge(shards, *names(shards))
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (shards.out / "all").exists()
    assert not list(shards.out.glob(".merging*"))
    del done
    gc.collect()  # a file that is still open is a warning, and fails the test


def test_a_shard_that_is_still_running_is_not_merged(shards: SuiteRunner) -> None:
    edited_info(state="running")(shards)
    with (shards.out / "s2" / "results.jsonl").open("rb") as results:
        fcntl.flock(results, fcntl.LOCK_EX)
        done = merge(shards, "s1", "s2")
        assert (done.exit_code, done.stderr) == (2, f"{shards.out / 's2'}: is still running\n"), done.output
    assert not (shards.out / "all").exists()
    assert merge(shards, "s1", "s2").exit_code == 130, "its process was killed"


def test_an_existing_run_is_not_replaced(shards: SuiteRunner) -> None:
    done = merge(shards, "s1", "s2", run_id="s1")
    assert (done.exit_code, "already exists" in done.stderr) == (2, True)
    assert merge(shards, "s1", "s2", run_id="../out").exit_code == 2


def test_labels_and_answers_name_the_merged_run(shards: SuiteRunner) -> None:
    record = next(read_records(shards.out / "s1"))
    own = f"s1@{record.model_label}"
    label = Label(
        rater="ann", test_id=record.test_id, model_label=record.model_label, sample_index=0, other=own,
        question="better", answer="a", at="2026-01-01T00:00:00+00:00", source="page",
    )  # fmt: skip
    append_labels(shards.out / "s1/labels.jsonl", [label, label.model_copy(update={"other": "elsewhere@x"})])
    preference = Preference(
        test_id=record.test_id, sample_index=0, a="earlier@x", b=own, first="a", answer="a", reason=None,
        judge="j", error=None,
    )  # fmt: skip
    (shards.out / "s1/preferences.jsonl").write_text(preference.model_dump_json() + "\n")
    assert merge(shards, "s1", "s2").exit_code == 0
    merged = shards.out / "all"
    assert [item.other for item in read_labels(merged / "labels.jsonl")] == [f"all@{record.model_label}", "elsewhere@x"]
    assert [(item.a, item.b) for item in read_preferences(merged)] == [("earlier@x", f"all@{record.model_label}")]


def test_links_in_the_outputs_of_a_shard_are_left_out(shards: SuiteRunner, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (shards.out / "s1/artifacts/leak.txt").symlink_to(tmp_path / "secret.txt")
    (shards.out / "s1/artifacts/folder").symlink_to(tmp_path)
    assert merge(shards, "s1", "s2").exit_code == 0
    assert not (shards.out / "all/artifacts/leak.txt").exists()
    assert not (shards.out / "all/artifacts/folder").exists()


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"junk")], ids=["missing", "damaged"])
def test_a_shard_without_its_outputs_is_not_merged(shards: SuiteRunner, damage: Callable[[Path], object]) -> None:
    """As after a download that was cut short: the gates would pass on images that nobody has."""
    image = min((shards.out / "s2/artifacts").rglob("*.png"))
    content = image.read_bytes()
    image.unlink()
    image.write_bytes(content)  # copied from another machine, not damaged
    assert merge(shards, "s1", "s2").exit_code == 0
    shutil.rmtree(shards.out / "all")
    image.unlink()  # else the file is the cache's too
    image.touch()
    damage(image)
    done = merge(shards, "s1", "s2")
    assert done.exit_code == 2
    assert f"{image}: is missing or damaged: copy the whole folder of this shard again" in done.stderr
    assert not (shards.out / "all").exists()
    assert shards("run", "--resume", shards.out / "s2", "--runs", shards.out).exit_code == 0
    assert merge(shards, "s1", "s2").exit_code == 0


def test_the_python_api_runs_shards_and_merges_them(suite: SuiteRunner) -> None:
    path = suite.write(**LOCAL)
    parts = [visioneval.run(path, shard=f"{number}/2", runs=suite.out) for number in (1, 2)]
    assert [part.exit_code for part in parts] == [0, 0]
    merged = visioneval.merge(*parts, run_id="all", runs=suite.out, note="both")
    assert (merged.info.note, merged.exit_code, len(merged.records)) == ("both", 0, 16)
    with pytest.raises(UsageError, match="name the runs"):
        visioneval.merge(run_id="none", runs=suite.out)
