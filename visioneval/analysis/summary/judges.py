"""The judges of a run: consistency of votes, position bias, unusable answers, agreement of panels; and where graders,
votes, judges and rules disagree about a cell, so that people review the most disputed first. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visioneval.analysis.stats.basic import Statistic, ends, grouped
from visioneval.analysis.stats.intervals import case_sums, rate_interval
from visioneval.analysis.summary.counts import answers_of
from visioneval.analysis.summary.variance import votes_of
from visioneval.records.between_cells import Preference, read_preferences
from visioneval.records.model import GraderRecord, JudgeAnswer, Record, RunInfo
from visioneval.rules import parse_rule
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import PREFERENCES
from visioneval.suite.filters import chain_of
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Frozen, Metric

if TYPE_CHECKING:
    pass


class Disagreement(Frozen):
    """In ``judged`` cells, the judge has a verdict and all scores that rules read were measured.

    In ``disagreed`` of them, the rules contradict the judge.
    """

    judged: int
    disagreed: int


class Disagreements:
    """Counts disagreements by rubric key. Only rules over the metrics of the rubric count."""

    def __init__(self, suite: Suite) -> None:
        """Starts without cells."""
        self._disagreements_of = disagreement_finder(suite)
        self._counts: dict[str, Counter[bool]] = {key: Counter() for key in _rubrics(suite)}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for key, disagreed in self._disagreements_of(cell).items():
            self._counts[key][disagreed] += 1

    def result(self) -> dict[str, Disagreement]:
        """Returns the counts by rubric key."""
        return {
            key: Disagreement(judged=counts.total(), disagreed=counts[True]) for key, counts in self._counts.items()
        }


def disagreement_finder(suite: Suite) -> Callable[[Record], dict[str, bool]]:
    """Returns a function that maps the rubric keys of a cell to whether judge and rules disagree.

    A rubric is left out if the judge or the rules have no verdict, or the judge was not asked for what the rules are
    about.
    """
    rubrics = _rubrics(suite)
    rules = {case.id: case.verdict for case in suite.cases if case.verdict is not None}

    def disagreements_of(cell: Record) -> dict[str, bool]:
        deciding = {
            parse_rule(rule.rule).metric
            for rule in rules.get(cell.test_id, suite.verdict)
            if rule.level == "fail" and rule.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)
        }
        failed = {parse_rule(rule).metric for rule in cell.failed_rules}
        verdicts = {grader.key: grader.details.get("judge_verdict") for grader in reversed(cell.graders)}
        disagreements = {}
        for key, metrics in rubrics.items():
            asked = (failed | deciding) & metrics & cell.scores.keys()
            if verdicts.get(key) is not None and asked and all(cell.scores[name] is not None for name in asked):
                disagreements[key] = (verdicts[key] == "FAIL") is not bool(failed & asked)
        return disagreements

    return disagreements_of


def _rubrics(suite: Suite) -> dict[str, Set[str]]:
    """By rubric: its metrics, and those that are computed from them alone."""
    computed = SuiteMetrics(suite).grader_sources()
    rubrics: dict[str, Set[str]] = {}
    for grader in suite.graders:
        if asked := grader.label_questions.keys():
            rubrics[grader.key] = {*asked, *(name for name, read in computed.items() if read and asked >= set(read))}
    return rubrics


class ReviewPriority:
    """Computes the review priority of the cells of one run."""

    def __init__(self, suite: Suite, metrics: Mapping[str, Metric]) -> None:
        self._suite = suite
        self._metrics = metrics
        self._cases = {case.id: case for case in suite.cases}
        self._disagreements_of = disagreement_finder(suite)

    def weight(self, cell: Record) -> float:
        """Returns 0 (full agreement) to 3: up to 1 each for graders, votes, and a judge that contradicts the rules.

        Scores are scaled to 0 (worst) to 1 (best) by the range of their metric. Graders count by the distance between
        the lowest and the highest mean score of a grader, votes by the widest range of a metric.
        """
        means = list(self._grader_means(cell, self._cases.get(cell.test_id)))
        distance = max(means) - min(means) if means else 0.0
        return distance + self._vote_spread(cell) + any(self._disagreements_of(cell).values())

    def _grader_means(self, cell: Record, case: TestCase | None) -> Iterator[float]:
        if case is None:
            return
        for grader in self._suite.graders:
            scores = [self._scaled(name, cell.scores.get(name)) for name in grader.metrics(case)]
            measured = [value for value in scores if value is not None]
            if measured:
                yield sum(measured) / len(measured)

    def _vote_spread(self, cell: Record) -> float:
        votes: list[Any] = [details.get("votes") for grader in cell.graders for details in grader.all_details]
        votes += [
            {name: [answer.scores.get(name) for answer in grader.judges] for name in cell.scores}
            for grader in cell.graders
            if grader.judges
        ]
        widest = 0.0
        for by_metric in votes:
            for name, values in by_metric.items() if isinstance(by_metric, dict) else ():
                scores = values if isinstance(values, (list, tuple)) else ()
                if len({score for score in scores if isinstance(score, str)}) > 1:
                    widest = 1.0
                scaled = [value for score in scores if (value := self._scaled(name, score)) is not None]
                if scaled:
                    widest = max(widest, max(scaled) - min(scaled))
        return widest

    def _scaled(self, name: str, score: Any) -> float | None:
        """Scales a score to 0 (worst) to 1 (best). ``None`` without a score, a finite range or a direction."""
        metric = self._metrics.get(name)
        if metric is None or metric.better == "none" or not isinstance(score, (bool, int, float)):
            return None
        if isinstance(score, bool):
            scaled = float(score)
        elif metric.range is None or metric.range[1] is None or metric.range[1] <= metric.range[0]:
            return None
        else:
            low, high = metric.range[0], metric.range[1]
            scaled = min(1.0, max(0.0, (score - low) / (high - low)))
        return scaled if metric.better == "higher" else 1 - scaled


ALL_EQUAL = "undefined: one value"
_Votes = tuple[float | str, ...]
REPAIRED = "repaired"
_OMITS_READ = ("rubric", "alignment", "text")
"""Types of graders whose details contain ``read`` only if an answer was not JSON alone."""


class VoteAgreement(Frozen):
    """How far a judge's votes about one metric agree with each other.

    ``items`` are the cells with two votes or more, and ``same`` is the share of them in which all votes are equal.
    ``alpha`` is Krippendorff's alpha over them, nominal for yes or no and for words, interval for numbers. It is at
    most 1, and 0 is chance. ``note`` explains a missing one.
    """

    metric: str
    items: int
    same: float | None = None
    alpha: float | None = None
    note: str | None = None


class JudgeCard(Frozen):
    """The judge of one grader in one run."""

    grader: str
    """The grader's key."""
    judge: str
    """The judge."""
    cells: int
    """The cells that it was asked about."""
    cached: int
    """Those of them whose answers all came from the cache."""
    unanswered: int
    """Those without a score."""
    refused: int | None
    """Those with a question that it refused; ``null`` if the records do not contain it."""
    repaired: int | None
    """Those with an answer whose JSON was repaired; ``null`` if the records do not contain it."""
    votes: tuple[VoteAgreement, ...]
    """How far its votes about a cell agree, by metric: the share of equal ones, and alpha."""
    disagreement: Disagreement | None
    """In how many cells its own verdict contradicts the rules, printed as `against rules`."""


class PairCard(Frozen):
    """A judge of pairs of outputs."""

    judge: str
    """The judge, ``provider:model``."""
    answers: int
    """Its answers, without ties."""
    ties: int
    """Its ties."""
    cases: int
    """The cases of its answers."""
    first_shown: float | None
    """The share of answers for the output that was shown first: 0.50 is fair."""
    low: float | None
    """The lower end of its 95 % interval over cases."""
    high: float | None
    """The upper end."""
    unanswered: int
    """Questions without an answer."""
    refused: int
    """Questions that it refused."""
    repaired: int
    """Answers whose JSON was repaired."""


class JudgeCards:
    """Collects what the records of a run contain about its judges."""

    def __init__(self, info: RunInfo) -> None:
        """Starts without cells."""
        suite = info.selected_suite
        self._judges: dict[tuple[str, str], str] = {}
        self._names = {grader.key: grader.judge_names for grader in suite.graders if grader.kind.grades_cells}
        for key, names in self._names.items():
            for name in names:
                judge = suite.judges.get(name)
                self._judges[key, name] = name if judge is None else judge.title
        self._counts: dict[tuple[str, str], Counter[str]] = {key: Counter() for key in self._judges}
        self._votes: dict[tuple[str, str], dict[str, Counter[_Votes]]] = {key: {} for key in self._judges}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for grader in cell.graders:
            for name, answer in answers_of(grader, self._names.get(grader.key, ())):
                self._count((grader.key, name), grader.type, answer)

    def _count(self, key: tuple[str, str], grader_type: str, answer: GraderRecord | JudgeAnswer) -> None:
        if key not in self._judges or answer.never_asked:
            return
        counts, read = self._counts[key], answer.details.get("read")
        counts["cells"] += 1
        counts["cached"] += answer.cached
        counts["unanswered"] += answer.is_unmeasured
        if answer.refused is not None:
            counts["refusals known"] += 1
            counts["refused"] += answer.refused > 0
        if isinstance(read, list) or grader_type in _OMITS_READ:
            counts["reading known"] += 1
            counts[REPAIRED] += isinstance(read, list) and REPAIRED in read
        for name, values in votes_of(answer).items():
            if len(values) > 1:
                in_order = sorted(values, key=lambda vote: (isinstance(vote, str), vote))
                self._votes[key].setdefault(name, Counter())[tuple(in_order)] += 1

    def result(self, disagreements: Mapping[str, Disagreement]) -> tuple[JudgeCard, ...]:
        """One card for each grader that asked a judge, in suite order."""
        return tuple(self._card(key, disagreements.get(key[0])) for key in self._judges if self._counts[key]["cells"])

    def _card(self, key: tuple[str, str], disagreement: Disagreement | None) -> JudgeCard:
        counts = self._counts[key]
        return JudgeCard(
            grader=key[0],
            judge=self._judges[key],
            cells=counts["cells"],
            cached=counts["cached"],
            unanswered=counts["unanswered"],
            refused=counts["refused"] if counts["refusals known"] else None,
            repaired=counts[REPAIRED] if counts["reading known"] else None,
            votes=tuple(_vote_agreement(name, votes) for name, votes in sorted(self._votes[key].items())),
            disagreement=disagreement if disagreement is not None and disagreement.judged else None,
        )


def _vote_agreement(name: str, votes: Counter[_Votes]) -> VoteAgreement:
    """``votes`` counts the cells by their sorted votes."""
    items, alpha = votes.total(), nan
    same = sum(times for pattern, times in votes.items() if pattern[0] == pattern[-1]) / items
    kinds = dict.fromkeys(value for pattern in sorted(votes, key=str) for value in pattern)
    if len(kinds) > 1:
        # loads NumPy, which commands that only list or show runs do without
        import numpy as np

        from visioneval.analysis.stats.agreement import interval_alpha, krippendorff_alpha

        if any(isinstance(value, str) for value in kinds):
            counts = [[pattern.count(value) for value in kinds] for pattern in votes.elements()]
            alpha = krippendorff_alpha(counts, range(len(kinds)), "nominal")
        else:
            numbers: list[tuple[float, ...]] = sorted(votes.elements())  # type: ignore[arg-type]
            moments = [(len(pattern), sum(pattern), sum(vote * vote for vote in pattern)) for pattern in numbers]
            alpha = interval_alpha(*np.array(moments).T)
    if isnan(alpha):
        return VoteAgreement(metric=name, items=items, same=same, note=ALL_EQUAL)
    return VoteAgreement(metric=name, items=items, same=same, alpha=alpha)


def pair_cards(preferences: Iterable[Preference]) -> tuple[PairCard, ...]:
    """One card for each judge of pairs, by name."""
    by_judge, cards = grouped((line.judge, line) for line in preferences), []
    for judge, lines in sorted(by_judge.items()):
        decided = ((line.test_id, float(line.answer == line.first)) for line in lines if line.answer in ("a", "b"))
        sums = case_sums(grouped(decided))
        answers, (low, high) = sum(number for _, number in sums), ends(rate_interval(sums))
        card = PairCard(
            judge=judge,
            answers=answers,
            ties=sum(line.answer == "tie" for line in lines),
            cases=len(sums),
            first_shown=sum(total for total, _ in sums) / answers if answers else None,
            low=low,
            high=high,
            unanswered=sum(line.answer is None and not line.never_asked for line in lines),
            refused=sum(line.refused for line in lines),
            repaired=sum(line.read == REPAIRED for line in lines),
        )
        cards.append(card)
    return tuple(cards)


def read_pair_cards(folder: Path) -> tuple[PairCard, ...]:
    """The cards of the judges that compared outputs of a run; empty if none did. Raises ``RunFormatError``."""
    return pair_cards(read_preferences(folder)) if (folder / PREFERENCES).is_file() else ()


class PanelMetric(Frozen):
    """Agreement on one metric over the cells in which two or more judges measured it.

    ``alpha`` is Krippendorff's alpha, nominal for yes or no and for words, interval for numbers, with a 95 % interval
    over the cases. ``split`` counts the cells that have no score because the judges are split: no yes, no or word
    is the answer of more than half of them.
    """

    alpha: Statistic
    split: int


class PanelFinding(Frozen):
    """The panel of one grader. ``unanswered`` counts the cells in which a judge that was asked left out a metric."""

    judges: tuple[str, ...]
    cells: int
    metrics: dict[str, PanelMetric]
    unanswered: dict[str, int]


class Panels:
    """Collects the answers of every panel, by grader key."""

    def __init__(self, info: RunInfo) -> None:
        """Starts without cells."""
        self._panels = {grader.key: _PanelAnswers() for grader in info.suite.graders}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for grader in cell.graders:
            if grader.judges and grader.key in self._panels:
                self._panels[grader.key].add(cell, grader)

    def result(self) -> dict[str, PanelFinding]:
        """Returns the findings by grader key, in suite order."""
        return {key: panel.result() for key, panel in self._panels.items() if panel.cells}


@dataclass(slots=True)
class _PanelAnswers:
    """The answers of one panel: of each metric and cell the case, and the number, sum and squares of the scores."""

    cells: int = 0
    rows: dict[str, array[float]] = field(default_factory=dict)
    words: dict[str, list[tuple[int, Counter[str]]]] = field(default_factory=dict)
    """Of each metric of words and each cell: the case, and how many judges chose each word."""
    split: Counter[str] = field(default_factory=Counter)
    unanswered: dict[str, int] = field(default_factory=dict)
    """By judge, 0 included."""
    cases: dict[str, int] = field(default_factory=dict)

    def add(self, cell: Record, grader: GraderRecord) -> None:
        self.cells += 1
        case = self.cases.setdefault(chain_of(cell.test_id), len(self.cases))
        for answer in grader.judges:
            is_missing = not (answer.is_complete or answer.never_asked)
            self.unanswered[answer.judge] = self.unanswered.get(answer.judge, 0) + is_missing
        for name in dict.fromkeys(name for answer in grader.judges for name in answer.scores):
            measured = [score for answer in grader.judges if (score := answer.scores.get(name)) is not None]
            words = Counter(score for score in measured if isinstance(score, str))
            values = [float(score) for score in measured if not isinstance(score, str)]
            if words:
                self.words.setdefault(name, []).append((case, words))
            else:
                moments = case, len(values), sum(values), sum(value * value for value in values)
                self.rows.setdefault(name, array("d")).extend(moments)
            is_answer = all(isinstance(score, (bool, str)) for score in measured)
            has_no_majority = bool(measured) and max(Counter(measured).values()) * 2 <= len(measured)
            self.split[name] += is_answer and has_no_majority and cell.scores.get(name) is None

    def result(self) -> PanelFinding:
        numbers = {name: _alpha(rows) for name, rows in self.rows.items() if name not in self.words}
        alphas = numbers | {name: _word_alpha(rows) for name, rows in self.words.items()}
        return PanelFinding(
            judges=tuple(self.unanswered),
            cells=self.cells,
            metrics={name: PanelMetric(alpha=alpha, split=self.split[name]) for name, alpha in alphas.items()},
            unanswered={judge: number for judge, number in self.unanswered.items() if number},
        )


def _alpha(rows: array[float]) -> Statistic:
    # loads NumPy, which runs without a panel do without
    import numpy as np

    from visioneval.analysis.stats.agreement import interval_alpha, row_measure

    cases, *moments = np.array(rows).reshape(-1, 4).T
    shared = moments[0] >= 2
    if not shared.any():
        return Statistic(note="no cell has answers of two judges")
    sizes, sums, squares = columns = np.array(moments)[:, shared]
    # cells in which a judge gave another score than the one that most cells have from all judges
    is_unanimous, means = np.isclose(squares * sizes, sums * sums), np.round(sums / sizes, 9)
    values, times = np.unique(means[is_unanimous], return_counts=True)
    is_other = ~is_unanimous | (means != values[times.argmax()]) if len(values) else np.ones(len(sizes), dtype=bool)
    undefined = "all answers are the same: alpha is undefined"
    return row_measure(
        lambda chosen: interval_alpha(*columns[:, chosen]), is_other, cases[shared].tolist(), undefined=undefined
    )


def _word_alpha(rows: Sequence[tuple[int, Counter[str]]]) -> Statistic:
    """The nominal alpha of the words that judges chose."""
    import numpy as np

    from visioneval.analysis.stats.agreement import krippendorff_alpha, row_measure

    shared = [(case, words) for case, words in rows if words.total() >= 2]
    if not shared:
        return Statistic(note="no cell has answers of two judges")
    choices = sorted({word for _, words in shared for word in words})
    counts = np.array([[words[choice] for choice in choices] for _, words in shared])
    most_common = counts.sum(axis=0).argmax()
    return row_measure(
        lambda chosen: krippendorff_alpha(counts[chosen], range(len(choices)), "nominal"),
        np.asarray(counts[:, most_common] < counts.sum(axis=1)),
        [case for case, _ in shared],
        undefined="all answers are the same: alpha is undefined",
    )
