"""Missing extras: who hears of them, when, and which command installs them."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from engine_parts import plan_of
from packaging.requirements import Requirement
from typer.testing import CliRunner

from visioneval import UsageError, installation
from visioneval.cli import app
from visioneval.installation import PACKAGES, git_address, install_command, needs
from visioneval.running.prepare import check_extras

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789" * 4
ORIGIN = ", from the index or folder that visioneval came from"


@pytest.fixture(autouse=True)
def _no_cached_commands() -> Iterator[None]:
    install_command.cache_clear()
    yield
    install_command.cache_clear()


def installed_from(monkeypatch: pytest.MonkeyPatch, text: str | None, requires: Sequence[str] = ()) -> None:
    class FakeDistribution:
        def __init__(self) -> None:
            self.requires = list(requires)

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return text

    monkeypatch.setattr(Distribution, "from_name", lambda name: FakeDistribution())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org/owner/visioneval", "https://example.org/owner/visioneval"),
        ("https://me:secret@example.org/owner/visioneval.git", "https://example.org/owner/visioneval.git"),
        ("https://me:sec@ret@example.org/owner/visioneval", "https://example.org/owner/visioneval"),
        ("https://git@secret@example.org/owner/visioneval", "https://example.org/owner/visioneval"),
        ("ssh://git@example.org/owner/my code", "ssh://git@example.org/owner/my code"),
        ("file:///srv/my code/visioneval", "file:///srv/my code/visioneval"),
    ],
)
def test_an_installation_from_an_address_is_repeated_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, url: str, shown: str
) -> None:
    origin = {"url": url, "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": COMMIT}}
    installed_from(monkeypatch, json.dumps(origin))
    assert git_address() == f"git+{shown}@{COMMIT}"
    assert install_command("ocr") == f"run pip install 'visioneval[ocr] @ git+{shown}@{COMMIT}'"
    for kind in ({"archive_info": {}}, {"dir_info": {}}, {"dir_info": {"editable": False}}):
        install_command.cache_clear()
        installed_from(monkeypatch, json.dumps({"url": url, **kind}))
        assert git_address() is None
        assert install_command("ocr") == f"run pip install 'visioneval[ocr] @ {shown}'"


def test_in_the_action_an_extra_is_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = "/home/runner/work/_actions/owner/visioneval/v0"
    monkeypatch.setenv("GITHUB_ACTION_PATH", folder)
    installed_from(monkeypatch, json.dumps({"url": f"file://{folder}", "dir_info": {}}))
    assert needs("video") == "videos need an extra: add video to the input 'extras' of the action"
    install_command.cache_clear()
    installed_from(monkeypatch, None)
    assert needs("video").startswith("videos need an extra: run pip install ")


def test_an_installation_from_an_index_is_repeated_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, None)
    assert git_address() is None
    assert install_command("ocr") == f"run pip install 'visioneval[ocr]'{ORIGIN}"


@pytest.mark.parametrize("end", ["?token=secret", "#egg=visioneval", "?a=b&token=secret#egg=x"])
def test_an_address_is_printed_without_its_query(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    installed_from(monkeypatch, json.dumps({"url": f"https://example.org/v.whl{end}", "archive_info": {}}))
    assert install_command("ocr") == "run pip install 'visioneval[ocr] @ https://example.org/v.whl'"


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ({"vcs_info": {"vcs": "git", "commit_id": COMMIT}}, f"git+https://example.org/all@{COMMIT}"),
        ({"archive_info": {}}, "https://example.org/all"),
    ],
)
def test_the_folder_in_a_repository_is_part_of_the_address(
    monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any], address: str
) -> None:
    origin = {"url": "https://example.org/all?token=secret", "subdirectory": "tools/visioneval", **kind}
    installed_from(monkeypatch, json.dumps(origin))
    assert install_command("ocr") == f"run pip install 'visioneval[ocr] @ {address}#subdirectory=tools/visioneval'"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        '{"url": "file:///srv/visioneval", "dir_info": {"editable": true}}',
        '{"vcs_info": {"vcs": "git"}}',
        '{"url": 3, "vcs_info": {"vcs": "git", "commit_id": "a"}}',
        '{"url": "https://example.org/v", "vcs_info": {"vcs": "git"}}',
    ],
)
def test_an_editable_or_unknown_installation_names_the_checkout(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    installed_from(monkeypatch, text)
    assert install_command("ocr") == "run pip install -e '.[ocr]' in a checkout of visioneval"


def test_without_metadata_the_checkout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(Distribution, "from_name", fail)
    assert install_command("ocr") == "run pip install -e '.[ocr]' in a checkout of visioneval"


def test_without_pip_the_command_is_that_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, None)
    monkeypatch.setattr(installation, "is_installed", lambda module: module != "pip")
    assert install_command("ocr") == f"run uv pip install 'visioneval[ocr]'{ORIGIN}"


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("share/uv/tools/visioneval/uv-receipt.toml", "run uv tool install 'visioneval[ocr,parquet]'"),
        ("share/pipx/venvs/visioneval/pipx_metadata.json", "run pipx install --force 'visioneval[ocr,parquet]'"),
        (
            "cache/uv/archive-v0/nkADGS6c/pyvenv.cfg",
            "run visioneval as uvx --from 'visioneval[ocr,parquet]' visioneval",
        ),
        (
            "cache/pipx/d34685/pipx_metadata.json",
            "run visioneval as pipx run --spec 'visioneval[ocr,parquet]' visioneval",
        ),
        ("project/venv/pyvenv.cfg", "run pip install 'visioneval[ocr]'"),
    ],
)
def test_a_tool_repeats_the_extras_that_are_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, command: str
) -> None:
    """Else uv removes them. ``vertex`` needs nothing that is not installed anyway."""
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.touch()
    monkeypatch.setattr(sys, "prefix", str(path.parent))
    requires = [
        "pyyaml>=6.0.2",
        "no-such-package>=1; extra == 'svg'",
        "pytest>=8; extra == 'label'",
        "no-such-package>=1; extra == 'label'",
        'pytest>=8; extra == "parquet"',
        "pytest[more]>=8; extra == 'vertex'",
        "no-such-package==3.10.*; extra == 'ocr'",
    ]
    installed_from(monkeypatch, None, requires)
    assert install_command("ocr") == command + ORIGIN


MODULES = {"zxing_cpp": "zxingcpp"}
"""Those whose module has another name than the package."""


def test_the_modules_are_those_of_the_extras() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, modules in PACKAGES.items():
        names = (Requirement(line).name.replace("-", "_") for line in declared[extra])
        assert [MODULES.get(name, name) for name in names] == list(modules)


@pytest.fixture
def without_ocr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    return tmp_path


def write(grader: dict[str, Any], line: str = "SALE") -> Path:
    suite = {
        "name": "s",
        "cases": [{"id": "a", "prompt": "a poster", "expect": {"text": {"required": [line]}}}],
        "models": [{"provider": "mock"}],
        "judges": {"eye": {"provider": "openai", "model": "gpt-5.4"}},
        "graders": [{"key": "file", "type": "properties"}, {"key": "copy", "type": "text", **grader}],
        "verdict": ["not file.blank", "copy"],
    }
    path = Path("suite.yaml")
    path.write_text(json.dumps(suite, indent=1))
    return path


def invoke(grader: dict[str, Any], *arguments: str) -> Any:
    return CliRunner().invoke(app, [arguments[0], str(write(grader)), *arguments[1:]])


@pytest.mark.usefixtures("without_ocr")
@pytest.mark.parametrize("extract", ["ocr", ["ocr", "judge"]])
def test_without_ocr_nothing_is_generated(extract: Any) -> None:
    grader = {"extract": extract, **({} if extract == "ocr" else {"judge": "eye"})}
    checked = invoke(grader, "validate")
    assert checked.exit_code == 0
    assert f"warning: {needs('ocr')}\n" in checked.stdout + checked.stderr
    result = invoke(grader, "run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"grader 'copy': {needs('ocr')}\n"
    assert not Path("runs").exists()


@pytest.mark.usefixtures("without_ocr")
@pytest.mark.parametrize(
    ("grader", "line", "is_refused"),
    [
        ({}, "SALE", True),
        ({"extract": "judge", "judge": "eye"}, "SALE", False),
        ({"extract": ["ocr", "judge"], "judge": "eye"}, "SALE", True),
        ({"extract": ["ocr", "judge"], "judge": "eye"}, "РАСПРОДАЖА", False),
        ({"optional": True}, "SALE", False),
    ],
)
def test_only_a_grader_that_needs_ocr_is_refused(grader: dict[str, Any], line: str, *, is_refused: bool) -> None:
    plan = plan_of(write(grader, line))
    if not is_refused:
        check_extras(plan)
        return
    with pytest.raises(UsageError, match="grader 'copy': reading text needs RapidOCR: run pip install"):
        check_extras(plan)


@pytest.mark.usefixtures("without_ocr")
@pytest.mark.parametrize("flags", [("--grader", "file"), ("--offline",)])
def test_a_run_that_pays_for_nothing_or_reads_nothing_begins(flags: tuple[str, ...]) -> None:
    result = invoke({}, "run", *flags)
    assert "grader 'copy': reading" not in result.stderr
    assert Path("runs").exists(), result.output


def test_with_ocr_there_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installation, "is_installed", lambda module: True)
    assert "warning" not in invoke({}, "validate").output
