"""Problems of a suite with the line that each is about."""

from __future__ import annotations

import json

import pytest
from tables import rows_of

from visioneval import Problem, SuiteError
from visioneval.cli.help import MAX_EXCERPTS, with_excerpts
from visioneval.cli.start import github_annotations, problems_json
from visioneval.errors import SHOWN_PROBLEMS, TRUST_HINT

rows = rows_of(__file__)


@pytest.fixture
def excerpt(tmp_path):
    def of(text, line, column, width=80):
        path = tmp_path / "suite.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return list(with_excerpts([Problem(str(path), line, column, "wrong")], width))[1:]

    return of


def test_a_caret_is_below_the_column(excerpt):
    assert excerpt("name: x\ncases: {a: b}\n", 2, 9) == ["    2 | cases: {a: b}", "      |         ^"]


def test_wide_characters_take_two_columns(excerpt):
    assert excerpt("名前: x\n", 1, 5)[1] == "      |       ^"


@pytest.mark.parametrize("column", [1, 300, 599])
def test_a_long_line_is_cut_around_the_column(excerpt, column):
    source, caret = excerpt("".join(f"{number:06d}" for number in range(100)), 1, column, width=60)
    assert max(len(source), len(caret)) <= 60
    position = caret.index("^")
    expected = "".join(f"{number:06d}" for number in range(100))[column - 1]
    assert source[position] == expected


@pytest.mark.parametrize(("text", "line"), rows("no_such_line_and_lines_with_keys_are_left_out"))
def test_no_such_line_and_lines_with_keys_are_left_out(excerpt, text, line):
    assert excerpt(text, line, 1) == []


def test_bytes_that_are_no_text_and_escape_sequences_are_harmless(excerpt):
    source, _ = excerpt(b"a\xff\x1b[2Jb\n", 1, 2)
    assert source.isprintable()


def test_a_file_that_is_gone_has_no_excerpt(tmp_path):
    problem = Problem(str(tmp_path / "no.yaml"), 1, 1, "wrong")
    assert list(with_excerpts([problem], 80)) == [str(problem)]


def test_only_the_first_problems_have_excerpts(tmp_path):
    path = tmp_path / "suite.yaml"
    path.write_text("a\n" * 50)
    lines = list(with_excerpts([Problem(str(path), line, 1, "wrong") for line in range(1, 51)], 80))
    assert len(lines) == 50 + 2 * MAX_EXCERPTS


def test_rows_that_need_trust_are_one_line(tmp_path):
    rows = [Problem("rows.csv", row, 1, f"'{row}.png' is outside: {TRUST_HINT}") for row in range(2, 600)]
    error = SuiteError([*rows, Problem("rows.csv", 300, 2, "wrong")])
    assert [str(problem) for problem in error.listed()] == [
        f"rows.csv:2:1: '2.png' is outside: {TRUST_HINT}",
        "rows.csv:300:2: wrong",
        "rows.csv: ... and 597 more that --trust-suite would allow",
    ]
    assert len(error.problems) == 599


def test_problems_of_each_file_are_limited():
    error = SuiteError(Problem("s.yaml", line, 1, "wrong") for line in range(1, SHOWN_PROBLEMS + 3))
    assert str(error).splitlines()[-1] == "s.yaml: ... and 2 more problems in this file"


PROBLEMS = [Problem("a,b:c%.yaml", 3, 7, "50% wrong"), Problem("s.yaml", 0, 0, "warning: even votes")]


def test_annotations_escape_what_github_reads():
    assert list(github_annotations(PROBLEMS)) == [
        "::error file=a%2Cb%3Ac%25.yaml,line=3,col=7::50%25 wrong",
        "::warning file=s.yaml::even votes",
    ]


def test_json_has_positions_and_severity():
    assert json.loads(problems_json([], PROBLEMS)) == {
        "suites": [],
        "problems": [
            {"file": "a,b:c%.yaml", "line": 3, "column": 7, "severity": "error", "message": "50% wrong"},
            {"file": "s.yaml", "line": 0, "column": 0, "severity": "warning", "message": "even votes"},
        ],
    }
