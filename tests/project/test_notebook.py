"""examples/notebook.ipynb runs from a checkout, and is committed without what a run of it leaves behind."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATH = ROOT / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each code cell shows, by media type; text that is printed is ``text``."""
    notebook = nbformat.read(PATH, as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(PATH.parent)}})
    client.execute(env={**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))})
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [{"text": item["text"]} if "text" in item else dict(item["data"]) for cell in cells for item in cell.outputs]


def test_the_notebook_runs(outputs: list[dict[str, Any]]) -> None:
    texts = [str(output.get("text/plain", output.get("text"))) for output in outputs]
    plan, run, counts, table, _, case, broken, gates = texts
    assert plan == "SuitePlan(my-edits: 3 cases, 2 model runs, 6 cells, 0 USD)"
    assert run.endswith(": 3 cells, 3 FAIL, exit code 0)")
    assert counts == "(0, 3, 3)"
    assert [row.split()[1:3] for row in table.splitlines()[1:]] == [
        ["sign_twice/1", "FAIL"],
        ["sign_twice/2", "FAIL"],
        ["sign_word", "FAIL"],
    ]
    assert "of the pixels outside the mask changed, above the limit of 1%" in " ".join(case.split())
    assert broken == "(1, ['sign_word', 'sign_twice/1', 'sign_twice/2'])"
    assert gates.startswith("failed 3 of 3 cells broke\n")


def test_it_shows_tables_and_images(outputs: list[dict[str, Any]]) -> None:
    pages = [output["text/html"] for output in outputs if "text/html" in output]
    assert [page.count("<img ") for page in pages] == [3, 0, 1]
    assert ["image/png" in output for output in outputs].count(True) == 1


def test_it_leaves_no_file_in_the_checkout(outputs: list[dict[str, Any]]) -> None:
    assert outputs
    assert [path.name for path in PATH.parent.iterdir() if path.name != ".ipynb_checkpoints"] == ["notebook.ipynb"]


def test_it_is_committed_without_outputs_and_paths_of_a_machine() -> None:
    text = PATH.read_text(encoding="utf-8")
    notebook = json.loads(text)
    nbformat.validate(notebook)
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in cells)
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    assert [cell["id"] for cell in notebook["cells"]] == [f"cell-{at + 1}" for at in range(len(notebook["cells"]))]
    assert re.findall(r"/(?:home|tmp|Users|work|root|mnt)/|[A-Z]:\\\\|file://", text) == []
