"""Executes the jobs of a GitLab pipeline as a runner does: ``before_script`` and ``script`` in one shell, then ``after_script``."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from machine import Machine

_CONDITION = re.compile(r'\$(\w+) (==|=~) (?:["/](.*?)["/]|\$(\w+))')


def _applies(rules: list[dict[str, Any]], variables: Mapping[str, str]) -> dict[str, Any] | None:
    """The first rule whose condition is true."""
    return next((rule for rule in rules if all(_is_true(part, variables) for part in rule["if"].split(" && "))), None)


def _is_true(condition: str, variables: Mapping[str, str]) -> bool:
    match = _CONDITION.fullmatch(condition)
    assert match, condition
    value, other = variables.get(match[1], ""), variables.get(match[4], "") if match[4] else match[3]
    return value == other if match[2] == "==" else re.search(other, value) is not None


@dataclass
class PipelineJob:
    """One of the parallel jobs, or the only one."""

    name: str
    workspace: Path
    succeeded: bool
    log: str


@dataclass
class Pipeline:
    """One pipeline of a project, and its jobs in the order of the file."""

    machine: Machine
    project: Path
    folder: Path
    variables: dict[str, str]
    jobs: dict[str, list[PipelineJob]] = field(default_factory=dict)

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def execute(self) -> dict[str, list[PipelineJob]]:
        text = (self.project / ".gitlab-ci.yml").read_text(encoding="utf-8")
        document: dict[str, Any] = yaml.safe_load(text)
        for name, entry in document.items():
            if name.startswith(".") or "script" not in entry:
                continue
            job = {**document[entry["extends"]], **entry}
            rule = _applies(job["rules"], self.variables)
            needed = [result for other in job.get("needs", []) for result in self.jobs[other]] if rule else []
            if rule and (rule.get("when") == "always" or all(result.succeeded for result in needed)):
                count = job.get("parallel", 1)
                numbers = range(1, count + 1)
                self.jobs[name] = [self._job(name, job, document["variables"], (n, count)) for n in numbers]
        return self.jobs

    def _job(
        self, name: str, job: dict[str, Any], variables: Mapping[str, str], position: tuple[int, int]
    ) -> PipelineJob:
        number, count = position
        workspace = self.folder / f"{name}{number}"
        workspace.parent.mkdir(exist_ok=True)
        self.machine.clone(self.project, workspace)
        (workspace / ".pip").symlink_to(self.machine.cache)  # the cache of earlier pipelines
        for other in job.get("needs", []):
            shutil.copytree(self.artifacts / other, workspace, dirs_exist_ok=True)
        environment = {**self.machine.environment, "VISIONEVAL_SOURCE": self.machine.source, **self.variables}
        environment |= {"CI_PROJECT_DIR": str(workspace), "GITLAB_CI": "true"}
        if count > 1:
            environment |= {"CI_NODE_INDEX": str(number), "CI_NODE_TOTAL": str(count)}
        environment |= {key: value.replace("$CI_PROJECT_DIR", str(workspace)) for key, value in variables.items()}
        done, log = _shell([*job["before_script"], *job["script"]], workspace, environment)
        _, after = _shell(job.get("after_script", []), workspace, environment)
        if job["artifacts"]["when"] == "always" or done:
            self._upload(job["artifacts"], workspace, name)
        return PipelineJob(name, workspace, done, log + after)

    def _upload(self, artifacts: dict[str, Any], workspace: Path, name: str) -> None:
        reports = artifacts.get("reports", {})
        assert len(list(workspace.glob(reports.get("codequality", "no report")))) <= 1, (
            "a runner takes only one such file"
        )
        for pattern in [*artifacts["paths"], *reports.values()]:
            for path in workspace.glob(pattern.rstrip("/")):
                target = self.artifacts / name / path.relative_to(workspace)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, target, dirs_exist_ok=True)
                else:
                    shutil.copyfile(path, target)


def _shell(lines: list[str], workspace: Path, environment: dict[str, str]) -> tuple[bool, str]:
    """Whether all lines succeeded, and what they printed."""
    command = ["bash", "-eo", "pipefail", "-c", "\n".join(lines)]
    done = subprocess.run(
        command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    return done.returncode == 0, f"{done.stdout}{done.stderr}exit code {done.returncode}\n"
