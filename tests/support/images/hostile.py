"""A small real run with all its optional files, and all commands that read them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from typer.testing import CliRunner, Result

from visioneval import UsageError
from visioneval.cli import app

RUN, OTHER = "first", "second"
NONE, BLANK = "mock,flaw=none", "mock,flaw=blank"
SUITE: dict[str, Any] = {
    "name": "small",
    "experiment": "strangers",
    "vars": {"mood": "calm"},
    "judges": {
        "default": {"provider": "recorded", "path": "answers.jsonl"},
        "duo": {"provider": "gemini", "model": "gemini-3.5-flash"},
    },
    "cases": [
        {
            "id": "poster",
            "prompt": "A {{ mood }} poster with the line Lantern Market",
            "criteria": "Nothing but the line",
            "expect": {"text": {"required": ["Lantern Market"]}, "size": "requested"},
            "questions": [
                {"id": "sun", "question": "Is there a sun?", "type": "object"},
                {"id": "say", "question": "What does it say?", "choices": ["Lantern", "Lamp"], "answer": "Lantern",
                 "type": "copy", "depends_on": ["sun"]},
            ],
            "tags": ["text", "must_pass"],
        },
        {
            "id": "door",
            "prompt": "Paint the door blue",
            "images": ["base.png"],
            "mask": "mask.png",
            "region": "the door",
            "tags": ["edit"],
            "metadata": {"generate": "DOOR", "note": "by hand"},
        },
    ],
    "models": [{"provider": "mock", "params": {"size": "128x128"}, "grid": {"flaw": ["none", "blank"]}}],
    "graders": [
        {"key": "image", "type": "properties"},
        {"key": "place", "type": "locality"},
        {"key": "claims", "type": "gecko", "when": {"tags": ["text"]}},
        {"key": "look", "type": "rubric",
         "metrics": {"layout": {"type": "score", "scale": [0, 5], "description": "order"}, "usable": {"type": "pass_fail", "description": "usable?"}}},
    ],
    "verdict": ["not image.blank", "layout >= 3", "claims >= 0.5", {"rule": "usable", "level": "warn"}],
    "gates": ["pass_rate >= 0", {"rule": "mean(layout) >= 1", "models": ["mock*"]}],
    "labels": {
        "questions": [
            {"key": "fine", "ask": "Is it fine?", "type": "yes_no", "metric": "verdict"},
            {"key": "order", "ask": "How clear?", "type": "scale", "scale": [0, 5], "metric": "layout"},
        ],
        "pairs": [{"key": "better", "ask": "Which is better?"}],
    },
}  # fmt: skip
ANSWERS = {"sun": "yes", "say": "Lantern", "layout": 4, "usable": True, "verdict": "PASS", "answer": "A",
           "reason": "it is in order", "image_description": "a page"}  # fmt: skip


COMMANDS: dict[str, tuple[str, ...]] = {
    "show": ("show", RUN),
    "show case": ("show", RUN, "poster"),
    "show label": ("show", f"{RUN}@{NONE}"),
    "report": ("report", RUN, "-o", "page"),
    "report --single-file": ("report", RUN, "--single-file", "-o", "page.html"),
    "compare": ("compare", OTHER, RUN, "--html", "compare.html", "--markdown", "compare.md"),
    "compare --json": ("compare", RUN, OTHER, "--json"),
    "compare file": ("compare", f"runs/{OTHER}/results.jsonl", "loose.jsonl", "--html", "loose.html"),
    "compare baseline": ("compare", "baseline:main", RUN, "--markdown", "baseline.md", "--html", "baseline.html"),
    "export": ("export", RUN),
    "agreement": ("agreement", RUN),
    "agree --json": ("agreement", RUN, "--json"),
    "agreement --correct": ("agreement", f"{RUN}@{NONE}", "--correct"),
    "label draw": ("label", "draw", RUN, "random:2"),
    "label export": ("label", "export", RUN),
    "grade": ("grade", RUN, "--offline", "--run-id", "graded", "--junit", "graded.xml", "--markdown", "graded.md"),
    "run --resume": ("run", "--resume", RUN, "--junit", "resumed.xml", "--markdown", "resumed.md"),
    "pairwise": ("pairwise", f"{OTHER}@{NONE}", f"{RUN}@{BLANK}", "--judge", "duo", "--offline"),
    "runs": ("runs",),
    "baseline set": ("baseline", "set", RUN, "--name", "other"),
    "baseline list": ("baseline", "list"),
}  # fmt: skip


FILES = {
    "runs/first/run.json": "one",
    "runs/first/summary.json": "one",
    "runs/first/questions.json": "one",
    "runs/first/results.jsonl": "lines",
    "runs/first/labels.jsonl": "lines",
    "runs/first/anchors.jsonl": "lines",
    "runs/first/labeling.jsonl": "lines",
    "runs/first/labeling_draws.jsonl": "lines",
    "runs/first/preferences.jsonl": "lines",
    "runs/first/diversity.jsonl": "lines",
    "runs/first/stale.jsonl": "lines",
    "loose.jsonl": "lines",
    "baselines/main.jsonl": "lines",
}
"""Every file of a run, and whether it is one JSON document or JSON Lines."""


def build(folder: Path) -> None:
    """Fills a folder, which is the working directory, with two runs and all optional files."""
    image = Image.new("RGB", (128, 128), "white")
    ImageDraw.Draw(image).rectangle((30, 30, 90, 100), fill="brown")
    image.save(folder / "base.png")
    mask = Image.new("RGBA", (128, 128), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (30, 30, 90, 100))
    mask.save(folder / "mask.png")
    (folder / "suite.yaml").write_text(json.dumps(SUITE))
    for name, layout in ((OTHER, 2), (RUN, 4)):
        answers = {**ANSWERS, "layout": layout}
        rows = [
            {"case": case, "question": key, "answer": answers[key]} for case in ("poster", "door") for key in answers
        ]
        (folder / "answers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        done = call("run", "suite.yaml", "--run-id", name, "--quiet")
        assert done.exit_code in (0, 1), done.output
    assert call("baseline", "set", OTHER).exit_code == 0
    _add_an_error(folder / "runs" / RUN / "results.jsonl")
    _add_human_labels(folder / "runs" / RUN)
    assert call("label", "draw", f"{RUN}@{NONE}", "random:2", "--seed", "1").exit_code == 0
    assert call(*COMMANDS["agreement --correct"]).exit_code in (0, 3)  # of few cells, one is an error
    for name in ("runs/first/stale.jsonl", "loose.jsonl"):
        shutil.copy(folder / "runs" / RUN / "results.jsonl", folder / name)


def _add_an_error(path: Path) -> None:
    """Turns the last cell into an error with all optional record fields."""
    *lines, last = path.read_text().splitlines()
    record = json.loads(last)
    record |= {"verdict": "ERROR", "cost_usd": 0.01, "usage": {"images": 1}, "failure_tags": ["crooked"]}
    record |= {
        "warned_rules": ["usable"],
        "skipped_rules": ["place"],
        "metadata": {"note": "by hand", "deep": {"n": [1]}},
    }
    record["graders"][-1]["details"] |= {
        "votes": {"layout": [4, 2], "usable": [True, False]},
        "prompt_sha256": "0" * 64,
    }
    answer = {"judge": "default", "model": "eye-1", "scores": {"usable": True}, "reasons": {"usable": "clear"},
              "failure_tags": ["crooked"], "error": "lost", "details": {"votes": {"usable": [True]}},
              "usage": {"input_tokens": 3}, "cost_usd": 0.5, "cached": True}  # fmt: skip
    record["graders"][-1]["judges"] = [answer, {**answer, "judge": "other", "scores": {"usable": False}}]
    record |= {"error": {"stage": "grade", "kind": "unmeasured", "message": "too dark"}}
    path.write_text("".join(f"{line}\n" for line in (*lines, json.dumps(record))))


def _add_human_labels(folder: Path) -> None:
    """Adds labels, agreed answers, a rater's progress, a judge's preferences and compared samples."""
    about = {"schema_version": 2, "model_label": NONE, "sample_index": 0, "other": None, "artifact_sha256": None}
    label = {**about, "seconds": 2.5, "at": "2025-06-01T12:00:00+00:00", "source": "page", "other_sha256": None}
    answers = [("ann", "poster", "fine", True), ("ann", "poster", "order", 4), ("ann", "door", "fine", False),
               ("bob", "poster", "fine", False), ("bob", "poster", "order", 2), ("bob", "door", "fine", False)]  # fmt: skip
    labels = [
        {**label, "rater": rater, "test_id": case, "question": key, "answer": value}
        for rater, case, key, value in answers
    ]
    _lines(folder / "labels.jsonl", labels)
    _lines(folder / "anchors.jsonl", [{**labels[0], "source": "anchor"}])
    step = {**about, "rater": "ann", "test_id": "poster", "turn": "first", "did": "answered", "other_sha256": None}
    step.pop("schema_version")
    session = {"which": "all", "repeat": 0.0, "cells": None, "pairs": None, "seed": 7}
    entry = {"schema_version": 2, "at": label["at"]}
    _lines(
        folder / "labeling.jsonl",
        [{**entry, "session": session, "step": None}, {**entry, "session": None, "step": step}],
    )
    pair = {"schema_version": 2, "test_id": "poster", "sample_index": 0, "a": f"{OTHER}@{NONE}", "b": f"{RUN}@{BLANK}",
            "answer": "a", "reason": "A is in order", "judge": "gemini:gemini-3.5-flash", "error": None}  # fmt: skip
    within = {**pair, "a": f"{RUN}@{NONE}"}
    _lines(folder / "preferences.jsonl", [{**row, "first": first} for row in (pair, within) for first in "ab"])
    compared = {"schema_version": 2, "grader": "spread", "test_id": "poster", "model_label": NONE,
                "outputs": ["0" * 64, "1" * 64], "distance": 0.5, "delta_e": 12.5, "error": None}  # fmt: skip
    _lines(folder / "diversity.jsonl", [compared])


def _lines(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def call(*arguments: str) -> Result:
    """Runs a command in this process."""
    return CliRunner().invoke(app, list(arguments))


LABEL_PAGE = "label"


def serve_label_page() -> str:
    """The server's responses for the first items of the label page. Raises ``VisionEvalError``."""
    from starlette.responses import JSONResponse

    from visioneval.label.labeling import Labeling
    from visioneval.label.work import LabelRequest, prepare

    with suppress(UsageError):  # there are no disputed cells
        prepare(LabelRequest(RUN, Path("runs"), which="disputed:2", seed=1))
    work = prepare(LabelRequest(RUN, Path("runs"), seed=1))
    sat = Labeling(work)
    sent = [JSONResponse(sat.next(rater)).body for rater in ("ann", "bob")]
    return "\n".join([*work.notes, *(bytes(body).decode() for body in sent)])
