"""Synthetic runs on disk with images, for report pages."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from record_factory import record, run_of

from visioneval import Fingerprint, GraderRecord, Record, RunInfo, read_info
from visioneval.records.writer import RunWriter
from visioneval.report.html.report import read_slim, target_of, write_report

METRICS: dict[str, Any] = {
    "look": {"type": "bool"},
    "look.score": {"type": "number", "range": [0, 5]},
    "look.cer": {"type": "number", "range": [0, None], "better": "lower"},
}
LABELS = ["steady", "hasty,quality=low"]


def png(color: Any = "navy", size: tuple[int, int] = (96, 64), mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, color).save(buffer, "PNG")
    return buffer.getvalue()


def assets(folder: Path) -> None:
    """A base image, and a mask with an editable center."""
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    (folder / "assets" / "base.png").write_bytes(png("orange"))
    mask = Image.new("RGBA", (96, 64), (0, 0, 0, 255))
    ImageDraw.Draw(mask).rectangle((30, 20, 60, 40), fill=(0, 0, 0, 0))
    mask.save(folder / "assets" / "mask.png")


def run_info(folder: Path, cases: dict[str, dict[str, Any]], **changes: Any) -> RunInfo:
    facts = {"run_id": "demo-run", "suite_path": str(folder / "suite.yaml"), "command_line": ("run", "suite.yaml")}
    return run_of(cases, LABELS, [], METRICS, **{**facts, "state": "running", **changes})


def grader(key: str = "look", **details: Any) -> GraderRecord:
    return GraderRecord(
        key=key, type="own", details=details, seconds=0.5, fingerprint=Fingerprint(config_sha256="0" * 64)
    )


def save_run(root: Path, info: RunInfo, records: Iterable[Record]) -> Path:
    writer = RunWriter.create(root, info)
    for entry in records:
        writer.append(entry)
    writer.finish("complete", "2025-01-01T00:02:03+00:00")
    return writer.folder


def image(folder: Path, name: str, data: bytes) -> str:
    """Puts an image into a run that will lie in ``folder``, before its records are written."""
    path = folder / "artifacts" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"artifacts/{name}"


def report(run: Path, *, single_file: bool = False, out: Path | None = None, trust: bool = True) -> Path:
    target = target_of(run, out, single_file=single_file)
    return write_report(read_slim(run, read_info(run)), target, single_file=single_file, trust=trust)


def page_data(folder: Path, name: str) -> Any:
    """The data of a report's folder that its script loads by this name."""
    text = (folder / "data" / f"{name}.js").read_text(encoding="utf-8")
    result = re.fullmatch(r'visioneval\.take\("[a-z0-9-]+",(.*)\);\n', text)
    assert result
    return json.loads(result[1])


def demo(root: Path, samples: int = 1) -> Path:
    """Two cases by two model runs: a sign, edited, which ``hasty`` spills over; and a flyer, which it misspells."""
    assets(root)
    cases: dict[str, dict[str, Any]] = {
        "sign": {"images": ["assets/base.png"], "mask": "assets/mask.png", "tags": ["edit"], "criteria": "Calm."},
        "flyer": {"tags": ["text"]},
    }
    info = run_info(root, cases, planned_cells=4 * samples)
    run = save_run(root / "runs", info, ())
    records = [_record(run, case, label, sample) for case in cases for label in LABELS for sample in range(samples)]
    with (run / "results.jsonl").open("w", encoding="utf-8") as results:
        results.writelines(entry.model_dump_json() + "\n" for entry in records)
    return run


def _record(run: Path, case: str, label: str, sample: int) -> Record:
    fails = label != "steady"
    slug = f"{case}/{LABELS.index(label)}"
    path = image(run, f"{slug}/{sample}.png", png("crimson" if fails else "teal"))
    details: dict[str, Any] = {
        "lines": [
            {"text": "Autumn Bread", "confidence": 0.97, "box": [[8, 8], [60, 8], [60, 20], [8, 20]], "counted": True},
            {"text": "faint", "confidence": 0.31, "box": [[8, 30], [40, 30], [40, 40], [8, 40]], "counted": False},
        ],
        "questions": [
            {"id": "q1", "question": "Is there a sign?", "expected": "yes", "answer": "yes", "correct": True},
            {"id": "q2", "question": "Is it green?", "expected": "yes", "answer": "no", "correct": False},
            {
                "id": "q3",
                "question": "Which color?",
                "choices": ["red", "blue"],
                "expected": "b",
                "answer": "a",
                "choice": "red",
                "right": False,
            },
        ],
    }
    if case == "sign":
        details["difference_map"] = image(run, f"{slug}/{sample}.look.difference.png", png("red"))
    return record(
        test_id=case,
        model_label=label,
        sample_index=sample,
        run_id="demo-run",
        task_type="image_editing" if case == "sign" else "image_generation",
        prompt="Change the sign to BUTTER" if case == "sign" else "A flyer for a bakery",
        tags=["edit" if case == "sign" else "text"],
        verdict="FAIL" if fails else "PASS",
        failed_rules=["look"] if fails else [],
        failure_tags=["spill"] if fails and case == "sign" else [],
        scores={"look": not fails, "look.score": 1 if fails else 4.5, "look.cer": None if case == "sign" else 0.25},
        reasons={"look": "it spills over the window" if fails else "nothing to mend"},
        graders=[grader(**details)],
        artifact_path=path,
        mime="image/png",
        width=96,
        height=64,
        seconds=1.5,
    )
