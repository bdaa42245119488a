"""Probes the shipped suites that need no key, and real edits: ``make probe``. Prints Markdown, one part per source, and at
the end the tables of docs/reference/measured.md.

Measurements are cached, so a probe that was stopped soon comes to where it was. Graders that read text get perturbed
copy, the others perturbed pixels, which saves most of the OCR; all get harmless changes. ``--limit N`` takes the first
cases of each source.
"""

from __future__ import annotations

import argparse
import json
import re
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
    """Runs, probes and prints: what each source shows, then the tables of docs/reference/measured.md over all of them."""
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

    Each source is probed twice: its pixel graders with perturbed pixels, its text graders with perturbed copy.
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
    """The tables over all sources: one of perturbed pixels, one of perturbed copy, one of harmless changes; then the intervals.

    Each output is of another case, so the 95 % intervals of one change are Wilson's of the pooled counts. All harmless
    changes together have none, as each output counts several times.
    """
    for group, types in (("pixels", PIXELS), ("copy", TEXT), ("harmless", (*PIXELS, *TEXT))):
        kinds: dict[str, list[str]] = {}
        for change in dict.fromkeys(change for change, kind in counts if change.startswith(group) and kind in types):
            kinds.setdefault(change.partition(" ")[0], []).append(change)
        yield from ("", f"| {group} | strengths | {' | '.join(f'`{kind}`' for kind in types)} |")
        yield "|---" * (len(types) + 2) + "|"
        for name, changes in kinds.items():
            shares = [_shares([counts.get((change, kind), (0, 0)) for change in changes]) for kind in types]
            yield f"| `{name}` | {_strengths([change.partition(' ')[2] for change in changes])} | {' | '.join(shares)} |"
    yield from _intervals({count for (change, _), count in counts.items() if change != HARMLESS})


def _strengths(labels: list[str]) -> str:
    """``4, 8, 12 px`` of ``4 px``, ``8 px`` and ``12 px``."""
    parts = [part for label in labels if (part := re.fullmatch(r"([^\d-]*)([-\d.]+)(.*)", label))]
    if len(parts) < len(labels):
        return ", ".join(labels)
    return f"{parts[0][1]}{', '.join(part[2] for part in parts)}{parts[0][3]}"


def _shares(counts: list[tuple[int, int]]) -> str:
    """Of how many outputs each strength was caught; in bold from the weakest on from which 9 of 10 are."""
    outputs = {of for _, of in counts}
    if outputs == {0}:
        return "-"
    caught = [str(failed) for failed, _ in counts]
    sure = next((at for at in range(len(counts)) if all(failed >= 0.9 * of for failed, of in counts[at:])), len(counts))
    if not any(failed for failed, _ in counts):
        caught, sure = ["0"], 1
    shown = [*caught[:sure], *([f"**{', '.join(caught[sure:])}**"] if caught[sure:] else [])]
    return f"{', '.join(shown)} of {' or '.join(map(str, sorted(outputs)))}"


def _intervals(counts: Collection[tuple[int, int]]) -> Iterator[str]:
    yield from ("", "| outputs | caught, with the 95 % interval |", "|---|---|")
    for outputs in sorted({of for _, of in counts if of}):
        shares = (
            f"{failed} [{low:.2f}, {high:.2f}]"
            for failed in sorted(failed for failed, of in counts if of == outputs)
            for low, high in [wilson_interval(failed, outputs)]
        )
        yield f"| {outputs} | {', '.join(shares)} |"


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
