"""``make bench``: what the reading commands cost on long runs: CPU and peak memory, and how both grow with the cells.

Not a test: machines are noisy, so nothing here passes or fails. Runs of synthetic records, first with more samples of the
same cases, then with more cases.

python -m tests.bench.large [CELLS ...] [--growing cells|cases|both] [--only show,compare,...] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.engine import Used
from visioneval.suite.model import Suite
from visioneval.suite.runs import Shard, cases_of_shard

CELLS = (3_000, 30_000)
"""What ``make bench`` measures; 10,000, 100,000 and 1,000,000 are the figures of docs/reference/scale.md."""
LABELS = 4
SHARDS = 2
FIXED_CASES = 250
COMMANDS: dict[str, tuple[str, ...]] = {
    "show": ("show", "a"),
    "compare": ("compare", "a", "b"),
    "merge": ("merge", "shard1", "shard2", "--run-id", "merged"),
    "export csv": ("export", "a", "-o", "cells.csv"),
    "export jsonl": ("export", "a", "-o", "cells.jsonl"),
    "export parquet": ("export", "a", "-o", "cells.parquet"),
    "report": ("report", "a", "-o", "page"),
}
METRICS: dict[str, Any] = {
    "file": {"type": "bool"},
    "file.blank": {"type": "bool", "better": "lower"},
    "layout": {"type": "number", "range": [0, 5]},
    "realism": {"type": "number", "range": [0, 5]},
    "usable": {"type": "bool"},
}
TAGS = ("failed_logo", "wrong_words", "too_dark", "crowded")
REASON = (
    "The headline stands in the upper third and is easy to read, the two product shots below it are aligned to the "
    "same baseline, and the colors follow the palette of the brand; the line under the price lies {0} pixels too close "
    "to the edge, which would be cut off in print, and the {1} shadow of the second bottle falls against the light."
)


def suite(cases: int) -> dict[str, Any]:
    """A suite with a local grader and a rubric."""
    score = {"type": "score", "scale": [0, 5], "anchors": {"0": "bad", "5": "good"}}
    metrics = {name: {**score, "description": f"How good is its {name}?"} for name in ("layout", "realism")}
    metrics["usable"] = {"type": "pass_fail", "description": "Can it be used as it is?"}
    return {
        "name": "large",
        "judges": {"eye": {"provider": "openai", "model": "gpt-5.4"}},
        "cases": [
            {"id": f"case{at}", "prompt": _prompt(at), "tags": ["poster", f"theme{at % 5}"]} for at in range(cases)
        ],
        "models": [{"provider": "mock", "label": f"m{at}"} for at in range(LABELS)],
        "graders": [
            {"key": "file", "type": "properties"},
            {"key": "look", "type": "rubric", "judge": "eye", "metrics": metrics},
        ],
        "verdict": ["file", "layout >= 3", "usable"],
        "gates": ["pass_rate >= 0.5", {"rule": "mean(realism) >= 1", "tags": ["theme1"]}],
    }


def _prompt(case: int) -> str:
    return f"A poster, number {case}, for a bakery with exactly these lines: Butter & Flour / Autumn Bread Week / -20 %"


def record(run_id: str, case: int, label: int, sample: int, chance: random.Random) -> dict[str, Any]:
    """A record as a run writes it, of about 3 kB."""
    layout, realism, usable = chance.randint(1, 5), chance.randint(0, 5), chance.random() < 0.9
    passed = layout >= 3 and usable
    failed = [*(["layout >= 3"] if layout < 3 else []), *([] if usable else ["usable"])]
    path = f"artifacts/case{case}/m{label}/{sample}.png"
    usage = {"input_tokens": 1200 + case % 90, "output_tokens": 300 + label}
    reasons = {
        name: REASON.format(chance.randint(2, 40), chance.choice(("hard", "soft", "long", "blue")))
        for name in ("layout", "realism", "usable")
    }
    fingerprint = {"judge_model": None, "template_sha256": None, "schema_sha256": None, "config_sha256": "c" * 64}
    graders = [
        {
            "key": "file", "type": "properties", "error": None, "is_unmeasured": False, "is_optional": False,
            "details": {"format": "PNG", "mode": "RGB", "size": [1024, 1024], "bytes": 1_400_000 + chance.randint(0, 99999)},
            "usage": None, "cost_usd": None, "seconds": round(chance.random(), 4), "waited_seconds": 0.0, "cached": False,
            "refused": None, "fingerprint": {**fingerprint, "tool_versions": {"pillow": "12.0"}, "version": None}, "judges": [],
        },
        {
            "key": "look", "type": "rubric", "error": None, "is_unmeasured": False, "is_optional": False,
            "details": {
                "judge_verdict": "PASS" if chance.random() < 0.8 else "FAIL",
                "read": "json",
                "votes": {"layout": [layout], "realism": [realism], "usable": [usable]},
                "summary": "A calm poster with one clear subject, ready for print after one correction.",
            },
            "usage": usage, "cost_usd": round(0.002 + chance.random() / 1e4, 6), "seconds": round(3 * chance.random(), 4),
            "waited_seconds": 0.0125, "cached": False, "refused": 0,
            "fingerprint": {
                **fingerprint, "judge_model": "gpt-5.4-2026-03-05", "template_sha256": "d" * 64, "schema_sha256": "e" * 64,
                "tool_versions": {}, "version": None,
            },
            "judges": [],
        },
    ]  # fmt: skip
    return {
        "schema_version": 2, "run_id": run_id, "test_id": f"case{case}", "model_label": f"m{label}",
        "sample_index": sample, "task_type": "image_generation", "prompt": _prompt(case), "sent_prompt": None,
        "graded_prompt": None, "tags": ["poster", f"theme{case % 5}"], "flaky": False, "metadata": {"source": "print"},
        "provider": "mock", "run_params": {"model": f"model-{label}", "quality": "high", "size": "1024x1024"},
        "status": "completed", "verdict": "PASS" if passed else "FAIL", "failed_rules": failed, "warned_rules": [],
        "skipped_rules": [],
        "scores": {"file": True, "file.blank": False, "layout": layout, "realism": realism, "usable": usable},
        "unmeasured_metrics": [], "reasons": reasons,
        "failure_tags": [] if passed else [chance.choice(TAGS)], "graders": graders, "artifact_path": path,
        "artifact_sha256": f"{chance.getrandbits(256):064x}", "mime": "image/png", "width": 1024, "height": 1024,
        "usage": {"images": 1, "input_tokens": 60}, "cost_usd": 0.04, "seconds": round(4 + chance.random(), 4),
        "waited_seconds": 0.5, "attempts": 1, "cached": False, "error": None,
        "generation_key": f"model:{label:016x} params:1f2e3d4c5b6a7988 prompt:{case:016x} sample:{sample}",
        "grade_key": f"case:{case:016x} rules:aabbccddeeff0011 grader.file:1122334455667788 grader.look:99aabbccddeeff00",
    }  # fmt: skip


def cells_of(cells: int, cases: int) -> Iterator[tuple[int, int, int]]:
    """The cells of a run in the order of its suite: case, model run and sample."""
    samples = cells // (cases * LABELS)
    return ((case, label, sample) for case in range(cases) for label in range(LABELS) for sample in range(samples))


def write_runs(root: Path, cells: int, cases: int) -> int:
    """Writes two runs, and the first again as shards. Returns the size of the first in bytes."""
    parts = Suite.model_validate(suite(cases)).cases
    owners = {
        case: number
        for number in range(1, SHARDS + 1)
        for case in cases_of_shard(parts, Shard(number=number, count=SHARDS))
    }
    header: dict[str, Any] = {
        "schema_version": 2, "state": "complete", "started_at": "2026-01-01T00:00:00+00:00",
        "ended_at": "2026-01-01T09:00:00+00:00", "visioneval_version": "0", "python_version": "3",
        "suite_path": "suite.yaml", "source_sha256": "0" * 64, "metrics": METRICS, "suite": suite(cases),
    }  # fmt: skip
    names = ("a", "b", *(f"shard{number}" for number in range(1, SHARDS + 1)))
    for name in names:
        (root / name).mkdir(parents=True)
    files = {name: (root / name / "results.jsonl").open("w", encoding="utf-8") for name in names}
    counts = dict.fromkeys(names, 0)

    def write(name: str, fields: dict[str, Any]) -> None:
        counts[name] += 1
        files[name].write(json.dumps(fields, separators=(",", ":")) + "\n")

    for seed, name in enumerate(("a", "b")):
        chance = random.Random(seed)
        for case, label, sample in cells_of(cells, cases):
            fields = record(name, case, label, sample, chance)
            write(name, fields)
            if name == "a":
                shard = f"shard{owners[f'case{case}']}"
                write(shard, fields | {"run_id": shard, "artifact_path": None})  # merging checks that outputs exist
    for name in names:
        files[name].close()
        facts: dict[str, Any] = {"run_id": name, "planned_cells": counts[name]}
        if name.startswith("shard"):
            facts["selection"] = {"shard": {"number": int(name[5:]), "count": SHARDS}}
        (root / name / "run.json").write_text(json.dumps({**header, **facts}), encoding="utf-8")
    return (root / "a" / "results.jsonl").stat().st_size


def used_by(root: Path, arguments: Sequence[str]) -> Used:
    """Runs a command of visioneval on the runs in a folder."""
    names = {name: str(root / name) for name in ("a", "b", "shard1", "shard2", "cells.csv", "cells.jsonl", "page")}
    command = [sys.executable, "-m", "visioneval", *(names.get(word, word) for word in arguments)]
    if arguments[0] == "merge":
        command += ["--runs", str(root / "merged-runs")]
    before = os.times()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=root)
    _, status, used = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: ended with {os.waitstatus_to_exitcode(status)}")
    seconds = os.times().elapsed - before.elapsed
    return Used(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure(growing: str, sizes: Sequence[int], commands: Sequence[str], keep: Path | None) -> None:
    """Prints what each command costs at each size, and how much each cell between two sizes adds."""
    before: dict[str, tuple[int, Used]] = {}
    for cells in sizes:
        cases = max(FIXED_CASES if growing == "cells" else cells // (LABELS * 2), 1)
        with tempfile.TemporaryDirectory() as scratch:
            root = (keep or Path(scratch)) / f"{growing}-{cells}"
            if not root.exists():
                write_runs(root, cells, cases)
            number = sum(1 for _ in cells_of(cells, cases))
            size = (root / "a" / "results.jsonl").stat().st_size
            print(f"{number:,} cells of {cases:,} cases, {size / 1e6:.0f} MB", flush=True)
            for name in commands:
                used = used_by(root, COMMANDS[name])
                print(f"  {name}: {used}{_growth(before.get(name), number, used)}", flush=True)
                before[name] = number, used
                for rest in ("page", "cells.csv", "cells.jsonl", "merged-runs"):
                    path = root / rest
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _growth(before: tuple[int, Used] | None, cells: int, used: Used) -> str:
    if before is None:
        return ""
    cpu, memory = used.cpu - before[1].cpu, used.memory - before[1].memory
    added = cells - before[0]
    return f"; each cell more takes {cpu / added * 1e6:.0f} us and {memory / added * 2**20:.0f} bytes"


def main() -> None:
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", nargs="*", type=int, default=CELLS)
    parser.add_argument("--growing", choices=("cells", "cases", "both"), default="both")
    parser.add_argument("--only", default=",".join(COMMANDS), help="commands, separated by commas")
    parser.add_argument("--keep", type=Path, help="a folder in which the runs remain, to be used again")
    flags = parser.parse_args()
    for growing in ("cells", "cases") if flags.growing == "both" else (flags.growing,):
        print(f"growing: {'samples of the same cases' if growing == 'cells' else 'cases, with 2 samples each'}")
        measure(growing, flags.cells, flags.only.split(","), flags.keep)


if __name__ == "__main__":
    main()
