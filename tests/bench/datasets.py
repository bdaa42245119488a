"""``make bench``: suites of 100,000 rows in each form, checked by ``validate``: processor time and peak memory.

Not a test: machines are noisy, so nothing here passes or fails.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROWS = 100_000
QUESTIONS = 10
FLAT = {"fields": {"id": "id", "prompt": "prompt", "tags": "tag"}}
GROUPED = {
    "group_by": "id",
    "fields": {"id": "id", "prompt": "prompt", "questions": {"id": "pid", "question": "q", "depends_on": "dep"}},
}
DATASETS: Mapping[str, Mapping[str, Any]] = {
    "jsonl": {"path": "rows.jsonl", **FLAT},
    "json": {"path": "rows.json", **FLAT},
    "csv": {"path": "rows.csv", **FLAT},
    "parquet": {"path": "rows.parquet", **FLAT},
    "templates, filter": {
        "path": "rows.jsonl",
        "filter": {"tag": ["a"], "meta.n": {"min": 0}},
        "fields": {"id": "id", "metadata.n": "meta.n"},
        "defaults": {"prompt": "A photo of {{ row.id }} and {{ row.meta.n }}", "tags": ["{{ row.tag }}"]},
    },
    "grouped": {"path": "questions.csv", **GROUPED},
    "grouped, join": {"path": "questions.csv", "join": {"path": "notes.csv", "on": "id"}, **GROUPED},
}


def _rows() -> Iterator[dict[str, Any]]:
    for index in range(ROWS):
        prompt = f"A photo of item {index} on a table with a red cup"
        yield {"id": f"c{index}", "prompt": prompt, "tag": "a", "meta": {"size": "large", "n": index}}


def _questions() -> Iterator[dict[str, Any]]:
    for index in range(ROWS):
        case, number = divmod(index, QUESTIONS)
        question = {"pid": number + 1, "q": f"Is there a thing {number}?", "dep": number}
        yield {"id": f"c{case}", "prompt": f"A photo of item {case}", **question}


def _write_csv(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    first = next(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(first))
        table.writeheader()
        table.writerow(first)
        table.writerows(rows)


def _write(folder: Path) -> None:
    lines = [json.dumps(row) for row in _rows()]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    (folder / "rows.json").write_text(f"[{','.join(lines)}]")
    _write_csv(folder / "rows.csv", _rows())
    _write_csv(folder / "questions.csv", _questions())
    _write_csv(folder / "notes.csv", ({"id": f"c{index}", "note": "x"} for index in range(ROWS // QUESTIONS)))
    if importlib.util.find_spec("pyarrow") is not None:
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(list(_rows())), folder / "rows.parquet")


def _measured(folder: Path, dataset: Mapping[str, Any]) -> tuple[float, float]:
    """Processor seconds and peak megabytes of ``visioneval validate``."""
    suite = {
        "name": "bench",
        "cases": [{"dataset": dataset}],
        "models": [{"provider": "mock"}],
        "graders": [{"key": "image", "type": "properties"}],
        "verdict": ["not image.blank"],
    }
    (folder / "suite.yaml").write_text(json.dumps(suite))
    process = subprocess.Popen([sys.executable, "-m", "visioneval", "validate", "suite.yaml"], cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder)
        for form, dataset in DATASETS.items():
            if (folder / dataset["path"]).exists():
                seconds, megabytes = _measured(folder, dataset)
                print(f"{form}: {ROWS:,} rows, {seconds:.1f} s of processor time, {megabytes:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
