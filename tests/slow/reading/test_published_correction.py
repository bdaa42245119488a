"""Public human labels: a random part of them corrects a judge to what all of them say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from test_published_agreement import answered, call, judged, rated

from visioneval import read_info, read_records
from visioneval.analysis.agreement.answers import LabeledRun, drop_outdated_labels, pool
from visioneval.analysis.agreement.correction import CorrectedMetric, correct
from visioneval.analysis.agreement.graders import metrics_of
from visioneval.label.sampling import SelectionSpec, draw_cells
from visioneval.records.labels import read_labels

SEEDS = range(12)


def run_in(folder: Path) -> LabeledRun:
    run = LabeledRun(read_info(folder), list(read_records(folder)), read_labels(folder / "labels.jsonl"))
    ((current,), _) = drop_outdated_labels([run])
    return current


def corrected(run: LabeledRun, which: str) -> list[CorrectedMetric]:
    """The first metric, corrected by draws with different seeds."""
    answers, metrics = pool([run]), metrics_of([run.info])
    results = []
    for seed in SEEDS:
        draw = draw_cells(run.records, SelectionSpec.parse(which), seed, datetime.now(UTC))
        results.append(correct([replace(run, draws=[draw])], answers, metrics).metrics[0])
    return results


def check(results: list[CorrectedMetric], everyone: float) -> None:
    """Nearly all intervals contain the mean of all labels, and most are narrower than those of the labels alone."""
    inside = [result.corrected.low <= everyone <= result.corrected.high for result in results]
    assert sum(inside) >= len(results) - 2
    assert np.mean([result.corrected.value for result in results]) == pytest.approx(everyone, abs=0.05)
    widths = [[measure.high - measure.low for measure in (result.corrected, result.labels)] for result in results]
    assert np.mean([width < alone for width, alone in widths]) > 0.7


def test_viescore_labels_correct_a_judge_that_is_too_strict(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge's mean is far from that of three raters of 716 edits; labels of 80 edits move it there."""
    monkeypatch.chdir(tmp_path)
    data = shared_data / "viescore_edits"
    assert call("run", str(judged(data, tmp_path)), "--run-id", "edits", "--quiet").exit_code == 0
    rated(data, tmp_path / "ratings.tsv")
    columns = ["--map", "case=uid", "--map", "rater=who", "--map", "model=drawn_by", "--map", "answer=rating"]
    imported = call("label", "import", "ratings.tsv", "edits", *columns, "--set", "question=follows")
    assert imported.exit_code == 3, "labels of a model that is not in the run are skipped"
    run = run_in(tmp_path / "runs" / "edits")
    everyone = float(np.mean([label.answer for label in run.labels]))
    for which in ("random:80", "stratified:80"):
        check(corrected(run, which), everyone)
    assert call("label", "draw", "edits", "random:80", "--seed", "1").exit_code == 0
    done = call("agreement", "edits", "--correct", "--json")
    (result,) = json.loads(done.stdout)["correction"]["metrics"]
    assert result["corrected"] == corrected(run, "random:80")[1].corrected.model_dump()
    assert abs(result["judge"]["value"] - everyone) > 0.1 > abs(result["corrected"]["value"] - everyone)


def test_dsg_ratings_of_another_unit_are_corrected(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric is a share of right answers, the ratings are on a scale from 1 to 5."""
    monkeypatch.chdir(tmp_path)
    data = shared_data / "dsg_tifa160"
    answered(data, tmp_path / "runs")
    columns = ["case=item_id", "model=t2i_model", "rater=worker_id", "a=answer", "b=answer"]
    flags = [word for column in columns for word in ("--map", column)]
    assert call("label", "import", str(data / "likert.csv"), "dsg", *flags).exit_code == 0
    run = run_in(tmp_path / "runs" / "dsg")
    (facet, _) = pool([run]).all_facets
    everyone = float(np.mean([np.mean(list(by_rater.values())) for by_rater in facet.answers.values()]))
    check(corrected(run, "random:100"), everyone)
