"""The Dockerfile: a linter finds nothing, and its commands work in folders of this machine, the last ones without network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from machine import ROOT, Machine

DOCKERFILE = ROOT / "Dockerfile"
LINT = Path(sys.executable).with_name("hadolint")


def instructions() -> list[tuple[str, str]]:
    """Name and text of each instruction, without comments and line breaks."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", "")
    return [
        (name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in text.split("\n")) if name
    ]


def commands() -> list[str]:
    return [text for name, text in instructions() if name == "RUN"]


def test_the_linter_finds_nothing() -> None:
    done = subprocess.run([LINT, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ("python:3.13-slim", "python", "DL3006"),
        ("USER 1000\n", "USER root\n", "DL3002"),
        ("WORKDIR /work", "WORKDIR work", "DL3000"),
    ],
)
def test_the_linter_finds_mistakes(tmp_path: Path, before: str, after: str, rule: str) -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "Dockerfile").write_text(text.replace(before, after), encoding="utf-8")
    done = subprocess.run([LINT, tmp_path / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert rule in done.stdout


def test_the_user_is_not_root_and_the_extras_exist() -> None:
    users = [text for name, text in instructions() if name == "USER"]
    assert users == ["1000"]
    assert [name for name, _ in instructions()][-2:] == ["ENTRYPOINT", "CMD"]


def copied(target: Path) -> None:
    """Fills ``target`` with what the first stage copies from the checkout, as .dockerignore allows it."""
    lines = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    assert lines[0] == "*"
    allowed = [line.removeprefix("!") for line in lines if line.startswith("!")]
    ignored = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    assert len(allowed) + len(ignored) == len(lines) - 1
    copies = [text.split() for name, text in instructions() if name == "COPY" and not text.startswith("--from")]
    assert sorted(source for *sources, _ in copies for source in sources) == allowed
    for *sources, folder in copies:
        for source in sources:
            place = target / folder.removeprefix("/source").strip("/")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns(*ignored))
            else:
                shutil.copyfile(ROOT / source, place / source)


def test_its_commands_work_and_the_last_ones_without_network(machine: Machine, tmp_path: Path) -> None:
    """uv installs instead of pip, as it is faster."""
    build, check = commands()[0], commands()[-1]
    assert check.startswith("--network=none ")
    (tmp_path / "source").mkdir()
    copied(tmp_path / "source")
    environment = {**machine.environment, "PATH": f"{LINT.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    install = build.replace("/opt/visioneval/bin/pip install", "uv pip install --python /opt/visioneval")
    assert install != build
    for path in ("/opt/visioneval", "/source"):
        install = install.replace(path, f"{tmp_path}{path.removeprefix('/opt')}")
    done = subprocess.run(["bash", "-ec", install], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    folder = tmp_path / "machine"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    check = check.removeprefix("--network=none ").replace("/tmp/check", str(folder / "check"))
    isolated = ["unshare", "--user", "--net"]
    if subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no process without network")
    environment = {"PATH": f"{tmp_path / 'visioneval' / 'bin'}:/usr/bin:/bin", "XDG_CACHE_HOME": str(folder / "cache")}
    command = [*isolated, "bash", "-ec", check]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All gates passed" in done.stdout
    assert list(folder.iterdir()) == [], "nothing of the check stays in the image"
