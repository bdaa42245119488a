"""Five image models compared pairwise on published answers, checked with SciPy and an independent bootstrap."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from record_factory import record

from visioneval.analysis.compare.compare import compare
from visioneval.analysis.run_lookup import read_side
from visioneval.analysis.sides import Side

Scores = dict[str, dict[str, float]]


def _scores(path: Path) -> Scores:
    """By model and item: the share of questions answered yes with direct parents answered yes too.

    An item with an invalid dependency has no dependencies.
    """
    rows: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            rows[row["t2i_model"], row["item_id"]].append(row)
    result: Scores = defaultdict(dict)
    for (model, item), questions in rows.items():
        yes = {row["question_id"]: row["answer"] == "yes" for row in questions}
        parents = {
            row["question_id"]: [entry.strip() for entry in row["dependency_id"].split(",")] for row in questions
        }
        known = all(entry == "0" or entry in yes for nonzero in parents.values() for entry in nonzero)
        correct = [
            yes[nonzero] and (not known or all(entry == "0" or yes[entry] for entry in parents[nonzero]))
            for nonzero in yes
        ]
        result[model][item] = sum(correct) / len(correct)
    return result


@pytest.fixture
def scores(shared_data: Path) -> Scores:
    return _scores(shared_data / "dsg_tifa160" / "answers_pali17b.csv")


@pytest.fixture
def sides(scores: Scores, tmp_path: Path) -> dict[str, Side]:
    """Each model as a model run of a file of records."""
    path = tmp_path / "dsg.jsonl"
    records = (
        record(test_id=item, model_label=model, scores={"gecko": score})
        for model, nonzero in scores.items()
        for item, score in nonzero.items()
    )
    path.write_text("".join(f"{entry.model_dump_json()}\n" for entry in records), encoding="utf-8")
    return {model: read_side(f"{path}@{model}", path.parent) for model in scores}


def _pairs(scores: Scores) -> Iterator[tuple[str, str, np.ndarray]]:
    for a, b in combinations(scores, 2):
        yield a, b, np.array([scores[b][item] - scores[a][item] for item in scores[a]])


@pytest.mark.slow
def test_five_models_pairwise(scores: Scores, sides: dict[str, Side]) -> None:
    from scipy.stats import bootstrap, ttest_1samp

    assert len(scores) == 5
    significant = 0
    for a, b, differences in _pairs(scores):
        (result,) = compare(sides[a], sides[b]).metrics
        assert (result.n_pairs, result.n_cases) == (159, 159)
        assert (result.a, result.b) == pytest.approx([np.mean(list(scores[model].values())) for model in (a, b)])
        assert result.difference == pytest.approx(differences.mean())
        assert result.p is not None
        assert result.p == pytest.approx(ttest_1samp(differences, 0).pvalue, abs=0.01)
        nonzero = bootstrap((differences,), np.mean, method="percentile", n_resamples=20_000, rng=7).confidence_interval
        assert result.interval is not None
        assert (result.interval.low, result.interval.high) == pytest.approx((nonzero.low, nonzero.high), abs=0.004)
        significant += result.p < 0.05
    assert 0 < significant < 10
