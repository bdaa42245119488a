"""The command ``report``: what it writes, and what opens it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from report_runs import demo
from toys import Toy

pytestmark = pytest.mark.slow

BROWSER = """\
import sys
from pathlib import Path
Path({seen!r}).write_text(sys.argv[1])
sys.exit({code})
"""


def browser(folder: Path, code: int = 0) -> str:
    """A browser that writes down what it was to open."""
    (folder / "look.py").write_text(BROWSER.format(seen=str(folder / "seen"), code=code), encoding="utf-8")
    return f"{sys.executable} {folder / 'look.py'} %s"


def open_report(toy: Toy, *arguments: str, **environment: str) -> tuple[int | None, str, str]:
    """The exit code, output and errors of ``report demo-run --open``, run as a separate process."""
    program = toy.program("report", "demo-run", "--open", *arguments, **environment)
    output, errors = program.communicate(timeout=60)
    return program.returncode, output, errors


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((), "runs/demo-run/report/index.html"), (("--single-file", "--output", "a b#c.html"), "a b#c.html")],
)
def test_open_opens_the_page_in_the_browser(toy: Toy, arguments: tuple[str, ...], name: str) -> None:
    demo(toy.folder)
    code, output, errors = open_report(toy, *arguments, BROWSER=browser(toy.folder))
    assert (code, output.strip(), errors) == (0, f"wrote {name}", "")
    assert (toy.folder / "seen").read_text() == (toy.folder / name).resolve().as_uri()


def test_without_a_browser_prints_the_path_of_the_report(toy: Toy) -> None:
    demo(toy.folder)
    for environment in (
        {"BROWSER": browser(toy.folder, code=1), "PATH": str(toy.folder)},
        {"BROWSER": str(toy.folder / "none"), "PATH": str(toy.folder)},
        {"BROWSER": "'%s", "PATH": str(toy.folder)},
        {"BROWSER": "", "PATH": str(toy.folder), "DISPLAY": "", "WAYLAND_DISPLAY": ""},
    ):
        code, output, errors = open_report(toy, **environment)
        page = toy.folder / "runs/demo-run/report/index.html"
        assert (code, output.strip()) == (0, "wrote runs/demo-run/report/index.html")
        assert errors.strip() == f"cannot open a browser; open {page.resolve().as_uri()}"
