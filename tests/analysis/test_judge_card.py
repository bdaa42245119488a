"""The card of a judge: votes, unusable answers, position bias, rules and anchors, from records of any age."""

from __future__ import annotations

import json
from typing import Any

import pytest
from labeled_runs import CLEAR, USABLE, label, labeled
from preference_factory import pair, preference
from record_factory import info, record
from toys import Toy

from visioneval import GraderRecord, Record
from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.stats.intervals import rate_interval
from visioneval.analysis.summary.judges import ALL_EQUAL, Disagreement, JudgeCard, JudgeCards, pair_cards
from visioneval.analysis.summary.summary import summarize
from visioneval.report.judges import judge_sections, judge_sections_of_runs
from visioneval.report.sections import Value
from visioneval.suite.model import Suite

SCORE = {"type": "score", "scale": [0, 5], "description": "order"}
YES = {"type": "pass_fail", "description": "usable"}
FINGERPRINT = {"config_sha256": "0" * 64}


def judged(**changes: Any) -> Record:
    grader = {"key": "look", "type": "rubric", "fingerprint": FINGERPRINT, **changes}
    return record(graders=(GraderRecord.model_validate(grader),))


def cards(*records: Record, kind: str = "rubric", disagreement: Disagreement | None = None) -> tuple[JudgeCard, ...]:
    grader: dict[str, Any] = {"key": "look", "type": kind}
    if kind == "rubric":
        grader |= {"metrics": {"layout": SCORE, "good": YES}, "votes": 3}
    suite = Suite.model_validate(
        {
            "name": "demo",
            "judges": {"default": {"provider": "recorded", "path": "answers.csv"}},
            "cases": [{"id": "one", "prompt": "a tree"}],
            "models": [{"provider": "mock"}],
            "graders": [grader, {"key": "image", "type": "properties"}],
            "verdict": ["image"],
        }
    )
    metrics: Any = {"layout": {"type": "number"}, "good": {"type": "bool"}}
    collected = JudgeCards(info(suite=suite, metrics=metrics))
    for entry in records:
        collected.add(entry)
    return collected.result({} if disagreement is None else {"look": disagreement})


def shown(*judges: JudgeCard, pairs: Any = ()) -> dict[str, list[list[str]]]:
    """The rows of each table in a report of one run, by the first word of its title."""
    summary = summarize(info(), []).model_copy(update={"judges": judges, "pair_judges": pairs})
    return {
        section.title.split()[0].strip(":"): [
            [cell.text if isinstance(cell, Value) else cell for cell in row] for row in section.rows
        ]
        for section in judge_sections(summary)
    }


def alpha_by_pairs(items: list[list[float]], *, is_nominal: bool) -> float:
    """One minus the disagreement of pairs within items by that of all pairs of the same values."""

    def disagreement(values: list[float]) -> float:
        return sum(float(a != b) if is_nominal else (a - b) ** 2 for a in values for b in values)

    shared = [item for item in items if len(item) > 1]
    values = [value for item in shared for value in item]
    observed = sum(disagreement(item) / (len(item) - 1) for item in shared) / len(values)
    return 1 - observed / (disagreement(values) / (len(values) * (len(values) - 1)))


def test_alpha_over_votes_is_krippendorffs_with_lost_votes_missing() -> None:
    layout = [[1, 2, 2], [4, 4, None], [0, 1, 5], [3, 3, 3], [2, None, None]]
    good = [[True, True, False], [False, False, None], [True, True, True], [False, True, False], [True, None, None]]
    (card,) = cards(
        *(
            judged(details={"votes": {"layout": numbers, "good": answers}})
            for numbers, answers in zip(layout, good, strict=True)
        )
    )
    for votes, rows, level in zip(card.votes, (good, layout), ("nominal", "interval"), strict=True):
        items = [[float(value) for value in row if value is not None] for row in rows]
        assert votes.alpha == pytest.approx(alpha_by_pairs(items, is_nominal=level == "nominal"))
        assert votes.items == 4
    assert [votes.metric for votes in card.votes] == ["good", "layout"]
    assert card.votes[1].same == 0.5


def test_equal_votes_have_no_alpha_and_no_nan() -> None:
    (card,) = cards(judged(details={"votes": {"layout": [2, 2]}}), judged(details={"votes": {"layout": [2, 2, 2]}}))
    assert (card.votes[0].alpha, card.votes[0].same, card.votes[0].note) == (None, 1.0, ALL_EQUAL)
    assert shown(card)["Votes"] == [["look", "layout", ALL_EQUAL, "2", "100%"]]
    (card,) = cards(judged())
    assert card.votes == ()
    assert cards() == ()


def test_a_table_of_votes_needs_votes() -> None:
    without, votes = cards(judged())[0], cards(judged(details={"votes": {"layout": [2, 3]}}))[0]
    assert list(shown(without)) == ["Judges"]
    assert [row[1:3] for row in shown(votes, without)["Votes"]] == [["layout", "0.000"], ["", "no votes"]]


def test_many_different_votes_need_no_memory() -> None:
    (card,) = cards(*(judged(details={"votes": {"layout": [at, at + 0.5]}}) for at in range(1500)))
    assert (card.votes[0].items, card.votes[0].note, card.votes[0].alpha) == (1500, None, pytest.approx(1))


def test_unanswered_refused_and_repaired_cells_are_counted() -> None:
    (card,) = cards(
        judged(is_unmeasured=True, error="the judge refused: no", refused=3),
        judged(refused=0, details={"read": ["extracted", "repaired"]}),
        judged(refused=0, cached=True, details={"read": ["extracted"]}),
        judged(refused=1),
        disagreement=Disagreement(judged=3, disagreed=1),
    )
    assert (card.cells, card.cached, card.unanswered, card.refused, card.repaired) == (4, 1, 1, 2, 1)
    assert shown(card)["Judges"][0][3:] == ["1 (25%)", "2 (50%)", "1 (25%)", "1 of 3"]


def test_old_records_and_classes_of_ones_own_say_what_they_do_not_contain() -> None:
    (old,) = cards(judged())
    assert (old.refused, old.repaired) == (None, 0)
    assert shown(old)["Judges"][0][3:] == ["0", "not recorded", "0", "no verdict"]
    (gecko,) = cards(judged(type="gecko"), kind="gecko")
    assert gecko.repaired is None
    (gecko,) = cards(judged(type="gecko", details={"read": []}), kind="gecko")
    assert gecko.repaired == 0


def test_graders_without_a_judge_have_no_card() -> None:
    assert cards(judged(key="image", type="properties")) == ()


def test_the_share_of_the_first_shown_excludes_ties_and_takes_cases_as_clusters() -> None:
    lines = [*pair("one", "a", "b"), *pair("one", "a", "a", 1), *pair("two", "tie", "b"), *pair("six", None, "a")]
    (card,) = pair_cards(lines)
    # first shown preferred: both of pair 1, one of pair 2, the b of the third, not the a of the fourth
    assert (card.answers, card.ties, card.cases, card.unanswered) == (6, 1, 3, 1)
    assert card.first_shown == pytest.approx(4 / 6)
    interval = rate_interval([(3.0, 4), (1.0, 1), (0.0, 1)])
    assert (card.low, card.high) == pytest.approx((interval.low, interval.high))
    two = pair_cards([*lines, *pair("one", "a", "a", judge="another")])
    assert [entry.judge for entry in two] == ["another", "j"]


def test_a_judge_of_pairs_without_an_answer_has_no_share() -> None:
    (card,) = pair_cards([preference("one", "a", None, refused=True), preference("one", "b", "tie", read="repaired")])
    assert (card.first_shown, card.low, card.high) == (None, None, None)
    assert shown(pairs=(card,))["Pairs"][0][1:] == ["no answers", "0", "1", "1 (50%)", "1 (50%)", "1 (50%)"]
    assert pair_cards([]) == ()


def test_new_fields_of_a_preference_are_written_only_where_they_apply() -> None:
    plain = json.loads(preference("one", "a", "a").model_dump_json())
    assert not {"read", "refused", "extra_keys"} & plain.keys()
    assert "tie" not in plain
    assert plain["error"] is None
    line = preference("one", "a", None, refused=True, read="repaired")
    assert type(line).model_validate_json(line.model_dump_json()) == line


def run_with_anchors(run_id: str, started: str, scores: list[float | None], anchored: int = 3) -> Any:
    cells = {f"c{at}": {"layout": score, "good": True} for at, score in enumerate(scores)}
    anchors = [label(f"c{at}", "agreed", "clear", 3, source="anchor") for at in range(anchored)]
    run = labeled(cells, [], (USABLE, CLEAR), run_id=run_id, anchors=anchors)
    records = tuple(
        entry.model_copy(
            update={"graders": (GraderRecord(key="look", type="rubric", fingerprint=FINGERPRINT, refused=0),)}
        )
        for entry in run.records
    )
    changed = run.info.model_copy(update={"started_at": f"2025-0{started}-01T00:00:00+00:00"})
    return type(run)(changed, records, run.labels, run.anchors)


def test_anchors_are_compared_run_by_run_oldest_first() -> None:
    newer = run_with_anchors("newer", "5", [3, 5, 2, 1])
    older = run_with_anchors("older", "4", [3, 3, None, 1])
    bare = run_with_anchors("bare", "6", [3, 5], anchored=0)
    judges = agree([newer, older, bare]).judges
    assert [entry.run_id for entry in judges] == ["older", "newer", "bare"]
    (first,), (second,), third = [entry.anchors for entry in judges]
    assert (first.grader, first.metric, first.n, first.unmeasured, first.same) == ("look", "layout", 2, 1, 1.0)
    assert (second.n, second.same) == (3, pytest.approx(1 / 3))
    assert (second.higher, second.distance) == (pytest.approx(1 / 3), pytest.approx(1.0))
    interval = rate_interval([(1.0, 1), (0.0, 1), (0.0, 1)])
    assert (second.low, second.high) == pytest.approx((interval.low, interval.high))
    assert third == ()
    rows = judge_sections_of_runs(judges)[-1].rows
    assert [[getattr(cell, "text", cell) for cell in row] for row in rows] == [
        ["older", "layout", "1.00 [0.34, 1.00]", "2 !1", "+0.00", "0.00"],
        ["newer", "layout", "0.33 [0.06, 0.79]", "3", "+0.33", "1.00"],
        ["bare", "", "no anchors", "", "", ""],
    ]


def test_anchors_without_any_score_are_not_measured() -> None:
    (judges,) = agree([run_with_anchors("r", "1", [None, None])]).judges
    assert (judges.anchors[0].n, judges.anchors[0].unmeasured, judges.anchors[0].same) == (0, 2, None)


def test_anchors_of_metrics_without_a_judge_do_not_count() -> None:
    run = labeled({"a": {"good": True}}, [], anchors=[label("a", "agreed", "usable", True, source="anchor")])
    assert agree([run]).judges == ()


JUDGE = """\
import json
from visioneval.errors import ProviderError
from visioneval.providers.base import Reply


class Judge:
    def __init__(self, config):
        pass

    async def ask(self, question, about):
        if about.test_id == "case1":
            raise ProviderError("the judge refused: no", kind="refused")
        if "order" in question.names:
            answer = {"order": 4 if question.vote == 0 else 2, "reason": "r", "verdict": "PASS", "failure_tags": []}
        else:
            answer = {"reason": "r", "answer": "A"}
        text = json.dumps(answer)
        return Reply(text[:-1] + ",}" if about.test_id == "case2" else text, "judge-1")
"""
GRADERS = [
    {"key": "look", "type": "rubric", "votes": 3, "metrics": {"order": {**SCORE}}},
    {"key": "better", "type": "pairwise"},
]


@pytest.fixture
def votes(toy: Toy) -> Toy:
    (toy.folder / "judging_mine.py").write_text(JUDGE)
    models = [{"provider": "mock", "params": {"size": "64x64"}, "grid": {"flaw": ["none", "blank"]}}]
    cases: list[dict[str, Any]] = [{"prompt": f"tree {at}", "criteria": "a tree"} for at in range(4)]
    result = toy.run(
        *cases,
        judges={"default": {"provider": "judging_mine:Judge"}},
        models=models,
        samples=2,
        graders=GRADERS,
        verdict=["order >= 3"],
    )
    assert result.exit_code in (1, 3), result.output
    return toy


def test_a_run_its_summary_its_report_and_its_regrading_show_the_same_card(votes: Toy) -> None:
    summary = votes.summary
    (card,) = summary["judges"]
    assert (card["grader"], card["cells"], card["unanswered"], card["refused"]) == ("look", 16, 4, 4)
    assert card["repaired"] == 4
    assert card["votes"][0]["items"] == 12
    (pairs,) = summary["pair_judges"]
    assert (pairs["answers"], pairs["first_shown"], pairs["cases"]) == (12, 1.0, 3)
    assert (pairs["unanswered"], pairs["refused"], pairs["repaired"]) == (4, 4, 4)
    noise = {entry["name"]: entry for entry in summary["noise"]}
    assert noise["order"]["votes"] == 3
    assert noise["order"]["vote"] > 0
    text = " ".join(votes("show", "latest").stdout.split())
    assert "4 (25%)" in text
    assert "Where the noise is" in text
    assert "nan" not in text.split()
    page = votes.folder / "report"
    assert votes("report", "latest", "-o", page).exit_code == 0
    assert "Where the noise is" in (page / "index.html").read_text()
    assert "Krippendorff" in (page / "index.html").read_text()
    again = votes("grade", "latest", "--json", "--trust-suite", "--offline")
    regraded = json.loads(again.stdout.splitlines()[0])
    assert regraded["judges"][0]["votes"] == card["votes"]
    agreement = votes("agreement", "latest")
    assert "Votes of a judge" in agreement.stdout


def test_a_selection_narrows_the_card(votes: Toy) -> None:
    from visioneval import load_run

    whole, one = load_run(votes.latest), load_run(f"{votes.latest}@mock,flaw=none")
    assert (whole.summary.judges[0].cells, one.summary.judges[0].cells) == (16, 8)
