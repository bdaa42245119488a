"""Every documented install command installs a checkout or a Git URL. The project does not own its name on the package index
yet, and whoever registers it could run code beside the user's keys: a line that names it says ``# once published``.
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

from tests.bench.weight import USES
from visioneval.installation import PACKAGES
from visioneval.media.urls import BUCKETS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
TEXTS = (".py", ".md", ".yml", ".yaml", ".j2", ".html", ".js", ".toml", ".txt", "")
INSTALL = re.compile(
    r"\b(?:(?:uv )?pip3? (?:install|wheel)|uv (?:add|tool install|run --with)|uvx|pipx (?:install|run))\s+([^\n]*)"
)
WORD = re.compile(r"""'[^']*'|"[^"]*"|[^\s`'"]+""")
COMMIT = "0123456789" * 4
EXTRAS = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
PAGE = (ROOT / "docs" / "how_to" / "install.md").read_text(encoding="utf-8")


def _files() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml")
    for folder in ("visioneval", "docs", "suites", "prompts"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in TEXTS)


def _requirements(text: str) -> Iterator[str]:
    """What the install lines of a text name, options aside; a word of prose after a line ends it.

    Not those for a time when the name is published, nor those without an index.
    """
    for match in INSTALL.finditer(text):
        if re.search(r"--no-index|# once published$", match[1]):
            continue
        words = iter(WORD.findall(match[1].replace('\\"', '"')))
        for word in words:
            if word in ("--group", "--index-url", "--target", "--wheel-dir"):
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
        "docs/how_to/install.md",
        "visioneval/cli/gitlab.yml",
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
        ("uvx --from 'visioneval[ocr]' visioneval init first", True),
        ("pipx run --spec visioneval visioneval", True),
        ("pip wheel --wheel-dir wheels 'visioneval[ocr]'", True),
        ("uvx --from 'visioneval[ocr] @ git+https://github.com/OWNER/visioneval' visioneval # today", False),
        ("pip install '.[ocr]'", False),
        ('pip install ".[ocr,$(EXTRA_$*)]"', False),
        ("pip install 'pip>=25.1'", False),
        ('pip install "visioneval[ocr] @ $VISIONEVAL_SOURCE"', False),
    ],
)
def test_the_check_can_fail(line: str, *, is_bad: bool) -> None:
    (word,) = _requirements(line)
    assert _names_visioneval_on_the_index(word) is is_bad


def test_a_line_for_the_published_name_says_so() -> None:
    assert not list(_requirements("pip install 'visioneval[ocr]'      # once published"))
    assert not list(_requirements("pip install --no-index --find-links wheels 'visioneval[ocr]'"))
    assert list(_requirements("pip install 'visioneval[ocr]'  # once published, or before")) == ["visioneval[ocr]"]


def test_the_page_has_a_line_for_each_tool_and_one_for_the_published_name() -> None:
    lines = [line.split(" # ") for line in PAGE.splitlines() if line.endswith((" # today", " # once published"))]
    at_git = [command.strip() for command, when in lines if when == "today"]
    assert len(at_git) == 5
    published = [command.strip() for command, when in lines if when == "once published"]
    assert [command.replace(" @ git+https://github.com/OWNER/visioneval", "") for command in at_git[:1]] == published


def test_the_page_weighs_each_extra_and_has_what_it_is_for_from_the_project() -> None:
    rows = dict(re.findall(r"^\| `?(\w+)`? \| (.+) \| \d+ MB \|$", PAGE, re.MULTILINE))
    assert list(rows) == ["none", *EXTRAS]
    assert list(rows.items())[1:] == list(USES.items())


def test_the_page_has_the_extras_of_the_image() -> None:
    (in_image,) = re.findall(r"/source\[([a-z0-9,]+)\]", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    (sentence,) = re.findall(r"The image has the extras ([^.]+)\.", PAGE)
    assert re.findall(r"`(\w+)`", sentence) == in_image.split(",")


def test_the_readme_says_what_the_page_about_installing_says() -> None:
    """The page's lines are tried in fresh environments, and its weights are measured."""
    page = (ROOT / "docs" / "how_to" / "install.md").read_text(encoding="utf-8")
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Install\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^pip install .*", section, re.MULTILINE)
    assert [line.rsplit("# ")[-1] for line in lines] == ["today", "once published"]
    assert {" ".join(line.split()) for line in lines} <= {" ".join(line.split()) for line in page.splitlines()}
    weights = dict(re.findall(r"^\| `?(\w+)`? \| .* \| (\d+) MB \|$", page, re.MULTILINE))
    (opencv,) = re.findall(r"OpenCV takes (\d+)", page)
    assert f"The base takes {weights['none']} MB, OpenCV {opencv} of them" in section
    assert f"adds {weights['ocr']} MB" in section


def test_the_extras_exist() -> None:
    named = {word for words in _printed().values() for word in words if _is_of_a_checkout(word)}
    extras = {extra for word in named for extra in word.strip(".[]").split(",") if extra}
    assert {"ocr", "video", "label", "gcs", "s3"} <= extras <= set(EXTRAS)


def test_messages_name_extras_that_exist() -> None:
    sources = (path.read_text() for path in (ROOT / "visioneval").rglob("*.py"))
    named = {extra for text in sources for extra in re.findall(r"""install_command\(["'](\w+)["']\)""", text)}
    assert {"ray", "label", "parquet", "litellm"} <= named
    assert named | PACKAGES.keys() | set(BUCKETS.values()) <= set(EXTRAS)


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


def _install_step() -> dict[str, Any]:
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (step,) = (step for step in action["runs"]["steps"] if step.get("name") == "Install visioneval")
    return dict(step)


@pytest.mark.parametrize(("extras", "installed"), [("ocr,video", "/a b/@v0[ocr,video]"), ("", "/a b/@v0")])
def test_the_action_installs_its_own_checkout(tmp_path: Path, extras: str, installed: str) -> None:
    fake = tmp_path / "pip"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(tmp_path / "words"))}\n')
    fake.chmod(0o755)
    step = _install_step()
    assert step["env"] == {"EXTRAS": "${{ inputs.extras }}"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_ACTION_PATH": "/a b/@v0", "EXTRAS": extras}
    subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], env=environment, check=True)
    assert (tmp_path / "words").read_text().splitlines() == ["install", installed]
