"""What the shell completes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from visioneval.cli import app

SUITE = """\
name: shells
cases:
  - {id: poster, prompt: a tree, tags: [print]}
  - {id: banner, prompt: a hill, tags: [web]}
models: [{provider: mock, grid: {flaw: [none, blank]}}]
graders: [{key: image, type: properties}]
verdict: [image]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("shells")
    (folder / "suite.yaml").write_text(SUITE)
    run = CliRunner().invoke(
        app, ["run", str(folder / "suite.yaml"), "--runs", str(folder / "runs"), "--run-id", "one", "--no-fail"]
    )
    assert run.exit_code in (0, 1), run.output
    (folder / "runs" / "broken").mkdir()
    (folder / "runs" / "broken" / "run.json").write_text(json.dumps({"schema_version": 2}))
    (folder / "bad.yaml").write_text("name: [")
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("show o", {"one"}),
        ("show l", {"latest"}),
        ("show one@mock,flaw=b", {"one@mock,flaw=blank"}),
        ("show one p", {"poster"}),
        ("run suite.yaml --case ", {"poster", "banner"}),
        ("run suite.yaml --tag w", {"web"}),
        ("run suite.yaml --model mock", {"mock,flaw=none", "mock,flaw=blank"}),
        ("run suite.yaml --grader ", {"image"}),
        ("compare one one --metric image.b", {"image.blank"}),
        ("report one --case b", {"banner"}),
        ("init --template quick", {"quickstart"}),
        ("run bad.yaml --case ", set()),
        ("run none.yaml --case ", set()),
        ("show broken@", set()),
        ("show none p", set()),
    ],
)
def test_completes(words: str, expected: set[str], folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    line = f"visioneval {words}"
    environment = {
        "_VISIONEVAL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    result = CliRunner().invoke(app, [], env=environment, prog_name="visioneval")
    assert result.stderr == ""
    assert set(result.stdout.split()) == expected
