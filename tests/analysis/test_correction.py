"""Which labels correct a judge: the weights of a draw, what is missing, and why labels are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from labeled_runs import CLEAR, SHARP, USABLE, WRONG, label, labeled, run_info
from record_factory import record

from visioneval import UsageError
from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.agreement.answers import LabeledRun, pool
from visioneval.analysis.agreement.correction import CorrectedMetric, Correction, DrawnLabels, Unusable, drawn_labels
from visioneval.label.sampling import SelectionSpec, draw_cells
from visioneval.records.labels import Label, RecordedDraw

DRAWN = datetime(2025, 5, 31, tzinfo=UTC)
CASES = [f"case{number:02}" for number in range(40)]
GOOD = {case: number % 4 != 0 for number, case in enumerate(CASES)}
"""What people say: three of four are good."""


def judged(wrong: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The judge's scores; it is wrong about some cases."""
    return {case: {"good": GOOD[case] != (case in wrong), "layout": 3, "edge": 10.0} for case in CASES}


def drawn(run: LabeledRun, which: str = "random:20", seed: int = 1) -> RecordedDraw:
    return draw_cells(run.records, SelectionSpec.parse(which), seed, DRAWN)


def answered(
    run: LabeledRun, draw: RecordedDraw, count: int | None = None, rater: str = "ann", **more: Any
) -> list[Label]:
    """A rater's right answers to the first cells of a draw."""
    return [
        label(cell.test_id, rater, "usable", GOOD[cell.test_id], model_label=cell.model_label, **more)
        for cell in draw.cells[:count]
    ]


def run_with(
    labels: Callable[[LabeledRun, RecordedDraw], list[Label]] = answered,
    which: str = "random:20",
    wrong: Sequence[str] = (),
    **more: Any,
) -> LabeledRun:
    run = labeled(judged(wrong), [], **more)
    draw = drawn(run, which)
    return replace(run, labels=labels(run, draw), draws=[draw])


def corrected(*runs: LabeledRun) -> Correction:
    result = agree(runs, is_corrected=True).correction
    assert result is not None
    return result


def usable(*runs: LabeledRun) -> CorrectedMetric:
    return next(entry for entry in corrected(*runs).metrics if entry.question == "usable")


def refusal(*runs: LabeledRun) -> str:
    with pytest.raises(UsageError) as error:
        agree(runs, is_corrected=True)
    assert "\n" not in str(error.value)
    return str(error.value)


def labels_of(run: LabeledRun) -> DrawnLabels | Unusable:
    facet = next(facet for facet in pool([run]).all_facets if facet.key == "usable")
    return drawn_labels(run, facet, "good")


def test_three_figures() -> None:
    """The judge fails two good cases; a quarter of the cases is bad."""
    result = usable(run_with(wrong=["case01", "case02"]))
    assert (result.cells, result.labels.n, result.corrected.n, result.judge.n) == (40, 20, 20, 40)
    assert result.judge.value == pytest.approx(28 / 40)
    assert result.corrected.value == pytest.approx(0.75, abs=0.05)
    assert 0.5 < result.tuning < 1.2
    for measure in (result.judge, result.labels, result.corrected):
        assert 0 <= measure.low < measure.value < measure.high <= 1
    assert result.corrected.high - result.corrected.low < result.labels.high - result.labels.low
    assert (result.draw, result.missing, result.waiting, result.uncovered) == ("random:20", 0, 0, 0)


def test_a_complete_labeling_is_the_labels_alone() -> None:
    result = usable(run_with(which="random:40", wrong=["case01"]))
    assert result.corrected.value == pytest.approx(result.labels.value) == pytest.approx(0.75)


def test_agreement_says_that_labels_of_a_stratified_draw_are_not_weighted() -> None:
    notes = {which: " ".join(agree([run_with(which=which)]).notes) for which in ("random:20", "stratified:20")}
    assert "stratified draw are not weighted" in notes["stratified:20"]
    assert "stratified" not in notes["random:20"]


def test_labels_outside_a_draw_do_not_count() -> None:
    """A rater looked for bad cells. Their answers change nothing."""
    run = run_with()
    drawn_names = {cell.test_id for cell in run.draws[0].cells}
    chosen = [label(case, "bo", "usable", GOOD[case]) for case in CASES if case not in drawn_names and not GOOD[case]]
    assert chosen
    assert usable(replace(run, labels=[*run.labels, *chosen])) == usable(run)


def test_every_rater_counts() -> None:
    """Majority, and half for a tie."""

    def three(run: LabeledRun, draw: RecordedDraw) -> list[Label]:
        first, second = draw.cells[0].test_id, draw.cells[1].test_id
        wrong = [label(first, rater, "usable", not GOOD[first]) for rater in ("bo", "cy")]
        return [*answered(run, draw), *wrong, label(second, "bo", "usable", not GOOD[second])]

    labels = labels_of(run_with(three))
    assert isinstance(labels, DrawnLabels)
    assert [entry.people for entry in labels.labels[:2]] == [float(not GOOD[labels.labels[0].cell[0]]), 0.5]


@pytest.mark.parametrize(
    ("metric", "scores", "answers", "limits"),
    [(CLEAR, [2, 3, 4, 5], [1, 3, 4, 5], (1, 5)), (SHARP, [10.0, 50.0, 90.0, 200.0], [2, 2, 4, 5], (1, 5))],
    ids=["rubric", "number"],
)
def test_scales(metric: dict[str, Any], scores: list[float], answers: list[int], limits: tuple[float, float]) -> None:
    """The corrected figure has the unit of the labels, also where the metric has another."""
    values = {case: {metric["metric"]: scores[number % 4]} for number, case in enumerate(CASES)}
    run = labeled(values, [], [metric])
    draw = drawn(run)
    labels = [label(cell.test_id, "ann", metric["key"], answers[CASES.index(cell.test_id) % 4]) for cell in draw.cells]
    (result,) = corrected(replace(run, labels=labels, draws=[draw])).metrics
    assert result.corrected.value == pytest.approx(np.mean(answers), abs=0.2)
    assert limits[0] <= result.corrected.low < result.corrected.value < result.corrected.high <= limits[1]
    assert result.judge.value == pytest.approx(np.mean(scores))


def test_the_beginning_of_a_draw_is_a_draw() -> None:
    """Twelve of twenty cells are labeled: each stands for 40 / 12 cells."""
    labels = labels_of(run_with(lambda run, draw: answered(run, draw, 12)))
    assert isinstance(labels, DrawnLabels)
    assert (len(labels.labels), labels.missing, labels.waiting) == (12, 0, 8)
    assert [entry.weight for entry in labels.labels] == [pytest.approx(40 / 12)] * 12


def test_skipped_cells_are_counted_up_to_a_tenth() -> None:
    def skipping(count: int) -> Callable[[LabeledRun, RecordedDraw], list[Label]]:
        def answers(run: LabeledRun, draw: RecordedDraw) -> list[Label]:
            labels = answered(run, draw)
            return [*(entry.model_copy(update={"answer": None}) for entry in labels[:count]), *labels[count:]]

        return answers

    labels = labels_of(run_with(skipping(2)))
    assert isinstance(labels, DrawnLabels)
    assert (len(labels.labels), labels.missing) == (18, 2)
    assert [entry.weight for entry in labels.labels] == [pytest.approx(40 / 18)] * 18
    message = refusal(run_with(skipping(3)))
    assert "3 of the 20 cells of random:20 up to the last labeled one have no current answer to 'usable'" in message
    assert "'visioneval label r --which random:20'" in message
    assert "no answer to 'usable' yet" in refusal(run_with(skipping(20)))


def test_withdrawn_and_late_answers() -> None:
    """Only the last answer counts; a cell labeled out of turn leaves a gap."""

    def withdrawn(run: LabeledRun, draw: RecordedDraw) -> list[Label]:
        labels = answered(run, draw)
        return [*labels, labels[4].model_copy(update={"answer": None})]

    assert labels_of(run_with(withdrawn)).missing == 1
    late = run_with(lambda run, draw: [*answered(run, draw, 10), answered(run, draw)[-1]])
    assert "9 of the 20 cells" in refusal(late)


def test_anchors_and_older_labels_come_out_of_turn() -> None:
    """They are answers, but do not say how far the raters have come."""

    def out_of_turn(**about: Any) -> Callable[[LabeledRun, RecordedDraw], list[Label]]:
        def labels(run: LabeledRun, draw: RecordedDraw) -> list[Label]:
            return [*answered(run, draw, 10), answered(run, draw, **about)[-1]]

        return labels

    for about in ({"source": "anchor"}, {"at": "2025-01-01"}):
        labels = labels_of(run_with(out_of_turn(**about)))
        assert isinstance(labels, DrawnLabels)
        assert (len(labels.labels), labels.missing, labels.waiting) == (10, 0, 10)
    older = labels_of(run_with(lambda run, draw: answered(run, draw, at="2025-01-01")))
    assert isinstance(older, DrawnLabels)
    assert (len(older.labels), older.waiting) == (20, 0)


def test_labels_of_replaced_outputs_are_missing() -> None:
    def hashed(run: LabeledRun, draw: RecordedDraw) -> list[Label]:
        return answered(run, draw, artifact_sha256="a" * 64)

    run = run_with(hashed)
    drawn_names = [cell.test_id for cell in run.draws[0].cells]

    def replaced(count: int) -> LabeledRun:
        records = [
            entry.model_copy(update={"artifact_sha256": ("b" if entry.test_id in drawn_names[:count] else "a") * 64})
            for entry in run.records
        ]
        return replace(run, records=records)

    assert (usable(replaced(0)).missing, usable(replaced(2)).missing) == (0, 2)
    assert "3 of the 20 cells of random:20" in refusal(replaced(3))
    assert "no answer to 'usable' yet" in refusal(replaced(20))


def test_a_stratified_draw_sees_rare_verdicts_and_stays_unbiased() -> None:
    """Two of 40 cells fail. Both are drawn, and count for two cells."""
    wrong = [case for case in CASES if not GOOD[case]][2:]
    estimates = []
    for seed in range(60):
        run = labeled(judged(wrong), [])
        draw = drawn(run, "stratified:10", seed)
        labels = labels_of(replace(run, labels=answered(run, draw), draws=[draw]))
        assert isinstance(labels, DrawnLabels)
        weights = {entry.stratum: entry.weight for entry in labels.labels}
        assert weights == {"FAIL": 1.0, "PASS": pytest.approx(38 / 8)}
        assert sum(entry.weight for entry in labels.labels) == pytest.approx(40)
        estimates.append(sum(entry.weight * entry.people for entry in labels.labels) / 40)
    assert np.mean(estimates) == pytest.approx(0.75, abs=0.04)


def test_a_stratum_without_answers_is_refused() -> None:
    run = labeled(judged([case for case in CASES if not GOOD[case]][2:]), [])
    draw = drawn(run, "stratified:10")
    first = next(number for number, cell in enumerate(draw.cells) if cell.stratum != draw.cells[0].stratum)
    started = replace(run, labels=answered(run, draw, first), draws=[draw])
    assert f"no {draw.cells[first].stratum} cell of stratified:10 has an answer yet" in refusal(started)
    with pytest.raises(UsageError, match="there are cells with 2 verdicts: draw more cells"):
        drawn(run, "stratified:1")


def test_cells_without_output_or_value_are_not_part_of_the_figures() -> None:
    run = run_with()
    names = [cell.test_id for cell in run.draws[0].cells]
    records = [
        entry.model_copy(update={"scores": {"good": None}}) if entry.test_id in (names[0], names[5]) else entry
        for entry in run.records
    ]
    result = usable(replace(run, records=records))
    assert (result.cells, result.labels.n, result.missing) == (38, 18, 0)
    refused = record(test_id="case99", status="refused", verdict="FAIL", scores={"good": False})
    assert usable(replace(run, records=[*run.records, refused])) == usable(run)


def test_a_draw_of_other_cells_is_refused() -> None:
    run = run_with()
    grown = replace(run, records=[*run.records, record(test_id="case99", scores={"good": True})])
    assert "its cells are not those that random:20 was drawn from: draw again" in refusal(grown)


def test_a_draw_of_one_model_run_covers_only_that() -> None:
    both = [
        record(run_id="r", test_id=case, model_label=model, scores={"good": GOOD[case]}, verdict="PASS")
        for case in CASES
        for model in ("m", "n")
    ]
    run = LabeledRun(run_info(CASES, [USABLE], models=["m", "n"]), both, [])
    draw = draw_cells([entry for entry in both if entry.model_label == "m"], SelectionSpec.parse("random:20"), 1, DRAWN)
    labeled_run = replace(run, labels=answered(run, draw), draws=[draw])
    assert (usable(labeled_run).cells, usable(labeled_run).uncovered) == (40, 40)
    whole = drawn(run)
    part = replace(run, records=[entry for entry in both if entry.model_label == "n"], draws=[whole])
    narrowed = labels_of(replace(part, labels=answered(run, whole)))
    assert isinstance(narrowed, DrawnLabels)
    assert (len(narrowed.judge), {entry.weight for entry in narrowed.labels}) == (40, {4.0})
    assert {entry.cell[1] for entry in narrowed.labels} == {"n"}
    better = replace(labeled_run, labels=[*labeled_run.labels, *answered(run, whole)], draws=[draw, whole])
    assert (usable(better).cells, usable(better).uncovered, usable(better).labels.n) == (80, 0, 20)


def test_the_draw_with_most_labels_is_used() -> None:
    run = run_with(lambda run, draw: answered(run, draw, 15))
    later = drawn(run, "random:30", seed=2)
    assert usable(replace(run, draws=[*run.draws, later])).draw == "random:20"
    labels = [*run.labels, *answered(run, later)]
    assert usable(replace(run, labels=labels, draws=[*run.draws, later])).draw == "random:30"


def test_one_case_has_no_interval() -> None:
    samples = [record(run_id="r", test_id="case01", sample_index=at, scores={"good": True}) for at in range(10)]
    run = LabeledRun(run_info(["case01"], [USABLE]), samples, [])
    draw = drawn(run, "random:5")
    labels = [label("case01", "ann", "usable", True, sample_index=cell.sample_index) for cell in draw.cells]
    result = usable(replace(run, labels=labels, draws=[draw]))
    assert (result.corrected.value, result.corrected.low, result.corrected.note) == (
        1,
        None,
        "all cells are of one case: no interval",
    )


def test_equal_labels_are_noted_and_uncertain() -> None:
    def yes(run: LabeledRun, draw: RecordedDraw) -> list[Label]:
        return [label(cell.test_id, "ann", "usable", True) for cell in draw.cells]

    result = usable(run_with(yes))
    assert (result.labels.value, result.corrected.value) == (1, 1)
    assert str(result.labels.note).startswith("all labels are the same")
    assert result.labels.low < 0.95
    assert result.corrected.low < 0.95


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (labeled(judged(), [label("case01", "ann", "usable", True)]), "r: no random draw of cells to label is recorded"),
        (replace(labeled(judged(), []), name="latest@m"), "run 'visioneval label latest@m --which random:100'"),
        (run_with(lambda run, draw: []), "random:20 has no answer to 'usable' yet: answer with 'visioneval label r --which random:20'"),
        (labeled(judged(), [], [WRONG]), "no question in the suite names a metric"),
    ],
    ids=["no draw", "name", "no labels", "no metric"],
)  # fmt: skip
def test_refusals_say_what_to_do(run: LabeledRun, message: str) -> None:
    assert message in refusal(run)
    assert agree([run]).correction is None


def test_a_question_without_labels_has_a_reason() -> None:
    result = {entry.question: entry for entry in corrected(run_with()).metrics}
    assert result["usable"].reason is None
    assert "random:20 has no answer to 'clear' yet" in str(result["clear"].reason)
    assert result["clear"].corrected.value is None


def test_the_difference_of_two_runs() -> None:
    """Run B is better in four cases, of which the judge sees three."""
    fixed = ["case00", "case04", "case08", "case12"]
    worse = run_with(run_id="a")
    better = labeled(judged(fixed[:3]), [], run_id="b")
    draw = drawn(better)
    labels = [label(cell.test_id, "ann", "usable", GOOD[cell.test_id] or cell.test_id in fixed) for cell in draw.cells]
    result = corrected(worse, replace(better, labels=labels, draws=[draw]))
    assert [entry.run for entry in result.metrics if entry.question == "usable"] == ["a", "b"]
    (change,) = result.differences
    assert (change.a, change.b, change.labels_a, change.labels_b, change.difference.n) == ("a", "b", 20, 20, 40)
    a, b = (entry.corrected.value for entry in result.metrics if entry.question == "usable")
    assert change.difference.value == pytest.approx(b - a)
    assert change.difference.low < 0.1 < change.difference.high
    assert change.difference.low >= -1
    assert refusal(*(run_with(run_id=name) for name in "abc")) == "--correct takes one run, or two to compare, not 3"


def test_only_cells_of_both_runs_are_compared() -> None:
    """Half of the cases are in both; of a run with one model run each, its name does not matter."""
    first = run_with(run_id="a")
    names = CASES[:20]
    records = [
        record(run_id="b", test_id=case, model_label="new", scores={"good": GOOD[case]}, verdict="PASS")
        for case in names
    ]
    second = LabeledRun(run_info(names, [USABLE, CLEAR, SHARP, WRONG], "b", ["new"]), records, [])
    draw = drawn(second)
    (change,) = corrected(first, replace(second, labels=answered(second, draw), draws=[draw])).differences
    common = sum(cell.test_id in names for cell in first.draws[0].cells)
    assert (change.difference.n, change.labels_a, change.labels_b) == (20, common, 20)
    others = [entry.model_copy(update={"test_id": f"x{entry.test_id}"}) for entry in records]
    apart = LabeledRun(
        run_info([f"x{case}" for case in names], [USABLE, CLEAR, SHARP, WRONG], "b", ["new"]), others, []
    )
    draw = drawn(apart)
    labels = [label(cell.test_id, "ann", "usable", True, model_label="new") for cell in draw.cells]
    (change,) = corrected(first, replace(apart, labels=labels, draws=[draw])).differences
    assert (change.difference.value, change.difference.note) == (
        None,
        "no cell that both runs have is labeled in each of them",
    )


@pytest.mark.parametrize(("unmeasured", "allowed", "code"), [(0, 0, 0), (2, 0, 0), (3, 0, 3), (3, 0.1, 0), (40, 0, 2)])
def test_cells_that_the_judge_did_not_measure(unmeasured: int, allowed: float, code: int) -> None:
    """They are in no figure. 2 of 40 may be missing."""
    run = run_with(which="random:40")
    records = [
        each.model_copy(update={"scores": {**each.scores, "good": None}}) if at < unmeasured else each
        for at, each in enumerate(run.records)
    ]
    run = replace(run, records=records)
    if code == 2:
        assert refusal(run).endswith("no cell with an output has a value of good")
        return
    result = agree([run], is_corrected=True, allowed_unmeasured=allowed)
    metric = next(entry for entry in result.correction.metrics if entry.question == "usable")
    assert (result.exit_code, metric.is_unreliable, metric.unmeasured) == (code, code == 3, unmeasured)
    assert metric.cells == 40 - unmeasured
    assert metric.note.startswith(f"{unmeasured} of 40 outputs" if unmeasured else "")
    assert ("more than 5%" in metric.note) == (code == 3)


def test_cells_that_the_draw_does_not_cover_need_no_measurement() -> None:
    """The judge did not measure one model run, from which nothing was drawn."""
    run = run_with(which="random:40")
    more = [each.model_copy(update={"model_label": "n", "scores": {"good": None}}) for each in run.records]
    result = agree([replace(run, records=[*run.records, *more])], is_corrected=True)
    assert result.exit_code == 0
