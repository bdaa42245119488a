"""A run of datasets: selected, resumed, graded again and compared, with and without the files that it was read from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import visioneval as ve

pytestmark = pytest.mark.slow

SUITE = """\
name: sets
vars: {set: easy}
judges: {eye: {provider: recorded, path: answers.csv, fields: {case: item, question: q}}}
cases:
  - dataset:
      path: "{{ vars.set }}.csv"
      group_by: item
      join: {path: kinds.json, on: {item: _key}}
      filter: {kind: [thing, being]}
      fields: {id: item}
      defaults: {prompt: "A photo of {{ row.item }}", tags: ["{{ row.kind }}"]}
models: [{provider: files, outputs: none, label: m}]
graders:
  - key: gecko
    type: gecko
    judge: eye
    dependencies: use
    questions:
      path: answers.csv
      group_by: item
      fields: {case: item, questions: {id: n, question: q, depends_on: parent}}
verdict: [gecko >= 0.5]
gates: [pass_rate >= 0]
"""
ANSWERS = """\
item,n,q,parent,answer
cup,1,Is there a cup?,0,no
cup,2,Is it full?,1,yes
dog,1,Is there a dog?,0,yes
fox,1,Is there a fox?,0,yes
"""
FILES = {
    "suite.yaml": SUITE,
    "easy.csv": "item\ncup\ncup\ndog\nend\n",
    "hard.csv": "item\nfox\n",
    "kinds.json": json.dumps({"cup": {"kind": "thing"}, "dog": {"kind": "being"}, "fox": {"kind": "being"}, "end": {"kind": ""}}),
    "answers.csv": ANSWERS,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text.replace("[thing, being]", "being") if name == "hard.csv" else text)
    return tmp_path


def scores(run: ve.Run) -> dict[str, object]:
    return {record.test_id: record.scores.get("gecko") for record in run.records}


def test_a_run_is_resumed_and_graded_without_its_dataset(folder: Path) -> None:
    first = ve.run("suite.yaml", run_id="first")
    assert (scores(first), first.exit_code) == ({"cup": 0.0, "dog": 1.0}, 0)
    assert [(case.prompt, case.tags) for case in first.info.suite.cases] == [
        ("A photo of cup", ("thing",)),
        ("A photo of dog", ("being",)),
    ]
    (folder / "easy.csv").unlink()
    (folder / "kinds.json").unlink()
    records = folder / "runs" / "first" / "results.jsonl"
    records.write_text(records.read_text().splitlines(keepends=True)[0])  # as if it was killed
    assert scores(ve.run(resume="first")) == {"cup": 0.0, "dog": 1.0}
    assert scores(ve.grade("first")) == {"cup": 0.0, "dog": 1.0}
    with pytest.raises(ve.SuiteError, match=r"easy\.csv: no such file"):
        ve.run("suite.yaml", resume="first")


def test_ignored_dependencies_need_no_new_answers(folder: Path) -> None:
    first = ve.run("suite.yaml", run_id="first")
    (folder / "ignore.yaml").write_text(SUITE.replace("dependencies: use", "dependencies: ignore"))
    again = ve.grade("first", "ignore.yaml", run_id="again")
    assert (scores(first), scores(again)) == ({"cup": 0.0, "dog": 1.0}, {"cup": 0.5, "dog": 1.0})
    cup = next(record for record in again.records if record.test_id == "cup")
    (details,) = (result.details for result in cup.graders if result.key == "gecko")
    assert [(question["right"], question["score"], question["depends_on"]) for question in details["questions"]] == [
        (False, 0, []),
        (True, 1, ["1"]),
    ]
    metrics = {metric.name: metric for metric in ve.compare("first", "again").comparison.metrics}
    assert metrics["gecko"].difference == 0.25


def test_selections_and_variables_choose_cases(folder: Path) -> None:
    assert scores(ve.run("suite.yaml", cases=["dog"], run_id="one")) == {"dog": 1.0}
    assert scores(ve.run("suite.yaml", tags=["thing"], run_id="two")) == {"cup": 0.0}
    text = SUITE.replace("[thing, being]", "being")
    (folder / "suite.yaml").write_text(text)
    assert scores(ve.run("suite.yaml", variables={"set": "hard"}, run_id="three")) == {"fox": 1.0}
