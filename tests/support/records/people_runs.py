"""Runs with photos of people: a word and a color that must not leave this machine, in every place where they can be."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from pyarrow import parquet
from record_factory import info, record
from report_runs import image, png, save_run

from visioneval import CellError, Record, RunInfo, load_run
from visioneval.records.writer import write_summary
from visioneval.suite.model import Suite

WORD, COLOR = "ZEBRAFINCH", (201, 33, 177)
"""What is in the images of people, and their color."""
OPEN, OPEN_COLOR = "OPENWORD", (20, 160, 60)
"""Those of the other case."""
VIDEO = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + WORD.encode()
LABELS = ("steady", "other")
METRICS: dict[str, Any] = {"look": {"type": "bool"}, "look.score": {"type": "number", "range": [0, 5]}}
CASES: tuple[str, ...] = ("face", "face_again", "steps/1", "steps/2", "film", "refusal", "broken", "open")
"""Only ``face``, the first turn, ``film``, ``refusal`` and ``broken`` have the tag ``person``."""


def people_run(root: Path, run_id: str, *, tagged: bool = True, day: int = 1) -> Path:
    """A finished run. ``tagged``: whether its suite has the tag ``person``."""
    folder = root / "runs" / run_id
    suite = root / "suite"
    (suite / "people").mkdir(parents=True, exist_ok=True)
    for name, data in (("photo", png(COLOR)), ("reference", png(COLOR)), ("mask", png((*COLOR, 0), mode="RGBA"))):
        (suite / "people" / f"{WORD}-{name}.png").write_bytes(data)
    (suite / "open.png").write_bytes(png(OPEN_COLOR))
    facts = {"run_id": run_id, "experiment": "people", "started_at": f"2026-01-0{day}T10:00:00+00:00"}
    save_run(root / "runs", _info(suite, tagged=tagged).model_copy(update=facts), ())
    cells = [_cell(folder, case, label, tagged=tagged) for case in CASES for label in LABELS]
    with (folder / "results.jsonl").open("w", encoding="utf-8") as results:
        results.writelines(cell.model_copy(update={"run_id": run_id}).model_dump_json() + "\n" for cell in cells)
    write_summary(folder, load_run(folder).summary)
    return folder


def _tags(case: str, *, tagged: bool) -> list[str]:
    return ["person"] if tagged and case in ("face", "steps/1", "film", "refusal", "broken") else ["plain"]


def _info(suite: Path, *, tagged: bool) -> RunInfo:
    photo = f"people/{WORD}-photo.png"
    person: dict[str, Any] = {
        "images": [{"path": photo, "role": "person"}],
        "masks": {"editable": f"people/{WORD}-mask.png"},
        "reference": f"people/{WORD}-reference.png",
        "metadata": {"name": WORD},
    }
    of_case = {"face_again": {"output_of": "face"}, "open": {"images": ["open.png"], "metadata": {"note": OPEN}}}
    document = {
        "name": "people",
        "cases": [
            {
                "id": case.partition("/")[0],
                "prompt": "p",
                "tags": _tags(case, tagged=tagged),
                **of_case.get(case, person),
            }
            for case in CASES
            if "/" not in case
        ],
        "judges": {"default": {"provider": "openai", "model": "gpt-5.4"}},
        "models": [{"provider": "mock", "label": label} for label in LABELS],
        "graders": [
            {"key": "look", "type": "own:Look", "writes": METRICS},
            {"key": "alignment", "type": "alignment"},
            {"key": "asked", "type": "gecko"},
        ],
        "verdict": ["look"],
        "gates": ["pass_rate >= 0.9"],
    }
    valid = Suite.model_validate(document)
    face = valid.cases[0]
    turns = [
        face.model_copy(update={"id": case, "tags": tuple(_tags(case, tagged=tagged))})
        for case in ("steps/1", "steps/2")
    ]
    names = {
        **METRICS,
        "alignment": {"type": "number", "range": [0, 100]},
        "asked": {"type": "number", "range": [0, 1]},
    }
    return info(
        suite=valid.model_copy(update={"cases": (*valid.cases, *turns)}),
        suite_path=str(suite / "suite.yaml"),
        metrics=names,
        planned_cells=len(CASES) * len(LABELS),
    )


def _cell(folder: Path, case: str, label: str, *, tagged: bool) -> Record:
    word, color = (OPEN, OPEN_COLOR) if case == "open" else (WORD, COLOR)
    passes = label == "steady"
    slug = f"{case}/{label}"
    path = image(folder, f"{slug}/0.mp4", VIDEO) if case == "film" else image(folder, f"{slug}/0.png", png(color))
    fields: dict[str, Any] = {
        "test_id": case,
        "model_label": label,
        "task_type": "image_editing",
        "prompt": "p",
        "tags": _tags(case, tagged=tagged),
        "metadata": {"note": word},
        "verdict": "PASS" if passes else "FAIL",
        "failed_rules": [] if passes else ["look"],
        "failure_tags": [] if passes else [f"tag {word}"],
        "scores": {"look": passes, "look.score": 4 if passes else 1, "alignment": 70, "asked": 0.5},
        "reasons": {"look": f"look {word}", "alignment": f"alignment {word}", f"free {word}": "x"},
        "graders": _graders(folder, slug, word, color),
        "artifact_path": path,
        "artifact_sha256": "1" * 64 if case == "face_again" else f"{CASES.index(case)}" * 64,
        "mime": "video/mp4" if case == "film" else "image/png",
        "width": 96,
        "height": 64,
        "run_params": {"seed": 3, "path": f"people/{word}.png"},
        "reply_path": image(folder, f"{slug}/0.reply.txt", word.encode()),
        "reply_note": f"second image, {word}",
        "base_path": image(folder, f"{slug}/base.png", png(color)) if case == "steps/2" else None,
    }
    if case == "refusal":
        fields |= {
            "status": "refused",
            "verdict": "FAIL",
            "failed_rules": [],
            "failure_tags": ["refused"],
            "reasons": {"refused": f"refused {word}"},
            "artifact_path": None,
            "artifact_sha256": None,
        }
    if case == "broken":
        error = CellError(stage="grade", kind="unmeasured", message=f"broken {word}")
        fields |= {"verdict": "ERROR", "failed_rules": [], "error": error}
    return record(**fields)


def _graders(folder: Path, slug: str, word: str, color: Any) -> list[dict[str, Any]]:
    maps = {name: image(folder, f"{slug}/0.{name}.png", png(color)) for name in ("difference", "crop", "frame")}
    fingerprint = {"config_sha256": "0" * 64}
    own = {
        "difference_map": maps["difference"],
        "crops": [{"path": maps["crop"], "image": "output", "rectangle": [0, 0, 9, 9]}],
        "frames": [maps["frame"]],
        "lines": [{"text": word, "confidence": 0.9}],
        "judge_verdict": f"PASS {word}",
        "read": [word, "repaired"],
        "source": word,
        "coverage": {word: 1},
        "votes": {"look": [True, word], word: [1]},
        "questions": [{"id": word, "question": word, "score": 1}],
        word: 3,
    }
    answer = {
        "judge": "default",
        "scores": {"alignment": 70},
        "reasons": {"alignment": word},
        "failure_tags": [word],
        "error": word,
        "details": {"gaps": [word], "rationale": word},
    }
    question = {"id": "q1", "question": "Is it red?", "type": "color", "score": 0, "answer": word, "reason": word}
    question |= {"choice": word, "expected": word}
    gecko = {"questions": [question, word], "source": "generated", "prompt_sha256": "a" * 64, "coverage": 1}
    return [
        {"key": "look", "type": "own", "error": f"failed {word}", "details": own, "fingerprint": fingerprint},
        {
            "key": "alignment",
            "type": "alignment",
            "details": {"gaps": [word]},
            "fingerprint": fingerprint,
            "judges": [answer],
        },
        {"key": "asked", "type": "gecko", "details": gecko, "fingerprint": fingerprint},
    ]


def found(*paths: Path, printed: str = "") -> set[str]:
    """Which of the words and colors are in these files and folders, or in what was printed."""
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    seen = {word for file in files for word in (WORD, OPEN) if word in str(file.name)}
    for data in (*(file.read_bytes() for file in files), printed.encode()):
        for content in _contents(data):
            seen |= {word for word in (WORD, OPEN) if word.encode() in content}
            seen |= _colors(content)
    return seen


def _contents(data: bytes) -> Iterator[bytes]:
    """The bytes, the data in their addresses, and the values of a Parquet file."""
    yield data
    yield from map(base64.b64decode, re.findall(rb"data:[\w/.+-]+;base64,([A-Za-z0-9+/=]+)", data))
    if data.startswith(b"PAR1"):
        yield repr(parquet.read_table(io.BytesIO(data)).to_pylist()).encode()


def _colors(data: bytes) -> set[str]:
    try:
        pixels = Image.open(io.BytesIO(data)).convert("RGB")
    except OSError:
        return set()
    middle = pixels.getpixel((pixels.width // 2, pixels.height // 2))
    near = {name: max(abs(a - b) for a, b in zip(middle, color, strict=True)) < 16 for name, color in _COLORS.items()}
    return {name for name, is_near in near.items() if is_near}


_COLORS = {"pixels": COLOR, "open pixels": OPEN_COLOR}
