"""Chance-corrected agreement, compared with published examples and statsmodels."""

from __future__ import annotations

from math import isnan, nan

import numpy as np
import pytest

from visioneval.analysis.stats.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha, quadratic_kappa

_ = nan
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
)
"""Four observers, twelve units, five values: section D of Krippendorff's worked examples."""

FLEISS = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031 00501 30012 51000 02040
10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""
"""Thirty patients, six psychiatrists, five diagnoses: the table of the paper of 1971."""

TEXTBOOK = [[0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1], [7, 7, 0, 0, 0],
            [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]]  # fmt: skip


def count_values(ratings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts the values of each unit (a column)."""
    values = np.unique(ratings[~np.isnan(ratings)])
    return np.stack([(ratings == value).sum(axis=0) for value in values], axis=1), values


@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_matches_krippendorffs_example(level: str, published: float) -> None:
    assert krippendorff_alpha(*count_values(KRIPPENDORFF), level) == pytest.approx(published, abs=5e-4)


def test_alpha_of_two_observers_matches_the_published_value() -> None:
    first = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    second = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert krippendorff_alpha(*count_values(np.array([first, second], dtype=float)), "nominal") == pytest.approx(
        0.095, abs=5e-4
    )


def test_alpha_ignores_units_with_one_answer() -> None:
    alone = np.concatenate([KRIPPENDORFF, np.full((4, 50), nan)], axis=1)
    alone[0, 12:] = 5
    assert krippendorff_alpha(*count_values(alone), "nominal") == pytest.approx(0.743, abs=5e-4)


def test_fleiss_kappa_matches_published_examples() -> None:
    table = [[int(count) for count in row] for row in FLEISS.split()]
    assert len(table) == 30
    assert fleiss_kappa(table) == pytest.approx(0.430, abs=5e-4)
    assert fleiss_kappa(TEXTBOOK) == pytest.approx(0.210, abs=5e-4)


def test_cohen_kappa_of_a_known_table() -> None:
    first = [1] * 25 + [0] * 25
    second = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_kappas_match_statsmodels(seed: int) -> None:
    from statsmodels.stats.inter_rater import cohens_kappa, to_table
    from statsmodels.stats.inter_rater import fleiss_kappa as oracle_fleiss

    random = np.random.default_rng(seed)
    first = random.integers(1, 6, 200)
    second = np.clip(first + random.integers(-1, 3, 200), 1, 5)
    table, _ = to_table(np.stack([first, second], axis=1), bins=np.arange(0.5, 6))
    assert cohen_kappa(first, second) == pytest.approx(cohens_kappa(table).kappa)
    assert quadratic_kappa(first, second) == pytest.approx(cohens_kappa(table, wt="quadratic").kappa)
    counts = random.multinomial(7, [0.5, 0.3, 0.2], size=40)
    assert fleiss_kappa(counts) == pytest.approx(oracle_fleiss(counts))


def test_quadratic_weights_use_the_scale_and_not_the_used_values() -> None:
    from statsmodels.stats.inter_rater import cohens_kappa, to_table

    first, second = [1, 1, 5, 5, 2], [1, 5, 5, 5, 1]
    table, _ = to_table(np.stack([first, second], axis=1), bins=np.arange(0.5, 6))
    assert quadratic_kappa(first, second) == pytest.approx(cohens_kappa(table, wt="quadratic").kappa)


def test_full_agreement_is_1_and_a_constant_rater_is_0() -> None:
    assert cohen_kappa([0, 1, 1], [0, 1, 1]) == quadratic_kappa([1, 3, 5], [1, 3, 5]) == 1
    assert cohen_kappa([0, 1, 1], [1, 1, 1]) == quadratic_kappa([1, 3, 5], [3, 3, 3]) == 0
    assert krippendorff_alpha([[2, 0], [0, 2]], [0, 1], "ordinal") == 1
    assert cohen_kappa([0, 1], [1, 0]) == -1


def test_undefined_agreement_is_nan() -> None:
    assert isnan(cohen_kappa([], []))
    assert isnan(cohen_kappa([1, 1], [1, 1]))
    assert isnan(quadratic_kappa([], []))
    assert isnan(quadratic_kappa([3], [3]))
    assert isnan(fleiss_kappa(np.zeros((0, 2))))
    assert isnan(fleiss_kappa([[3, 0], [3, 0]]))
    assert isnan(krippendorff_alpha([[1, 0], [0, 1]], [0, 1], "nominal"))
    assert isnan(krippendorff_alpha([[2, 0]], [0, 1], "interval"))
    assert isnan(krippendorff_alpha(np.zeros((0, 2)), [0, 1], "interval"))
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([[1, 1], [2, 1]])
