"""The machine on which jobs of a CI system are executed: a Python with pip, and a project with a suite.

Jobs install visioneval with their own commands: Git reads its address from a copy of this checkout, pip takes the rest from
its cache or the package index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
ADDRESS = "https://github.com/owner/visioneval"
_REACHES_THE_INDEX = re.compile(r"PIP_.*|.*_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE", re.IGNORECASE)
_PIP = """\
#!/bin/sh
# Jobs share the machine: the same installation is made once, from whichever clone.
done="{folder}/$(printf '%s ' "$@" | sed 's|/.*/action|action|' | sha256sum | cut -c1-20)"
[ -e "$done" ] || {{ "{pip}" "$@" && touch "$done"; }}
"""


def git(folder: Path, *arguments: str) -> str:
    """What Git prints. Raises ``AssertionError`` if it fails."""
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "core.autocrlf=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass
class Machine:
    """A folder with ``bin``, an environment of Python, and the Git repository to install visioneval from."""

    folder: Path
    environment: dict[str, str]
    commit: str

    @property
    def source(self) -> str:
        return f"git+{ADDRESS}@{self.commit}"

    @property
    def cache(self) -> str:
        return self.environment["PIP_CACHE_DIR"]

    def clone(self, project: Path, workspace: Path) -> None:
        git(workspace.parent, "clone", "--quiet", str(project), str(workspace))

    def visioneval(self, folder: Path, *arguments: str) -> None:
        """Runs a command of the environment in which the tests run. Raises ``AssertionError`` if it fails."""
        command = [sys.executable, "-m", "visioneval", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def new_machine(folder: Path) -> Machine:
    """Sets a machine up. Its repository has the files of this checkout as they are now, committed or not."""
    (folder / "bin").mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "python")], check=True)
    (folder / "bin" / "pip").write_text(_PIP.format(folder=folder, pip=folder / "python" / "bin" / "pip"))
    (folder / "bin" / "pip").chmod(0o755)
    command = [sys.executable, "-m", "pip", "cache", "dir"]
    cache = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    source = folder / "source"
    git(folder, "init", "--quiet", str(source))
    of_this_checkout = (f"--git-dir={source / '.git'}", f"--work-tree={ROOT}")
    git(folder, *of_this_checkout, "add", "--all", str(ROOT))
    git(folder, *of_this_checkout, "commit", "--quiet", "--message", "as it is")
    environment = {
        **{name: value for name, value in os.environ.items() if _REACHES_THE_INDEX.fullmatch(name)},
        "PATH": f"{folder / 'bin'}:{folder / 'python' / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PIP_CACHE_DIR": cache,
        "PIP_NO_COMPILE": "1",  # what runs is compiled when it is imported
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{source.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
        "CI": "true",
    }
    return Machine(folder, environment, git(source, "rev-parse", "HEAD"))
