"""The workflows that ``init --ci`` writes for GitHub and GitLab, and the names of the baselines that they use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath

from visioneval.atomic import write_whole
from visioneval.errors import UsageError
from visioneval.settings import RUNS

_BLOCK = re.compile(r" *# each suite \{\n(.*?) *# \}\n", re.DOTALL)
PERSON = "person"
"""The tag of photos of people in the built-in suites."""
_IMAGES = re.compile(r"# images \{\n(.*?)# \}\n", re.DOTALL)
_REDACTED_IMAGES = """\
# Images that leave the machine of a job: models get the input images, and judges the outputs too; replay calls neither.
# Artifacts have the reports, where cases with the tag {tags} have no image and no text about one, as in
# comments and summaries. Only the shards of a night have all of their outputs, for a day, so that they can be merged.
"""
_REDACTABLE = re.compile(r"(visioneval (?:run|merge|compare|report) .*?)( \|\| code=\$\?)?$", re.MULTILINE)
_GITHUB = re.compile(r"git\+https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?@([0-9a-f]{40})")
_ANY_ACTION = "OWNER/visioneval@v0"
_REPLACED = " # put its owner, and a full commit hash for v0: this code runs next to your keys"
_INPUTS = re.compile(r"( *)with: \{suites: SUITES(?:, )?(.*)\}\n")


class Ci(StrEnum):
    """The values of ``init --ci``."""

    github = "github"
    gitlab = "gitlab"


_CLI = Path(__file__).parent
WORKFLOWS = {
    Ci.github: (_CLI / "github.yml", Path(".github/workflows/visioneval.yml")),
    Ci.gitlab: (_CLI / "gitlab.yml", Path(".gitlab-ci.yml")),
}


def filled_workflow(ci: Ci, suites: Sequence[str], budget: float, redact: Mapping[str, Sequence[str]]) -> str:
    from visioneval.installation import git_address

    text, names = WORKFLOWS[ci][0].read_text(encoding="utf-8"), baseline_names(suites)
    if ci is Ci.github:
        return github_workflow(text, list(names), budget, redact, git_address())
    return gitlab_pipeline(text, names, budget, redact)


def print_next(ci: Ci, suites: Sequence[str], filled: str) -> None:
    if ci is Ci.gitlab:
        print("next: set the CI/CD variable VISIONEVAL_SOURCE (docs/how_to/gitlab.md)")
    elif _ANY_ACTION in filled:
        print(f"next: in {WORKFLOWS[ci][1]}, replace OWNER/visioneval@v0 by the repository and a commit of visioneval")
    print("next: fill the cache and set the baselines:")
    for path, name in baseline_names(suites).items():
        print(f"  visioneval run {path} --cache visioneval-cache")
        print(f"  visioneval baseline set latest --name {name}")
    print("and commit the workflow, .gitignore, the suites and their files, baselines/ and visioneval-cache/")


def baseline_names(suites: Sequence[str], option: str = "--suite") -> dict[str, str]:
    """The names of the baselines of suites, by suite: that of its file, with its folders where two are the same.

    A suite that is listed twice is one suite, also as ``./suite.yaml``. Raises ``UsageError``, which begins with the
    ``option``, if two suites would have one name.
    """
    paths = dict.fromkeys(map(PurePosixPath, suites))
    stems = Counter(path.stem for path in paths)
    names = {
        path.as_posix(): path.stem if stems[path.stem] == 1 else "-".join(path.with_suffix("").parts) for path in paths
    }
    uses = Counter(names.values())
    for suite, name in names.items():
        if uses[name] > 1:
            raise UsageError(f"{option} {suite}: {name!r} would name two baselines: rename the file")
    return names


def github_workflow(
    text: str, suites: Sequence[str], budget: float, redact: Mapping[str, Sequence[str]], address: str | None
) -> str:
    """A workflow of GitHub for suites. ``redact`` are tags by suite, and ``address`` is that of visioneval itself."""
    lists = {"suites": suites, "redact": _all_tags(redact)}
    text = text.replace("budget: BUDGET", f"budget: {budget:g}")  # before a suite can have this name
    text = _INPUTS.sub(lambda match: _inputs(match[1], lists, match[2]), text)
    if repository := _GITHUB.fullmatch(address or ""):
        return text.replace(_ANY_ACTION, f"{repository[1]}@{repository[2]}")
    return text.replace(_ANY_ACTION, f"{_ANY_ACTION}{_REPLACED}")


def _inputs(indent: str, lists: Mapping[str, Sequence[str]], others: str) -> str:
    """The inputs of the action, in one line if each list has one value at most."""
    lists = {name: values for name, values in lists.items() if values}
    if all(len(values) == 1 for values in lists.values()):
        fields = [f'{name}: "{value}"' for name, (value,) in lists.items()]
        return f"{indent}with: {{{', '.join([*fields, *filter(None, [others])])}}}\n"
    lines = ["with:"]
    for name, values in lists.items():
        lines += [f"  {name}: |", *(f"    {value}" for value in values)]
    lines += [f"  {field}" for field in others.split(", ") if field]
    return "".join(f"{indent}{line}\n" for line in lines)


def gitlab_pipeline(text: str, names: Mapping[str, str], budget: float, redact: Mapping[str, Sequence[str]]) -> str:
    """A pipeline of GitLab with the steps of each suite, in place of those between ``# each suite {`` and ``# }``.

    ``redact`` are tags by suite. With any, the artifacts have reports in place of runs, whose outputs are not redacted.
    """

    def steps(block: re.Match[str]) -> str:
        filled = []
        for suite, name in names.items():
            flags = "".join(f" --redact {tag}" for tag in redact.get(suite, ()))
            lines = _REDACTABLE.sub(rf"\1{flags}\2", block[1])
            filled.append(lines.replace("SUITE_FILE", suite).replace("SUITE_NAME", name))
        return "".join(filled)

    if tags := _all_tags(redact):
        text = re.sub(r"visioneval report (\S+)", r"visioneval report \1 --output reports/\1", text)
        text = re.sub(r"(paths: \[)runs/[^,\]]*(?=,)", r"\1reports/", text)
        text = text.replace("paths: [runs/]", "paths: [runs/]\n    expire_in: 1 day")
    images = _REDACTED_IMAGES.format(tags=" or ".join(tags)) if tags else r"\1"
    text = _IMAGES.sub(images, text)
    return _BLOCK.sub(steps, text).replace('BUDGET: "10"', f'BUDGET: "{budget:g}"')


def _all_tags(redact: Mapping[str, Sequence[str]]) -> list[str]:
    return sorted({tag for of_suite in redact.values() for tag in of_suite})


def redacted_tags(
    suites: Sequence[str], folder: Path, redact: Sequence[str] | None, *, is_template: bool
) -> dict[str, list[str]]:
    """The tags that are redacted in each suite that has them; by default that of people in a template.

    Raises ``UsageError`` and ``SuiteError``.
    """
    from visioneval.analysis.redaction import check_redact
    from visioneval.suite.load import load_suite

    chosen = redact or ([PERSON] if is_template else [])
    for tag in chosen:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", tag):
            raise UsageError(f"--redact {tag!r}: a workflow takes tags of letters, digits, _ - and .: rename this one")
    loaded = {suite: load_suite(folder / suite, run_labels=lambda _: []).suite for suite in suites if chosen}
    check_redact(redact, *loaded.values())
    tags = {name: {tag for case in suite.cases for tag in case.tags} for name, suite in loaded.items()}
    return {name: [tag for tag in dict.fromkeys(chosen) if tag in known] for name, known in tags.items()}


def check_suites(suites: Sequence[str], folder: Path) -> None:
    """Raises ``UsageError`` for a suite that a job could not run, or that a shell would not take as one word."""
    from visioneval.records.baselines import baseline_path

    for suite in suites:
        path = PurePosixPath(suite)
        if path.is_absolute() or ".." in path.parts or not re.fullmatch(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*", suite):
            raise UsageError(
                f"--suite {suite!r}: name it by its path below {folder}, of letters, digits, _ - . and /; rename others"
            )
        if not (folder / path).is_file():
            raise UsageError(f"--suite {suite}: there is no such file in {folder}")
    for name in baseline_names(suites).values():
        baseline_path(name)


def ignore_runs(folder: Path) -> None:
    """Adds ``runs/`` to the ``.gitignore`` of a folder. Raises ``UsageError``."""
    path = folder / ".gitignore"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if any(line.strip().strip("/") == RUNS.name for line in text.splitlines()):
            return
        gap = "\n" if text and not text.endswith("\n") else ""
        write_whole(path, f"{text}{gap}{RUNS.name}/\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: cannot write: {reason}; add a line with {RUNS.name}/ yourself") from None
    print(f"{'added runs/ to' if text else 'wrote'} {path}")
