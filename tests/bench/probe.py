"""Probes the shipped suites that need no key, and real edits: ``make probe``. Prints Markdown, one part per source, and at
the end the tables of docs/graders.md.

Measurements are cached, so a probe that was stopped soon comes to where it was. Graders that read text get copy damage, the others pixel damage, which saves most of the OCR; all get harmless changes.
``--limit N`` takes the first cases of each source.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import visioneval as ve
from visioneval import ExitCode
from visioneval.analysis.probe import HARMLESS, ProbeFindings
from visioneval.analysis.stats.basic import wilson_interval
from visioneval.report.markdown import report_markdown
from visioneval.report.probe import probe_report

ROOT = Path(__file__).parents[2]
GENERATED = ("quickstart", "editing")
"""Suites whose provider is the mock: they are run first."""
FLAWLESS = "mock,flaw=none"
REFERENCES = ("logo_edits",)
"""Suites whose cases have references."""
PIXELS, TEXT = ("locality", "reference", "properties"), ("text",)
EDITS = ROOT.parent / "shared" / "data" / "edits"
"""Edits by real models, with their inputs and masks."""
COPY = {"poster": ["PLANE", "BOSTON AND MAINE RAILROAD"]}
"""What the edits show, for the text grader."""


Counts = dict[tuple[str, str], tuple[int, int]]
"""By change, such as ``pixels.patch 4 px``, and by type of grader: how many of how many outputs failed."""


def main() -> None:
    """Runs, probes and prints: what each source shows, then the tables of docs/graders.md over all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, help="only so many cases of each source")
    arguments = parser.parse_args()
    counts: Counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, types, result in probes(Path(folder), arguments.limit):
            print(f"# {name}: {', '.join(types)}\n\n{report_markdown(probe_report(result.findings))}", flush=True)
            if result.exit_code == ExitCode.INTERRUPTED:
                break
            add_counts(counts, types, result.findings)
    print("\n".join(pooled_tables(counts)))


def probes(
    folder: Path, limit: int | None = None, names: Collection[str] = ()
) -> Iterator[tuple[str, Mapping[str, str], ve.ProbeResult]]:
    """For each source, or each of ``names``: its name, the types of the probed graders, and the result.

    Each source is probed twice: its pixel graders with pixel damage, its text graders with copy damage.
    """
    selection: dict[str, Any] = {} if limit is None else {"limit": limit}
    suites = {"real_edits": edits_suite(folder)} if EDITS.is_dir() else {}
    suites |= {name: ROOT / "suites" / name / "suite.yaml" for name in (*GENERATED, *REFERENCES)}
    for name, suite in suites.items():
        if names and name not in names:
            continue
        runs = folder / name
        is_generated = name in GENERATED
        source = ve.run(suite, runs=runs, run_id=name, models=[FLAWLESS], **selection) if is_generated else suite
        graders = ve.plan(suite, trust_suite=True).plan.suite.graders
        for types, kinds in ((PIXELS, ["pixels", "harmless"]), (TEXT, ["copy", "harmless"])):
            probed = {grader.key: grader.type_name for grader in graders if grader.type_name in types}
            yield (
                name,
                probed,
                ve.probe(source, kinds=kinds, graders=list(probed), runs=runs, trust_suite=True, **selection),
            )


def add_counts(counts: Counts, types: Mapping[str, str], findings: ProbeFindings) -> None:
    """Adds the outputs of a probe that failed, and all. Of a grader with several metrics, the first one counts."""
    first: dict[str, str] = {}
    for metric, grader in findings.metrics.items():
        first.setdefault(grader, metric)
    for rate in (*findings.detections, *findings.false_alarms):
        if rate.grader is not None and rate.metric == first[rate.grader]:
            name = (f"{rate.kind} {rate.strength}".strip(), types[rate.grader])
            failed, outputs = counts.get(name, (0, 0))
            counts[name] = failed + rate.failed, outputs + rate.outputs


def pooled_tables(counts: Counts) -> Iterator[str]:
    """The tables over all sources: one of pixel damage, one of copy damage, one of harmless changes.

    Each output is of another case, so the 95 % intervals of one change are Wilson's of the pooled counts. All harmless
    changes together have none, as each output counts several times.
    """
    for group, types in (("pixels", PIXELS), ("copy", TEXT), ("harmless", (*PIXELS, *TEXT))):
        changes = list(dict.fromkeys(change for change, kind in counts if change.startswith(group) and kind in types))
        yield from ("", f"| {group} | {' | '.join(f'`{kind}`' for kind in types)} |", "|---" * (len(types) + 1) + "|")
        for change in changes:
            yield f"| `{change}` | {' | '.join(_share(change, counts.get((change, kind))) for kind in types)} |"


def _share(change: str, count: tuple[int, int] | None) -> str:
    if count is None or not count[1]:
        return "-"
    if change == HARMLESS:
        return f"{count[0]} of {count[1]}"
    low, high = wilson_interval(*count)
    return f"{count[0]} of {count[1]} [{low:.2f}, {high:.2f}]"


def edits_suite(folder: Path) -> Path:
    """A suite that reads the real edits."""
    rows = [json.loads(line) for line in (EDITS / "dataset.jsonl").read_text().splitlines()]
    cases = [
        {
            "id": row["id"],
            "prompt": row["prompt"],
            "images": [str(EDITS / row["input"])],
            "mask": str(EDITS / row["mask"]),
            "reference": str(EDITS / row["image_uri"]),
            "outputs": {"edited": [str(EDITS / row["image_uri"])]},
            **({"expect": {"text": {"required": COPY[row["id"]]}}} if row["id"] in COPY else {}),
        }
        for row in rows
    ]
    suite = {
        "name": "real-edits",
        "cases": cases,
        "models": [{"provider": "files"}],
        "graders": [
            {"key": "place", "type": "locality"},
            {"key": "like", "type": "reference"},
            {"key": "copy", "type": "text"},
            {"key": "file", "type": "properties"},
        ],
        "verdict": ["place", "like", "copy", "file"],
    }
    path = folder / "edits.yaml"
    path.write_text(json.dumps(suite))
    return path


if __name__ == "__main__":
    main()
