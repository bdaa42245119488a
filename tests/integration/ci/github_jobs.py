"""Executes the jobs of a GitHub workflow: its ``run:`` steps as a runner does, and the four actions that it uses.

The actions do what the tests need of the real ones: a checkout clones, an upload copies what its patterns match, without
hidden files, below the folder that all patterns share, and a download merges what was uploaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from os.path import commonpath
from pathlib import Path
from typing import Any

import yaml
from machine import Machine

_STATUS = ("always()", "!cancelled()")
"""Functions of a condition that let a step run after a failed one."""
_SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}


def _value(term: str, contexts: Mapping[str, Any]) -> Any:
    """A literal, or a property of a context; empty if there is none, as GitHub evaluates it."""
    if term.startswith("'"):
        return term.strip("'")
    value: Any = contexts
    for name in term.split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return value


def _holds(condition: str | None, contexts: Mapping[str, Any], *, succeeded: bool) -> bool:
    """Whether a job or step runs: a conjunction of status functions and equalities."""
    terms = [term.strip() for term in (condition or "").removeprefix("${{").removesuffix("}}").split("&&")]
    if not any(term in _STATUS for term in terms) and not succeeded:
        return False
    for term in filter(None, terms):
        if term in _STATUS:
            continue
        left, right = (_value(side.strip(), contexts) for side in term.split("=="))
        if left != right:
            return False
    return True


def _filled(text: Any, contexts: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{\{ *(.+?) *\}\}", lambda match: str(_value(match[1], contexts)), str(text))


@dataclass
class ExecutedJob:
    """One job of the matrix, or the only one."""

    name: str
    workspace: Path
    succeeded: bool = True
    log: str = ""
    environments: list[dict[str, str]] = field(default_factory=list)

    @property
    def summary(self) -> str:
        return (self.workspace.parent / "summary").read_text(encoding="utf-8")


@dataclass
class GitHubRun:
    """One event of a project, and the jobs that it starts, in the order of the file."""

    machine: Machine
    project: Path
    folder: Path
    github: dict[str, Any]
    jobs: dict[str, list[ExecutedJob]] = field(default_factory=dict)

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def execute(self) -> dict[str, list[ExecutedJob]]:
        (path,) = (self.project / ".github" / "workflows").glob("*.yml")
        workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, job in workflow["jobs"].items():
            needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            succeeded = all(result.succeeded for other in needed for result in self.jobs.get(other, []))
            if _holds(job.get("if"), {"github": self.github}, succeeded=succeeded):
                self.jobs[name] = [self._job(name, job, workflow, values) for values in _matrix(job)]
        return self.jobs

    def _job(self, name: str, job: dict[str, Any], workflow: dict[str, Any], values: dict[str, Any]) -> ExecutedJob:
        number = "-".join(str(value) for value in values.get("matrix", {}).values())
        home = self.folder / f"{name}{number}"
        home.mkdir(parents=True)
        result = ExecutedJob(name, home / "workspace")
        contexts = {
            "github": self.github,
            "vars": {"VISIONEVAL_SOURCE": self.machine.source},
            "secrets": {"OPENAI_API_KEY": "a-secret-of-the-repository", "GEMINI_API_KEY": "another-secret"},
            **values,
        }
        (home / "summary").touch()
        for step in job["steps"]:
            if not _holds(step.get("if"), contexts, succeeded=result.succeeded):
                continue
            if "uses" in step:
                options = {key: _filled(value, contexts) for key, value in step.get("with", {}).items()}
                self._action(step["uses"].partition("@")[0], options, result)
                continue
            settings = {**workflow.get("env", {}), **job.get("env", {}), **step.get("env", {})}
            self._step(step, {key: _filled(value, contexts) for key, value in settings.items()}, result)
        return result

    def _step(self, step: dict[str, Any], settings: dict[str, str], job: ExecutedJob) -> None:
        environment = {
            **self.machine.environment,
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(job.workspace.parent / "summary"),
            "GITHUB_REPOSITORY": self.github["repository"],
            "GITHUB_WORKSPACE": str(job.workspace),
            **settings,
        }
        script = job.workspace.parent / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        command = [*_SHELLS[step.get("shell")], str(script)]
        done = subprocess.run(
            command, cwd=job.workspace, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        job.log += f"$ {step['run']}\n{done.stdout}{done.stderr}exit code {done.returncode}\n"
        job.environments.append(environment)
        job.succeeded &= done.returncode == 0

    def _action(self, action: str, options: dict[str, str], job: ExecutedJob) -> None:
        match action:
            case "actions/checkout":
                self.machine.clone(self.project, job.workspace)
            case "actions/setup-python":
                if options.get("cache"):
                    assert (job.workspace / options["cache-dependency-path"]).is_file()
            case "actions/upload-artifact":
                self._upload(options, job)
            case "actions/download-artifact":
                for artifact in sorted(self.artifacts.iterdir()):
                    if fnmatch(artifact.name, options["pattern"]):
                        assert options["merge-multiple"] == "True"
                        shutil.copytree(artifact, job.workspace / options["path"], dirs_exist_ok=True)
            case _:
                raise AssertionError(f"an action that the tests do not know: {action}")

    def _upload(self, options: dict[str, str], job: ExecutedJob) -> None:
        target = self.artifacts / options["name"]
        assert not target.exists(), "GitHub refuses a second artifact of the same name"
        patterns = [pattern.rstrip("/") for pattern in options["path"].splitlines()]
        root = Path(commonpath([job.workspace / pattern.partition("*")[0] for pattern in patterns]))
        target.mkdir(parents=True)
        for top in (path for pattern in patterns for path in job.workspace.glob(pattern)):
            for path in [top, *top.rglob("*")]:
                below = path.relative_to(root)
                if path.is_file() and not any(part.startswith(".") for part in below.parts):
                    (target / below).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target / below)


def _matrix(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The contexts of each job of a matrix with one key."""
    matrix = job.get("strategy", {}).get("matrix")
    if matrix is None:
        yield {}
        return
    ((key, values),) = matrix.items()
    for value in values:
        yield {"matrix": {key: value}, "strategy": {"job-total": len(values)}}
