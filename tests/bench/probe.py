"""Probes the shipped suites that need no key, and real edits: ``make probe``. Prints Markdown, one part per source.

Graders that read text get copy damage, the others pixel damage, which saves most of the OCR; all get harmless changes.
``--limit N`` takes the first cases of each source.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import visioneval as ve
from visioneval.errors import ExitCode
from visioneval.report.probe_markdown import probe_markdown

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


def main() -> None:
    """Runs, probes and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    selection = {} if arguments.limit is None else {"limit": arguments.limit}
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        suites = {"real_edits": edits_suite(runs)} if EDITS.is_dir() else {}
        suites |= {name: ROOT / "suites" / name / "suite.yaml" for name in (*GENERATED, *REFERENCES)}
        for name, suite in suites.items():
            source: ve.Run | Path = suite
            if name in GENERATED:
                source = ve.run(suite, runs=runs / name, run_id=name, models=[FLAWLESS], **selection)
            for types, kinds in ((PIXELS, ["pixels", "harmless"]), (TEXT, ["copy", "harmless"])):
                suite_graders = ve.plan(suite, trust_suite=True).plan.suite.graders
                graders = [grader.key for grader in suite_graders if grader.type_name in types]
                result = ve.probe(source, kinds=kinds, graders=graders, runs=runs / name, trust_suite=True, **selection)
                print(f"# {name}: {', '.join(graders)}\n\n{probe_markdown(result.findings)}", flush=True)
                if result.exit_code == ExitCode.INTERRUPTED:
                    return


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
