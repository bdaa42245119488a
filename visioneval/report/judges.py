"""What is known about the judges of runs, and the questions that they generate, as a file of pinned questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from visioneval.analysis.agreement.judges import AnchorMatch, RunJudges
from visioneval.analysis.summary.judges import JudgeCard, PairCard
from visioneval.analysis.summary.same_question import ContradictedCell, SameQuestion
from visioneval.analysis.summary.summary import Summary
from visioneval.records.questions import PromptQuestions
from visioneval.report.sections import Cell, Column, Section, quoted, shown_columns, texts
from visioneval.report.text import cut_middle, one_line, with_interval
from visioneval.rules import show_score
from visioneval.suite.questions import YES_NO
from visioneval.types import Score

_NAMES = ("run", "grader", "judge", "metric")
"""Columns with text of a suite; the others are numbers."""
_MAX_WHY = 120
HEAD = """\
# Questions of a gecko grader, by prompt. Review and edit them, then pin them: set 'questions: FILE' on the grader.
# For a prompt that is not in this file, the judge generates questions.
"""


def judge_sections(summary: Summary) -> list[Section]:
    """The tables of one run, without empty ones."""
    return _sections([("", summary.judges, summary.pair_judges)])


def judge_sections_of_runs(judges: Sequence[RunJudges]) -> list[Section]:
    """The tables of several runs, a row for each, oldest first, with the anchors of each run."""
    is_single = len(judges) == 1
    sections = _sections([("" if is_single else run.run_id, run.cards, run.pairs) for run in judges])
    if any(run.anchors for run in judges):
        rows = [
            (run.run_id, *cells)
            for run in judges
            for cells in ([_anchor_row(match) for match in run.anchors] or [("", "no anchors", "", "", "")])
        ]
        columns = ("metric", "same as anchor [95%]", "anchors", "difference", "distance")
        sections.append(_section("Judges against anchors, by run: a falling share is drift", columns, rows))
    return sections


def _sections(runs: Sequence[tuple[str, Sequence[JudgeCard], Sequence[PairCard]]]) -> list[Section]:
    """The tables that are not empty, with a row or more for each run."""
    cards: list[tuple[str, ...]] = []
    votes: list[tuple[str, ...]] = []
    pairs: list[tuple[str, ...]] = []
    for run, cards_of_run, pairs_of_run in runs:
        for card in cards_of_run:
            counts = [_share(number, card.cells) for number in (card.unanswered, card.refused, card.repaired)]
            disagreement = card.disagreement
            against = "no verdict" if disagreement is None else f"{disagreement.disagreed} of {disagreement.judged}"
            cards.append((run, card.grader, card.judge, f"{card.cells:,}", *counts, against))
            for vote in card.votes:
                alpha = vote.note or "-" if vote.alpha is None else f"{vote.alpha:.3f}"
                same = "-" if vote.same is None else f"{vote.same:.0%}"
                votes.append((run, card.grader, vote.metric, alpha, f"{vote.items:,}", same))
            votes += [] if card.votes else [(run, card.grader, "", "no votes", "", "")]
        for pair in pairs_of_run:
            asked = pair.answers + pair.ties + pair.unanswered
            counts = [_share(number, asked) for number in (pair.unanswered, pair.refused, pair.repaired)]
            first_shown = with_interval(pair.first_shown, pair.low, pair.high, missing="no answers")
            pairs.append((run, pair.judge, first_shown, f"{pair.answers:,}", f"{pair.ties:,}", *counts))
    has_votes = any(card.votes for _, cards_of_run, _ in runs for card in cards_of_run)
    counted = ("unanswered", "refused", "repaired")
    about_votes = "Votes of a judge about the same cell (Krippendorff's alpha: 1 is consistent, 0 is chance)"
    about_pairs = "Pairs: share of answers that preferred the output shown first (0.50 is fair)"
    parts = (
        _section("Judges", ("grader", "judge", "cells", *counted, "against rules"), cards),
        _section(about_votes, ("grader", "metric", "alpha", "cells", "all votes equal"), votes if has_votes else []),
        _section(about_pairs, ("judge", "first shown [95%]", "answers", "ties", *counted), pairs),
    )
    return [part for part in parts if part.rows]


def _section(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Section:
    """A table. Its rows begin with the run, which has a column unless it is empty in all rows."""
    names = ("run", *names)
    columns = [Column(name, min_width=10) if name in _NAMES else Column(name, is_number=True) for name in names]
    cells = [[quoted(cell) if name in _NAMES else cell for name, cell in zip(names, row, strict=True)] for row in rows]
    return Section(title, *shown_columns(columns, cells, {"run": any(row[0] for row in rows)}), name="judges")


CONTRADICTION = (*texts("passes", "fails"), Column("why it fails", min_width=20))
"""The columns of ``contradiction``."""


def contradiction(pair: SameQuestion, cell: ContradictedCell) -> list[Cell]:
    """Which of judge and measure passes a cell, which fails it, and why."""
    passing, failing = f"{pair.judge}{_value(cell.judge)}", f"{pair.measure}{_value(cell.measure)}"
    if not cell.judge_passes:
        passing, failing = failing, passing
    return [quoted(passing), quoted(failing), quoted(cut_middle(cell.why, _MAX_WHY))]


def _value(score: Score) -> str:
    """A score that is no yes or no."""
    return "" if score is None or isinstance(score, bool) else f": {show_score(score)}"


def _anchor_row(match: AnchorMatch) -> tuple[str, ...]:
    same = with_interval(match.same, match.low, match.high, missing="not measured")
    missing = f" !{match.unmeasured}" if match.unmeasured else ""
    difference = "" if match.higher is None else f"{match.higher:+.2f}"
    distance = "" if match.distance is None else f"{match.distance:.2f}"
    return match.metric, same, f"{match.n:,}{missing}", difference, distance


def _share(number: int | None, total: int) -> str:
    """A number of cells or answers, with its share; ``None`` in records that do not contain it."""
    if number is None:
        return "not recorded"
    return f"{number:,} ({number / total:.0%})" if number else "0"


def pinned_yaml(entries: Iterable[tuple[str, Sequence[str], PromptQuestions]]) -> str:
    """``(prompt, case ids, questions)`` as YAML. A set that the suite pins for one case is keyed by case."""
    return "\n".join([HEAD, *(_pinned_entry(*entry) for entry in entries)])


def _pinned_entry(prompt: str, cases: Sequence[str], entry: PromptQuestions) -> str:
    by_case = entry.source == "pinned" and len(cases) == 1
    notes = [f"prompt: {one_line(prompt)}" if by_case and prompt else f"cases: {', '.join(cases)}"]
    if entry.coverage is not None:
        notes.append(f"{entry.coverage:.0%} of the prompt's items have a question")
    notes += [f"dropped: {one_line(dropped.question)} ({one_line(dropped.reason)})" for dropped in entry.dropped]
    key = {"case": cases[0]} if by_case else {"prompt": prompt}
    data = [
        question.model_dump(mode="json", exclude={"choices"} if question.choices == YES_NO else None)
        for question in entry.questions
    ]
    questions = [{name: value for name, value in fields.items() if value not in ("", [])} for fields in data]
    body = yaml.safe_dump([{**key, "questions": questions}], allow_unicode=True, sort_keys=False, width=110)
    return "".join(f"# {note}\n" for note in notes) + body
