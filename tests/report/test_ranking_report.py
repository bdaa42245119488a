"""The command ``rank``: exit codes, several runs, empty and hostile ones. What it prints and writes is in golden files."""

from __future__ import annotations

import csv
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from ranked_runs import answered, judged, label, save
from tables import rows_of
from typer.testing import CliRunner

import visioneval as ve
from visioneval.cli import app
from visioneval.report.ranking import ranking_report
from visioneval.report.sections import Interval, Section, Value

rows = rows_of(__file__)

HOSTILE = "[bold]<script>alert(1)</script>`|"


@pytest.fixture
def call(tmp_path: Path) -> Any:
    """``call(*words)`` runs ``rank`` over the runs of tmp_path."""

    def run_rank(*arguments: str, columns: int = 120) -> Any:
        done = CliRunner().invoke(app, ["rank", *arguments, "--runs", str(tmp_path)], env={"COLUMNS": str(columns)})
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "Traceback" not in done.output
        return done

    return run_rank


def preferences(names: str | tuple[str, ...] = "xyz", cases: int = 20, **more: Any) -> list[Any]:
    """The first of two names wins four of five cases, and ties the others by a flip."""
    return [
        line
        for at in range(cases)
        for a, b in combinations(names, 2)
        for line in judged(f"c{at}", a, b, *(("a", "b") if at % 5 == 0 else ("a",) if at % 5 < 4 else ("b",)), **more)
    ]


def test_json_is_the_result_of_the_api(tmp_path: Path, call: Any) -> None:
    save(tmp_path, answered(preferences()))
    done = call("r", "--json")
    data = json.loads(done.stdout)
    result = ve.rank("r", runs=tmp_path)
    assert data == json.loads(result.model_dump_json())
    assert isinstance(result, ve.Rankings)
    assert repr(result) == str(result) == "Rankings(r: 1 ranking by judges, exit code 0)"
    assert (data["schema_version"], data["by"], data["runs"], data["exit_code"]) == (2, "judges", ["r"], 0)
    assert [entry["name"] for entry in data["rankings"][0]["model_runs"]] == ["x", "y", "z"]


def test_gaps_are_printed_everywhere_and_exit_3(tmp_path: Path, call: Any) -> None:
    save(tmp_path, answered([*preferences("xy"), *preferences("vw"), *judged("c0", "x", "v", None)]))
    report, page = tmp_path / "out/rank.md", tmp_path / "out/rank.html"
    done = call("r", "--markdown", str(report), "--html", str(page))
    assert done.exit_code == 3
    for text in (done.stdout, report.read_text(), page.read_text().replace("<wbr>", "")):
        assert "1 pair could not be judged and is left out" in text
        assert "not ranked together, as no answers connect them: v, w; x, y" in text
        assert "Group 2 of 2" in text
        assert "Incomplete: 4 model runs ranked" in text
    assert json.loads(call("r", "--json").stdout)["exit_code"] == 3


def test_no_answers(tmp_path: Path, call: Any) -> None:
    save(tmp_path, answered())
    page, report = tmp_path / "rank.html", tmp_path / "rank.md"
    done = call("r", "--html", str(page), "--markdown", str(report))
    assert (done.exit_code, done.stdout.count("visioneval pairwise A B")) == (3, 1)
    assert "visioneval pairwise A B" in report.read_text()
    assert "visioneval pairwise A B" in page.read_text()
    done = call("r", "--by", "people")
    assert done.exit_code == 3
    assert "visioneval label RUN@A --pairs RUN@B" in done.stdout


def test_names_of_model_runs_are_never_markup(tmp_path: Path, call: Any) -> None:
    names = (HOSTILE, "fine")
    save(tmp_path, answered(preferences(names, judge="<b>[red]judge"), models=names))
    page, report = tmp_path / "rank.html", tmp_path / "rank.md"
    done = call("r", "--html", str(page), "--markdown", str(report), columns=200)
    assert done.exit_code == 0
    assert HOSTILE in done.stdout
    assert "<b>[red]judge" in done.stdout
    html = page.read_text()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/" in html
    assert "<b>" not in html
    row = next(line for line in report.read_text().splitlines() if line.startswith("| 1 "))
    assert "| ``[bold]<script>alert(1)</script>`\\|`` |" in row


def test_the_page_loads_nothing_and_plots_only_bounded_strengths(tmp_path: Path, call: Any) -> None:
    winner = [line for at in range(20) for other in "xyz" for line in judged(f"c{at}", "w", other, "a")]
    save(tmp_path, answered([*preferences(), *winner]))
    page = tmp_path / "rank.html"
    assert call("r", "--html", str(page)).exit_code == 0
    html = page.read_text()
    assert "w won every pair: its strength has no upper bound" in html
    assert html.count('class="dot"') == html.count('class="whisker"') == 3
    assert "default-src &#39;none&#39;" in html
    assert "http" not in re.sub(r'<meta http-equiv="[^"]*"', "", html)


@pytest.mark.parametrize(("strengths", "texts"), rows("the_axis_has_round_ticks_around_all_strengths"))
def test_the_axis_has_round_ticks_around_all_strengths(strengths: list[Any], texts: str) -> None:
    counts = dict.fromkeys(("wins", "losses", "ties", "pairs", "cases", "tier", "group"), 1)
    runs = [
        {"model_run": "r@x", "name": "x", "rank": 1, "strength": {"value": value, "low": low, "high": high}, **counts}
        for value, low, high in strengths
    ] or [{"model_run": "r@x", "name": "x", "rank": None, **counts}]
    ranking = {"cases": 1, "pairs": 1, "unanswered": 0, "model_runs": runs, "comparisons": []}
    found = ve.Rankings.model_validate({"by": "judges", "runs": ["r"], "rankings": [ranking]})
    table = ranking_report(found).sections[0]
    assert isinstance(table, Section)
    assert table.columns[2].axis == tuple(texts.split())
    for row in table.rows if strengths else ():
        assert isinstance(row[2], Value)
        plot = row[2].plot
        assert isinstance(plot, Interval)
        assert (
            plot.ends
            == (plot.marks[0], plot.marks[-1])
            == pytest.approx((float(texts.split()[0]), float(texts.split()[-1])))
        )
        assert plot.marks == tuple(sorted(plot.marks))
        assert plot.ends[0] <= (plot.value or 0.0) <= plot.ends[1]


def test_several_model_runs_of_a_run_and_of_others(tmp_path: Path, call: Any) -> None:
    save(tmp_path, answered(preferences("wxyz"), models="wxyz"))
    save(tmp_path, answered(preferences(("r@w", "s@x")), run_id="s"))
    both = json.loads(call("r@w", "r@x", "s", "--json").stdout)
    assert [item["model_run"] for item in both["rankings"][0]["model_runs"]] == ["r@w", "r@x", "s@x"]
    assert [item["name"] for item in both["rankings"][0]["model_runs"]] == ["w", "r@x", "s@x"]


def test_api_refuses_wrong_settings(tmp_path: Path) -> None:
    save(tmp_path, answered(preferences()))
    for names, settings, message in (
        ((), {}, "name at least one run"),
        (("r",), {"cases": "c1"}, "must be lists of strings"),
        (("r",), {"by": "cats"}, "by: 'cats' is not valid: use judges or people"),
    ):
        with pytest.raises(ve.UsageError, match=message):
            ve.rank(*names, runs=tmp_path, **settings)  # type: ignore[arg-type]
    assert ve.rank(ve.load_run("r", runs=tmp_path), models=["x", "y"]).rankings[0].pairs == 20


def test_a_copy_of_a_run_is_given_twice(tmp_path: Path, call: Any) -> None:
    save(tmp_path, answered(preferences()))
    save(tmp_path / "other", answered(preferences()))
    done = call("r", str(tmp_path / "other/r"))
    assert (done.exit_code, "r is given twice" in done.stderr) == (2, True)


@pytest.mark.parametrize(("file", "by"), [("preferences.jsonl", "judges"), ("labels.jsonl", "people")])
@pytest.mark.parametrize(
    ("line", "message"),
    [('{"schema_version":1}', "schema_version 1 is older than"), ("[", ":1"), ("{}", "no schema_version")],
)
def test_answers_that_cannot_be_read(tmp_path: Path, call: Any, file: str, by: str, line: str, message: str) -> None:
    folder = save(tmp_path, answered())
    (folder / file).write_text(f"{line}\n")
    done = call("r", "--by", by)
    assert done.exit_code == 2
    assert f"{file}:1" in done.stderr
    assert message in done.stderr


def test_an_output_file_that_cannot_be_written(tmp_path: Path, call: Any) -> None:
    save(tmp_path, answered(preferences()))
    (tmp_path / "file").write_text("")
    done = call("r", "--html", str(tmp_path / "file/rank.html"))
    assert (done.exit_code, "cannot write" in done.stderr) == (2, True)


def test_an_interrupted_run_exits_3(tmp_path: Path, call: Any) -> None:
    folder = save(tmp_path, answered(preferences()))
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "state": "interrupted"}))
    done = call("r")
    assert (done.exit_code, "the run r is interrupted: pairs may be missing" in done.stdout) == (3, True)


@pytest.mark.slow
def test_ratings_of_published_edits(shared_data: Path, tmp_path: Path, call: Any) -> None:
    """Where everyone meets everyone equally often, the order is that of the points, here of three raters' ratings."""
    labels, points = [], dict[str, float]()
    for rater in ("rater1", "rater2", "rater3"):
        with (shared_data / "viescore_edits" / f"{rater}.tsv").open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                ratings = {name: json.loads(text)[0] for name, text in row.items() if name != "uid"}
                for a, b in combinations(sorted(ratings), 2):
                    answer = "tie" if ratings[a] == ratings[b] else "ab"[ratings[b] > ratings[a]]
                    labels.append(label(row["uid"], rater, a, f"r@{b}", answer))
                    points[a] = points.get(a, 0) + {"a": 1, "tie": 0.5, "b": 0}[answer]
                    points[b] = points.get(b, 0) + {"a": 0, "tie": 0.5, "b": 1}[answer]
    save(tmp_path, answered(labels=labels, models=tuple(points)))
    done = call("r", "--by", "people", "--json")
    assert done.exit_code == 0
    (ranking,) = json.loads(done.stdout)["rankings"]
    assert (ranking["cases"], ranking["pairs"], ranking["raters"]) == (179, 179 * 36, 3)
    assert [entry["name"] for entry in ranking["model_runs"]] == sorted(points, key=lambda name: -points[name])
    assert ranking["model_runs"][0]["name"] == "MagicBrush"
    assert (ranking["model_runs"][0]["low_rank"], ranking["model_runs"][0]["high_rank"]) == (1, 1)
