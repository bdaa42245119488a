"""The grader ``layout``: relations between lines, by the places where OCR read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grading
import pytest
from drawn_lines import DrawnLines, rows

from visioneval import Grade, TestCase
from visioneval.graders.layout import LayoutGrader
from visioneval.suite.load import load_suite

CONFIG = LayoutGrader(type="layout", key="place")


def graded(folder: Path, page: DrawnLines, *relations: Any, regions: Any = None, tolerance: float = 0.01) -> Grade:
    """The grade of a page, whose lines that a relation names are required."""
    regions = regions or {}
    names = {
        name: None for relation in relations for value in relation.values() if isinstance(value, list) for name in value
    }
    required = [name for name in names if name not in regions]
    expect = {"text": {"required": required}, "layout": list(relations), "regions": regions}
    config = CONFIG.model_copy(update={"tolerance": tolerance})
    path = page.save(folder / "page.png")
    grade = grading.grade(config, path, measure=page.measure, expect=expect)
    case = TestCase.model_validate({"id": "c", "prompt": "p", "expect": expect})
    assert set(grade.scores) == set(config.metrics(case))
    assert (grade.error is not None) == (None in grade.scores.values())
    return grade


def holds(folder: Path, page: DrawnLines, relation: Any, **options: Any) -> bool | None:
    """Whether one relation holds."""
    grade = graded(folder, page, relation, **options)
    (found,) = grade.details["relations"]
    assert grade.scores["place"] is found["holds"]
    result: bool | None = found["holds"]
    return result


@pytest.mark.parametrize(
    ("relation", "reverse"),
    [
        ({"above": ["Total", "Pay now"]}, {"above": ["Pay now", "Total"]}),
        ({"below": ["Pay now", "Total"]}, {"below": ["Total", "Pay now"]}),
        ({"order": ["Checkout", "Total", "Pay now"]}, {"order": ["Checkout", "Pay now", "Total"]}),
        ({"above": ["Total", "Pay now"], "direct": True}, {"above": ["Checkout", "Pay now"], "direct": True}),
        (
            {"aligned": ["Checkout", "Total", "Pay now"], "edge": "left"},
            {"aligned": ["Checkout", "Total"], "edge": "right"},
        ),
        ({"inside": ["Pay now", "foot"]}, {"inside": ["Checkout", "foot"]}),
        ({"above": ["Total", "foot"]}, {"above": ["foot", "Total"]}),
    ],
)
def test_a_relation_holds_and_its_reverse_fails(tmp_path: Path, relation: Any, reverse: Any) -> None:
    page = rows("Checkout", "Total", "Pay now")
    for asked, answer in ((relation, True), (reverse, False)):
        regions = {"foot": [0, 0.35, 1, 1]} if "foot" in str(asked) else None
        assert holds(tmp_path, page, asked, regions=regions) is answer


def test_one_false_relation_fails_and_the_share_counts_the_others(tmp_path: Path) -> None:
    page = DrawnLines.on().write("Checkout", (40, 30), 60).write("Total", (40, 200))
    right, wrong = {"above": ["Checkout", "Total"]}, {"larger_than": ["Total", "Checkout"]}
    grade = graded(tmp_path, page, right, wrong)
    assert grade.scores == {"place": False, "place.share": 0.5}
    assert grade.reasons["place"].startswith('"Total" larger than "Checkout": "Total" has about ')
    grade = graded(tmp_path, page, right)
    assert (grade.scores, grade.reasons) == ({"place": True, "place.share": 1}, {"place": "the relation holds"})


def test_a_row_is_read_from_left_to_right_and_nothing_in_it_is_above(tmp_path: Path) -> None:
    page = DrawnLines.on().write("Total", (40, 100)).write("Paid", (300, 104)).write("Change", (40, 200))
    assert holds(tmp_path, page, {"order": ["Total", "Paid", "Change"]}) is True
    assert holds(tmp_path, page, {"order": ["Paid", "Total"]}) is False
    assert holds(tmp_path, page, {"left_of": ["Total", "Paid"]}) is True
    assert holds(tmp_path, page, {"left_of": ["Paid", "Total"]}) is False
    assert holds(tmp_path, page, {"left_of": ["Total", "Change"]}) is False
    assert holds(tmp_path, page, {"above": ["Total", "Paid"]}) is False
    assert holds(tmp_path, page, {"aligned": ["Total", "Paid"], "edge": "top"}, tolerance=0.02) is True


@pytest.mark.parametrize(("shift", "answer"), [(0, False), (18, None), (26, True)])
def test_lines_that_overlap_a_little_are_undecided(tmp_path: Path, shift: float, answer: bool | None) -> None:
    page = DrawnLines.on().write("TOTAL", (40, 100), 40).write("PAID", (300, 100 + shift), 40)
    assert holds(tmp_path, page, {"above": ["TOTAL", "PAID"]}) is answer


@pytest.mark.parametrize(("off", "answer"), [(0, True), (3, True), (5, None), (9, False)])
def test_edges_are_aligned_within_the_tolerance(tmp_path: Path, off: int, answer: bool | None) -> None:
    page = DrawnLines.on().write("Headline", (40, 30), 50).write("Halls", (40 + off, 150), 20)
    assert holds(tmp_path, page, {"aligned": ["Headline", "Halls"], "edge": "left"}) is answer


@pytest.mark.parametrize(("edge", "at"), [("right", (360, 200)), ("center", (240, 200)), ("bottom", (450, 78))])
def test_each_edge(tmp_path: Path, edge: str, at: tuple[int, int]) -> None:
    page = DrawnLines.on().write("HEADLINE", (100, 60), 60)
    ink = page.image.convert("L").point(lambda level: 255 * (level < 128)).getbbox()
    assert ink is not None
    other = (
        DrawnLines.on().write("HALL", (0, 0), 24).image.convert("L").point(lambda level: 255 * (level < 128)).getbbox()
    )
    assert other is not None
    places = {"right": ink[2] - other[2], "center": (ink[0] + ink[2] - other[2]) / 2}
    page.write("HALL", (places.get(edge, 450), ink[3] - other[3] if edge == "bottom" else at[1]), 24)
    assert holds(tmp_path, page, {"aligned": ["HEADLINE", "HALL"], "edge": edge}) is True
    assert holds(tmp_path, page, {"aligned": ["HEADLINE", "HALL"], "edge": "top"}) is False


@pytest.mark.parametrize(
    ("sizes", "answer"), [((60, 30), True), ((36, 30), True), ((33, 30), None), ((30, 30), False), ((30, 60), False)]
)
def test_larger_letters_are_a_tenth_larger(tmp_path: Path, sizes: tuple[int, int], answer: bool | None) -> None:
    page = DrawnLines.on().write("Holiday", (40, 40), sizes[0]).write("Bakery", (40, 200), sizes[1])
    assert holds(tmp_path, page, {"larger_than": ["Holiday", "Bakery"]}) is answer


def test_letters_of_other_shapes_are_no_smaller_line(tmp_path: Path) -> None:
    """Small letters are lower than capitals of the same size: how much depends on the typeface."""
    page = DrawnLines.on().write("HOLIDAY", (40, 40), 30).write("sun waves", (40, 200), 30)
    assert holds(tmp_path, page, {"larger_than": ["HOLIDAY", "sun waves"]}) is not True


def test_other_text_between_two_lines_is_not_direct(tmp_path: Path) -> None:
    page = rows("Total", "Free returns", "Pay")
    relation = {"above": ["Total", "Pay"], "direct": True}
    grade = graded(tmp_path, page, relation)
    assert grade.scores["place"] is False
    assert grade.reasons["place"] == '"Total" directly above "Pay": "Free returns" is between "Total" and "Pay"'
    named = graded(tmp_path, rows("Total", "Plan A or B", "Pay"), relation)
    assert named.reasons["place"] == '"Total" directly above "Pay": "Plan A or B" is between "Total" and "Pay"'
    for text, at in (("$48.20", (300, 30)), ("Ad", (400, 90)), ("8", (40, 90))):
        beside = DrawnLines.on().write("Total", (40, 30)).write("Pay", (60, 150)).write(text, at)
        assert holds(tmp_path, beside, relation) is True, "in the row of the line, beside the two, or perhaps an icon"


def test_a_line_that_was_not_read_is_undecided_but_others_fail(tmp_path: Path) -> None:
    page = rows("Checkout", "Total")
    missing, right = {"above": ["Total", "Pay"]}, {"above": ["Checkout", "Total"]}
    grade = graded(tmp_path, page, missing, right)
    assert grade.scores == {"place": None, "place.share": None}
    assert grade.error == '"Total" above "Pay": cannot be decided: "Pay" was not read'
    both = graded(tmp_path, page, {"above": ["Pay", "Help"]})
    assert both.error == '"Pay" above "Help": cannot be decided: "Pay" and "Help" were not read'
    grade = graded(tmp_path, page, missing, {"above": ["Total", "Checkout"]})
    assert grade.scores == {"place": False, "place.share": None}
    assert '"Pay" was not read' in (grade.error or "")
    long = graded(tmp_path, page, {"order": ["Total", "Checkout", "Pay"]})
    assert long.scores["place"] is False, "the part that was read is wrong already"


def test_a_line_that_is_there_twice_must_be_right_in_both_places(tmp_path: Path) -> None:
    page = rows("Total", "Pay", "Total")
    grade = graded(tmp_path, page, {"above": ["Total", "Pay"]})
    assert grade.scores["place"] is None
    assert '"Total" is there 2 times, and not all of them are as asked' in (grade.error or "")
    page = rows("Total", "Total", "Pay")
    assert holds(tmp_path, page, {"above": ["Total", "Pay"]}) is True
    assert holds(tmp_path, page, {"above": ["Pay", "Total"]}) is False


def test_a_word_within_another_line_is_not_the_line(tmp_path: Path) -> None:
    page = rows("Total", "Pay", "Total savings this month")
    assert holds(tmp_path, page, {"above": ["Total", "Pay"]}) is True


def test_a_label_that_was_read_with_its_amount_has_its_part_of_the_box(tmp_path: Path) -> None:
    page = DrawnLines.on().write("Total     $48.20", (40, 100)).write("Pay", (40, 200))
    assert holds(tmp_path, page, {"left_of": ["Total", "$48.20"]}) is True
    assert holds(tmp_path, page, {"left_of": ["$48.20", "Total"]}) is False
    close = DrawnLines.on().write("Total $48.20", (40, 100))
    assert holds(tmp_path, close, {"left_of": ["Total", "$48.20"]}) is True
    grade = graded(tmp_path, page, {"above": ["Total", "Pay"]})
    (box,) = [line["box"] for line in grade.details["lines"] if line["text"] == "Total"]
    assert box[1][0] - box[0][0] < 0.6 * (page.readings[0].corners[1][0] - page.readings[0].corners[0][0])  # type: ignore[index]


def test_a_line_that_is_there_very_often_is_compared_in_bounded_time(tmp_path: Path) -> None:
    page = DrawnLines.on(size=(600, 2200))
    for row in range(100):
        page.write("Sale", (40, 10 + 20 * row), 14)
    page.write("Pay", (40, 2100), 14)
    assert holds(tmp_path, page, {"above": ["Sale", "Pay"]}) is True


def test_a_line_over_two_rows_is_one_line(tmp_path: Path) -> None:
    page = rows("Turn ideas", "into slides", "Start now", step=38)
    assert holds(tmp_path, page, {"above": ["Turn ideas into slides", "Start now"], "direct": True}) is True
    assert holds(tmp_path, page, {"above": ["Start now", "Turn ideas into slides"]}) is False


def test_slanted_lines_whose_boxes_overlap_are_undecided(tmp_path: Path) -> None:
    page = DrawnLines.on()
    for text, x in (("SUMMER", 100), ("SALE", 160)):
        page.write(text, (x, 100), corners=((x, 250), (x + 100, 150), (x + 120, 170), (x + 20, 270)))
    assert holds(tmp_path, page, {"above": ["SUMMER", "SALE"]}) is None
    assert holds(tmp_path, page, {"order": ["SUMMER", "SALE"]}) is None


@pytest.mark.parametrize(
    ("region", "answer"), [([0, 0, 1, 0.3], True), ([0.05, 0, 1, 0.3], None), ([0.3, 0, 1, 1], False)]
)
def test_a_line_that_sticks_out_a_little_is_undecided(tmp_path: Path, region: list[float], answer: bool | None) -> None:
    page = DrawnLines.on().write("Checkout", (20, 40), 25)
    assert holds(tmp_path, page, {"inside": ["Checkout", "bar"]}, regions={"bar": region}) is answer


def test_what_failed_has_its_place_for_reports(tmp_path: Path) -> None:
    grade = graded(tmp_path, rows("Total", "Pay"), {"above": ["Pay", "Total"]}, {"above": ["Total", "Pay"]})
    failed, right = grade.details["relations"]
    assert [part["line"] for part in failed["parts"]] == ["Pay", "Total"]
    assert all(len(part["box"]) == 4 for part in failed["parts"])
    assert right == {"relation": '"Total" above "Pay"', "holds": True}


def test_a_transparent_image_has_places_too(tmp_path: Path) -> None:
    page = DrawnLines.on((0, 0, 0, 0), mode="RGBA").write("Total", (40, 40)).write("Pay", (40, 200), 60)
    assert holds(tmp_path, page, {"above": ["Total", "Pay"]}) is True
    assert holds(tmp_path, page, {"larger_than": ["Pay", "Total"]}) is True


def test_the_measures_are_those_of_the_grader_text_and_one_of_its_own(tmp_path: Path) -> None:
    page = rows("Total", "Pay")
    graded(tmp_path, page, {"above": ["Total", "Pay"]})
    assert page.measured == ["text", "comparison of copy", "ink of lines"]


def test_a_case_without_relations_or_about_a_video_has_no_metrics() -> None:
    assert (
        CONFIG.metrics(TestCase.model_validate({"id": "c", "prompt": "p", "expect": {"text": {"required": ["A"]}}}))
        == {}
    )
    video = {"text": {"required": ["A", "B"]}, "layout": [{"above": ["A", "B"]}]}
    case = TestCase.model_validate({"id": "c", "prompt": "p", "task": "video_generation", "expect": video})
    assert CONFIG.metrics(case) == {}


def test_rows_of_a_dataset_have_relations(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(
        'id,prompt,lines,relations\na,A screen,"[""Total"", ""Pay""]","[{""above"": [""Total"", ""Pay""]}]"\n'
        'b,A screen,"[""Total"", ""Pay""]","{""left_of"": [""Total"", ""Pay""]}"\n',
        encoding="utf-8",
    )
    path = tmp_path / "suite.yaml"
    path.write_text(
        "name: d\ncases:\n- dataset: {path: cases.csv, fields: {id: id, prompt: prompt, expect.text.required: lines, expect.layout: relations}}\n"
        "models: [{provider: mock}]\ngraders: [{key: place, type: layout}]\nverdict: [place]\n",
        encoding="utf-8",
    )
    suite = load_suite(path, run_labels=lambda run: []).suite
    assert [[relation.kind for relation in case.expect.layout or ()] for case in suite.cases] == [
        ["above"],
        ["left_of"],
    ]


@pytest.mark.parametrize(("share", "answer"), [(1.5, True), (0.6, None), (0, False)])
def test_a_part_of_a_reading_near_the_end_of_a_region_is_undecided(
    tmp_path: Path, share: float, answer: bool | None
) -> None:
    """The ends of a part are those of usual letters: it may be further left."""
    page = DrawnLines.on().write("Total iiiiii lll", (200, 60), 48)
    ink = DrawnLines.on().write("Total", (200, 60), 48).image.convert("L").point(lambda level: 255 * (level < 128))
    box = ink.getbbox()
    assert box is not None
    regions = {"pane": [0, 0, (box[0] + share * (box[2] - box[0])) / ink.width, 1]}
    assert holds(tmp_path, page, {"inside": ["Total", "pane"]}, regions=regions) is answer
