"""Labeling sessions: saved answers, undo and resuming."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from label_server import QUESTIONS, SECRET_A, SECRET_B, lines, write_run
from PIL import Image
from tables import rows_of
from toys import Toy

from visioneval import UsageError
from visioneval.label.labeling import Labeling, UnknownItemError
from visioneval.label.work import LabelRequest, prepare
from visioneval.records.labels import Label, append_labels, newest, read_draws, read_labels

rows = rows_of(__file__)

NOON = datetime(2025, 6, 14, 12, tzinfo=UTC)
GOOD: dict[str, Any] = {"usable": True, "clarity": 4}


def open_labeling(folder: Path, now: datetime = NOON, **wish: Any) -> Labeling:
    return Labeling(prepare(LabelRequest(str(folder), folder.parent, **wish)), lambda: now)


def counted(folder: Path, rater: str = "ann") -> dict[tuple[str, str], Any]:
    result = newest(read_labels(folder / "labels.jsonl"))
    return {(label.test_id, label.question): label.answer for label in result if label.rater == rater}


def answer(at: Labeling, given: dict[str, Any] = GOOD, rater: str = "ann") -> dict[str, Any]:
    return at.answer(rater, at.next(rater)["item"]["id"], given, 2.5)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path, [{"id": "one"}, {"id": "two"}, {"id": "three"}])


def test_saves_one_line_per_answer(run: Path) -> None:
    at = open_labeling(run)
    case = at.next("ann")["item"]["case"]
    after = answer(at, {**GOOD, "wrong": ["odd colours", "missing part"], "note": "  tidy "})
    assert (after["done"], after["total"]) == (1, 3)
    assert after["item"]["case"] != case
    result = lines(run / "labels.jsonl")
    assert [(line["question"], line["answer"]) for line in result] == [
        ("usable", True), ("clarity", 4), ("wrong", ["missing part", "odd colours"]), ("note", "tidy")
    ]  # fmt: skip
    assert {
        (line["rater"], line["test_id"], line["model_label"], line["seconds"], line["source"]) for line in result
    } == {("ann", case, SECRET_A, 2.5, "page")}


@pytest.mark.parametrize(("given", "why"), rows("invalid_answers_are_refused_and_not_saved"))
def test_invalid_answers_are_refused_and_not_saved(run: Path, given: dict[str, Any], why: str) -> None:
    at = open_labeling(run)
    with pytest.raises(UsageError, match="^" + why):
        answer(at, given)
    assert not (run / "labels.jsonl").exists()
    assert at.next("ann")["done"] == 0


def test_unknown_item_is_refused(run: Path) -> None:
    at = open_labeling(run)
    of_ben = at.next("ben")["item"]["id"]
    with pytest.raises(UnknownItemError):
        at.answer("ann", of_ben, GOOD, 1)


def test_raters_are_independent_and_restart_resumes(run: Path) -> None:
    at = open_labeling(run)
    answer(at)
    answer(at)
    answer(at, rater="ben")
    before = at.next("ann"), at.next("ben")
    second = open_labeling(run)
    assert (second.next("ann"), second.next("ben")) == before
    assert [second.next(name)["done"] for name in ("ann", "ben", "cleo")] == [2, 1, 0]


def test_undo_restores_the_item_with_its_answers(run: Path) -> None:
    at = open_labeling(run)
    item = at.next("ann")["item"]
    answer(at, {**GOOD, "note": "odd"})
    shown = at.undo("ann")
    assert (shown["item"]["id"], shown["done"], shown["can_undo"]) == (item["id"], 0, False)
    assert shown["item"]["given"] == {"usable": True, "clarity": 4, "wrong": (), "note": "odd"}
    assert open_labeling(run).next("ann") == shown
    assert counted(run) == {}
    answer(at, {"usable": False, "clarity": 1})
    assert counted(run)[(item["case"], "usable")] is False
    assert (item["case"], "note") not in counted(run)
    every = [label.answer for label in read_labels(run / "labels.jsonl") if label.question == "usable"]
    assert every == [True, None, False]


def test_undo_repeats_until_the_first_item(run: Path) -> None:
    at = open_labeling(run)
    order = []
    for _ in range(3):
        order.append(at.next("ann")["item"]["id"])
        answer(at)
    assert at.next("ann")["item"] is None
    assert [at.undo("ann")["item"]["id"] for _ in range(3)] == order[::-1]
    with pytest.raises(UsageError, match="nothing to undo"):
        at.undo("ann")
    for expected in order:
        assert at.next("ann")["item"]["id"] == expected
        answer(at)


def test_skipped_item_is_saved_and_can_be_reopened(run: Path) -> None:
    at = open_labeling(run)
    item = at.next("ann")["item"]
    at.skip("ann", item["id"], 1.0)
    assert {label.answer for label in read_labels(run / "labels.jsonl")} == {None}
    answer(at)
    last = answer(at)
    assert (last["item"], last["done"], last["skipped"]) == (None, 3, 1)
    assert open_labeling(run).reopen("ann")["item"]["id"] == item["id"]
    assert open_labeling(run).next("ann")["item"]["id"] == item["id"]


def test_a_random_selection_is_recorded_as_a_draw(tmp_path: Path) -> None:
    """Once, whatever is restarted; a larger one begins with the same cells, and the raters see it in its order."""
    run = write_run(tmp_path, [{"id": f"case{number}"} for number in range(12)])
    at = open_labeling(run, which="random:4")
    (draw,) = read_draws(run)
    assert [cell.probability for cell in draw.cells] == [4 / 12] * 4
    shown = []
    for _ in draw.cells:
        shown.append(at.next("ann")["item"]["case"])
        answer(at)
    assert shown == [cell.test_id for cell in draw.cells]
    assert at.next("bob")["item"]["case"] == shown[0]
    open_labeling(run, which="random:4")
    assert read_draws(run) == [draw]
    open_labeling(run, which="random:6", repeat=0.5)
    assert [cell.cell for cell in read_draws(run)[1].cells[:4]] == [cell.cell for cell in draw.cells]
    open_labeling(run, which="random:4", seed=draw.about.seed + 1)
    open_labeling(run, which="stratified:4")
    assert [entry.about.which for entry in read_draws(run)] == ["random:4", "random:6", "random:4", "stratified:4"]


def test_other_selections_are_no_draw(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"id": "one"}, {"id": "two"}], models=(SECRET_A, SECRET_B))
    open_labeling(run)
    open_labeling(run, which="random:2", pairs=f"{run.name}@{SECRET_B}")
    assert read_draws(run) == []


def test_cells_without_an_image_are_drawn_but_not_shown(run: Path) -> None:
    """They count as missing, because nobody can answer them."""
    for path in (run / "artifacts" / "one").rglob("*.png"):
        path.unlink()
    at = open_labeling(run, which="random:99")
    assert at.next("ann")["total"] < len(read_draws(run)[0].cells)


def test_skip_preserves_current_answers(run: Path) -> None:
    at = open_labeling(run)
    case = at.next("ann")["item"]["case"]
    at_noon = NOON.isoformat()
    imported = Label(rater="ann", test_id=case, model_label=SECRET_A, sample_index=0, question="usable", answer=False, at=at_noon, source="import")  # fmt: skip
    append_labels(run / "labels.jsonl", [imported])
    at = open_labeling(run)
    at.skip("ann", at.next("ann")["item"]["id"], 1.0)
    assert counted(run) == {(case, "usable"): False}


def test_both_answers_of_a_repeated_item_are_saved(run: Path) -> None:
    at = open_labeling(run, repeat=1.0)
    assert at.next("ann")["total"] == 6
    seen = []
    for number in range(6):
        seen.append(at.next("ann")["item"]["case"])
        assert at.next("ann")["item"]["given"] == {}
        answer(at, {"usable": number < 3, "clarity": 3})
    assert sorted(seen) == sorted(["one", "two", "three"] * 2)
    assert len([line for line in lines(run / "labels.jsonl") if line["question"] == "usable"]) == 6
    assert at.next("ann")["item"] is None


def anchored(run: Path, *cases: str) -> None:
    known = [
        Label(rater="agreed", test_id=case, model_label=SECRET_A, sample_index=0, question="usable", answer=True,
              at=NOON.isoformat(), source="anchor")
        for case in cases
    ]  # fmt: skip
    append_labels(run / "anchors.jsonl", known)


def test_anchors_are_asked_again_after_their_validity(run: Path) -> None:
    anchored(run, "two", "gone")
    at = open_labeling(run)
    assert at.next("ann")["item"]["case"] == "two"
    answer(at)
    assert {line["source"] for line in lines(run / "labels.jsonl")} == {"anchor"}
    answer(at)
    soon = open_labeling(run, NOON + timedelta(hours=1))
    assert (soon.next("ann")["item"]["case"] != "two", soon.next("ann")["done"]) == (True, 2)
    next_day = open_labeling(run, NOON + timedelta(days=1))
    assert (next_day.next("ann")["item"]["case"], next_day.next("ann")["done"]) == ("two", 1)
    work = prepare(LabelRequest(str(run), run.parent))
    assert work.notes == ("1 cell with an agreed answer skipped: not in this selection",)


def test_page_data_hides_anchors_and_repetitions(run: Path) -> None:
    anchored(run, "two")
    at = open_labeling(run, repeat=1.0)
    keys = set()
    for _ in range(5):
        shown = at.next("ann")["item"]
        keys.add((*sorted(shown), *(stage["title"] for stage in shown["stages"])))
        answer(at)
    assert len(keys) == 1


def test_pair_answers_are_saved_independent_of_side(tmp_path: Path) -> None:
    cases = [{"id": f"case{at}"} for at in range(12)]
    old = write_run(tmp_path, cases, [SECRET_A], run_id="old")
    write_run(tmp_path, cases, [SECRET_B], run_id="new")
    at = open_labeling(old, pairs=f"new@{SECRET_B}", seed=1)
    for _ in cases:
        shown = at.next("ann")["item"]
        assert [ask["type"] for ask in shown["asks"]] == ["pair", "text"]
        assert [item["title"] for item in shown["stages"][0]["images"]] == ["A", "B"]
        answer(at, {"preferred": "a", "preferred.why": "calmer"})
    result = lines(old / "labels.jsonl")
    assert {line["other"] for line in result} == {f"new@{SECRET_B}"}
    sides = {line["answer"] for line in result if line["question"] == "preferred"}
    assert sides == {"a", "b"}
    given = at.undo("ann")["item"]["given"]
    assert given == {"preferred": "a", "preferred.why": "calmer"}
    answer(at, {"preferred": "tie"})
    assert list(counted(old).values()).count("tie") == 1


def test_left_image_is_a(tmp_path: Path) -> None:
    cases = [{"id": f"case{at}"} for at in range(6)]
    run = write_run(tmp_path, cases, [SECRET_A, SECRET_B])
    at = open_labeling(run, pairs=f"{run.name}@{SECRET_B}", seed=2)
    for _ in cases:
        item = at.next("ann")["item"]
        left = at.media.get(item["stages"][0]["images"][0]["id"])
        assert left is not None
        shown = Image.open(BytesIO(left.data)).convert("RGB").getpixel((0, 0))
        answer(at, {"preferred": "a"})
        text = next(line for line in reversed(lines(run / "labels.jsonl")) if line["question"] == "preferred")
        label = SECRET_A if text["answer"] == "a" else SECRET_B
        stored = next((run / "artifacts" / item["case"]).glob(f"{label}*/0.png"))
        assert Image.open(stored).convert("RGB").getpixel((0, 0)) == shown


def test_raters_see_the_prompt_that_graders_saw(tmp_path: Path) -> None:
    run = write_run(
        tmp_path, [{"id": "one"}], change=lambda _: {"sent_prompt": "a tree, in ink", "graded_prompt": "a tree, in ink"}
    )
    assert open_labeling(run).next("ann")["item"]["prompt"] == "a tree, in ink"


def test_a_pair_of_two_prompts_is_compared_with_the_case(tmp_path: Path) -> None:
    labels = [f"{model},prompt={prompt}" for model in ("m", "n") for prompt in ("plain", "styled")]
    sent = {"sent_prompt": "in ink", "graded_prompt": "in ink"}
    run = write_run(tmp_path, [{"id": "one"}, {"id": "two"}], labels, change=lambda at: sent if at % 2 else {})
    pairs = prepare(LabelRequest(f"{run}@*prompt=plain", tmp_path, pairs=f"{run.name}@*prompt=styled")).subjects
    assert {(pair.record.model_label, str(pair.other and pair.other.model_label)) for pair in pairs} == {
        ("m,prompt=plain", "m,prompt=styled"), ("n,prompt=plain", "n,prompt=styled")
    }  # fmt: skip
    at = Labeling(
        prepare(LabelRequest(f"{run}@*prompt=plain", tmp_path, pairs=f"{run.name}@*prompt=styled")), lambda: NOON
    )
    assert at.next("ann")["item"]["prompt"] != "in ink"


def test_skips_questions_about_missing_metrics(tmp_path: Path) -> None:
    asked = {
        "questions": [*QUESTIONS["questions"], {"key": "look", "ask": "Fine?", "type": "yes_no", "metric": "fine"}]
    }
    run = write_run(
        tmp_path,
        [{"id": "one"}, {"id": "two"}],
        labels=asked,
        change=lambda at: {"scores": {"fine": True} if at else {}},
    )
    at = open_labeling(run)
    seen = {}
    for _ in range(2):
        item = at.next("ann")["item"]
        seen[item["case"]] = [ask["key"] for ask in item["asks"]]
        at.skip("ann", item["id"], 0)
    assert ("look" in seen["two"], "look" in seen["one"]) == (True, False)


def test_default_questions_without_labels_in_the_suite(tmp_path: Path) -> None:
    at = open_labeling(write_run(tmp_path, labels=None))
    assert [ask["key"] for ask in at.next("ann")["item"]["asks"]] == ["usable", "as_asked", "note"]


def test_a_question_about_one_image_is_no_pair_whatever_its_choices_are(tmp_path: Path) -> None:
    grade = {"key": "grade", "ask": "Which grade?", "type": "one_of", "choices": ["a", "b", "tie"]}
    at = open_labeling(write_run(tmp_path, labels={"questions": [grade]}))
    assert [ask["type"] for ask in at.next("ann")["item"]["asks"]] == ["one_of"]


def test_cells_without_an_image_are_skipped_with_a_note(tmp_path: Path) -> None:
    def change(number: int) -> dict[str, Any]:
        return {"artifact_path": None, "status": "error", "verdict": "ERROR"} if number == 0 else {}

    run = write_run(tmp_path, [{"id": f"case{at}"} for at in range(4)], change=change)
    next((run / "artifacts" / "case1").rglob("*.png")).unlink()
    work = prepare(LabelRequest(str(run), tmp_path))
    assert len(work.subjects) == 2
    assert work.notes == ("1 cell without an image, skipped", "1 cell with a missing image file, skipped")


def test_same_session_reuses_its_seed(run: Path) -> None:
    def seed(**wish: Any) -> int:
        return prepare(LabelRequest(str(run), run.parent, **wish)).session.seed

    first = seed()
    assert seed() == first
    assert seed(seed=7) == 7
    assert seed() == 7
    assert seed(which="random:2") not in (first, 7)


@pytest.mark.parametrize("torn", ['{"schema_version":2,"at":"2025', ""])
def test_truncated_line_loses_only_itself(run: Path, torn: str) -> None:
    at = open_labeling(run)
    answer(at)
    for name in ("labels.jsonl", "labeling.jsonl"):
        with (run / name).open("a") as file:
            file.write(torn)
    second = open_labeling(run)
    assert second.next("ann")["done"] == 1
    answer(second)
    assert len(counted(run)) == 6
    assert open_labeling(run).next("ann")["done"] == 2


@pytest.mark.parametrize(
    ("pairs", "given", "command", "shown"),
    [
        (None, GOOD, "visioneval agreement 'my runs/old'", "usable"),
        ("new", {"preferred": "a"}, "visioneval rank 'my runs/old' --by people", "secret-beta-9"),
    ],
)
def test_the_end_names_the_command_that_comes_next(
    toy: Toy, pairs: str | None, given: dict[str, Any], command: str, shown: str
) -> None:
    for run_id, model in (("old", SECRET_A), ("new", SECRET_B)):
        write_run(toy.folder / "my runs", [{"id": "one"}, {"id": "two"}], [model], run_id=run_id)
    at = open_labeling(Path("my runs", "old"), pairs=pairs)
    for _ in range(2):
        assert at.next("ann")["after"] is None
        answer(at, given)
    assert at.next("ann")["after"]["command"] == command
    result = toy(*shlex.split(command)[1:], COLUMNS="120")
    assert shown in result.stdout, result.output
    assert result.exit_code == 0
    at.undo("ann")
    assert at.next("ann")["after"] is None
