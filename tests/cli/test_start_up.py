"""Modules that the command imports at start-up: as few as possible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HEAVY = (
    "numpy", "PIL", "cv2", "jinja2", "yaml", "pydantic", "pydantic_core", "rapidocr", "onnxruntime", "openai",
    "google", "skimage", "scipy", "fsspec", "genai_prices", "httpx", "csv", "asyncio",
    "visioneval.suite", "visioneval.records.model", "visioneval.graders", "visioneval.providers",
    "visioneval.running", "visioneval.analysis", "visioneval.report", "visioneval.types", "visioneval.media.images",
    "visioneval.templates.render", "visioneval.label", "visioneval.records.labels", "starlette", "uvicorn", "rich.progress", "rich.table",
)  # fmt: skip


def loaded(*lines: str) -> list[set[str]]:
    """All modules that a fresh interpreter has loaded after each of some lines."""
    code = "".join(f"{line}\nprint('modules:', *sys.modules)\n" for line in lines)
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True)
    return [set(line.split()) for line in done.stdout.splitlines() if line.startswith("modules:")]


def call(*arguments: str) -> str:
    return (
        f"from visioneval.cli import app\ntry: app({list(arguments)!r})\nexcept SystemExit as end: assert end.code == 0"
    )


def test_the_package_the_command_line_and_its_help_load_nothing_heavy() -> None:
    package, typers, command_line = loaded("import visioneval", "import typer, typer.core", "import visioneval.cli")
    assert not {"openai", "google.genai", "numpy", "pydantic"} & package
    assert {name for name in HEAVY if name in command_line} == {name for name in HEAVY if name in typers}
    assert not {"numpy", "PIL", "cv2", "jinja2", "yaml", "pydantic", "openai", "rich.progress"} & command_line
    of_typers_own = ("rich", "asyncio", "pydantic", "csv")
    for modules in loaded(*map(call, ("--version",), ("--help",), ("run", "--help"))):
        assert not [name for name in HEAVY if name in modules and not name.startswith(of_typers_own)]


def test_listing_runs_imports_no_engine(tmp_path: Path) -> None:
    """A run contains its suite, so the options of graders and providers are imported, but not their implementation."""
    (result,) = loaded(call("runs", "--runs", str(tmp_path)))
    assert not {"numpy", "cv2", "PIL", "openai", "google.genai", "httpx2", "rapidocr", "av"} & result
    assert not {"visioneval.running", "visioneval.judging"} & result
    packages = [name.split(".") for name in result if name.startswith(("visioneval.graders.", "visioneval.providers."))]
    assert ["visioneval", "graders", "rubric"] in packages
    assert {name[3] for name in packages if len(name) > 3} <= {
        "choices", "config", "metrics", "prompt",
    }  # fmt: skip
    assert {"questions", "inputs", "replies"}.isdisjoint(name[2] for name in packages)


def test_comparing_runs_imports_no_opencv_and_checking_a_suite_no_tables() -> None:
    compared, checked = loaded("import visioneval.api.comparisons", "import visioneval.api.suites")
    assert not {"cv2", "visioneval.probing"} & compared
    assert not {"rich.table", "visioneval.cli.plan_table"} & checked


def test_running_a_suite_imports_no_numpy_and_no_pillow_until_something_is_measured() -> None:
    (result,) = loaded(
        "import visioneval.api.runs, visioneval.cli.results, visioneval.providers.openai.judge,"
        " visioneval.providers.openai.generator, visioneval.graders.rubric.grader"
    )
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
