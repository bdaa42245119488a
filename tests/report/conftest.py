"""The runs of the golden files: made once in a session, by the command line, in a folder of their own."""

from __future__ import annotations

import json
import shutil

import pytest
from golden_runs import write_records
from report_studio import STUDIO, Studio, commands

from visioneval.threads import Stopwatch


def _cell(line: str) -> tuple[str, ...]:
    fields = json.loads(line)
    return tuple(str(fields[name]) for name in ("test_id", "model_label", "sample_index"))


@pytest.fixture(scope="session")
def made_studio(tmp_path_factory: pytest.TempPathFactory) -> Studio:
    """A folder with all runs. Each generation and each grader takes a quarter of a second."""
    folder = tmp_path_factory.mktemp("golden") / "studio"
    shutil.copytree(STUDIO, folder)
    (folder / "out").mkdir()
    studio = Studio(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOME", str(folder.parent))
        patch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
        patch.setattr(Stopwatch, "read", lambda self: (0.25, 0.0))
        write_records(folder / "old")
        for command, columns, words in commands()[0]:
            studio.run(command, columns, words)
            for path in (folder / "runs").glob("*/results.jsonl"):  # cells end in any order
                lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
                path.write_text("".join(sorted(lines, key=_cell)), encoding="utf-8")
    return studio  # and nothing of it lasts in the worker, which has other tests after these


@pytest.fixture
def studio(made_studio: Studio, monkeypatch: pytest.MonkeyPatch) -> Studio:
    """The folder of the runs is the working directory."""
    monkeypatch.chdir(made_studio.folder)
    monkeypatch.setenv("HOME", str(made_studio.folder.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(made_studio.folder.parent / "cache"))
    return made_studio
