"""Executes the jobs of a GitHub workflow: the steps of visioneval's action as a runner does, and the actions that it uses.

Those do what the tests need of the real ones: a checkout clones, an upload copies what its patterns match, without
hidden files, below the folder that all patterns share, and a download merges what was uploaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from os.path import commonpath
from pathlib import Path
from typing import Any

import yaml
from machine import ADDRESS, Machine

_STATUS = ("always()", "!cancelled()")
"""Functions of a condition that let a step run after a failed one."""
SELF = ADDRESS.removeprefix("https://github.com/")


def _value(expression: str, contexts: Mapping[str, Any]) -> Any:
    """A disjunction of conjunctions of comparisons, literals and properties; empty where there is none, as on GitHub."""
    value: Any = ""
    for alternative in expression.split("||"):
        for term in alternative.split("&&"):
            value = _term(term.strip(), contexts)
            if not value:
                break
        if value:
            return value
    return value


def _term(term: str, contexts: Mapping[str, Any]) -> Any:
    for sign in ("==", "!="):
        left, found, right = term.partition(sign)
        if found:
            return (_term(left.strip(), contexts) == _term(right.strip(), contexts)) is (sign == "==")
    if term in _STATUS:
        return True
    if term.startswith("'"):
        return term.strip("'")
    value: Any = contexts
    for name in term.split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return value


def _holds(condition: str | None, contexts: Mapping[str, Any], *, succeeded: bool) -> bool:
    """Whether a job or step runs: without a status function, nothing before it may have failed."""
    expression = (condition or "always()").removeprefix("${{").removesuffix("}}")
    runs_always = condition is not None and any(name in expression for name in _STATUS)
    return (succeeded or runs_always) and bool(_value(expression, contexts))


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
    jobs: dict[str, ExecutedJob] = field(default_factory=dict)

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def execute(self) -> dict[str, ExecutedJob]:
        (path,) = (self.project / ".github" / "workflows").glob("*.yml")
        workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, job in workflow["jobs"].items():
            needed = job.get("needs", [])
            succeeded = all(self.jobs[other].succeeded for other in needed if other in self.jobs)
            if not _holds(job.get("if"), {"github": self.github}, succeeded=succeeded):
                continue
            for number, values in enumerate(_matrix(job), start=1):
                done = self._job(f"{name}{number}", job, workflow, values)
                if name in self.jobs:
                    done.succeeded &= self.jobs[name].succeeded
                    done.log = self.jobs[name].log + done.log
                self.jobs[name] = done
        return self.jobs

    def _job(self, name: str, job: dict[str, Any], workflow: dict[str, Any], values: dict[str, Any]) -> ExecutedJob:
        home = self.folder / name
        home.mkdir(parents=True)
        result = ExecutedJob(name, home / "workspace")
        contexts = {
            "github": self.github,
            "secrets": {"OPENAI_API_KEY": "a-secret-of-the-repository", "GEMINI_API_KEY": "another-secret"},
            **values,
        }
        (home / "summary").touch()
        settings = {**workflow.get("env", {}), **job.get("env", {})}
        for step in job["steps"]:
            if _holds(step.get("if"), contexts, succeeded=result.succeeded):
                of_step = {key: _filled(value, contexts) for key, value in {**settings, **step.get("env", {})}.items()}
                options = {key: _input(value, contexts) for key, value in step.get("with", {}).items()}
                self._uses(step["uses"], options, of_step, result)
        return result

    def _uses(self, action: str, options: dict[str, str], settings: dict[str, str], job: ExecutedJob) -> None:
        name, _, version = action.partition("@")
        match name:
            case "actions/checkout":
                self.machine.clone(self.project, job.workspace)
            case "actions/setup-python":
                if options.get("cache"):
                    assert list(job.workspace.glob(options["cache-dependency-path"]))
            case "actions/upload-artifact":
                self._upload(options, job)
            case "actions/download-artifact":
                for artifact in sorted(self.artifacts.iterdir()):
                    if fnmatch(artifact.name, options["pattern"]):
                        assert options["merge-multiple"] == "true"
                        shutil.copytree(artifact, job.workspace / options["path"], dirs_exist_ok=True)
            case _:
                assert (name, version) == (SELF, self.machine.commit), "an action that the tests do not know"
                self._composite(options, settings, job)

    def _composite(self, options: dict[str, str], settings: dict[str, str], job: ExecutedJob) -> None:
        """The steps of ``action.yml`` in the commit that the workflow names."""
        folder = job.workspace.parent / "action"
        self.machine.clone(self.machine.folder / "source", folder)
        action: dict[str, Any] = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))
        defaults = {name: entry.get("default", "") for name, entry in action["inputs"].items()}
        assert options.keys() <= defaults.keys()
        steps: dict[str, Any] = {}
        contexts = {"github": self.github, "inputs": {**defaults, **options}, "steps": steps}
        for step in action["runs"]["steps"]:
            if not _holds(step.get("if"), contexts, succeeded=job.succeeded):
                continue
            if "uses" in step:
                chosen = {key: _input(value, contexts) for key, value in step["with"].items()}
                self._uses(step["uses"], chosen, settings, job)
                url = {"artifact-url": f"https://github.com/owner/shop/artifacts/{chosen.get('name')}"}
                steps[step.get("id", "")] = {"outputs": url}
                continue
            own = {key: _filled(value, contexts) for key, value in step["env"].items()}
            outputs = self._step(step, {**settings, **own, "GITHUB_ACTION_PATH": str(folder)}, job)
            steps[step.get("id", "")] = {"outputs": outputs}

    def _step(self, step: dict[str, Any], settings: dict[str, str], job: ExecutedJob) -> dict[str, str]:
        """Executes a command. Returns the outputs of the step."""
        home = job.workspace.parent
        environment = {
            **self.machine.environment,
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(home / "summary"),
            "GITHUB_OUTPUT": str(home / "output"),
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": self.github["repository"],
            "GITHUB_RUN_ID": "5",
            "GITHUB_WORKSPACE": str(job.workspace),
            **settings,
        }
        (home / "output").write_text("")
        script = home / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        assert step["shell"] == "bash"
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(
            command, cwd=job.workspace, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        job.log += f"$ {step['run']}\n{done.stdout}{done.stderr}exit code {done.returncode}\n"
        job.environments.append(environment)
        job.succeeded &= done.returncode == 0
        return dict(re.findall(r"^(\w+)<<END\n(.*?)\nEND$", (home / "output").read_text(), re.DOTALL | re.MULTILINE))

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


def _input(value: Any, contexts: Mapping[str, Any]) -> str:
    """An input of an action: a text, also where YAML has a boolean."""
    return str(value).lower() if isinstance(value, bool) else _filled(value, contexts)


def _matrix(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The contexts of each job of a matrix with one key."""
    matrix = job.get("strategy", {}).get("matrix")
    if matrix is None:
        return [{}]
    ((key, values),) = matrix.items()
    return [{"matrix": {key: value}} for value in values]
