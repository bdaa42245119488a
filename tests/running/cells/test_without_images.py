"""Cells without an image: recorded answers are graded directly."""

from __future__ import annotations

from typing import Any

from toys import Toy

from visioneval import Metric, Verdict, read_records
from visioneval.running.cells.grading import checked_scores

MODELS = [{"provider": "files", "outputs": "none", "label": label} for label in ("m", "n")]
RECORDED_PEOPLE = {"people": {"provider": "recorded", "path": "answers.csv", "fields": {"model": "model"}}}
LIKED = {"liked": {"type": "pass_fail", "description": "Did they like it?"}}


def run(toy: Toy, *rows: str, graders: list[dict[str, Any]], **changes: Any) -> Any:
    (toy.folder / "answers.csv").write_text("\n".join(["case,model,question,answer", *rows, ""]))
    return toy.run(models=MODELS, judges=RECORDED_PEOPLE, graders=graders, **changes)


GECKO = [{"key": "gecko", "type": "gecko", "judge": "people"}]
CASES = [{"questions": [{"id": "q1", "question": "Is it blue?", "type": "color"}]}]


def test_questions_are_graded_without_a_image(toy: Toy) -> None:
    result = run(
        toy, "case0,m,q1,Yes.", "case0,n,Is it blue?,no", graders=GECKO, cases=[{"id": "case0", **CASES[0]}],
        verdict=["gecko >= 0.5"], gates=["pass_rate >= 0.5"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    cells = {record.model_label: record for record in read_records(toy.latest)}
    assert (cells["m"].verdict, cells["n"].verdict) == (Verdict.PASS, Verdict.FAIL)
    assert (cells["m"].status, cells["m"].artifact_path, cells["m"].width, cells["m"].prompt) == (
        "completed",
        None,
        None,
        "",
    )
    assert cells["m"].error is None
    assert not list((toy.latest / "artifacts").iterdir())
    shown = toy("show", "latest", "case0")
    assert "no image" in shown.output


def test_recorded_scores_are_graded_without_a_image(toy: Toy) -> None:
    rubric = [{"key": "look", "type": "rubric", "judge": "people", "metrics": LIKED}]
    result = run(toy, "case0,m,liked,true", "case0,n,liked,false", graders=rubric, verdict=["liked"])
    assert result.exit_code == 1, result.output
    assert [item["counts"]["passed"] for item in toy.summary["models"]] == [1, 0]


def test_a_plan_counts_the_cells(toy: Toy) -> None:
    (toy.folder / "answers.csv").write_text("case,model,question,answer\ncase0,m,q1,yes\n")
    path = toy.write(
        models=MODELS,
        judges=RECORDED_PEOPLE,
        graders=GECKO,
        cases=[{"id": "case0", **CASES[0]}],
        verdict=["gecko >= 1"],
    )
    message = toy("plan", path)
    assert message.exit_code == 0, message.output
    assert "missing" not in message.output


def test_an_optional_score_may_be_omitted_if_another_was_measured() -> None:
    declared = {"a": Metric(type="number"), "b": Metric(type="number"), "c": Metric(type="number")}
    assert checked_scores({"a": 1}, declared, {"b"}) == ({"a": 1, "c": None}, ["c was not measured"])
    assert checked_scores({"a": 1, "b": 2, "c": 3}, declared, {"b"}) == ({"a": 1, "b": 2, "c": 3}, [])
    assert checked_scores({}, declared, {"b"})[0] == {"a": None, "b": None, "c": None}
