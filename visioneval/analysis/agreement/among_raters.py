"""People among themselves, question by question: how far a grader can agree with them at all. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.agreement.answers import Answers, Facet, Unit
from visioneval.analysis.stats.chance import Level, cohen_kappa, fleiss_kappa, krippendorff_alpha, quadratic_kappa
from visioneval.analysis.stats.interval import Floats, Measure, with_interval
from visioneval.types import Frozen

SHOWN = 10
MOST_MEETINGS = 500_000
"""Of two raters on an item: more of them are a crowd, of which nobody wants to know each pair."""
_SAME = "every answer is the same: nothing can be told"
_CROWD = "too many raters to hold each against each: alpha speaks of them all"
_ALONE = "no item has answers of two raters"


class PairOfRaters(Frozen):
    """Cohen's kappa of two raters over the ``n`` items that both saw; quadratic-weighted for a scale."""

    raters: tuple[str, str]
    n: int
    kappa: float | None


class Torn(Frozen):
    """An item on which raters are apart. ``answers`` counts each answer, in words."""

    run_id: str
    test_id: str
    model_label: str
    sample_index: int
    other: str | None
    answers: dict[str, int]


class PeopleAgreement(Frozen):
    """How far raters agree on one question, or on one tag of it.

    ``alpha`` is Krippendorff's, by level of measurement: nominal, or ordinal and interval for a scale. ``fleiss`` is
    over the items that have ``fleiss_raters`` answers, the number that most items have. ``cohen_mean`` is the mean of
    ``cohen`` over its pairs of raters, each counting by the items it shares; of a crowd there are none.
    """

    question: str
    tag: str | None
    type: str
    raters: int
    items: int
    shared: int
    alpha: dict[Level, Measure]
    fleiss: Measure
    fleiss_raters: int | None
    cohen: tuple[PairOfRaters, ...]
    cohen_mean: Measure
    torn: tuple[Torn, ...]


def among_people(answers: Answers) -> tuple[PeopleAgreement, ...]:
    """One finding for each question that anybody answered, in the suite's order."""
    return tuple(_among(facet) for facet in answers.all_facets if facet.answers)


def _among(facet: Facet) -> PeopleAgreement:
    shared = {unit: own for unit, own in facet.answers.items() if len(own) > 1}
    counts, values = _counts(list(shared.values()))
    cases = [unit[1] for unit in shared]
    levels: tuple[Level, ...] = ("ordinal", "interval") if facet.ordered else ("nominal",)
    fleiss, size = _fleiss(counts, cases)
    crowd = sum(len(own) * (len(own) - 1) // 2 for own in shared.values()) > MOST_MEETINGS
    pairs = () if crowd else _cohen(facet, shared)
    return PeopleAgreement(
        question=facet.key,
        tag=facet.tag,
        type=facet.type,
        raters=len({rater for own in facet.answers.values() for rater in own}),
        items=len(facet.answers),
        shared=len(shared),
        alpha={level: _alpha(counts, values, level, cases) for level in levels},
        fleiss=fleiss,
        fleiss_raters=size,
        cohen=pairs,
        cohen_mean=Measure(note=_CROWD) if crowd else _mean_of(pairs),
        torn=_torn(facet, shared),
    )


def _counts(said: list[dict[str, float]]) -> tuple[NDArray[np.int64], Floats]:
    """How often each item was given each value, shape ``(items, values)``, and the values, ascending."""
    values, codes = np.unique([code for own in said for code in own.values()], return_inverse=True)
    counts = np.zeros((len(said), len(values)), dtype=np.int64)
    rows = np.repeat(np.arange(len(said)), [len(own) for own in said])
    np.add.at(counts, (rows, codes), 1)
    return counts, np.asarray(values, dtype=float)


def _alpha(counts: NDArray[np.int64], values: Floats, level: Level, cases: list[str]) -> Measure:
    if not len(counts):
        return Measure(note=_ALONE)
    value = krippendorff_alpha(counts, values, level)
    if np.isnan(value):
        return Measure(n=len(counts), note=_SAME)
    return with_interval(value, len(counts), lambda rows: krippendorff_alpha(counts[rows], values, level), cases)


def _fleiss(counts: NDArray[np.int64], cases: list[str]) -> tuple[Measure, int | None]:
    """Over the items with as many answers as most have: it knows no missing ones."""
    if not len(counts):
        return Measure(note=_ALONE), None
    sizes = counts.sum(axis=1)
    size = max(Counter(sizes.tolist()).items(), key=lambda found: (found[1], found[0]))[0]
    rows = np.flatnonzero(sizes == size)
    own, own_cases = counts[rows], [cases[row] for row in rows]
    value = fleiss_kappa(own)
    if np.isnan(value):
        return Measure(n=len(own), note=_SAME), int(size)
    return with_interval(value, len(own), lambda generated: fleiss_kappa(own[generated]), own_cases), int(size)


def _cohen(facet: Facet, shared: dict[Unit, dict[str, float]]) -> tuple[PairOfRaters, ...]:
    """Every pair of raters that shares two items or more, those that share most first."""
    columns: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for own in shared.values():
        for one, two in combinations(sorted(own), 2):
            columns.setdefault((one, two), []).append((own[one], own[two]))
    statistic = quadratic_kappa if facet.ordered else cohen_kappa
    found = []
    for raters, both in columns.items():
        if len(both) > 1:
            first, second = zip(*both, strict=True)
            kappa = statistic(first, second)
            found.append(PairOfRaters(raters=raters, n=len(both), kappa=None if np.isnan(kappa) else kappa))
    return tuple(sorted(found, key=lambda pair: (-pair.n, pair.raters)))


def _mean_of(pairs: tuple[PairOfRaters, ...]) -> Measure:
    known = [(pair.kappa, pair.n) for pair in pairs if pair.kappa is not None]
    if not known:
        return Measure(note="no two raters share items on which they vary")
    total = sum(n for _, n in known)
    return Measure(value=sum(kappa * n for kappa, n in known) / total, n=len(known))


def _torn(facet: Facet, shared: dict[Unit, dict[str, float]]) -> tuple[Torn, ...]:
    """The items on which answers lie furthest apart: by spread on a scale, else by how few share the commonest."""

    def apart(own: dict[str, float]) -> float:
        said = list(own.values())
        return float(np.var(said)) if facet.ordered else 1 - max(Counter(said).values()) / len(said)

    worst = sorted(((apart(own), unit) for unit, own in shared.items()), key=lambda found: -found[0])[:SHOWN]
    return tuple(_as_torn(facet, unit, shared[unit]) for spread, unit in worst if spread > 0)


def _as_torn(facet: Facet, unit: Unit, own: dict[str, float]) -> Torn:
    run, test_id, label, sample, other = unit
    answers = {facet.shown(code): times for code, times in sorted(Counter(own.values()).items())}
    return Torn(run_id=run, test_id=test_id, model_label=label, sample_index=sample, other=other, answers=answers)
