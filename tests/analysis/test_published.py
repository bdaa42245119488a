"""Statistics against values that were published, SciPy and statsmodels."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_factory import info, record
from typer.testing import CliRunner

from visioneval.analysis.stats.basic import wilson_interval
from visioneval.analysis.stats.intervals import auroc
from visioneval.analysis.stats.tests import holm
from visioneval.cli import app
from visioneval.records.writer import RunWriter
from visioneval.suite.model import Suite

pytestmark = pytest.mark.slow
SPEARMAN = {"MagicBrush": 0.4689, "InstructPix2Pix": 0.4856, "CycleDiffusion": 0.4387, "SDEdit": 0.1091}


def call(*arguments: str) -> Any:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def agreed(*arguments: str) -> dict[str, Any]:
    done = call("agreement", *arguments, "--json")
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    return result


# VIEScore: a judge's recorded scores through a rubric, three raters' labels


def judged(data: Path, folder: Path) -> Path:
    """A suite with a recorded judge. The mock provider generates, as the images are not available."""
    rows = [json.loads(line) for line in (data / "judge_gemini.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["model"] in SPEARMAN]
    answers = [
        {"case": row["uid"], "model": row["model"], "question": name, "answer": answer}
        for row in rows
        for name, answer in (("sc", min(row["sc"]) / 10), ("reason", row["sc_reason"]))
    ]
    (folder / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    judge = {"provider": "recorded", "path": "answers.jsonl", "fields": {"case": "case", "model": "model"}}
    metric = {"type": "score", "scale": [0, 1], "step": 0.1, "description": "how well the edit follows the words"}
    question = {
        "key": "follows",
        "ask": "Does it follow?",
        "type": "scale",
        "scale": [0, 1],
        "step": 0.5,
        "metric": "sc",
    }
    suite = {
        "name": "edits",
        "judges": {"default": judge},
        "cases": [{"id": uid, "prompt": "an edit"} for uid in dict.fromkeys(row["uid"] for row in rows)],
        "models": [{"provider": "mock", "label": name, "params": {"size": "64x64"}} for name in SPEARMAN],
        "graders": [{"key": "look", "type": "rubric", "metrics": {"sc": metric}}],
        "verdict": ["sc >= 0.5"],
        "gates": ["pass_rate >= 0"],
        "labels": {"questions": [question]},
    }
    (folder / "suite.yaml").write_text(json.dumps(suite))
    return folder / "suite.yaml"


def rated(data: Path, path: Path) -> None:
    """Writes the raters' first value for each image to one table."""
    with path.open("w", newline="") as file:
        out = csv.writer(file, delimiter="\t")
        out.writerow(["uid", "who", "drawn_by", "rating"])
        for rater in ("rater1", "rater2", "rater3"):
            with (data / f"{rater}.tsv").open(newline="") as rows:
                for row in csv.DictReader(rows, delimiter="\t"):
                    out.writerows([row["uid"], rater, name, json.loads(row[name])[0]] for name in (*SPEARMAN, "Imagic"))


def test_viescore_judge_agrees_with_three_raters_as_published(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = shared_data / "viescore_edits"
    done = call("run", str(judged(data, tmp_path)), "--run-id", "edits", "--quiet")
    assert done.exit_code == 0, done.output
    rated(data, tmp_path / "ratings.tsv")
    columns = ["--map", "case=uid", "--map", "rater=who", "--map", "model=drawn_by", "--map", "answer=rating"]
    done = call("label", "import", "ratings.tsv", "edits", *columns, "--set", "question=follows")
    assert done.exit_code == 3, done.output
    assert done.stdout == "edits: labels added: 2,148 (cells: 716, raters: 3); already present: 0; skipped: 537\n"
    assert "ratings.tsv:6:1: this run has no model run 'Imagic'" in done.stderr
    for name, published in SPEARMAN.items():
        (result,) = agreed(f"edits@{name}")["graders"]
        spearman = result["measures"]["spearman"]
        assert spearman["value"] == pytest.approx(published, abs=5e-5)
        assert spearman["n"] == result["cells"] == 179
        assert spearman["low"] < spearman["value"] < spearman["high"]
        assert result["kind"] == "scale"
    overall = agreed("edits", "--min", "sc:0.2")
    (result,) = overall["graders"]
    assert result["cells"] == 716
    assert result["ceiling"]["value"] > result["grader_as_rater"]["value"] > 0
    assert result["disputed"][0]["gap"] > 0.8
    assert result["disputed"][0]["reason"]
    (people,) = overall["people"]
    assert (people["raters"], people["shared"], people["fleiss_raters"]) == (3, 716, 3)
    assert 0 < people["alpha"]["ordinal"]["value"] < 1
    assert [pair["n"] for pair in people["cohen"]] == [716] * 3
    assert call("agreement", "edits", "--min", "sc:0.9").exit_code == 1


# DSG: scores from recorded answers, with and without dependencies, against the mean of five ratings


def scores(path: Path, *, dependencies: bool) -> dict[tuple[str, str], float]:
    """The share of right answers by image. A question is wrong if the answer to a direct parent is wrong."""
    images: dict[tuple[str, str], dict[str, tuple[str, str]]] = defaultdict(dict)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["item_id"], row["t2i_model"])
            images[key][row["question_id"]] = (row["dependency_id"], row["answer"])
    result = {}
    for key, questions in images.items():
        parents = {number: [part.strip() for part in needs.split(",")] for number, (needs, _) in questions.items()}
        sound = all(part.isdigit() for needs in parents.values() for part in needs)
        right = {number: answer == "yes" for number, (_, answer) in questions.items()}
        needed = parents if dependencies and sound else {}
        correct = [
            right[number] and all(right.get(parent, True) for parent in needed.get(number, ()) if parent != "0")
            for number in questions
        ]
        result[key] = sum(correct) / len(correct)
    return result


def answered(data: Path, out: Path) -> None:
    """Writes a run ``dsg`` with both scores of every image. An item without questions scores 0, as published."""
    path = data / "answers_pali17b.csv"
    with_parents, without = scores(path, dependencies=True), scores(path, dependencies=False)
    with (data / "likert.csv").open(newline="") as file:
        images = list(dict.fromkeys((row["item_id"], row["t2i_model"]) for row in csv.DictReader(file)))
    ask = {"ask": "How consistent is the image with the text?", "type": "scale", "scale": [1, 5]}
    number = {"type": "number", "range": [0, 1]}
    suite = Suite.model_validate(
        {
            "name": "dsg",
            "cases": [{"id": item, "prompt": item} for item in dict.fromkeys(item for item, _ in images)],
            "models": [
                {"provider": "own:Generate", "label": label} for label in dict.fromkeys(label for _, label in images)
            ],
            "graders": [{"key": "own", "type": "own:Look", "writes": {"dsg": number, "flat": number}}],
            "verdict": ["dsg >= 0"],
            "labels": {"questions": [{"key": "a", "metric": "dsg", **ask}, {"key": "b", "metric": "flat", **ask}]},
        }
    )
    metrics = {"dsg": number, "flat": number}
    writer = RunWriter.create(out, info(run_id="dsg", suite=suite, metrics=metrics, planned_cells=len(images)))
    for item, label in images:
        row_scores = {"dsg": with_parents.get((item, label), 0.0), "flat": without.get((item, label), 0.0)}
        writer.append(record(run_id="dsg", test_id=item, model_label=label, scores=row_scores))
    writer.finish("complete", "2025-01-01T00:00:01+00:00")


def test_dsg_scores_agree_with_five_ratings_of_800_images_as_published(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = shared_data / "dsg_tifa160"
    answered(data, tmp_path / "runs")
    columns = ["case=item_id", "model=t2i_model", "rater=worker_id", "a=answer", "b=answer"]
    flags = [word for column in columns for word in ("--map", column)]
    done = call("label", "import", str(data / "likert.csv"), "dsg", *flags)
    assert done.exit_code == 0, done.output
    assert done.stdout == "dsg: labels added: 7,990 (cells: 800, raters: 5); already present: 0; skipped: 0\n"
    result = agreed("dsg", "--min", "dsg:0.48", "--min-point", "dsg:0.57", "--min-point", "flat:0.57")
    for finding, published in zip(result["graders"], ((0.5707, 0.4583), (0.5703, 0.4570)), strict=True):
        assert (finding["kind"], finding["headline"], finding["cells"]) == ("continuous", "spearman", 800)
        assert finding["measures"]["spearman"]["value"] == pytest.approx(published[0], abs=5e-5)
        assert finding["measures"]["kendall"]["value"] == pytest.approx(published[1], abs=5e-5)
        assert set(finding["measures"]) == {"spearman", "kendall", "pearson", "pairwise_accuracy"}
    assert [finding["state"] for finding in result["minimums"]] == ["passed"] * 3
    assert call("agreement", "dsg", "--min", "dsg:0.57").exit_code == 1
    assert call("agreement", "dsg", "--min-point", "dsg:0.58").exit_code == 1
    assert len(result["people"][0]["cohen"]) == 10


# R. G. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I,
# method 3 (score without continuity correction)
NEWCOMBE = [
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0000, 0.1611),
    (1, 29, 0.0061, 0.1718),
]


@pytest.mark.parametrize(("successes", "n", "low", "high"), NEWCOMBE)
def test_wilson_interval_matches_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
@settings(max_examples=50)
def test_wilson_interval_matches_scipy(pair: tuple[int, int]) -> None:
    from scipy.stats import binomtest

    successes, n = pair
    expected = binomtest(successes, n).proportion_ci(0.95, method="wilson")
    low, high = wilson_interval(successes, n)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= successes / n <= high <= 1


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 3), (4, 3)])
def test_wilson_interval_rejects_invalid_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"not a rate: {successes} of {n}"):
        wilson_interval(successes, n)


@pytest.mark.parametrize("p_values", [[], [0.3], [0.01, 0.04, 0.03], [0.5, 0.5, 0.001, 0.9, 0.0, 1.0, 0.02]])
def test_holm_matches_statsmodels(p_values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    assert holm(p_values) == pytest.approx(p_values and list(multipletests(p_values, method="holm")[1]))


def test_auroc_counts_ties_half() -> None:
    assert auroc([1, 1], [0, 0.5]) == 1
    assert auroc([0, 0], [1]) == 0
    assert auroc([1, 0], [1, 0]) == 0.5
    assert auroc([2, 1, 1], [1, 0]) == pytest.approx(5 / 6)
    with pytest.raises(ValueError, match="AUROC needs values"):
        auroc([], [1.0])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.lists(st.integers(0, 5), min_size=1, max_size=40))
@settings(max_examples=50)
def test_auroc_matches_scipy(above: list[int], below: list[int]) -> None:
    from scipy.stats import mannwhitneyu

    expected = mannwhitneyu(above, below, method="asymptotic").statistic / (len(above) * len(below))
    assert auroc(above, below) == pytest.approx(expected, abs=1e-12)
