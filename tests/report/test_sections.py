"""The sections of a report in each of its forms, on small sections: what no golden run shows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from visioneval.report.html.pages import sections_page
from visioneval.report.markdown import report_markdown, section_markdown
from visioneval.report.outcome import shares
from visioneval.report.sections import Column, ImageStrip, Outcome, Report, Section, Tile, dim, quoted
from visioneval.report.terminal import print_report, print_section

ENDED = Outcome("pass", "All is well.", 0)


def printed(section: Section, width: int = 40) -> list[str]:
    """The lines of a section in a terminal."""
    file = io.StringIO()
    print_section(section, Console(file=file, width=width))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def names(*texts: str) -> list[Column]:
    return [Column(text) for text in texts]


@pytest.mark.parametrize("fold", ["", "More"])
def test_images_stand_on_the_page_alone_and_in_their_fold(fold: str) -> None:
    strip = ImageStrip("Worst", [Tile("a.png", "#cell", "sign", [dim("missing: SALE")])], fold=fold)
    report = Report("Run", ENDED, sections=[Section("First", names("n"), [["1"]], fold="More"), strip])
    page = sections_page(report)
    assert page.count("<details") == page.count("</details>") == 1
    assert (page.index('<img src="a.png"') < page.index("</details>")) == (fold == "More")
    assert "a.png" not in report_markdown(report)


@pytest.mark.parametrize(("is_cut", "rows"), [(True, 20), (False, 30)])
def test_markdown_cuts_a_table_of_cells_alone(is_cut: bool, rows: int) -> None:
    text = section_markdown(Section("Cells", names("n"), [[str(at)] for at in range(30)], is_cut=is_cut))
    assert text.count("\n| ") == rows + 2
    assert ("... and 10 more" in text) == is_cut


def test_the_title_of_a_fold_is_no_markup() -> None:
    report = Report("Run", ENDED, sections=[Section("x", names("n"), [["1"]], fold="<b>bold</b>")])
    assert "<summary>&lt;b&gt;bold&lt;/b&gt;</summary>" in report_markdown(report)
    assert "<b>" not in sections_page(report)


@pytest.mark.parametrize("is_full", [True, False])
def test_a_terminal_names_what_it_folds(is_full: bool) -> None:
    file = io.StringIO()
    folded = Section("Noise", names("n"), [["41"]], fold="Noise")
    print_report(Report("Run", ENDED, sections=[folded]), Console(file=file, width=60), is_full=is_full)
    assert ("41" in file.getvalue()) == is_full
    assert ("--full shows more: Noise" in file.getvalue()) != is_full


def test_a_row_that_is_stacked_says_what_the_row_above_says_for_it() -> None:
    columns = [*names("model", "tag"), Column("passed", min_width=20)]
    rows = [["a-long-name-of-a-model", "poster", "3"], ["", "flyer", "2"], ["", "", "1"], ["other", "", "0"]]
    assert [line.split() for line in printed(Section("", columns, rows), 30) if line] == [
        *(["model", "a-long-name-of-a-model"], ["tag", "poster"], ["passed", "3"]),
        *(["model", "a-long-name-of-a-model"], ["tag", "flyer"], ["passed", "2"]),
        *(["model", "a-long-name-of-a-model"], ["tag", "flyer"], ["passed", "1"]),
        *(["model", "other"], ["tag"], ["passed", "0"]),
    ]


@pytest.mark.parametrize("splits", [True, False])
def test_a_table_of_one_column_is_shown_whether_it_splits_or_not(splits: bool) -> None:
    assert "only" in printed(Section("", names("case"), [["only"]], splits=splits))


def test_what_does_not_fit_stands_below_with_the_first_column_again() -> None:
    lines = printed(Section("", names("case", "x" * 20, "y" * 20), [["c", "1", "2"]], splits=True), 30)
    assert [line.split() for line in lines if line.startswith("c")] == [
        ["case", "x" * 20],
        ["c", "1"],
        ["case", "y" * 20],
        ["c", "2"],
    ]


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        ("gpt-image-2,quality=low", ["gpt-image-2,", "quality=low"]),
        ("model-a:fast-quality-low", ["model-a:", "fast-", "quality-low"]),
        ("a" * 30, ["a" * 12, "a" * 12, "a" * 6]),
        ("\u5b57" * 8, ["\u5b57" * 6, "\u5b57" * 2]),
        ("short", ["short"]),
    ],
)
def test_a_long_word_breaks_at_its_signs(word: str, lines: list[str]) -> None:
    shown = printed(Section("", [Column("m", min_width=12)], [[quoted(word)]]), 12)
    assert shown[2:] == lines


def test_a_very_long_word_is_broken_at_once() -> None:
    shown = printed(Section("", [Column("m", min_width=12)], [["x=" * 50_000]]), 12)
    assert len(shown) == 2 + 100_000 // 12 + (100_000 % 12 > 0)


@pytest.mark.parametrize(("numbers", "values"), [([0, 0], [0, 0]), ([1, 4], [0.25, 1]), ([], [])])
def test_bars_of_counts(numbers: list[int], values: list[float]) -> None:
    assert [share.value for share in shares(numbers)] == values
