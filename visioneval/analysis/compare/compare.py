"""Two runs side by side: what broke, what was fixed, and what the numbers say. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum

from visioneval.analysis.cells import Cell, Side
from visioneval.analysis.compare.comparability import Unlike, unlike_metrics
from visioneval.analysis.compare.differences import Difference, adjusted, metric_difference, pass_rate_difference
from visioneval.analysis.compare.pairing import CHANGES, CellPair, Change, pair_cells, parse_map
from visioneval.errors import UsageError
from visioneval.suite.filters import any_glob
from visioneval.suite.loading.messages import did_you_mean
from visioneval.types import Metric

GECKO = "gecko"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What of two runs is compared: globs of metrics and cases, and tags; everything where empty."""

    metrics: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum in USD, or a mean in seconds, over the pairs of which both sides know it."""

    a: float | None
    b: float | None
    pairs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings of a comparison.

    ``pairs`` come in the order of B. The numbers leave the pairs of flaky cases out.
    ``by_run`` holds pass rates by model run (by its label in B; empty for one alone), ``by_tag`` those by tag,
    ``by_type`` the metrics ``<gecko key>.<type>``; none of these is part of Holm's adjustment, which covers the pass
    rate and ``metrics``. ``labels`` pairs the model runs.
    """

    a: Side
    b: Side
    labels: tuple[tuple[str, str], ...]
    pairs: tuple[CellPair, ...]
    only_a: tuple[Cell, ...]
    only_b: tuple[Cell, ...]
    pass_rate: Difference
    metrics: tuple[Difference, ...]
    by_run: tuple[Difference, ...]
    by_tag: tuple[Difference, ...]
    by_type: tuple[Difference, ...]
    unlike: tuple[Unlike, ...]
    cost_usd: Amount
    seconds: Amount
    counts: Mapping[Change, int] = field(default_factory=dict)

    def changed(self, *changes: Change) -> tuple[CellPair, ...]:
        """The pairs that changed so; ``must_pass`` cases first, flaky ones last."""
        own = (pair for pair in self.pairs if pair.change in changes)
        return tuple(sorted(own, key=lambda pair: (pair.flaky, not pair.must_pass)))

    @property
    def steady(self) -> tuple[CellPair, ...]:
        """The pairs whose case is not flaky: what can fail a comparison."""
        return tuple(pair for pair in self.pairs if not pair.flaky)

    @property
    def other_source(self) -> bool:
        """Whether the runs came from suites of different text."""
        return None not in (self.a.source_sha256, self.b.source_sha256) and (
            self.a.source_sha256 != self.b.source_sha256
        )


def compare(a: Side, b: Side, chosen: Chosen | None = None, renamed: Sequence[str] = ()) -> Comparison:
    """Compares run B with run A; ``renamed`` holds ``OLD=NEW`` words: a label of A, and what it is in B.

    Raises ``UsageError`` where nothing is left to compare, or where a metric, case, tag or label is not there.
    """
    for side in (a, b):
        if not side.cells:
            raise UsageError(f"{side.name}: there is nothing to compare: the run is empty")
    wanted = chosen or Chosen()
    known = _metrics(a, b)
    _check(wanted, known, a, b)
    labels = parse_map(renamed, a, b)
    a, b = (replace(side, cells=_chosen_cells(side.cells, wanted)) for side in (a, b))
    pairing = pair_cells(a, b, labels)
    steady = [pair for pair in pairing.pairs if not pair.flaky]
    names = [name for name in known if not wanted.metrics or any_glob(wanted.metrics, name)]
    differences = _differences(names, known, steady)
    types = _gecko_types(names, pairing.pairs)
    pass_rate, *whole = adjusted([pass_rate_difference(steady), *(d for d in differences if d.name not in types)])
    return Comparison(
        a=a,
        b=b,
        labels=pairing.labels,
        pairs=pairing.pairs,
        only_a=pairing.only_a,
        only_b=pairing.only_b,
        pass_rate=pass_rate,
        metrics=tuple(whole),
        by_run=_by(steady, lambda pair: (pair.b.model_label,)) if len(pairing.labels) > 1 else (),
        by_tag=_by(steady, lambda pair: pair.tags),
        by_type=tuple(one for one in differences if one.name in types),
        unlike=unlike_metrics([one.name for one in differences], pairing.pairs, a, b),
        cost_usd=_amount([(p.a.total_cost_usd, p.b.total_cost_usd) for p in pairing.pairs], mean=False),
        seconds=_amount([(p.a.seconds, p.b.seconds) for p in pairing.pairs], mean=True),
        counts=_counts(pairing.pairs),
    )


def _metrics(a: Side, b: Side) -> dict[str, Metric]:
    """Every metric of either run, as B tells it; a direction that one side does not know is the other's."""
    found = dict(b.metrics)
    for name, metric in a.metrics.items():
        if name not in found or found[name].better == "none":
            found[name] = metric
    return found


def _check(chosen: Chosen, metrics: Mapping[str, Metric], a: Side, b: Side) -> None:
    cells = (*a.cells, *b.cells)
    for flag, words, known in (
        ("--metric", chosen.metrics, set(metrics)),
        ("--case", chosen.cases, {cell.test_id for cell in cells}),
        ("--tag", chosen.tags, {tag for cell in cells for tag in cell.tags}),
    ):
        for word in words:
            if not any(any_glob((word,), name) for name in known):
                raise UsageError(f"{flag} {word!r}: there is none in either run{did_you_mean(word, known)}")


def _chosen_cells(cells: Iterable[Cell], chosen: Chosen) -> tuple[Cell, ...]:
    return tuple(
        cell
        for cell in cells
        if (not chosen.cases or any_glob(chosen.cases, cell.test_id))
        and (not chosen.tags or not set(chosen.tags).isdisjoint(cell.tags))
    )


def _differences(names: Iterable[str], metrics: Mapping[str, Metric], pairs: Sequence[CellPair]) -> list[Difference]:
    found = (metric_difference(name, metrics[name], pairs) for name in names)
    return [one for one in found if one.n_pairs or one.unmeasured]


def _gecko_types(names: Iterable[str], pairs: Iterable[CellPair]) -> set[str]:
    keys = {mark.key for pair in pairs for mark in (*pair.a.graders, *pair.b.graders) if mark.type == GECKO}
    return {name for name in names for key in keys if name.startswith(f"{key}.")}


def _by(pairs: Sequence[CellPair], names_of: Callable[[CellPair], Iterable[str]]) -> tuple[Difference, ...]:
    """The pass rates of the pairs of each name."""
    named: dict[str, list[CellPair]] = {}
    for pair in pairs:
        for name in names_of(pair):
            named.setdefault(name, []).append(pair)
    return tuple(pass_rate_difference(own, name) for name, own in named.items())


def _amount(known: Iterable[tuple[float | None, float | None]], *, mean: bool) -> Amount:
    both = [(a, b) for a, b in known if a is not None and b is not None]
    if not both:
        return Amount(None, None, 0)
    share = len(both) if mean else 1
    return Amount(fsum(a for a, _ in both) / share, fsum(b for _, b in both) / share, len(both))


def _counts(pairs: Iterable[CellPair]) -> dict[Change, int]:
    found = Counter(pair.change for pair in pairs)
    return {change: found[change] for change in CHANGES}
