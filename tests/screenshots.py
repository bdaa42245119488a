"""``make screenshots``: the image of the README, from the quickstart with a gate that its flaws fail. Needs Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

from browser import ARGS, CHROMIUM  # noqa: E402 - its folder is on the path now
from playwright.sync_api import sync_playwright  # noqa: E402

IMAGES = ROOT / "docs" / "images"
MODELS = ["mock,flaw=none", "mock,flaw=typo", "mock,flaw=spill"]


def main() -> None:
    """Runs the suite and writes the image."""
    with tempfile.TemporaryDirectory() as folder:
        selected = [word for model in MODELS for word in ("--model", model)]
        shutil.copytree(ROOT / "suites" / "quickstart", folder, dirs_exist_ok=True)
        suite = Path(folder) / "suite.yaml"
        # Not BUTTER, which the fascia has too, as "Butter": a card shows a typo of the word on the small sign.
        cases, gates, _ = suite.read_text(encoding="utf-8").replace("BUTTER", "BREAD").partition("\ngates:")
        suite.write_text(f"{cases}{gates}\n  - pass_rate >= 0.9\n", encoding="utf-8")
        for words in (["run", suite, "--run-id", "flyers", "--no-fail", *selected], ["report", "flyers"]):
            subprocess.run(
                [sys.executable, "-m", "visioneval", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL
            )
        _report(Path(folder) / "runs" / "flyers" / "report" / "index.html")


def _report(page: Path) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        tab = browser.new_page(viewport={"width": 1200, "height": 760})
        tab.goto(page.resolve().as_uri())
        tab.wait_for_timeout(1000)
        tab.screenshot(path=IMAGES / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
