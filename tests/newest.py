"""Tries the newest version of every dependency, also beyond the upper bounds in pyproject.toml, by ``make newest``.

It builds ``.integration/newest`` from the dependencies and the extras of ``.venv`` without their upper bounds, runs the
fast tests there, and writes ``build/newest.md``: for each bound, which version was tried, whether that is beyond the bound,
and whether another package held a newer one back. The group ``dev`` is installed as it is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
ENVIRONMENT, REPORT = ROOT / ".integration" / "newest", ROOT / "build" / "newest.md"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(\[[^]]*\])?(.*)")


class Bound(NamedTuple):
    """A dependency with an upper bound."""

    name: str
    specifier: str


def parts(requirement: str) -> tuple[str, str, list[str]]:
    """Name, extras in brackets, and version specifiers of a requirement without markers."""
    match = _REQUIREMENT.fullmatch(requirement.replace(" ", ""))
    assert match, requirement
    return match[1], match[2] or "", [part for part in match[3].split(",") if part]


def lifted(requirement: str) -> str:
    """A requirement without its upper bound: ``a>=1,<2`` becomes ``a>=1``, and ``a==1.2.*`` becomes ``a>=1.2``."""
    name, extras, specifiers = parts(requirement)
    lower = (re.sub(r"==(.*)\.\*", r">=\1", part).replace("~=", ">=") for part in specifiers)
    return f"{name}{extras}{','.join(part for part in lower if not part.startswith('<'))}"


def bounds(requirements: list[str]) -> list[Bound]:
    """The requirements that ``lifted`` changes."""
    changed = (parts(text) for text in requirements if lifted(text) != text.replace(" ", ""))
    return [Bound(name, ",".join(specifiers)) for name, _, specifiers in changed]


def requirements_of_venv() -> list[str]:
    """The dependencies, and those of the extras that the Makefile installs into ``.venv``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    match = re.search(r'"\.\[([a-z0-9,]+)\]" --group dev', (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert match, "the Makefile names the extras of .venv"
    extras = (project["optional-dependencies"][extra] for extra in match[1].split(","))
    return [*project["dependencies"], *(requirement for extra in extras for requirement in extra)]


def pip(*arguments: str) -> str:
    """Runs pip of the new environment; ends the program if it fails."""
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pip {arguments[0]} failed with exit code {done.returncode}")
    return done.stdout


def newest_versions(names: list[str]) -> dict[str, str]:
    """The newest version of each package for this Python, whatever other packages allow."""
    options = ("--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-")
    items: list[dict[str, Any]] = json.loads(pip("install", *options, *names))["install"]
    return {canonical(item["metadata"]["name"]): item["metadata"]["version"] for item in items}


def canonical(name: str) -> str:
    """The form in which names of packages are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_beyond(version: str, specifier: str) -> bool:
    """Whether a version is one that an upper bound (``<2`` or ``==1.2.*``) excludes."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    for part in specifier.split(","):
        limit = [int(number) for number in re.findall(r"\d+", part)]
        if part.startswith("<") and numbers >= limit:
            return True
        if part.startswith("==") and numbers[: len(limit)] != limit:
            return True
    return False


def rows(all_bounds: list[Bound], installed: dict[str, str], newest: dict[str, str]) -> Iterator[str]:
    """Lines of the table: name, bound, version that was tried, what is to know about it."""
    for name, specifier in all_bounds:
        version, last = installed[canonical(name)], newest[canonical(name)]
        notes = ["beyond the bound"] if is_beyond(version, specifier) else []
        notes += [] if version == last else [f"another package holds {last} back"]
        yield f"| {name} | {specifier} | {version} | {', '.join(notes)} |"


def main() -> int:
    """Builds the environment, runs the tests, writes the report. The exit code is that of the tests."""
    requirements = requirements_of_venv()
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip("install", "--quiet", "--upgrade", "pip>=25.1")
    pip("install", "--quiet", *map(lifted, requirements), "--group", "dev")
    pip("install", "--quiet", "--no-deps", "--editable", ".")
    all_bounds = bounds(requirements)
    installed = {canonical(item["name"]): item["version"] for item in json.loads(pip("list", "--format", "json"))}
    table = list(rows(all_bounds, installed, newest_versions([bound.name for bound in all_bounds])))
    workers = str((os.cpu_count() or 1) + 2)
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pytest", "-n", workers, "-m", "not slow"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    python = ".".join(map(str, sys.version_info[:2]))
    title = f"# Newest dependencies on Python {python}: {'the tests failed' if code else 'all fast tests passed'}"
    head = ["| dependency | bound | tried | |", "|---|---|---|---|"]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("\n".join([title, "", *head, *table, ""]), encoding="utf-8")
    print(REPORT.read_text(encoding="utf-8"))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
