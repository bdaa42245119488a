"""Every documented install command installs a checkout or a Git URL, never a name of the package index. The project
does not own that name yet: whoever registers it could run code beside the user's keys.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import InvalidRequirement, Requirement

from visioneval.installation import PACKAGES
from visioneval.media.urls import BUCKETS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / "visioneval" / "cli" / "github.yml"
TEXTS = (".py", ".md", ".yml", ".yaml", ".j2", ".html", ".js", ".toml", ".txt", "")
INSTALL = re.compile(
    r"\b(?:(?:uv )?pip3? install|uv (?:add|tool install|run --with)|uvx|pipx (?:install|run))\s+([^\n]*)"
)
WORD = re.compile(r"""'[^']*'|"[^"]*"|[^\s`'"]+""")
COMMIT = "0123456789" * 4
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def _files() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml")
    for folder in ("visioneval", "docs", "suites", "prompts"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in TEXTS)


def _requirements(text: str) -> Iterator[str]:
    """What the install lines of a text name, options aside; a word of prose after a line ends it."""
    for match in INSTALL.finditer(text):
        words = iter(WORD.findall(match[1].replace('\\"', '"')))
        for word in words:
            if word in ("--group", "--index-url", "--target"):
                next(words, None)
            elif not word.startswith("-"):
                yield word.strip("'\"")
                break


def _printed() -> dict[str, list[str]]:
    """The requirements by file; a placeholder of an f-string stands for each of its values."""
    result: dict[str, list[str]] = {}
    for path in _files():
        for word in _requirements(path.read_text(encoding="utf-8", errors="replace")):
            filled = [re.sub(r"\{[^}]*\}", extra, word) for extra in BUCKETS.values()] if "{" in word else [word]
            result.setdefault(str(path.relative_to(ROOT)), []).extend(filled)
    return result


def _is_of_a_checkout(word: str) -> bool:
    return re.fullmatch(r"\.(\[[a-z0-9,]+\])?", word) is not None


def _names_visioneval_on_the_index(word: str) -> bool:
    """Whether pip would look the name up; what is no requirement at all is as bad."""
    if _is_of_a_checkout(word) or word.startswith(("$$(", ".[")):  # the wheel of the Makefile, and extras that it names
        return False
    try:
        requirement = Requirement(word.replace("$VISIONEVAL_SOURCE", f"git+https://example.org/v@{COMMIT}"))
    except InvalidRequirement:
        return True
    is_address = re.match(r"git\+https://[^/]+/.", requirement.url or "") is not None
    return requirement.name.lower() == "visioneval" and not is_address


def test_no_install_line_names_visioneval_on_the_index() -> None:
    printed = _printed()
    assert {
        "README.md",
        "visioneval/cli/github.yml",
        "visioneval/installation.py",
    } <= printed.keys()
    bad = {file: [word for word in words if _names_visioneval_on_the_index(word)] for file, words in printed.items()}
    assert not {file: words for file, words in bad.items() if words}


@pytest.mark.parametrize(
    ("line", "is_bad"),
    [
        ("pip install 'visioneval[ocr]'", True),
        ('pip install "visioneval[ocr]"', True),
        ("pip install visioneval", True),
        ("pip install --quiet visioneval==1.0", True),
        ("pip install 'visioneval[ocr] @ .'", True),
        ("uv tool install visioneval", True),
        ("pip install '.[ocr]'", False),
        ('pip install ".[ocr,$(EXTRA_$*)]"', False),
        ("pip install 'pip>=25.1'", False),
        ('pip install "visioneval[ocr] @ $VISIONEVAL_SOURCE"', False),
    ],
)
def test_the_check_can_fail(line: str, *, is_bad: bool) -> None:
    (word,) = _requirements(line)
    assert _names_visioneval_on_the_index(word) is is_bad


def test_the_extras_exist() -> None:
    named = {word for words in _printed().values() for word in words if _is_of_a_checkout(word)}
    extras = {extra for word in named for extra in word.strip(".[]").split(",") if extra}
    assert {"ocr", "video", "label", "gcs", "s3"} <= extras <= EXTRAS


def test_messages_name_extras_that_exist() -> None:
    sources = (path.read_text() for path in (ROOT / "visioneval").rglob("*.py"))
    named = {extra for text in sources for extra in re.findall(r"""install_command\(["'](\w+)["']\)""", text)}
    assert {"ray", "label", "parquet", "litellm"} <= named
    assert named | PACKAGES.keys() | set(BUCKETS.values()) <= EXTRAS


def test_pip_takes_the_lines_for_a_checkout() -> None:
    """Each requirement, in one call: without dependencies, and nothing is installed."""
    named = sorted({word for words in _printed().values() for word in words if _is_of_a_checkout(word)})
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-deps",
        "--quiet",
        "--disable-pip-version-check",
    ]
    done = subprocess.run([*command, *named], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and re.search(r"No matching distribution found for hatchling|Failed to establish", done.stderr):
        pytest.skip("the package index, which has the build's own tool, cannot be reached")
    assert done.returncode == 0, done.stderr


def _install_steps() -> list[str]:
    workflow: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert workflow["env"]["VISIONEVAL_SOURCE"] == "${{ vars.VISIONEVAL_SOURCE }}"
    steps = [
        step for job in workflow["jobs"].values() for step in job["steps"] if step.get("name") == "Install visioneval"
    ]
    assert [step["shell"] for step in steps] == ["bash"] * 4
    return [step["run"] for step in steps]


def _installed(folder: Path, source: str | None) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What the workflow's step does, and the words that its pip gets."""
    fake = folder / "pip"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(folder / "words"))}\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"} | ({} if source is None else {"VISIONEVAL_SOURCE": source})
    step = _install_steps()[0]
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step],  # as GitHub starts it
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    words = folder / "words"
    return done, words.read_text().splitlines() if words.exists() else []


def test_the_install_steps_are_identical_without_expressions() -> None:
    (step,) = set(_install_steps())
    assert "${{" not in step


@pytest.mark.parametrize("at", [f"@{COMMIT}", "@v0.2.0", ""])
def test_the_workflow_installs_from_the_address_of_the_variable(tmp_path: Path, at: str) -> None:
    source = f"git+https://github.com/owner/visioneval{at}"
    done, words = _installed(tmp_path, source)
    assert (done.returncode, words) == (0, ["install", f"visioneval[ocr] @ {source}"]), done.stderr
    assert Requirement(words[1]).url == source
    assert ("::warning::" in done.stdout) is (COMMIT not in at)


@pytest.mark.parametrize(
    "source",
    [
        None, "", "visioneval", "git+http://github.com/o/v", "https://example.org/v.whl", "git+https://", "git+ssh://git@h/r",
        "git+https://github.com/o/v; touch pwned", "git+https://github.com/o/v@$(touch pwned)",
        'git+https://github.com/o/v" --index-url "http://x', "git+https://github.com/o/v\n--index-url http://x",
        "x\ngit+https://github.com/o/v",
    ],
)  # fmt: skip
def test_the_workflow_refuses_to_run_without_an_address(tmp_path: Path, source: str | None) -> None:
    done, words = _installed(tmp_path, source)
    assert (done.returncode, words) == (1, [])
    assert done.stdout.startswith("::error::set the repository variable VISIONEVAL_SOURCE to git+https://")
    assert not (tmp_path / "pwned").exists()
