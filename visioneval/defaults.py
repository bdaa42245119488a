"""Defaults that the command line and the Python API share. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

SUITE_FILE = Path("suite.yaml")
"""The suite of a folder."""
RUNS = Path("runs")
"""The folder of runs."""
LATEST = "latest"
"""The name of the newest run."""
MAX_CONCURRENCY = 64
"""Concurrent calls per model, separately for generation and judging."""
MAX_CONFIRM = 100
"""The most new samples per case that ``compare --confirm`` generates."""
MAX_GALLERY_CELLS = 10_000
"""Cells in the gallery of a report: what a browser and its user can take."""
BASELINE_RUNS = 5
"""The number of runs that a baseline keeps by default."""
MAX_BASELINE_RUNS = 20
