"""A suite for human labels alone: no grader, judge or rule, so nothing is decided about its outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toys import Toy

from visioneval import Verdict, read_records

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "label.md"
OUTPUTS = tuple(f"outputs/{model}/{case}.png" for model in ("draft", "final") for case in ("lighthouse", "harbor"))


def documented_suite() -> str:
    """The suite of the page, with outputs that exist instead of generated ones."""
    suite = PAGE.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    assert suite.count("provider: mock") == 2
    return suite.replace("provider: mock", 'provider: files, path: "outputs/{model}/{case}.png"')


class LabelsAlone:
    """The documented suite with its outputs, and its run ``r``."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        toy.outputs(*OUTPUTS)
        self.suite = toy.folder / "posters.yaml"
        self.suite.write_text(documented_suite())

    def run(self, *flags: str) -> Any:
        return self.toy("run", self.suite, "--run-id", "r", *flags)

    @property
    def folder(self) -> Path:
        return self.toy.folder / "runs" / "r"

    def label(self, run: str = "r") -> Any:
        rows = [
            f"{case},{model},{rater},{answer},{quality}"
            for rater, answers in (("ann", "1001"), ("bo", "1011"), ("cy", "1001"))
            for (case, model), answer, quality in zip(
                [(case, model) for case in ("lighthouse", "harbor") for model in ("draft", "final")],
                answers,
                "1424",
                strict=True,
            )
        ]
        path = self.toy.folder / "answers.csv"
        path.write_text("\n".join(["case,model,rater,usable,quality", *rows, ""]))
        return self.toy("label", "import", path, run)


@pytest.fixture
def alone(toy: Toy) -> LabelsAlone:
    return LabelsAlone(toy)


def test_the_documented_suite_gives_agreement_among_raters(alone: LabelsAlone) -> None:
    assert alone.toy("validate", alone.suite).exit_code == 0
    assert "4 images\n" in alone.toy("plan", alone.suite).stdout
    result = alone.run()
    assert result.exit_code == 0, result.output
    assert "4 outputs without a verdict, as the suite has no rules" in result.stdout
    assert "labels added: 24" in alone.label().output
    agreement = alone.toy("agreement", "r", "--json")
    assert agreement.exit_code == 0
    people = {entry["question"]: entry for entry in json.loads(agreement.stdout)["people"]}
    assert {key: (entry["raters"], entry["shared"]) for key, entry in people.items()} == {
        "usable": (3, 4),
        "quality": (3, 4),
    }
    assert people["quality"]["alpha"]["ordinal"]["value"] == 1.0
    assert 0 < people["usable"]["fleiss"]["value"] < 1


def test_nothing_is_decided(alone: LabelsAlone) -> None:
    alone.run()
    assert [record.verdict for record in read_records(alone.folder)] == [Verdict.NONE] * 4
    summary = json.loads((alone.folder / "summary.json").read_text())
    counts = summary["counts"]
    assert (counts["passed"], counts["failed"], counts["errors"], counts["without_verdict"]) == (0, 0, 0, 4)
    assert (counts["pass_rate"]["value"], summary["failing"], summary["exit_code"]) == (None, [], 0)
    assert [gate["state"] for gate in summary["gates"]] == ["skipped", "passed", "passed"]
    shown = alone.toy("show", "r", "harbor", "--verdict", "NONE").stdout
    assert (shown.count("NONE"), "PASS" in shown) == (2, False)


def test_a_missing_output_is_an_error(alone: LabelsAlone) -> None:
    (alone.toy.folder / OUTPUTS[0]).write_bytes(b"no image")
    result = alone.run()
    assert result.exit_code == 3, result.output
    assert sorted(record.verdict for record in read_records(alone.folder)) == ["ERROR", "NONE", "NONE", "NONE"]
    alone.toy.outputs(OUTPUTS[0])
    assert alone.toy("run", "--resume", "r").exit_code == 0


def test_resume_and_grade_keep_the_outputs_and_labels(alone: LabelsAlone) -> None:
    alone.run()
    alone.label()
    kept = alone.toy("run", "--resume", "r")
    assert (kept.exit_code, "unchanged: 4" in kept.stderr) == (0, True)
    assert alone.toy("grade", "r", "--run-id", "again").exit_code == 0
    assert {record.verdict for record in read_records(alone.toy.folder / "runs" / "again")} == {Verdict.NONE}


def test_graders_and_rules_can_be_added_later(alone: LabelsAlone) -> None:
    alone.run()
    alone.label()
    graded = "graders: [{key: file, type: properties}]\nverdict: [file]\n"
    alone.suite.write_text(alone.suite.read_text() + graded)
    result = alone.toy("run", alone.suite, "--resume", "r")
    assert "to generate: 0; to grade again: 4" in result.stderr
    assert {record.verdict for record in read_records(alone.folder)} <= {Verdict.PASS, Verdict.FAIL}
    assert "labels: 24" in alone.toy("agreement", "r").stdout
    assert alone.toy("grade", "r", "--suite", alone.suite, "--run-id", "again").exit_code == result.exit_code


def test_what_needs_a_verdict_says_so(alone: LabelsAlone) -> None:
    alone.run()
    alone.label()
    for command, message in (
        (("compare", "r", "r"), "r: its suite has no rules, so there is no verdict and no metric to compare"),
        (("baseline", "set", "r"), "its suite has no rules, so a baseline has nothing to compare"),
        (("probe", "r"), "r: no grader to probe"),
        (("run", "posters.yaml", "--grader", "x"), "--grader: no match for 'x'"),
        (("agreement", "r", "--min", "verdict:0.5"), "verdict"),
    ):
        result = alone.toy(*command)
        assert (result.exit_code in (2, 3), "Traceback" in result.output) == (True, False)
        assert message in result.output


def test_a_model_that_refuses_still_fails(toy: Toy) -> None:
    labels = {"questions": [{"key": "q", "ask": "Is it?", "type": "yes_no"}]}
    cases: list[dict[str, Any]] = [{"metadata": {"generate": "refuses"}}, {}]
    suite = json.loads(toy.write(*cases, labels=labels).read_text())
    path = toy.folder / "suite.yaml"
    path.write_text(json.dumps({key: suite[key] for key in suite if key not in ("graders", "verdict")}))
    result = toy("run", path, "--trust-suite")
    assert result.exit_code == 1, result.output
    assert {name: record.verdict for name, record in toy.records.items()} == {"case0": "FAIL", "case1": "NONE"}


def test_only_a_suite_with_labels_needs_no_rules(toy: Toy) -> None:
    import jsonschema

    from visioneval.suite.model import json_schema

    validator = jsonschema.Draft202012Validator(json_schema())
    asked = {"key": "q", "ask": "Is it?", "type": "yes_no"}
    toy.outputs("a.png")
    path = toy.folder / "suite.yaml"
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"labels": None}, ["the key 'graders' is missing", "the key 'verdict' is missing"]),
        ({"graders": [{"key": "file", "type": "properties"}]}, ["the key 'verdict' is missing"]),
        ({"verdict": ["file"]}, ["the key 'graders' is missing"]),
        ({"graders": [], "verdict": []}, ["graders: ", "verdict: "]),
        ({"gates": []}, ["gates: "]),
        ({"gates": ["pass_rate >= 0.5"]}, ["without 'graders' and 'verdict', nothing passes or fails"]),
        (
            {"labels": {"questions": [{**asked, "metric": "verdict"}]}},
            ["a suite without rules has no verdict: add 'graders' and 'verdict', or remove 'metric'"],
        ),
        ({"gates": ["error_rate <= 0.5"]}, []),
        ({"labels": {"preset": "ui"}}, []),
    ]
    for changes, messages in cases:
        suite = {
            "name": "people",
            "cases": [{"id": "a", "prompt": "a tree"}],
            "models": [{"provider": "files", "path": "{case}.png"}],
            "labels": {"questions": [asked]},
            **changes,
        }
        suite = {key: value for key, value in suite.items() if value is not None}
        path.write_text(json.dumps(suite))
        result = toy("validate", path)
        lines = [line for line in result.stderr.splitlines() if line.startswith(str(path))]
        assert [text in line for text, line in zip(messages, lines, strict=True)] == [True] * len(messages), lines
        is_a_matter_of_meaning = any("nothing passes" in text or "no verdict" in text for text in messages)
        assert validator.is_valid(suite) == (not messages or is_a_matter_of_meaning)
