"""Modules that the command imports at start-up: as few as possible."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

HEAVY = (
    "numpy", "PIL", "cv2", "jinja2", "yaml", "pydantic", "pydantic_core", "rapidocr", "onnxruntime", "openai",
    "google", "skimage", "scipy", "fsspec", "genai_prices", "httpx", "csv", "asyncio",
    "visioneval.suite", "visioneval.records.model", "visioneval.graders", "visioneval.providers",
    "visioneval.running", "visioneval.analysis", "visioneval.report", "visioneval.types", "visioneval.media.images",
    "visioneval.templates.render", "visioneval.label", "visioneval.records.labels", "starlette", "uvicorn", "rich.progress", "rich.table",
)  # fmt: skip


def loaded(*lines: str) -> list[str]:
    """The heavy modules that a fresh interpreter has loaded after some lines."""
    code = "\n".join(("import sys", *lines, f"print(*(name for name in {HEAVY!r} if name in sys.modules))"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    assert loaded("import typer", "import typer.core") == loaded("import visioneval.cli")
    assert not {"numpy", "PIL", "cv2", "jinja2", "yaml", "pydantic", "openai", "rich.progress"} & set(
        loaded("import visioneval.cli")
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"]])
def test_help_needs_nothing_heavy(arguments: list[str]) -> None:
    result = loaded(
        "from visioneval.cli import app",
        f"try: app({arguments!r})",
        "except SystemExit as end: assert end.code == 0",
    )
    of_typers_own = ("rich", "asyncio", "pydantic", "csv")
    assert not [name for name in result if not name.startswith(of_typers_own)]


def test_listing_runs_imports_no_engine(tmp_path: object) -> None:
    """A run contains its suite, so the options of graders and providers are imported, but not their implementation."""
    code = (
        "import sys\nfrom visioneval.cli import app\n"
        f"try: app(['runs', '--runs', {str(tmp_path)!r}])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result = set(done.stdout.splitlines()[-1].split())
    assert not {"numpy", "cv2", "PIL", "openai", "google.genai", "httpx2", "rapidocr", "av"} & result
    assert not {"visioneval.running", "visioneval.judging"} & result
    packages = [name.split(".") for name in result if name.startswith(("visioneval.graders.", "visioneval.providers."))]
    assert ["visioneval", "graders", "rubric"] in packages
    assert {name[3] for name in packages if len(name) > 3} <= {
        "catalog", "choices", "config", "metrics", "prompt",
    }  # fmt: skip
    assert {"base", "conversation", "masks"}.isdisjoint(name[2] for name in packages)


def test_running_a_suite_imports_no_numpy_and_no_pillow_until_something_is_measured() -> None:
    code = (
        "import sys, visioneval.api.runs, visioneval.cli.results, visioneval.providers.openai.judge\n"
        "import visioneval.providers.openai.generator, visioneval.graders.rubric.grader\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result = set(done.stdout.split())
    assert not {"numpy", "cv2", "PIL.Image", "scipy", "pandas"} & result
    assert not {"visioneval.probing", "visioneval.analysis.agreement"} & result


def test_an_interrupt_while_the_command_is_imported_ends_in_one_line() -> None:
    code = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'visioneval.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from visioneval.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
