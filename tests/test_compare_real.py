"""Five real image models, compared pairwise on published answers, against SciPy and a bootstrap of the test's own."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from made import record
from scipy.stats import bootstrap, rankdata

from visioneval.analysis.cells import Side
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.run_lookup import read_side

Scores = dict[str, dict[str, float]]


def _scores(path: Path) -> Scores:
    """By model and item: the share of its questions answered yes, of which a direct parent's answer was yes too.

    An item of which any dependency is no number loses all of them.
    """
    rows: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            rows[row["t2i_model"], row["item_id"]].append(row)
    found: Scores = defaultdict(dict)
    for (model, item), questions in rows.items():
        yes = {row["question_id"]: row["answer"] == "yes" for row in questions}
        parents = {row["question_id"]: [one.strip() for one in row["dependency_id"].split(",")] for row in questions}
        known = all(one == "0" or one in yes for own in parents.values() for one in own)
        held = [yes[own] and (not known or all(one == "0" or yes[one] for one in parents[own])) for own in yes]
        found[model][item] = sum(held) / len(held)
    return found


@pytest.fixture
def scores(shared_data: Path) -> Scores:
    return _scores(shared_data / "dsg_tifa160" / "answers_pali17b.csv")


@pytest.fixture
def sides(scores: Scores, tmp_path: Path) -> dict[str, Side]:
    """Each model as one model run of a file of records."""
    path = tmp_path / "dsg.jsonl"
    records = (
        record(test_id=item, model_label=model, scores={"gecko": score})
        for model, own in scores.items()
        for item, score in own.items()
    )
    path.write_text("".join(f"{one.model_dump_json()}\n" for one in records), encoding="utf-8")
    return {model: read_side(f"{path}@{model}", path.parent) for model in scores}


def _pairs(scores: Scores) -> Iterator[tuple[str, str, np.ndarray]]:
    for a, b in combinations(scores, 2):
        yield a, b, np.array([scores[b][item] - scores[a][item] for item in scores[a]])


def test_five_models_pairwise(scores: Scores, sides: dict[str, Side]) -> None:
    assert len(scores) == 5
    significant = 0
    for a, b, differences in _pairs(scores):
        (found,) = compare(sides[a], sides[b]).metrics
        assert (found.n_pairs, found.n_cases) == (159, 159)
        assert (found.a, found.b) == pytest.approx([np.mean(list(scores[model].values())) for model in (a, b)])
        assert found.difference == pytest.approx(differences.mean())
        assert found.p is not None
        assert found.p == pytest.approx(_p_value(differences), abs=0.01)
        own = bootstrap((differences,), np.mean, method="percentile", n_resamples=20_000, rng=7).confidence_interval
        assert found.interval is not None
        assert (found.interval.low, found.interval.high) == pytest.approx((own.low, own.high), abs=0.004)
        significant += found.p < 0.05
    assert 0 < significant < 10


def _p_value(differences: np.ndarray) -> float:
    """By generation signs: SciPy's exact distribution knows no ties, and of 159 items fewer than 100 differ."""
    own = differences.round(10)
    own = own[own != 0]
    assert len(own) <= 100
    ranks = rankdata(np.abs(own))
    signs = np.random.default_rng(11).choice([-1, 1], size=(40_000, len(own)))
    return float((np.abs(signs @ ranks) >= abs(np.sign(own) @ ranks) - 1e-9).mean())
