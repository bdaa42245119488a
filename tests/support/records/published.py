"""Published VQA answers as suites: an example of custom questions and answers.

A suite of recorded answers is a dataset of questions, a table of answers, and the suite that names both. They may be one
file. Nothing here depends on a grader.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

TIFA_SUITE = """\
name: tifa-sample
judges:
  recorded: {provider: recorded, path: answers.csv}
cases:
  - dataset: {path: cases.jsonl, fields: {id: id, prompt: prompt, output: image, questions: questions}}
models: [{provider: files}]
graders: [{key: gecko, type: gecko, judge: recorded}]
verdict: [gecko >= 0.5]
"""

DSG_SUITE = """\
name: dsg-tifa160
judges:
  pali:
    provider: recorded
    path: answers.csv
    fields: {case: item_id, model: t2i_model, question: question_id}
cases:
  - dataset:
      path: answers.csv
      group_by: item_id
      fields: {questions: {id: question_id, question: question, depends_on: dependency_id}}
  - {id: tifa160_134, questions: [Is it what was asked for?]}
models: MODELS
graders:
  - {key: gecko, type: gecko, judge: pali, on_unanswered: wrong, on_bad_dependency: BAD, dependencies: DEPENDENCIES}
verdict: [gecko >= 0]
"""


def tifa_suite(data: Path, folder: Path, *, without: Collection[str] = ()) -> Path:
    """``tifa_sample`` as a suite in ``folder``, less the answers about some images."""
    asked: dict[str, list[dict[str, Any]]] = {}
    for row in _json(data / "sample_question_answers.json"):
        custom = asked.setdefault(row["id"], [])
        custom.append(
            {"id": f"q{len(custom) + 1}", "type": row["element_type"], **_only(row, "question", "choices", "answer")}
        )
    images, prompts = _json(data / "sample_imgs.json"), _json(data / "sample_text_inputs.json")
    cases = [
        {
            "id": row["id"],
            "prompt": row["caption"],
            "image": str(data / images[row["id"]]),
            "questions": asked[row["id"]],
        }
        for row in prompts
    ]
    answers = [
        {"case": case, "question": question, "answer": output["multiple_choice_vqa"]}
        for case, questions in _json(data / "sample_evaluation_result.json")["question_details"].items()
        for question, output in questions.items()
        if case not in without
    ]
    return _written(folder, TIFA_SUITE, cases, answers)


def dsg_suite(data: Path, folder: Path, *, dependencies: bool = True, on_bad_dependency: str = "drop_all") -> Path:
    """``dsg_tifa160`` as a suite in ``folder``: 160 cases, 5 model runs, no images. The file is as it was published.

    So are its figures, with ``drop_all``.

    The item that was published without questions gets an unanswered one.
    """
    shutil.copy(data / "answers_pali17b.csv", folder / "answers.csv")
    with (folder / "answers.csv").open(encoding="utf-8", newline="") as file:
        labels = sorted({row["t2i_model"] for row in csv.DictReader(file)})
    models = [{"provider": "files", "outputs": "none", "label": label} for label in labels]
    text = DSG_SUITE.replace("MODELS", json.dumps(models))
    text = text.replace("DEPENDENCIES", "use" if dependencies else "ignore").replace("BAD", on_bad_dependency)
    (folder / "suite.yaml").write_text(text, encoding="utf-8")
    return folder / "suite.yaml"


def likert_rows(data: Path) -> list[dict[str, str]]:
    """The ratings of ``dsg_tifa160``, one rater a row."""
    with (data / "likert.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _written(
    folder: Path, suite: str, cases: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]
) -> Path:
    (folder / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases), encoding="utf-8")
    rows = list(answers)
    with (folder / "answers.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    (folder / "suite.yaml").write_text(suite, encoding="utf-8")
    return folder / "suite.yaml"


def _only(row: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: row[key] for key in keys}


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
