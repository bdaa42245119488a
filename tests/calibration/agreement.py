"""How often the intervals of ``agreement`` and of win rates contain the truth, and where a rater's equal stands.

    python -m tests.calibration.agreement [REPETITIONS]

The default takes about a minute of processor time.

Each design simulates labels and a judge, and asks the functions behind ``agreement`` for a 95 % interval of what an
endless number of labels would give. ``given`` is the share of simulations with an interval; the coverage is that of the
intervals given.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.agreement.answers import YES_NO, Facet
from visioneval.analysis.agreement.graders import (
    Kind,
    against_other_raters,
    chance_measures,
    failure_measures,
    headline_measure,
    rank_measures,
)
from visioneval.analysis.agreement.raters import agreement_on
from visioneval.analysis.preferences import summarize_preferences
from visioneval.analysis.stats.agreement import quadratic_kappa
from visioneval.analysis.stats.basic import Statistic
from visioneval.analysis.stats.correlation import kendall, pairwise_accuracy, pearson, spearman
from visioneval.records.between_cells import Preference

Floats = NDArray[np.float64]
Chance = np.random.Generator
ICC = 0.5
"""The correlation of two cells of a case."""
KINDS: tuple[Kind, ...] = ("bool", "scale", "continuous")
MANY = 200_000
"""The cells of a population whose true values have no formula."""


@dataclass(frozen=True, slots=True)
class Row:
    """The coverage of the intervals of a measure in a design, and its standard error."""

    measure: str
    design: str
    coverage: float
    error: float
    given: float


def _rows(design: str, truth: Mapping[str, float], results: Iterable[Mapping[str, Statistic]]) -> Iterator[Row]:
    hits: dict[str, list[bool]] = defaultdict(list)
    total = 0
    for total, measures in enumerate(results, 1):  # noqa: B007 - the number of simulations
        for name, value in truth.items():
            measure = measures[name]
            if measure.low is not None and measure.high is not None:
                hits[name].append(measure.low - 1e-12 <= value <= measure.high + 1e-12)
    for name in truth:
        count = len(hits[name])
        coverage = float(np.mean(hits[name])) if count else float("nan")
        error = sqrt(max(coverage * (1 - coverage), 0.05 * 0.95) / count) if count else float("nan")
        yield Row(name, design, coverage, error, count / max(total, 1))


def _beta(mean: float, icc: float, size: int, chance: Chance) -> Floats:
    weight = (1 - icc) / icc
    return np.asarray(chance.beta(mean * weight, (1 - mean) * weight, size), dtype=float)


def _cases(labels: int, per_case: int) -> list[int]:
    return [cell for cell in range(labels // per_case) for _ in range(per_case)]


def yes_no(repetitions: int, labels: Sequence[int] = (20, 50, 200)) -> Iterator[Row]:
    """Accuracy, precision, recall and kappa of a judge of a yes-or-no question."""
    for number, per_case, accuracy, share in product(labels, (1, 3), (0.8, 0.9, 0.99), (0.1, 0.3, 0.5)):
        chance = np.random.default_rng([number, per_case, int(accuracy * 100), int(share * 10)])
        flagged = share * accuracy + (1 - share) * (1 - accuracy)
        truth = {
            "accuracy": accuracy,
            "fail_precision": share * accuracy / flagged,
            "fail_recall": accuracy,
            "kappa": 1 - (1 - accuracy) / (share * (1 - flagged) + flagged * (1 - share)),
        }
        results = (_judged_yes_no(number, per_case, accuracy, share, chance) for _ in range(repetitions))
        design = f"{number} labels, {per_case} per case, judge {accuracy:g}, failures {share:g}"
        yield from _rows(design, truth, results)


def _judged_yes_no(labels: int, per_case: int, accuracy: float, share: float, chance: Chance) -> dict[str, Statistic]:
    cases = _cases(labels, per_case)
    number = labels // per_case
    shares = np.full(number, share) if per_case == 1 else _beta(share, ICC, number, chance)
    errors = np.full(number, 1 - accuracy) if per_case == 1 else _beta(1 - accuracy, ICC / 2, number, chance)
    people = chance.random(len(cases)) < np.repeat(shares, per_case)
    grader = people ^ (chance.random(len(cases)) < np.repeat(errors, per_case))
    failed = failure_measures(people, grader, cases)
    return {**failed, **chance_measures("bool", people.astype(float), grader.astype(float), cases)}


def scales(repetitions: int, labels: Sequence[int] = (20, 50, 100)) -> Iterator[Row]:
    """Quadratic kappa, the correlations and pairwise accuracy of a judge on a scale from 1 to 5; ``labels`` are numbers of cases."""
    for number, per_case, correlation, mean in product(labels, (1, 3), (0.3, 0.6, 0.9, 0.98), (0.0, 1.0, 1.5)):
        chance = np.random.default_rng([number, per_case, int(correlation * 100), int(mean * 10)])
        results = (_judged_scale(number, per_case, correlation, mean, chance) for _ in range(repetitions))
        design = f"{number} cases, {per_case} per case, correlation {correlation:g}, mean {mean:g}"
        yield from _rows(design, _true_scale(correlation, mean), results)


def _on_scale(latent: Floats) -> Floats:
    return np.asarray(np.digitize(latent, (-1.2, -0.4, 0.4, 1.2)) + 1, dtype=float)


def _pair_of_scales(
    number: int, per_case: int, correlation: float, mean: float, chance: Chance
) -> tuple[Floats, Floats]:
    def normal() -> Floats:
        shared = sqrt(ICC) * chance.normal(size=(number, 1))
        return np.asarray((shared + sqrt(1 - ICC) * chance.normal(size=(number, per_case))).ravel() + mean, dtype=float)

    people = normal()
    return _on_scale(people), _on_scale(people + sqrt(1 / correlation**2 - 1) * (normal() - mean))


@cache
def _true_scale(correlation: float, mean: float) -> Mapping[str, float]:
    sides = _pair_of_scales(MANY, 1, correlation, mean, np.random.default_rng(1))
    return {
        "quadratic_kappa": quadratic_kappa(*sides),
        "spearman": spearman(*sides),
        "kendall": kendall(*sides),
        "pearson": pearson(*sides),
        "pairwise_accuracy": _true_pairwise_accuracy(*sides),
    }


def _true_pairwise_accuracy(people: Floats, grader: Floats) -> float:
    """That of a population with few different rows, from their shares."""
    rows, counts = np.unique(np.stack([people, grader], axis=1), axis=0, return_counts=True)
    share = counts / counts.sum()
    order, difference = (column[:, None] - column[None, :] for column in rows.T)
    return max(
        float(share @ (np.sign(order) == np.where(np.abs(difference) <= threshold, 0, np.sign(difference))) @ share)
        for threshold in np.unique(np.abs(difference))
    )


def numbers(repetitions: int, labels: Sequence[int] = (20, 50, 100)) -> Iterator[Row]:
    """Pearson's correlation and pairwise accuracy of a metric with any numbers against a scale from 1 to 5."""
    for number, per_case, correlation, is_skewed in product(labels, (1, 3), (0.3, 0.6, 0.9), (False, True)):
        chance = np.random.default_rng([number, per_case, int(correlation * 100), is_skewed])
        results = (_judged_numbers(number, per_case, correlation, is_skewed, chance) for _ in range(repetitions))
        design = f"{number} cases, {per_case} per case, correlation {correlation:g}{', skewed' * is_skewed}"
        yield from _rows(design, _true_numbers(correlation, is_skewed), results)


def _pair_of_numbers(
    number: int, per_case: int, correlation: float, is_skewed: bool, chance: Chance
) -> tuple[Floats, Floats]:
    """Skewed: most labels are at the top, and the numbers have a long tail below."""

    def normal() -> Floats:
        shared = sqrt(ICC) * chance.normal(size=(number, 1))
        return np.asarray((shared + sqrt(1 - ICC) * chance.normal(size=(number, per_case))).ravel(), dtype=float)

    people = normal()
    metric = correlation * people + sqrt(1 - correlation**2) * normal()
    return _on_scale(people + is_skewed), -np.exp(-metric) if is_skewed else metric


@cache
def _true_numbers(correlation: float, is_skewed: bool) -> Mapping[str, float]:
    chance = np.random.default_rng(1)
    sides = _pair_of_numbers(MANY, 1, correlation, is_skewed, chance)
    few = [pairwise_accuracy(*_pair_of_numbers(1500, 1, correlation, is_skewed, chance)) for _ in range(30)]
    return {"pearson": pearson(*sides), "pairwise_accuracy": float(np.mean(few))}


def _judged_numbers(
    number: int, per_case: int, correlation: float, is_skewed: bool, chance: Chance
) -> dict[str, Statistic]:
    cases = [case for case in range(number) for _ in range(per_case)]
    return rank_measures(*_pair_of_numbers(number, per_case, correlation, is_skewed, chance), cases)


def _judged_scale(number: int, per_case: int, correlation: float, mean: float, chance: Chance) -> dict[str, Statistic]:
    people, grader = _pair_of_scales(number, per_case, correlation, mean, chance)
    cases = [case for case in range(number) for _ in range(per_case)]
    return {**chance_measures("scale", people, grader, cases), **rank_measures(people, grader, cases)}


def raters(repetitions: int, labels: Sequence[int] = (20, 50, 200)) -> Iterator[Row]:
    """Alpha and Fleiss' kappa of two, three and five raters of equal quality."""
    for items, number, accuracy, share in product(labels, (2, 3, 5), (0.8, 0.9, 0.99), (0.1, 0.5)):
        chance = np.random.default_rng([items, number, int(accuracy * 100), int(share * 10)])
        yes = share * accuracy + (1 - share) * (1 - accuracy)
        kappa = 1 - accuracy * (1 - accuracy) / (yes * (1 - yes))
        results = (_rated(items, number, accuracy, share, chance) for _ in range(repetitions))
        design = f"{items} items, {number} raters of {accuracy:g}, yes {share:g}"
        yield from _rows(design, {"alpha": kappa, "fleiss": kappa}, results)


def _rated(items: int, number: int, accuracy: float, share: float, chance: Chance) -> dict[str, Statistic]:
    truth = chance.random((items, 1)) < share
    answers = (truth ^ (chance.random((items, number)) < 1 - accuracy)).astype(float)
    facet = Facet("usable", "yes_no", YES_NO)
    facet.answers.update(
        {("r", f"c{item}", "m", 0, None): {f"p{rater}": code for rater, code in enumerate(row)}
         for item, row in enumerate(answers.tolist())}
    )  # fmt: skip
    finding = agreement_on(facet)
    return {"alpha": finding.alpha["nominal"], "fleiss": finding.fleiss}


@dataclass(frozen=True, slots=True)
class CeilingRow:
    """The mean ceiling, and how far above it a grader is that is as good as one more rater."""

    kind: Kind
    raters: int
    ceiling: float
    difference: float
    error: float


def ceilings(repetitions: int, cells: int = 100) -> Iterator[CeilingRow]:
    """Two, three and five raters, and a grader that is drawn like one more of them."""
    for kind, number in product(KINDS, (2, 3, 5)):
        chance = np.random.default_rng([len(kind), number])
        both = [_equals(kind, number, cells, chance, is_one_case=True) for _ in range(repetitions)]
        values = np.asarray([[pair["ceiling"].value, pair["grader"].value] for pair in both], dtype=float)
        gaps = values[:, 1] - values[:, 0]
        error = float(gaps.std(ddof=1) / sqrt(len(gaps)))
        yield CeilingRow(kind, number, float(values[:, 0].mean()), float(gaps.mean()), error)


def ceiling_intervals(repetitions: int, labels: Sequence[int] = (20, 50)) -> Iterator[Row]:
    """The intervals of the ceiling and of that grader."""
    for kind, number, cells in product(KINDS, (2, 3, 5), labels):
        chance = np.random.default_rng([len(kind), number, cells])
        truth = _true_ceiling(kind, number)
        results = (_equals(kind, number, cells, chance) for _ in range(repetitions))
        yield from _rows(f"{cells} cells, {kind}, {number} raters", {"ceiling": truth, "grader": truth}, results)


@cache
def _true_ceiling(kind: Kind, number: int) -> float:
    value = _equals(kind, number, MANY // 4, np.random.default_rng(1), is_one_case=True)["ceiling"].value
    assert value is not None
    return value


def _equals(kind: Kind, number: int, cells: int, chance: Chance, *, is_one_case: bool = False) -> dict[str, Statistic]:
    """Raters and a grader that answers like one more of them. A single case has no interval, which is faster."""
    if kind == "bool":
        answers = (chance.random((cells, 1)) < 0.4) ^ (chance.random((cells, number + 1)) < 0.15)
    else:
        answers = _on_scale(chance.normal(size=(cells, 1)) + 0.7 * chance.normal(size=(cells, number + 1)))
    columns = answers.astype(float)
    cases = [str(0 if is_one_case else cell) for cell in range(cells)]
    ceiling, grader = against_other_raters(kind, columns[:, 1:].tolist(), columns[:, 0], cases)
    return {"ceiling": ceiling, "grader": grader}


def win_rates(repetitions: int, labels: Sequence[int] = (20, 50, 200)) -> Iterator[Row]:
    """The win rates of a pairwise judge, with several pairs of a case and with ties."""
    for cases, per_case, ties in product(labels, (1, 3, 6), (0.0, 0.5, 0.8)):
        chance = np.random.default_rng([cases, per_case, int(ties * 10)])
        rate = 0.6
        results = (_preferences(cases, per_case, ties, rate, chance) for _ in range(repetitions))
        design = f"{cases} cases, {per_case} pairs per case, ties {ties:g}"
        yield from _rows(design, {"win_rate": ties / 2 + (1 - ties) * rate}, results)


def _preferences(cases: int, per_case: int, ties: float, rate: float, chance: Chance) -> dict[str, Statistic]:
    rates = _beta(rate, ICC, cases, chance)
    wins = chance.random((cases, per_case)) < rates[:, None]
    answers = np.where(chance.random((cases, per_case)) < ties, "tie", np.where(wins, "b", "a"))
    fields: dict[str, Any] = {"a": "r@x", "b": "r@y", "judge": "j", "reason": None, "error": None}
    lines = (
        Preference.model_construct(
            test_id=f"c{case}", sample_index=sample, first=first, answer=str(answers[case, sample]), **fields
        )
        for case, sample, first in product(range(cases), range(per_case), ("a", "b"))
    )
    (finding,) = summarize_preferences(lines)
    interval = finding.interval
    assert interval is not None
    return {"win_rate": Statistic(value=finding.rate, low=interval.low, high=interval.high)}


def pairs(repetitions: int, labels: Sequence[int] = (20, 50, 200)) -> Iterator[Row]:
    """Kappa of a pairwise judge and people, over the answers a, b and tie."""
    for number, accuracy, shares in product(labels, (0.7, 0.9, 0.97), ((0.4, 0.4, 0.2), (0.15, 0.8, 0.05))):
        chance = np.random.default_rng([number, int(accuracy * 100), int(shares[0] * 100)])
        p = np.asarray(shares)
        q = accuracy * p + (1 - accuracy) / 3
        observed = 1 - accuracy - (1 - accuracy) / 3
        results = (_judged_pairs(number, accuracy, p, chance) for _ in range(repetitions))
        design = f"{number} pairs, judge {accuracy:g}, shares {shares}"
        yield from _rows(design, {"kappa_of_pairs": 1 - observed / (1 - float(p @ q))}, results)


def _judged_pairs(number: int, accuracy: float, shares: Floats, chance: Chance) -> dict[str, Statistic]:
    people = chance.choice(3, size=number, p=shares)
    judge = np.where(chance.random(number) < accuracy, people, chance.integers(0, 3, number))
    cases = list(range(number))
    return {"kappa_of_pairs": headline_measure("bool", people.astype(float), judge.astype(float), cases)}


SIMULATIONS: tuple[tuple[Callable[[int], Iterator[Row]], float], ...] = (
    (yes_no, 1.0),
    (scales, 0.2),
    (numbers, 0.2),
    (raters, 0.3),
    (win_rates, 0.3),
    (pairs, 1.0),
    (ceiling_intervals, 0.3),
)
"""Each with its share of the repetitions, which bounds its time."""


def main() -> None:
    """Prints the tables."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 250
    print(f"{'coverage':>8} {'error':>6} {'given':>6}")
    for simulation, share in SIMULATIONS:
        for row in simulation(max(2, int(repetitions * share))):
            print(f"{row.coverage:>8.3f} {row.error:>6.3f} {row.given:>6.2f} {row.measure}: {row.design}", flush=True)
    print("\na grader as good as one more rater, minus the ceiling")
    for ceiling in ceilings(repetitions):
        print(
            f"{ceiling.difference:>+8.4f} {ceiling.error:>6.4f} {ceiling.kind}, {ceiling.raters} raters,"
            f" ceiling {ceiling.ceiling:.3f}"
        )


if __name__ == "__main__":
    main()
