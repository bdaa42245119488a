"""A metric that is one word of a list: rules, votes, panels, summary, comparison, labels, agreement, exports."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_runner import SuiteRunner
from typer.testing import CliRunner, Result

from visioneval import Metric, Record, load_run, read_info, read_records
from visioneval.analysis.stats.agreement import krippendorff_alpha
from visioneval.analysis.summary.summary import Summary
from visioneval.cli import app
from visioneval.export.tracked import tracked_run
from visioneval.graders.panel import combine_panel
from visioneval.judging.ask import combined_vote, is_tie
from visioneval.records.model import JudgeAnswer
from visioneval.rules import parse_rule

ROOT = Path(__file__).parents[3]
WORDS = ("flat", "sketch", "photo")
STYLE = {"type": "one_of", "choices": list(WORDS), "description": "The style of the icon."}
ANSWERS = {"home": "flat", "user": "flat", "cart": "sketch", "gear": "photo"}


Runs = dict[tuple[str, ...], tuple[Result, Path]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The output of each run of this module, and a copy of its folder, by its name, suite and answers."""
    return {("",): (None, tmp_path_factory.mktemp("runs"))}  # type: ignore[dict-item]


class Icons:
    """A folder with a suite whose judges have recorded answers. ``changes`` are top-level keys of the suite."""

    def __init__(self, folder: Path, runs: Runs) -> None:
        self.folder, self.runs = folder, runs

    def write(self, asked: dict[str, Any] | None = None, look: dict[str, Any] | None = None, **changes: Any) -> None:
        grader = {"key": "look", "type": "rubric", "metrics": asked or {"style": STYLE}, **(look or {})}
        suite = {
            "name": "icons",
            "judges": {"default": {"provider": "recorded", "path": "default.csv"}},
            "cases": [{"id": name, "prompt": f"an icon: {name}"} for name in ANSWERS],
            "models": [{"provider": "mock", "label": "m"}],
            "graders": [grader],
            "verdict": ['style in ["flat", "sketch"]', {"rule": 'style == "flat"', "level": "warn"}],
            "gates": ["pass_rate >= 0.5"],
            **changes,
        }
        (self.folder / "suite.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))

    def answers(self, judge: str = "default", **changes: str) -> None:
        rows = [f"{case},style,{word}" for case, word in {**ANSWERS, **changes}.items()]
        (self.folder / f"{judge}.csv").write_text("\n".join(["case,question,answer", *rows, ""]))

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False)

    def run(self, run_id: str = "a", rows: str = "", **changes: str) -> Result:
        """Runs the suite; a run of equal suites and answers, by the same name, is a copy of the first one."""
        self.answers(**changes)
        if rows:
            (self.folder / "default.csv").write_text(f"case,question,answer\n{rows}")
        files = sorted(path for path in self.folder.iterdir() if path.suffix in (".yaml", ".csv"))
        key = run_id, *(path.read_text() for path in files)
        copy = self.folder / "runs" / run_id
        if key in self.runs:
            shutil.copytree(self.runs[key][1], copy)
        else:
            stored = self.runs["",][1] / str(len(self.runs))
            self.runs[key] = self("run", "suite.yaml", "--run-id", run_id, "--full"), stored
            shutil.copytree(copy, stored)
        return self.runs[key][0]

    def records(self, run_id: str = "a") -> dict[str, Record]:
        return {record.test_id: record for record in read_records(self.folder / "runs" / run_id)}

    def summary(self, run_id: str = "a") -> Any:
        self("show", run_id)
        return json.loads((self.folder / "runs" / run_id / "summary.json").read_text())

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.fixture
def icons(tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Icons:
    monkeypatch.chdir(tmp_path)
    suite = Icons(tmp_path, runs)
    suite.write()
    suite.answers()
    return suite


def test_records_store_the_word_and_rules_read_it(icons: Icons) -> None:
    result = icons.run()
    assert result.exit_code == 0, result.output
    records = icons.records()
    assert {case: record.scores["style"] for case, record in records.items()} == ANSWERS
    assert {case: str(record.verdict) for case, record in records.items()} == {
        "home": "PASS", "user": "PASS", "cart": "PASS", "gear": "FAIL",
    }  # fmt: skip
    assert {case for case, record in records.items() if record.warned_rules} == {"cart", "gear"}


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        ('style == "flat"', {"home", "user"}),
        ("style == 'flat'", {"home", "user"}),
        ('style != "flat"', {"cart", "gear"}),
        ('style in ["flat"]', {"home", "user"}),
        ("style in ['flat', \"photo\",]", {"home", "user", "gear"}),
        ('style not in ["flat", "photo"]', {"cart"}),
        ('"style" not  in["flat"]', {"cart", "gear"}),
    ],
)
def test_forms_of_rules(rule: str, passed: set[str]) -> None:
    outcomes = {case: parse_rule(rule).outcome({"style": word}) for case, word in ANSWERS.items()}
    assert {case for case, outcome in outcomes.items() if outcome == "passed"} == passed
    assert set(outcomes.values()) <= {"passed", "failed"}


def test_a_missing_answer_is_an_error_and_no_word(icons: Icons) -> None:
    assert icons.run(cart="").exit_code == 3
    record = icons.records()["cart"]
    assert (record.scores, record.verdict) == ({"style": None}, "ERROR")
    metrics = icons.summary()["models"][0]["metrics"]
    assert [(metrics[f"style: {word}"]["n"], metrics[f"style: {word}"]["unmeasured"]) for word in WORDS] == [(3, 1)] * 3


def test_the_summary_has_the_share_and_the_number_of_each_word(icons: Icons) -> None:
    printed = icons.run().stdout
    assert re.search(r"style: flat +50 % \[15, 85\] \(2 of 4\)", printed)
    assert re.search(r"style: photo +25 % \[4\.6, 69\.9\] \(1 of 4\)", printed)
    assert "style is photo, not flat or sketch" in " ".join(printed.split())
    summary = icons.summary()
    assert summary["metrics"]["style"] == {"type": "one_of", "choices": list(WORDS), "range": None, "better": "none"}
    assert {name: found["value"] for name, found in summary["models"][0]["metrics"].items()} == {
        "style: flat": 0.5, "style: sketch": 0.25, "style: photo": 0.25,
    }  # fmt: skip
    assert {item["name"] for item in summary["noise"]} >= {"style: flat", "style: sketch", "style: photo"}


def test_a_comparison_has_the_difference_of_each_share(icons: Icons) -> None:
    icons.run()
    icons.run("b", home="photo")
    result = icons.json("compare", "a", "b")
    assert result["metrics"] == []
    shares = {item["name"]: item for item in result["by_word"]}
    assert {name: round(item["difference"], 9) for name, item in shares.items()} == {
        "style: flat": -0.25, "style: sketch": 0.0, "style: photo": 0.25,
    }  # fmt: skip
    assert all(item["p_holm"] is None and item["p"] is not None for item in shares.values())
    icons("compare", "a", "b", "--markdown", "c.md", "--html", "c.html")
    assert "Shares of words (p not adjusted)" in Path("c.md").read_text()
    assert "| `style: flat` | 50 % | 25 % |" in Path("c.md").read_text()
    assert "style: flat" in Path("c.html").read_text()


@pytest.mark.parametrize("name", ["style", "style: flat"])
def test_no_gate_of_a_comparison_is_about_a_word(icons: Icons, name: str) -> None:
    icons.run()
    result = icons("compare", "a", "a", "--fail-on", f"{name}:0.1")
    assert result.exit_code == 2
    assert f"{name} is one word of a list, of which none is better" in result.stderr


def test_a_comparison_notices_words_that_are_lost_or_mean_another_thing(icons: Icons) -> None:
    icons.run()
    icons.run("lost", home="", user="")
    lost = icons("compare", "a", "lost")
    assert lost.exit_code == 3
    flat = icons.json("compare", "a", "lost")["by_word"][0]
    assert (flat["name"], flat["n_pairs"], flat["unmeasured"], flat["b"]) == ("style: flat", 2, 2, 0.0)
    assert "style" in lost.stdout
    icons.write({"style": {**STYLE, "choices": [*WORDS, "line"]}})
    icons.run("other")
    other = icons("compare", "a", "other")
    assert (
        "style means another thing in B: A: one of flat, sketch, photo; B: one of flat, sketch, photo, line"
        in " ".join(other.stdout.split())
    )
    icons.write({"style": {**STYLE, "choices": ["photo", "flat", "sketch"]}})
    icons.run("turned")
    shares = {item["name"]: item["difference"] for item in icons.json("compare", "a", "turned")["by_word"]}
    assert shares == {"style: flat": 0.0, "style: sketch": 0.0, "style: photo": 0.0}


def test_a_planned_comparison_adjusts_for_no_word(icons: Icons) -> None:
    icons.write({"style": STYLE, "nice": {"type": "pass_fail", "description": "It is nice."}})
    rows = (f"{case},style,{word}\n{case},nice,yes\n" for case, word in ANSWERS.items())
    Path("default.csv").write_text("case,question,answer\n" + "".join(rows))
    planned = " ".join(icons("plan", "suite.yaml", "--detect", "nice:0.3").stdout.split())
    assert "tests 1 metric at 5% together: nice at the 5% level" in planned
    refused = icons("plan", "suite.yaml", "--detect", "style:0.3")
    assert "style is one word of a list, which has no mean: plan with the pass rate" in refused.stderr


def test_a_baseline_of_several_runs_has_mean_shares(icons: Icons) -> None:
    icons.run()
    icons("baseline", "set", "a")
    icons.run("b", home="photo")
    results = icons.folder / "runs/b/results.jsonl"  # as if a model had generated other outputs
    results.write_text(re.sub(r'("artifact_sha256":")....', r"\g<1>0000", results.read_text()))
    added = icons("baseline", "add", "b")
    assert added.exit_code == 0, added.output
    shares = {item["name"]: item["a"] for item in icons.json("compare", "baseline:main", "a")["by_word"]}
    assert shares == {"style: flat": 0.375, "style: sketch": 0.25, "style: photo": 0.375}


def test_a_file_of_records_has_the_words_that_it_uses(icons: Icons) -> None:
    icons.run()
    Path("records.jsonl").write_bytes((icons.folder / "runs/a/results.jsonl").read_bytes())
    for sides in (("a", "records.jsonl"), ("records.jsonl", "a"), ("records.jsonl", "records.jsonl")):
        shares = {item["name"]: item["b"] for item in icons.json("compare", *sides)["by_word"]}
        assert shares == {"style: flat": 0.5, "style: sketch": 0.25, "style: photo": 0.25}


@pytest.mark.parametrize(("number", "compared"), [(100, 100), (101, 0)])
def test_a_file_of_records_with_over_100_words_has_free_text(icons: Icons, number: int, compared: int) -> None:
    icons.run()
    record = json.loads((icons.folder / "runs/a/results.jsonl").read_text().partition("\n")[0])
    lines = [
        json.dumps({**record, "sample_index": at, "scores": {"style": f"word {at % number}", "size": at}})
        for at in range(2 * number)
    ]
    Path("records.jsonl").write_text("\n".join([*lines, ""]))
    comparison = icons.json("compare", "records.jsonl", "records.jsonl")
    assert len(comparison["by_word"]) == compared
    assert [item["name"] for item in comparison["metrics"]] == ["size"]
    assert icons("compare", "a", "records.jsonl").exit_code != 2


def test_a_metric_has_at_most_100_words() -> None:
    words = [f"word {at}" for at in range(101)]
    assert len(Metric(type="one_of", choices=tuple(words[:100])).choices) == 100
    with pytest.raises(ValueError, match="at most 100"):
        Metric(type="one_of", choices=tuple(words))


def test_agreement_has_a_table_of_words(icons: Icons) -> None:
    icons.run()
    rows = [("home", "ann", "flat"), ("user", "ann", "sketch"), ("cart", "ann", "sketch"), ("cart", "bob", "sketch"),
            ("gear", "ann", "photo"), ("gear", "bob", "flat")]  # fmt: skip
    lines = [f"{case},m,0,{rater},style,{word}" for case, rater, word in rows]
    Path("labels.csv").write_text(
        "\n".join(["case,model,sample,rater,question,answer", *lines, "home,m,0,eve,style,round"])
    )
    imported = icons("label", "import", "labels.csv", "a")
    assert "labels added: 6" in imported.stdout
    assert "'round' is not one of flat, sketch, photo" in imported.output
    finding = next(item for item in icons.json("agreement", "a")["graders"] if item["metric"] == "style")
    assert (finding["kind"], finding["cells"], finding["split"], finding["headline"]) == ("one_of", 4, 1, "kappa")
    assert finding["confusion"] == {
        "people": list(WORDS),
        "grader": list(WORDS),
        "counts": [[1, 0, 0], [1, 1, 0], [0, 0, 0]],
    }
    assert set(finding["measures"]) == {"kappa", "accuracy"}
    assert finding["measures"]["kappa"]["value"] == pytest.approx(0.4)
    assert finding["measures"]["accuracy"]["value"] == pytest.approx(2 / 3)
    (disputed,) = finding["disputed"]
    assert (disputed["test_id"], disputed["people"], disputed["grader"]) == ("user", "sketch", "flat")
    printed = icons("agreement", "a").stdout
    assert re.search(r"sketch +1 +1 +0", printed)
    assert icons("agreement", "a", "--min-point", "style:0.5").exit_code == 1


def test_labels_of_words_correct_no_mean(icons: Icons) -> None:
    question = {
        "key": "style",
        "ask": "Which style?",
        "type": "one_of",
        "choices": ["photo", "flat", "sketch"],
        "metric": "style",
    }
    icons.write(labels={"questions": [question]})
    icons.run()
    Path("labels.csv").write_text("case,model,sample,rater,question,answer\nhome,m,0,ann,style,photo\n")
    icons("label", "import", "labels.csv", "a")
    (finding,) = icons.json("agreement", "a")["graders"]
    assert finding["confusion"]["counts"] == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    corrected = icons("agreement", "a", "--correct")
    assert "no question in the suite names a metric with a mean" in corrected.stderr


def test_raters_choose_among_the_same_words(icons: Icons) -> None:
    icons.run()
    suite = read_info(icons.folder / "runs/a").selected_suite
    question = suite.resolved_labels.question("style")
    assert question is not None
    assert (question.type, question.choices, question.metric) == ("one_of", WORDS, "style")
    assert question.ask == "Which style? The style of the icon."


def test_exports_have_a_column_of_words(icons: Icons) -> None:
    icons.run()
    rows = list(csv.DictReader(icons("export", "a", "--format", "csv").stdout.splitlines()))
    assert {row["case" if "case" in row else "test_id"]: row["style"] for row in rows} == ANSWERS
    pq = pytest.importorskip("pyarrow.parquet")
    icons("export", "a", "--output", "cells.parquet")
    table = pq.read_table("cells.parquet")
    assert table.column("style").to_pylist() == list(ANSWERS.values())
    assert str(table.schema.field("scores").type).startswith("map<string, double")


def test_shares_have_lines_over_runs_and_names_in_trackers(icons: Icons) -> None:
    icons.write(experiment="nightly")
    for run_id, home in (("a", "flat"), ("b", "photo"), ("c", "photo")):
        icons.run(run_id, home=home)
    icons("site", "--output", "site")
    page = Path("site/index.html").read_text()
    assert "style: flat over 3 runs, oldest first: 50 %, 25 %, 25 %" in page
    folder = icons.folder / "runs/a"
    summary = Summary.model_validate(icons.summary())
    _, entry = tracked_run(folder, read_info(folder), summary, rows=0).entries
    assert entry.metrics["style: flat"] == 0.5


def test_a_redacted_run_keeps_words_like_other_scores(icons: Icons) -> None:
    cases = [{"id": name, "prompt": f"an icon: {name}", "tags": ["person"]} for name in ANSWERS]
    icons.write(look={"votes": 3}, cases=cases)
    icons.run()
    plain, redacted = (load_run("a", redact=tags).summary for tags in ([], ["person"]))
    assert (redacted.models, redacted.judges) == (plain.models, plain.judges)
    assert plain.judges[0].votes[0].metric == "style"
    rows = [
        json.loads(line) for line in icons("export", "a", "--format", "jsonl", "--redact", "person").stdout.splitlines()
    ]
    assert {row["test_id"]: row["scores"]["style"] for row in rows} == ANSWERS


def test_reports_show_the_word(icons: Icons) -> None:
    icons.run()
    assert re.search(r"style +photo", icons("show", "a", "gear").stdout)
    icons("report", "a")
    folder = icons.folder / "runs/a/report"
    assert '"style":["flat","flat","sketch","photo"]' in "".join(path.read_text() for path in folder.rglob("*.js"))
    assert "style: flat" in (folder / "index.html").read_text()
    icons("run", "suite.yaml", "--resume", "a", "--junit", "j.xml", "--markdown", "m.md")
    assert "style is photo, not flat or sketch" in Path("j.xml").read_text()
    assert "style: flat" in Path("m.md").read_text()


def test_a_changed_rule_keeps_the_words_and_a_new_choice_asks_again(icons: Icons) -> None:
    icons.run()
    icons.write(verdict=['style == "photo"'])
    changed = icons("grade", "runs/a", "--suite", "suite.yaml", "--run-id", "rules")
    assert changed.exit_code == 1, changed.output
    assert "re-evaluated by the rules" in changed.output
    assert [case for case, record in icons.records("rules").items() if record.verdict == "PASS"] == ["gear"]
    icons.write({"style": {**STYLE, "choices": [*WORDS, "line"]}})
    asked = icons("grade", "runs/a", "--suite", "suite.yaml", "--run-id", "line")
    assert "re-evaluated" not in asked.output
    assert icons.records("line")["gear"].scores == {"style": "photo"}


def test_a_panel_needs_most_of_its_judges(icons: Icons) -> None:
    judges = {name: {"provider": "recorded", "path": f"{name}.csv"} for name in ("default", "b", "c")}
    icons.write(judges=judges, look={"judge": ["default", "b", "c"]})
    icons.answers("b", home="photo", user="photo")
    icons.answers("c", user="sketch", cart="flat")
    result = icons.run()
    assert result.exit_code == 3, result.output
    records = icons.records()
    assert {case: record.scores["style"] for case, record in records.items()} == {
        "home": "flat", "user": None, "cart": "sketch", "gear": "photo",
    }  # fmt: skip
    (grader,) = records["user"].graders
    assert grader.error == "the judges are split on 'style': default flat, c sketch, b photo"
    (finding,) = icons.summary()["panels"].values()
    assert finding["metrics"]["style"]["split"] == 1
    assert finding["metrics"]["style"]["alpha"]["value"] == pytest.approx(1 - 77 / 94)
    rows = list(csv.DictReader(icons("export", "a", "--format", "csv").stdout.splitlines()))
    assert [row["style by b"] for row in rows] == ["photo", "photo", "sketch", "photo"]


@pytest.mark.parametrize(
    ("words", "score"),
    [("aab", "a"), ("bab", "b"), ("ab", None), ("abc", None), ("aabc", None), ("aaabc", "a"), ("a", "a")],
)
def test_a_word_of_more_than_half_of_the_judges_is_the_panels(words: str, score: str | None) -> None:
    metric = Metric(type="one_of", choices=("a", "b", "c"))
    answers = [JudgeAnswer(judge=str(at), scores={"style": word}) for at, word in enumerate(words)]
    result = combine_panel(answers, {"style": metric}, required=len(answers))
    assert result.scores == {"style": score}
    assert (result.error is None) == (score is not None)


@pytest.mark.parametrize(
    ("votes", "score", "tied"),
    [
        (["a", "b", "b"], "b", False),
        (["a", "b"], "a", True),
        (["c", "b", "a"], "c", True),
        (["c", "b", "a", "a", "b"], "b", True),
        ([None, "b", "a"], "b", True),
        ([None, None, "a"], None, False),
    ],
)
def test_the_most_frequent_word_is_the_score_of_votes(votes: list[Any], score: str | None, tied: bool) -> None:
    assert (combined_vote(votes), is_tie(votes)) == (score, tied)


def test_votes_of_words_have_a_nominal_alpha(tmp_path: Path, runner: SuiteRunner) -> None:
    words = iter(["flat", "flat", "photo", "sketch"])
    runner.api.script.judge(lambda _: {"style": next(words), "reason": "r", "verdict": "PASS"})
    look = {"key": "look", "type": "rubric", "votes": 2, "metrics": {"style": STYLE}}
    runner.write(graders=[look], verdict=['style == "flat"'])
    runner.run()
    (card,) = runner.summary()["judges"]
    (votes,) = card["votes"]
    assert (votes["metric"], votes["items"]) == ("style", 2)
    patterns = [sorted(record.graders[0].details["votes"]["style"]) for record in runner.records().values()]
    counts = [[pattern.count(word) for word in WORDS] for pattern in patterns]
    assert votes["alpha"] == pytest.approx(krippendorff_alpha(counts, range(3), "nominal"))


@pytest.mark.parametrize("rule", ['style == "flat"', 'style != "flat"', 'style not in ["flat"]'])
@pytest.mark.parametrize("score", [1, True, 0.5, None])
def test_a_word_in_the_place_of_a_number_is_not_measured(rule: str, score: Any) -> None:
    assert parse_rule(rule).outcome({"style": score}) == "unmeasured"
    assert parse_rule("style > 0").outcome({"style": "flat"}) == "unmeasured"
    assert parse_rule("not style").outcome({"style": "flat"}) == "unmeasured"


GOOD = {"type": "score", "scale": [0, 5], "description": "How good it is."}


def _run_with_a_number(icons: Icons, *changes: tuple[str, str]) -> Path:
    """A finished run with a metric of words and a number, in whose records texts are replaced."""
    icons.write({"style": STYLE, "good": GOOD}, verdict=["good >= 2"])
    icons.run(rows="".join(f"{case},style,{word}\n{case},good,3\n" for case, word in ANSWERS.items()))
    results = icons.folder / "runs/a/results.jsonl"
    text = results.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    results.write_text(text)
    return results


COMMANDS = (
    ("show", "a"),
    ("show", "a", "home"),
    ("report", "a"),
    ("export", "a", "--format", "csv"),
    ("compare", "a", "a"),
    ("agreement", "a"),
    ("grade", "a", "--run-id", "b"),
    ("run", "suite.yaml", "--resume", "a"),
)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"good":3', '"good":"high"', "scores.good: expected a number or null: delete this line"),
        ('"style":"sketch"', '"style":"skech"', "scores.style: expected one of flat, sketch, photo, or null: delete"),
        ('"style":"sketch"', '"style":1', "scores.style: expected one of flat, sketch, photo, or null: delete this"),
        ('"style":"sketch"', '"style":true', "scores.style: expected one of flat, sketch, photo, or null: delete"),
    ],
)
def test_a_score_that_is_no_word_of_its_metric_is_refused(icons: Icons, before: str, after: str, message: str) -> None:
    results = _run_with_a_number(icons, (before, after))
    line = next(at for at, text in enumerate(results.read_text().splitlines(), 1) if after in text)
    for command in COMMANDS if after == '"good":"high"' else COMMANDS[:1]:
        result = icons(*command)
        assert result.exit_code == 2, (command, result.output)
        output = " ".join(result.output.split())
        assert f"runs/a/results.jsonl:{line}: {message}" in output
        assert "reruns this cell" in output


def test_words_of_a_metric_and_null_are_read(icons: Icons) -> None:
    _run_with_a_number(icons, ('"style":"sketch"', '"style":"photo"'), ('"style":"flat"', '"style":null'))
    for command in COMMANDS[:5]:
        assert icons(*command).exit_code in (0, 1, 3), command


def test_a_word_where_yes_or_no_belongs_is_refused(icons: Icons) -> None:
    icons.write({"clean": {"type": "pass_fail", "description": "Whether it is clean."}}, verdict=["clean"])
    Path("default.csv").write_text("case,question,answer\n" + "".join(f"{case},clean,yes\n" for case in ANSWERS))
    assert icons("run", "suite.yaml", "--run-id", "a").exit_code == 0
    results = icons.folder / "runs/a/results.jsonl"
    results.write_text(results.read_text().replace('"clean":true', '"clean":"word"'))
    result = icons("show", "a")
    assert result.exit_code == 2
    assert "scores.clean: expected true, false or null: delete this line" in " ".join(result.output.split())


def test_a_panels_answers_are_checked_too(icons: Icons) -> None:
    judges = {name: {"provider": "recorded", "path": f"{name}.csv"} for name in ("x", "y", "z")}
    for name in judges:
        icons.answers(name)
    icons.write(look={"judge": list(judges)}, judges=judges)
    assert icons.run().exit_code == 0
    results = icons.folder / "runs/a/results.jsonl"
    text = results.read_text()
    at = text.index('"judge":"y"')
    results.write_text(text[:at] + text[at:].replace('"style":"', '"style":"un', 1))
    result = icons("show", "a")
    assert result.exit_code == 2
    assert "graders.0.judges.1.scores.style: expected one of flat, sketch, photo" in " ".join(result.output.split())


def test_a_run_that_is_resumed_with_other_metrics_is_read_until_it_graded_again(icons: Icons) -> None:
    """Its records have the scores of the suite before, which are no mistake."""
    icons.run()
    info = icons.folder / "runs/a/run.json"
    icons.write({"style": GOOD}, verdict=["style >= 2"])
    Path("default.csv").write_text("case,question,answer\n" + "".join(f"{case},style,3\n" for case in ANSWERS))
    icons("run", "suite.yaml", "--run-id", "b")
    other = json.loads((icons.folder / "runs/b/run.json").read_text())
    changed = {**other, "run_id": "a", "state": "interrupted"}
    info.write_text(json.dumps(changed))  # as of a run that was stopped before it graded a cell
    shown = icons("show", "a")
    assert re.search(r"style +none !4", shown.stdout), shown.output
    assert icons("run", "suite.yaml", "--resume", "a").exit_code == 0
    assert {record.scores["style"] for record in icons.records().values()} == {3}


@pytest.mark.parametrize("word", ["", "x" * 201, "two\nlines"])
def test_a_record_has_one_line_as_a_word(icons: Icons, word: str) -> None:
    icons.run()
    results = icons.folder / "runs/a/results.jsonl"
    results.write_text(results.read_text().replace('"style":"flat"', f'"style":{json.dumps(word)}', 1))
    result = icons("show", "a")
    assert result.exit_code != 0
    assert "scores.style: expected true, false, a number from -2^63 to 2^63, a word, or null" in result.output.replace(
        "\n", " "
    )


def test_the_example_in_the_docs_runs(icons: Icons) -> None:
    text = (ROOT / "docs/reference/graders/rubric.md").read_text(encoding="utf-8")
    example = text.partition("## One word of a list")[2].partition("```yaml\n")[2].partition("```")[0]
    icons.write(**yaml.safe_load(example))
    result = icons.run()
    assert result.exit_code == 0, result.output
    assert {case: record.scores["style"] for case, record in icons.records().items()} == ANSWERS
