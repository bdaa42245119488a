"""Answers that others recorded give the figures that others published, through the code that every user runs."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from published import dsg_suite, likert_rows, tifa_suite
from typer.testing import CliRunner

from visioneval import Record, Summary, Verdict, read_info, read_records
from visioneval.analysis.summary.summary import summarize
from visioneval.cli import app
from visioneval.records.questions import read_questions

pytestmark = pytest.mark.slow


def run(suite: Path, *flags: str) -> tuple[int, Summary, list[Record], Path]:
    out = suite.parent / "runs"
    done = CliRunner().invoke(app, ["run", str(suite), "--runs", str(out), "--trust-suite", "--quiet", *flags])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert out.is_dir(), done.output
    (folder,) = out.iterdir()
    records = list(read_records(folder))
    return done.exit_code, summarize(read_info(folder), records), records, folder


def test_tifa_sample_gives_its_published_figures(shared_data: Path, tmp_path: Path) -> None:
    code, summary, records, folder = run(tifa_suite(shared_data / "tifa_sample", tmp_path))
    assert code == 0
    scores = {record.test_id: record.scores["gecko"] for record in records}
    assert scores == {"coco_301091": 1.0, "drawbench_52": 0.625}
    assert summary.models[0].metrics["gecko"].value == 0.8125
    pooled = summary.questions["gecko"].models["cases"].types
    assert {kind: result.value for kind, result in pooled.items()} == {
        "animal/human": 0.75, "object": 1, "location": 1, "activity": 1, "color": 1, "counting": pytest.approx(1 / 3),
    }  # fmt: skip
    assert {kind: result.n for kind, result in pooled.items()} == {
        "animal/human": 4, "object": 3, "location": 2, "activity": 3, "color": 4, "counting": 3,
    }  # fmt: skip
    assert [entry.source for entry in read_questions(folder)] == ["pinned", "pinned"]
    assert {record.graders[0].details["reply_shape"] for record in records} == {"recorded"}


def test_image_without_recorded_answers_is_an_error(shared_data: Path, tmp_path: Path) -> None:
    suite = tifa_suite(shared_data / "tifa_sample", tmp_path, without=["drawbench_52"])
    code, summary, records, _ = run(suite)
    result = {record.test_id: record for record in records}
    assert code == 3
    assert result["coco_301091"].verdict is Verdict.PASS
    assert result["drawbench_52"].verdict is Verdict.ERROR
    assert set(result["drawbench_52"].scores.values()) == {None}
    assert "8 of 8 questions of 'gecko' have no usable answer" in (result["drawbench_52"].graders[0].error or "")
    assert summary.models[0].metrics["gecko"].value == 1.0
    assert summary.questions["gecko"].models["cases"].types["counting"].unmeasured == 3


@pytest.mark.parametrize(
    ("dependencies", "spearman", "kendall", "spearman_795", "kendall_795"),
    [(True, 0.5707, 0.4583, 0.5665, 0.4551), (False, 0.5703, 0.4570, 0.5661, 0.4538)],
)
def test_dsg_scores_correlate_with_human_ratings_as_published(
    shared_data: Path,
    tmp_path: Path,
    dependencies: bool,
    spearman: float,
    kendall: float,
    spearman_795: float,
    kendall_795: float,
) -> None:
    data = shared_data / "dsg_tifa160"
    code, _, records, _ = run(dsg_suite(data, tmp_path, dependencies=dependencies))
    assert code == 0
    assert len(records) == 800
    scores = {(record.model_label, record.test_id): record.scores["gecko"] for record in records}
    ratings = rated(data)
    assert correlations(scores, ratings) == (spearman, kendall)
    asked = {cell: score for cell, score in scores.items() if cell[1] != "tifa160_134"}
    assert len(asked) == 795
    assert correlations(asked, ratings) == (spearman_795, kendall_795)


def test_the_meanings_of_drop_differ_on_the_item_with_a_malformed_dependency(shared_data: Path, tmp_path: Path) -> None:
    """Question 8 of tifa160_67 depends on "1, outside": ``drop`` keeps 1, and the dependencies of all other questions.

    Self-dependencies, such as that of tifa160_13, are dropped alone by both.
    """
    scores, depends_on = {}, {}
    for choice in ("drop", "drop_all"):
        folder = tmp_path / choice
        folder.mkdir()
        suite = dsg_suite(shared_data / "dsg_tifa160", folder, on_bad_dependency=choice)
        code, _, records, _ = run(suite, "--case", "tifa160_67", "--case", "tifa160_13")
        assert code == 0
        scores[choice] = {(record.test_id, record.model_label): record.scores["gecko"] for record in records}
        details = next(record.graders[0].details for record in records if record.test_id == "tifa160_67")
        depends_on[choice] = [question["depends_on"] for question in details["questions"]]
    differing = {cell for cell, score in scores["drop"].items() if score != scores["drop_all"][cell]}
    (cell,) = differing
    assert cell == ("tifa160_67", "sd1dot5")
    assert (scores["drop"][cell], scores["drop_all"][cell]) == (0.8, 0.9)
    assert depends_on["drop"] == [[], ["1"], ["2"], [], [], ["1"], ["1", "4"], ["1"], ["4", "5"], ["5", "6"]]
    assert depends_on["drop_all"] == [[]] * 10


def rated(data: Path) -> dict[tuple[str, str], float]:
    """The mean rating of each image, 1 to 5."""
    result: dict[tuple[str, str], list[int]] = {}
    for row in likert_rows(data):
        result.setdefault((row["t2i_model"], row["item_id"]), []).append(int(row["answer"]))
    return {cell: fsum(custom) / len(custom) for cell, custom in result.items()}


def correlations(
    scores: Mapping[tuple[str, str], Any], ratings: Mapping[tuple[str, str], float]
) -> tuple[float, float]:
    from scipy.stats import kendalltau, spearmanr

    cells = sorted(scores)
    pair = [scores[cell] for cell in cells], [ratings[cell] for cell in cells]
    return round(spearmanr(*pair).statistic, 4), round(kendalltau(*pair).statistic, 4)
