"""The workflows that ``init --ci`` writes: YAML that is valid, safe for forks, and true to the command line."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from toys import Toy

from visioneval.cli import app
from visioneval.cli.start import WORKFLOWS, Ci

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"uses: ([a-z]+/[a-z-]+)(@[0-9a-f]{40} # v\d+\.\d+\.\d+)$", re.MULTILINE)
WORKFLOW = Path(".github/workflows/visioneval.yml")


@pytest.fixture
def workflow(toy: Toy) -> dict[str, Any]:
    result = toy("init", "--ci", "github")
    assert result.exit_code == 0
    assert f"wrote {WORKFLOW}" in result.stdout
    assert sorted(path.name for path in toy.folder.iterdir()) == [".github", ".gitignore", "mine.py"]
    actual: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return actual


def _runs(job: dict[str, Any]) -> Iterator[str]:
    return (step["run"] for step in job["steps"] if "run" in step)


def test_jobs_run_on_their_events(workflow: dict[str, Any]) -> None:
    on = workflow[True]  # YAML 1.1, which GitHub does not read, takes "on" for a yes
    assert set(on) == {"pull_request", "schedule", "push"}
    assert {name: job["if"] for name, job in workflow["jobs"].items() if "if" in job} == {
        "replay": "github.event_name == 'pull_request'",
        "nightly": "${{ !cancelled() && github.event_name == 'schedule' }}",
        "nightly-shards": "github.event_name == 'schedule'",
        "release": "github.event_name == 'push'",
    }
    assert workflow["jobs"]["nightly"]["needs"] == "nightly-shards"
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"]
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])


def test_a_fork_gets_no_secret_and_no_write(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in str(workflow["jobs"]["replay"])
    assert "--trust-suite" not in str(workflow)
    assert "--offline" in " ".join(_runs(workflow["jobs"]["replay"]))
    for job in workflow["jobs"].values():
        assert not any("${{" in run for run in _runs(job))  # a branch name must not become a command


def _commands(workflow: dict[str, Any]) -> Iterator[list[str]]:
    for job in workflow["jobs"].values():
        yield from (shlex.split(run) for run in _runs(job) if run.startswith("visioneval "))


def test_every_command_and_flag_exists(workflow: dict[str, Any]) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    seen = list(_commands(workflow))
    assert {words[1] for words in seen} == {"validate", "run", "merge", "compare", "report"}
    for _, command, *words in seen:
        flags = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
        assert flags <= {name for option in known[command].params for name in option.opts}


def test_the_compare_commands_run_as_documented(toy: Toy, workflow: dict[str, Any]) -> None:
    prices = {"mine:Generate": {"per_call": 0}}
    toy.run({"tags": ["must_pass"]}, {}, prices=prices, arguments=("--run-id", "suite-replay"))
    for name in ("nightly", "release"):
        cases = {"tags": ["must_pass"]}, {"metadata": {"look": "bad"}}
        toy.run(*cases, prices=prices, arguments=("--run-id", f"suite-{name}"))
    assert toy("baseline", "set", "suite-replay", "--name", "suite").exit_code == 0
    compares = [words[1:] for words in _commands(workflow) if words[1] == "compare"]
    codes = {}
    for words in compares:
        filled = ["10" if word == "$BUDGET" else word for word in words]
        codes[words[2]] = toy(*filled, *(["--trust-suite"] if "--confirm" in words else [])).exit_code
    assert codes == {"suite-replay": 0, "suite-nightly": 1, "suite-release": 3}  # two cases cannot show a regression


def test_the_shards_of_the_matrix_are_merged(toy: Toy, workflow: dict[str, Any]) -> None:
    matrix = workflow["jobs"]["nightly-shards"]["strategy"]["matrix"]["shard"]
    (shard,) = (words for words in _commands(workflow) if "--shard" in words)
    toy.write({"prompt": "one"}, {"prompt": "two"}, {"prompt": "three"}, prices={"mine:Generate": {"per_call": 0.5}})
    for number in matrix:
        named = {
            "$BUDGET": "10",
            "$NUMBER/$COUNT": f"{number}/{len(matrix)}",
            "suite-shard-$NUMBER": f"suite-shard-{number}",
        }
        assert toy(*(named.get(word, word) for word in shard[1:]), "--trust-suite").exit_code == 0
    (merge,) = (words for words in _commands(workflow) if words[1] == "merge")
    runs = sorted(str(path) for path in Path("runs").glob("suite-shard-*"))
    assert len(runs) == len(matrix)
    assert (
        toy(*(part for word in merge[1:] for part in (runs if word == "runs/suite-shard-*" else [word]))).exit_code == 0
    )


def test_nothing_is_overwritten(toy: Toy, workflow: dict[str, Any]) -> None:
    again = toy("init", "--ci", "github")
    assert (again.exit_code, "already exists; nothing was written" in again.stderr) == (2, True)
    both = toy("init", "new", "--ci", "github", "--template", "editing")
    assert both.exit_code == 0
    assert (toy.folder / "new" / "suite.yaml").is_file()
    assert (toy.folder / "new" / WORKFLOW).is_file()


def test_actions_are_pinned_and_keep_no_credentials(workflow: dict[str, Any]) -> None:
    steps = [step for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]) for step in steps)
    checkouts = [step for step in steps if "checkout" in step["uses"]]
    assert checkouts
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_pip_is_cached_by_a_file_that_exists_but_not_for_releases(workflow: dict[str, Any]) -> None:
    options = {
        name: step["with"]
        for name, job in workflow["jobs"].items()
        for step in job["steps"]
        if "setup-python" in step.get("uses", "")
    }
    assert "cache" not in options.pop("release")
    assert options.keys() == {"replay", "nightly-shards", "nightly"}
    assert all((item["cache"], item["cache-dependency-path"]) == ("pip", str(WORKFLOW)) for item in options.values())


def test_this_project_uses_the_same_actions_on_every_supported_python() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    pins = set(PIN.findall(WORKFLOWS[Ci.github][0].read_text(encoding="utf-8")))
    assert pins
    for text in texts.values():
        assert text.count("uses:") == len(PIN.findall(text)) > 0
        pins |= set(PIN.findall(text))
    actions = [action for action, _ in pins]
    assert len(actions) == len(set(actions))
    assert [action for action in actions if not action.startswith("actions/")] == ["pypa/gh-action-pypi-publish"]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    supported = re.findall(r":: (3\.\d+)", " ".join(classifiers))
    assert yaml.safe_load(texts["ci.yml"])["jobs"]["test"]["strategy"]["matrix"]["python"] == supported


def test_gitlab_runs_the_same_commands(toy: Toy, workflow: dict[str, Any]) -> None:
    assert toy("init", "--ci", "gitlab").exit_code == 0
    jobs = yaml.safe_load(Path(".gitlab-ci.yml").read_text(encoding="utf-8"))
    names = {"$CI_NODE_INDEX/$CI_NODE_TOTAL": "$NUMBER/$COUNT", "suite-shard-$CI_NODE_INDEX": "suite-shard-$NUMBER"}
    for name, job in workflow["jobs"].items():
        lines = [line for line in (*jobs[name]["script"], *jobs[name].get("after_script", ())) if "\n" not in line]
        plain = [line.removesuffix(" || code=$?") for line in lines if line.startswith("visioneval ")]
        plain = [re.sub(" --code-quality [^ ]+", "", line) for line in plain]  # GitHub has no such report
        script = [[names.get(word, word) for word in shlex.split(line)] for line in plain]
        commands = [shlex.split(run) for run in _runs(job) if run.startswith("visioneval ")]
        assert [words for words in script if words[1] != "validate"] == [
            words for words in commands if words[1] != "validate"
        ]
    assert jobs["nightly-shards"]["parallel"] == len(workflow["jobs"]["nightly-shards"]["strategy"]["matrix"]["shard"])
    assert "secrets" not in str(jobs["replay"])


SUITES = ("shop/edits.yaml", "shop/logos.yaml", "print/logos.yaml")


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_each_suite_has_its_steps_and_a_baseline_of_its_name(toy: Toy, ci: str) -> None:
    for suite in SUITES:
        Path(suite).parent.mkdir(exist_ok=True)
        Path(suite).write_text("name: x")
    words = [word for suite in SUITES for word in ("--suite", suite)]
    result = toy("init", "--ci", ci, *words, "--budget", "2.5")
    assert result.exit_code == 0, result.output
    text = WORKFLOWS[Ci(ci)][1].read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    names = {"shop/edits.yaml": "edits", "shop/logos.yaml": "shop-logos", "print/logos.yaml": "print-logos"}
    for suite, name in names.items():
        assert f"  visioneval baseline set latest --name {name}\n" in result.stdout
        assert text.count(f"compare baseline:{name} {name}-") == 3
        assert text.count(f"visioneval run {suite} ") == 3
    assert text.count('--budget "$BUDGET"') == 4 * len(SUITES)
    assert text.count('--confirm 3 --budget "$BUDGET"') == 2 * len(SUITES)
    assert '  BUDGET: "2.5"\n' in text
    assert not re.search("SUITE_|each suite|# }", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ci", "github", "--suite", "none.yaml"), "--suite none.yaml: there is no such file in ."),
        (("--ci", "github", "--suite", "a b.yaml"), "--suite 'a b.yaml': name it by its path below ., of letters"),
        (("--ci", "github", "--suite", "$(x).yaml"), "--suite '$(x).yaml': name it by its path below ."),
        (("--ci", "github", "--suite", "../a.yaml"), "--suite '../a.yaml': name it by its path below ."),
        (("--ci", "github", "--suite", "/a.yaml"), "--suite '/a.yaml': name it by its path below ."),
        (("--ci", "github", "--suite", "a.yaml", "--suite", "a.yml"), "--suite a.yaml: 'a' would name two baselines"),
        (("--suite", "a.yaml"), "--suite, --redact and --budget need --ci"),
        (("--budget", "3"), "--suite, --redact and --budget need --ci"),
        (("--redact", "person"), "--suite, --redact and --budget need --ci"),
        (("--ci", "github", "--redact", "a b"), "--redact 'a b': a workflow takes tags of letters, digits, _ - and ."),
    ],
)
def test_a_suite_that_a_job_cannot_run_is_refused(toy: Toy, words: tuple[str, ...], message: str) -> None:
    for name in ("a.yaml", "a.yml", "a b.yaml"):
        Path(name).write_text("name: x")
    before = sorted(toy.folder.iterdir())
    result = toy("init", *words)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith(message)
    assert sorted(toy.folder.iterdir()) == before


GRADED = "graders: [{key: image, type: properties}]\nverdict: [not image.blank]\n"


def _published(ci: str) -> str:
    """The workflow without comments but the one on images."""
    text = WORKFLOWS[Ci(ci)][1].read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    assert not re.search("# images|# }", text)
    return text


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_a_workflow_says_which_images_leave_the_machine(toy: Toy, ci: str) -> None:
    assert toy("init", "--ci", ci, "--template", "editing").exit_code == 0
    text = _published(ci)
    assert "# Artifacts have the runs: all outputs," in text
    assert f"For photos of people, write this file with: visioneval init --ci {ci} --redact TAG\n" in text
    assert "reports/" not in text


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_a_template_with_people_redacts_them(toy: Toy, ci: str) -> None:
    assert toy("init", "--ci", ci, "--template", "try_on").exit_code == 0
    text = _published(ci)
    assert "cases with the tag person have no image and no text about one" in text
    commands = [line for line in text.splitlines() if re.search(r"visioneval (run|merge|compare|report) ", line)]
    assert len(commands) == 10
    assert all(re.search(r" --redact person( \|\| code=\$\?)?$", line) for line in commands)
    uploads = re.findall(r'path: "?(runs/|reports/)|paths: \[(runs/|reports/|[^\].]*)', text)
    paths = [github or gitlab for github, gitlab in uploads if github or gitlab]
    assert sorted(paths) == [*["reports/"] * 3, "runs/"]
    assert text.count("--output reports/suite-") == 3
    assert ("retention-days: 1" in text, "expire_in: 1 day" in text) == (ci == "github", ci == "gitlab")


def test_only_suites_with_the_tag_redact_it(toy: Toy) -> None:
    for name, tag in (("faces", "face"), ("logos", "logo")):
        cases = f"cases: [{{id: one, prompt: x, tags: [{tag}]}}]"
        Path(f"{name}.yaml").write_text(f"name: {name}\n{cases}\nmodels: [{{provider: mock}}]\n{GRADED}")
    words = ("--ci", "github", "--suite", "faces.yaml", "--suite", "logos.yaml")
    unknown = toy("init", *words, "--redact", "fase")
    assert (unknown.exit_code, unknown.stderr) == (2, "--redact 'fase': no case has this tag (did you mean 'face'?)\n")
    assert toy("init", *words, "--redact", "face").exit_code == 0
    lines = _published("github").splitlines()
    commands = [line for line in lines if re.search(r"visioneval (run|merge|compare|report) .*(faces|logos)", line)]
    assert len(commands) == 20
    assert all((" --redact face" in line) is ("faces" in line) for line in commands)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "runs/\n"),
        ("", "runs/\n"),
        ("*.pyc", "*.pyc\nruns/\n"),
        ("*.pyc\n", "*.pyc\nruns/\n"),
        ("/runs/\n", "/runs/\n"),
        ("runs\n*.pyc\n", "runs\n*.pyc\n"),
        ("reruns/\n", "reruns/\nruns/\n"),
    ],
)
def test_runs_are_ignored_by_git(toy: Toy, before: str | None, after: str) -> None:
    path = toy.folder / ".gitignore"
    if before is not None:
        path.write_text(before)
    assert toy("init", "--ci", "github").exit_code == 0
    assert path.read_text() == after
