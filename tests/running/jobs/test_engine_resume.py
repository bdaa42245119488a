"""Resume decisions: which cells are generated or graded again, and why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from engine_parts import info_of, plan_of, record_of, recorded
from toys import LOOK, SECOND, Toy

from visioneval import CellError, Fingerprint, GraderRecord, Record, Verdict
from visioneval.records.between_cells import Preference, append_preferences, read_preferences
from visioneval.records.key_parts import changed_parts, describe_parts
from visioneval.records.outputs import writing_ended
from visioneval.running.jobs import ResumePlan, forget_changed_pairs, plan_resume
from visioneval.running.plan import Plan

CELL = ("case0", "toy", 0)
FAILED = CellError(stage="generate", kind="transient", message="the host is down")
ERROR = {"status": "error", "verdict": "ERROR", "error": FAILED, "artifact_path": None, "mime": None}
REFUSED = {"status": "refused", "verdict": "FAIL", "artifact_path": None, "mime": None}
UNGRADED = {"verdict": Verdict.ERROR, "error": CellError(stage="grade", kind="internal", message="look: broken")}
COUNTER = {"id": "counter", "prompt": "three trees", "output_of": "case0"}


def resumed(
    toy: Toy, records: list[Record], *cases: dict[str, Any], keep_errors: bool = False, **suite: Any
) -> ResumePlan:
    """The decisions for a run in the toy's folder with these records, by a suite with these cases."""
    return plan_resume(plan_of(toy.write(*cases, **suite)), records, toy.folder, keep_errors=keep_errors)


def done(toy: Toy, *cases: dict[str, Any], suite: dict[str, Any] | None = None, **changed: Any) -> list[Record]:
    """The records of a complete run, whose fields may be ``changed``."""
    return recorded(toy.folder, plan_of(toy.write(*cases, **(suite or {}))), **changed)


RUBRIC: dict[str, Any] = {
    "judges": {"eye": {"provider": "openai", "model": "gpt-5.4"}},
    "graders": [
        {
            "key": "rubric",
            "type": "rubric",
            "judge": "eye",
            "metrics": {"calm": {"type": "pass_fail", "description": "Is it calm?"}},
        }
    ],
    "verdict": ["calm"],
}
SEED = {"models": [{"provider": "mine:Generate", "label": "toy", "params": {"seed": 2}}]}
OPTION = {"models": [{"provider": "mine:Generate", "label": "toy", "options": {"a": 1}}]}
BOAT = {"prompt": "a boat"}
CHANGED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str, str]] = [
    ({}, BOAT, {}, "generate", "prompt changed"),
    ({}, {}, SEED, "generate", "params changed"),
    ({}, {}, OPTION, "generate", "model changed"),
    ({}, BOAT, SEED, "generate", "params and prompt changed"),
    ({}, {}, {"verdict": ["fine", "level > 0.1"]}, "grade", "rules changed"),
    ({}, {"criteria": "it is calm"}, {}, "grade", "case changed"),
    ({}, {}, {"graders": [LOOK, SECOND]}, "grade", "grader.second changed"),
    ({}, {}, {"graders": [{**LOOK, "options": {"strict": True}}]}, "grade", "grader.look changed"),
    ({}, {"tags": ["x"]}, {"verdict": ["level > 0.1"]}, "grade", "case and rules changed"),
    ({}, {}, {"vars": {"color": "red"}}, "grade", "grader.look changed"),
    (RUBRIC, {}, {}, "keep", ""),
    (RUBRIC, {}, {"vars": {"color": "red"}}, "grade", "grader.rubric changed"),
    (RUBRIC, {}, {"judges": {"eye": {"provider": "openai", "model": "gpt-5.4-mini"}}}, "grade", "grader.rubric changed"),
    (RUBRIC, {}, {"judges": {"eye": {**RUBRIC["judges"]["eye"], "params": {"temperature": 0}}}}, "grade", "grader.rubric changed"),
    (RUBRIC, {}, {"graders": [{**RUBRIC["graders"][0], "votes": 3}]}, "grade", "grader.rubric changed"),
]  # fmt: skip


@pytest.mark.parametrize(("suite", "case", "changes", "action", "reason"), CHANGED)
def test_what_changed_decides_between_generating_and_grading(
    toy: Toy, suite: dict[str, Any], case: dict[str, Any], changes: dict[str, Any], action: str, reason: str
) -> None:
    records = done(toy, suite=suite)
    rest = resumed(toy, records, case, **{**suite, **changes})
    assert (rest.counts, rest.reasons) == ({action: 1}, {(action, reason): 1} if reason else {})
    jobs = list(rest.jobs(plan_of(toy.folder / "suite.yaml")))
    assert [job.generate for job in jobs] == {"generate": [(0,)], "grade": [()], "keep": []}[action]
    for stored in (stored for job in jobs for stored in job.regrade):
        assert (stored.record, stored.folder, stored.is_new, stored.is_of_another_run) == (
            records[0], toy.folder, False, False
        )  # fmt: skip


def test_resume_asks_a_judge_again_when_its_template_changed(toy: Toy) -> None:
    template = toy.folder / "mine.md.j2"
    template.write_text("Look at {{ prompt }} and {{ criteria }}.")
    suite = {**RUBRIC, "graders": [{**RUBRIC["graders"][0], "template": "mine.md.j2"}]}
    records = done(toy, suite=suite)
    assert resumed(toy, records, **suite).counts == {"keep": 1}
    template.write_text("Look well at {{ prompt }} and {{ criteria }}.")
    assert resumed(toy, records, **suite).reasons == {("grade", "grader.rubric changed"): 1}


def graded_by_look(record: Record, file: str) -> Record:
    """The record with the grader's scores and the image that it saved."""
    grader = GraderRecord(
        key="look",
        type="mine:Look",
        details={"map": file},
        seconds=0.1,
        fingerprint=Fingerprint(config_sha256="0" * 64),
    )
    return record.model_copy(update={"scores": {"fine": True, "level": 0.5}, "graders": (grader,)})


@pytest.mark.parametrize(("is_deleted", "action"), [(False, "evaluate"), (True, "grade")])
def test_changed_rules_grade_again_if_an_image_of_a_grader_is_gone(toy: Toy, is_deleted: bool, action: str) -> None:
    (record,) = done(toy)
    file = "artifacts/case0/toy/0.map.png"
    (toy.folder / file).write_bytes(b"an image")
    if is_deleted:
        (toy.folder / file).unlink()
    rest = resumed(toy, [graded_by_look(record, file)], verdict=["fine", "level > 0.1"])
    assert rest.reasons == {(action, "rules changed"): 1}


def test_resume_generates_again_when_an_input_image_changed(toy: Toy) -> None:
    toy.outputs("base.png")
    editing = {"images": ["base.png"]}
    records = done(toy, editing)
    assert resumed(toy, records, editing).counts == {"keep": 1}
    (toy.folder / "base.png").write_bytes((toy.folder / "base.png").read_bytes() + b"more")
    assert resumed(toy, records, editing).reasons == {("generate", "images changed"): 1}


@pytest.mark.parametrize(("after", "counts"), [(0.0, {"generate": 1}), (3600.0, {"keep": 1})])
def test_resume_reads_only_outputs_that_changed_since_the_run_ended(
    toy: Toy, after: float, counts: dict[str, int]
) -> None:
    records = done(toy)
    path = toy.folder / str(records[0].artifact_path)
    path.write_bytes(b"another")
    os.utime(path, (0, 0))  # a copy that keeps the time of its source
    rest = plan_resume(
        plan_of(toy.write({})), records, toy.folder, keep_errors=False, since=path.stat().st_ctime + after
    )
    assert rest.counts == counts
    assert rest.changed == ({CELL: str(records[0].artifact_path)} if "generate" in counts else {})


def test_resume_reports_a_changed_prompt_rather_than_a_changed_output(toy: Toy) -> None:
    records = done(toy)
    (toy.folder / str(records[0].artifact_path)).write_bytes(b"another")
    rest = resumed(toy, records, {"prompt": "a boat"})
    assert (rest.reasons, rest.changed) == ({("generate", "prompt changed"): 1}, {})


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"started_at": "2025-06-14T09:00:00+00:00"}, 1749891600.0),
        ({"started_at": "2025-06-14T09:00:00"}, 1749891600.0),
        ({"started_at": "2025-06-14T09:00:00+00:00", "resumed_at": ("2025-06-14T10:00:00+00:00",)}, 1749895200.0),
        ({"started_at": "2025-06-14T09:00:00+00:00", "ended_at": "2025-06-14T11:30:00+02:00"}, 1749893400.0),
        ({"started_at": "9999-06-14T09:00:00+00:00"}, 0.0),
    ],
)
def test_a_run_wrote_until_it_ended_or_was_killed(toy: Toy, times: dict[str, Any], expected: float) -> None:
    info = info_of(plan_of(toy.write({}))).model_copy(update={"ended_at": None, "resumed_at": (), **times})
    assert writing_ended(info) == expected


def test_resume_generates_an_image_that_links_out_of_the_run(
    toy: Toy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = done(toy)
    image = toy.folder / str(records[0].artifact_path)
    outside = tmp_path_factory.mktemp("outside") / "0.png"
    image.rename(outside)
    image.symlink_to(outside)
    assert resumed(toy, records).reasons == {("generate", "without an image file"): 1}


@pytest.mark.parametrize(
    ("record", "keep_errors", "change", "reasons"),
    [
        (ERROR, False, {}, {("generate", "ended in an error"): 1}),
        (ERROR, True, {}, {}),
        (ERROR, True, BOAT, {("generate", "prompt changed"): 1}),
        (ERROR, True, {"criteria": "it is calm"}, {}),
        (UNGRADED, False, {}, {("grade", "ended in an error"): 1}),
        (UNGRADED, True, {}, {}),
        (UNGRADED, True, BOAT, {("generate", "prompt changed"): 1}),
        (UNGRADED, True, {"criteria": "it is calm"}, {("grade", "case changed"): 1}),
        (REFUSED, False, {}, {}),
    ],
)
def test_resume_repeats_errors_unless_keep_errors_is_set(
    toy: Toy, record: dict[str, Any], keep_errors: bool, change: dict[str, Any], reasons: dict[Any, int]
) -> None:
    assert resumed(toy, done(toy, **record), change, keep_errors=keep_errors).reasons == reasons


def test_the_last_record_of_a_cell_decides(toy: Toy) -> None:
    (passed,) = done(toy)
    failed = passed.model_copy(update={"verdict": Verdict.ERROR})
    assert resumed(toy, [failed, passed]).cells == 0
    assert resumed(toy, [passed, failed]).counts == {"grade": 1}


def test_cells_that_left_the_suite_are_stale(toy: Toy) -> None:
    records = done(toy, {}, {}, suite={"samples": 2})
    rest = resumed(toy, records, {}, samples=1)
    assert rest.stale == {("case0", "toy", 1), ("case1", "toy", 0), ("case1", "toy", 1)}
    assert (rest.counts, rest.touched) == ({"keep": 1}, frozenset())


def test_resume_generates_only_the_missing_sample_of_a_call(toy: Toy) -> None:
    models = [{"provider": "openai", "label": "m", "params": {"model": "gpt-image-2", "n": 3}}]
    path = toy.write({}, models=models)
    plan = plan_of(path)
    (call,) = plan.calls()
    records = [record_of(toy.folder, plan, call, sample) for sample in (0, 2)]
    rest = plan_resume(plan, records, toy.folder, keep_errors=False)
    (job,) = rest.jobs(plan)
    assert (job.call.samples, job.generate, job.regrade) == ((0, 1, 2), (1,), ())


def test_jobs_cover_only_the_given_part_of_the_plan(toy: Toy) -> None:
    models = [{"provider": "mine:Generate", "label": label} for label in ("a", "b")]
    path = toy.write({}, {}, models=models)
    rest = plan_resume(plan_of(path), [], toy.folder, keep_errors=False)
    jobs = list(rest.jobs(plan_of(path, models=("b",))))
    assert [(job.call.case.id, job.call.run.label) for job in jobs] == [("case0", "b"), ("case1", "b")]


class TestDependents:
    """Cells that use the image of another cell."""

    @pytest.fixture
    def records(self, toy: Toy) -> list[Record]:
        return done(toy, {}, COUNTER)

    def test_scores_of_an_earlier_image_do_not_count(self, toy: Toy, records: list[Record]) -> None:
        """The run was killed after it had generated the image again."""
        first, second = (graded_by_look(record, "nothing") for record in records)
        second = second.model_copy(update={"generation_key": first.generation_key})
        earlier = second.model_copy(update={"artifact_sha256": "0" * 64})
        for counter, actions in ((second, ["evaluate", "evaluate"]), (earlier, ["evaluate", "grade"])):
            rest = resumed(toy, [first, counter], {}, COUNTER, verdict=["fine", "level > 0.1"])
            assert sorted(action for action, count in rest.counts.items() for _ in range(count)) == actions

    @pytest.mark.parametrize(("keep_errors", "counts"), [(False, {"keep": 1, "grade": 1}), (True, {"keep": 2})])
    def test_errors_are_graded_again_unless_keep_errors_is_set(
        self, toy: Toy, records: list[Record], keep_errors: bool, counts: dict[str, int]
    ) -> None:
        records[1] = records[1].model_copy(update=UNGRADED)
        assert resumed(toy, records, {}, COUNTER, keep_errors=keep_errors).counts == counts


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("model:1 prompt:2", "model:1 prompt:2", ""),
        ("model:1 prompt:2", "prompt:2 model:1", ""),
        ("model:1 prompt:2", "model:1 prompt:3", "prompt"),
        ("model:1", "model:1 images:4", "images"),
        ("model:1 prompt:2 masks:3", "model:9 prompt:2", "masks and model"),
        ("grader.a:b:1", "grader.a:b:2", "grader.a:b"),
        ("", "case:1", "case"),
    ],
)
def test_changes_names_the_parts_that_differ(old: str, new: str, names: str) -> None:
    assert describe_parts(changed_parts(old, new)) == names


PAIRWISE = {"key": "better", "type": "pairwise"}
COMPARED: dict[str, Any] = {
    "models": [{"provider": "mine:Generate", "label": label} for label in ("a", "b")],
    "judges": {"default": {"provider": "openai", "model": "gpt-5.4"}},
    "graders": [LOOK, PAIRWISE],
}


def preferences(*cases: str) -> list[Preference]:
    return [
        Preference(
            test_id=case, sample_index=0, a="r@a", b="r@b", first="a", answer="b", reason="", judge="j", error=None
        )
        for case in cases
    ]


def forget(toy: Toy, records: list[Record], *cases: dict[str, Any], **suite: Any) -> list[str]:
    """The cases whose preferences are preserved when a run of two cases is resumed with this suite."""
    before = plan_of(toy.write({}, {}, **COMPARED))
    append_preferences(toy.folder, preferences("case0", "case1"))
    (toy.folder / "results.jsonl").write_text("".join(f"{record.model_dump_json()}\n" for record in records))
    plan: Plan = plan_of(toy.write(*cases, **{**COMPARED, **suite}))
    rest = plan_resume(plan, records, toy.folder, keep_errors=False)
    forget_changed_pairs(rest, info_of(before), plan, toy.folder)
    return [preference.test_id for preference in read_preferences(toy.folder)]


@pytest.mark.parametrize(
    ("cases", "suite", "remaining"),
    [
        ([{}, {}], {}, ["case0", "case1"]),
        ([{"prompt": "a boat"}, {}], {}, ["case1"]),
        ([{"criteria": "calm"}, {}], {}, ["case1"]),
        ([{}], {}, ["case0"]),
        ([{}, {}], {"graders": [LOOK, {**PAIRWISE, "key": "best"}]}, []),
        ([{}, {}], {"judges": {"default": {"provider": "openai", "model": "gpt-5.4-mini"}}}, []),
        ([{}, {}], {"graders": [LOOK]}, []),
    ],
    ids=["unchanged", "generated again", "graded again", "stale", "other grader", "other judge", "no grader"],
)
def test_resume_drops_preferences_of_changed_pairs(
    toy: Toy, cases: list[dict[str, Any]], suite: dict[str, Any], remaining: list[str]
) -> None:
    records = done(toy, {}, {}, suite=COMPARED)
    assert forget(toy, records, *cases, **suite) == remaining


def test_a_resumed_run_without_preferences_drops_nothing(toy: Toy) -> None:
    suite = plan_of(toy.write())
    rest = plan_resume(suite, [], toy.folder, keep_errors=False)
    forget_changed_pairs(rest, info_of(suite), suite, toy.folder)
    assert not Path(toy.folder, "preferences.jsonl").exists()
