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
from visioneval.cli.workflows import WORKFLOWS, Ci, baseline_names

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"uses: ([a-z]+/[a-z-]+)(@[0-9a-f]{40} # v\d+\.\d+\.\d+)$", re.MULTILINE)
WORKFLOW = Path(".github/workflows/visioneval.yml")


ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
ADDRESS = "git+https://github.com/ada/visioneval@" + "0123456789" * 4


@pytest.fixture
def workflow(toy: Toy) -> dict[str, Any]:
    result = toy("init", "--ci", "github")
    assert result.exit_code == 0
    assert f"wrote {WORKFLOW}" in result.stdout
    assert sorted(path.name for path in toy.folder.iterdir()) == [".github", ".gitignore", "mine.py"]
    return written()


def written() -> dict[str, Any]:
    actual: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return actual


def uses(workflow: dict[str, Any], job: str) -> dict[str, Any]:
    """The step of a job that uses visioneval's action."""
    checkout, step = workflow["jobs"][job]["steps"]
    assert checkout["uses"].startswith("actions/checkout@")
    return dict(step)


def test_jobs_run_on_their_events(workflow: dict[str, Any]) -> None:
    on = workflow[True]  # YAML 1.1, which GitHub does not read, takes "on" for a yes
    assert set(on) == {"pull_request", "schedule", "push"}
    assert {name: job["if"] for name, job in workflow["jobs"].items()} == {
        "replay": "github.event_name == 'pull_request'",
        "live": "github.event_name != 'pull_request'",
    }
    assert all(job["runs-on"] for job in workflow["jobs"].values())
    assert workflow["jobs"]["replay"]["concurrency"]["cancel-in-progress"] is True
    assert "concurrency" not in workflow["jobs"]["live"], "a night is not cancelled by a release"


def test_a_fork_gets_no_secret_and_no_write(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    rights = {"contents": "read", "pull-requests": "write", "statuses": "write"}
    assert {name: job.get("permissions") for name, job in workflow["jobs"].items()} == {"replay": rights, "live": None}
    assert "secrets." not in str(workflow["jobs"]["replay"])
    assert "--trust-suite" not in str(workflow) + str(ACTION)
    assert uses(workflow, "replay")["with"].get("offline", ACTION["inputs"]["offline"]["default"]) == "true"
    assert set(uses(workflow, "live")["env"]) == {"OPENAI_API_KEY", "GEMINI_API_KEY"}


def test_no_expression_is_in_a_shell_command() -> None:
    """A branch name, or a text of a pull request, must not become a command."""
    runs = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    assert len(runs) == 3
    assert not any("${{" in run for run in runs)


def test_only_the_comment_gets_a_token() -> None:
    with_token = [step["name"] for step in ACTION["runs"]["steps"] if "token" in str(step.get("env", {}))]
    assert with_token == ["Comment on the pull request"]


def test_the_inputs_of_a_workflow_exist(workflow: dict[str, Any]) -> None:
    given = uses(workflow, "replay")["with"].keys() | uses(workflow, "live")["with"].keys()
    assert given == {"suites", "offline", "confirm", "budget"}
    assert given <= ACTION["inputs"].keys()
    assert (uses(workflow, "live")["with"]["offline"], uses(workflow, "live")["with"]["confirm"]) == (False, 3)


def test_each_input_has_a_description_and_is_used() -> None:
    used = set(re.findall(r"\$\{\{[^}]*?inputs\.([\w-]+)", str(ACTION["runs"])))
    assert used == ACTION["inputs"].keys()
    for name, entry in ACTION["inputs"].items():
        assert entry["description"].endswith("."), name
        assert entry.get("required") == (True if name == "suites" else None), name
        assert isinstance(entry.get("default", ""), str), name


def test_only_a_whole_suite_of_a_pull_request_has_a_comment_and_a_status() -> None:
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("name") == "Comment on the pull request")
    assert set(step["if"].removeprefix("${{ ").removesuffix(" }}").split(" && ")) == {
        *("!cancelled()", "inputs.comment == 'true'", "inputs.shard == ''", "github.event_name == 'pull_request'")
    }


@pytest.mark.parametrize("suffix", ["", ".git"])
def test_the_action_is_that_of_the_installed_commit(toy: Toy, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    address = ADDRESS.replace("visioneval@", f"visioneval{suffix}@")
    monkeypatch.setattr("visioneval.installation.git_address", lambda: address)
    assert toy("init", "--ci", "github").exit_code == 0
    for job in ("replay", "live"):
        assert uses(written(), job)["uses"] == f"ada/visioneval@{ADDRESS[-40:]}"
    assert "OWNER" not in WORKFLOW.read_text()


@pytest.mark.parametrize("address", [None, ADDRESS.replace("github.com", "example.org"), ADDRESS[:-1]])
def test_without_an_address_on_github_the_file_says_what_to_put(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    monkeypatch.setattr("visioneval.installation.git_address", lambda: address)
    assert toy("init", "--ci", "github").exit_code == 0
    assert uses(written(), "live")["uses"] == "OWNER/visioneval@v0"
    assert WORKFLOW.read_text().count("@v0 # put its owner, and a full commit hash for v0") == 2


@pytest.mark.parametrize("template", ["editing", "try_on"])
def test_the_workflow_is_short(toy: Toy, template: str) -> None:
    """With comments, and with tags to redact."""
    assert toy("init", "--ci", "github", "--template", template).exit_code == 0
    lines = WORKFLOW.read_text().splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 125


@pytest.mark.parametrize("names", [["BUDGET"], ["BUDGET", "signs"]])
def test_a_suite_can_have_the_name_of_a_placeholder(toy: Toy, names: list[str]) -> None:
    paths = [f"{name}.yaml" for name in names]
    for path in paths:
        Path(path).write_text("name: signs\n")
    flags = [word for path in paths for word in ("--suite", path)]
    assert toy("init", "--ci", "github", *flags, "--budget", "7").exit_code == 0
    inputs = uses(written(), "live")["with"]
    assert (inputs["suites"].split(), inputs["budget"]) == (paths, 7)


def test_nothing_is_overwritten(toy: Toy, workflow: dict[str, Any]) -> None:
    again = toy("init", "--ci", "github")
    assert (again.exit_code, "already exists; nothing was written" in again.stderr) == (2, True)
    both = toy("init", "new", "--ci", "github", "--template", "editing")
    assert both.exit_code == 0
    assert (toy.folder / "new" / "suite.yaml").is_file()
    assert (toy.folder / "new" / WORKFLOW).is_file()


def test_actions_are_pinned_and_keep_no_credentials(workflow: dict[str, Any]) -> None:
    checkouts = [job["steps"][0] for job in workflow["jobs"].values()]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)
    steps = [step for step in ACTION["runs"]["steps"] if "uses" in step] + checkouts
    assert len(steps) == 5
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]) for step in steps)


def test_pip_is_cached_by_files_that_exist_but_not_for_tags(workflow: dict[str, Any]) -> None:
    options = ACTION["runs"]["steps"][0]["with"]
    assert options["cache"] == "${{ github.ref_type != 'tag' && 'pip' || '' }}"
    assert list(Path().glob(options["cache-dependency-path"])) == [WORKFLOW]
    assert workflow


def test_this_project_uses_the_same_actions_on_every_supported_python() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    sources = (WORKFLOWS[Ci.github][0], ROOT / "action.yml")
    pins = {pin for path in sources for pin in PIN.findall(path.read_text(encoding="utf-8"))}
    for text in texts.values():
        assert text.count("uses:") == len(PIN.findall(text)) > 0
        pins |= set(PIN.findall(text))
    actions = [action for action, _ in pins]
    assert len(actions) == len(set(actions))
    assert [action for action in actions if not action.startswith("actions/")] == ["pypa/gh-action-pypi-publish"]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    supported = re.findall(r":: (3\.\d+)", " ".join(classifiers))
    assert yaml.safe_load(texts["ci.yml"])["jobs"]["test"]["strategy"]["matrix"]["python"] == supported


@pytest.fixture
def pipeline(toy: Toy) -> dict[str, Any]:
    assert toy("init", "--ci", "gitlab").exit_code == 0
    actual: dict[str, Any] = yaml.safe_load(Path(".gitlab-ci.yml").read_text(encoding="utf-8"))
    return actual


def _commands(pipeline: dict[str, Any]) -> Iterator[list[str]]:
    for job in pipeline.values():
        if isinstance(job, dict) and "script" in job:
            lines = [line for line in (*job["script"], *job.get("after_script", ())) if line.startswith("visioneval ")]
            yield from (shlex.split(line.removesuffix(" || code=$?")) for line in lines)


def test_every_command_and_flag_of_gitlab_exists(pipeline: dict[str, Any]) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    seen = list(_commands(pipeline))
    assert {words[1] for words in seen} == {"validate", "run", "merge", "compare", "report"}
    for _, command, *words in seen:
        flags = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
        assert flags <= {name for option in known[command].params for name in option.opts}
    assert "secrets" not in str(pipeline["replay"])


def test_the_compare_commands_of_gitlab_run(toy: Toy, pipeline: dict[str, Any]) -> None:
    prices = {"mine:Generate": {"per_call": 0}}
    toy.run({"tags": ["must_pass"]}, {}, prices=prices, arguments=("--run-id", "suite-replay"))
    for name in ("nightly", "release"):
        cases = {"tags": ["must_pass"]}, {"metadata": {"look": "bad"}}
        toy.run(*cases, prices=prices, arguments=("--run-id", f"suite-{name}"))
    assert toy("baseline", "set", "suite-replay", "--name", "suite").exit_code == 0
    compares = [words[1:] for words in _commands(pipeline) if words[1] == "compare"]
    codes = {}
    for words in compares:
        filled = ["10" if word == "$BUDGET" else word for word in words]
        codes[words[2]] = toy(*filled, *(["--trust-suite"] if "--confirm" in words else [])).exit_code
    assert codes == {"suite-replay": 0, "suite-nightly": 1, "suite-release": 3}  # two cases cannot show a regression


def test_the_shards_of_gitlab_are_merged(toy: Toy, pipeline: dict[str, Any]) -> None:
    count = pipeline["nightly-shards"]["parallel"]
    (shard,) = (words for words in _commands(pipeline) if "--shard" in words)
    toy.write({"prompt": "one"}, {"prompt": "two"}, {"prompt": "three"}, prices={"mine:Generate": {"per_call": 0.5}})
    for number in range(1, count + 1):
        named = {
            "$BUDGET": "10",
            "$CI_NODE_INDEX/$CI_NODE_TOTAL": f"{number}/{count}",
            "suite-shard-$CI_NODE_INDEX": f"suite-shard-{number}",
        }
        assert toy(*(named.get(word, word) for word in shard[1:]), "--trust-suite").exit_code == 0
    (merge,) = (words for words in _commands(pipeline) if words[1] == "merge")
    runs = sorted(str(path) for path in Path("runs").glob("suite-shard-*"))
    assert len(runs) == count
    filled = [part for word in merge[1:] for part in (runs if word == "runs/suite-shard-*" else [word])]
    assert toy(*filled).exit_code == 0


SUITES = ("shop/edits.yaml", "shop/logos.yaml", "print/logos.yaml")


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_each_suite_is_run_and_has_a_baseline_of_its_name(toy: Toy, ci: str) -> None:
    for suite in SUITES:
        Path(suite).parent.mkdir(exist_ok=True)
        Path(suite).write_text("name: x")
    words = [word for suite in SUITES for word in ("--suite", suite)]
    result = toy("init", "--ci", ci, *words, "--budget", "2.5")
    assert result.exit_code == 0, result.output
    text = WORKFLOWS[Ci(ci)][1].read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    names = {"shop/edits.yaml": "edits", "shop/logos.yaml": "shop-logos", "print/logos.yaml": "print-logos"}
    for name in names.values():
        assert f"  visioneval baseline set latest --name {name}\n" in result.stdout
    if ci == "github":
        for job in ("replay", "live"):
            assert uses(written(), job)["with"]["suites"].splitlines() == list(SUITES)
        assert uses(written(), "live")["with"]["budget"] == 2.5
        return
    for suite, name in names.items():
        assert text.count(f"compare baseline:{name} {name}-") == 3
        assert text.count(f"visioneval run {suite} ") == 3
    assert text.count('--budget "$BUDGET"') == 4 * len(SUITES)
    assert text.count('--confirm 3 --budget "$BUDGET"') == 2 * len(SUITES)
    assert '  BUDGET: "2.5"\n' in text
    assert not re.search("SUITE_|each suite|# }", text)


@pytest.mark.parametrize("ci", ["github", "gitlab"])
@pytest.mark.parametrize("again", ["shop/edits.yaml", "./shop/edits.yaml", "shop/./edits.yaml"])
def test_a_suite_that_is_named_twice_is_one_suite(toy: Toy, ci: str, again: str) -> None:
    Path("shop").mkdir()
    Path("shop/edits.yaml").write_text("name: x")
    result = toy("init", "--ci", ci, "--suite", "shop/edits.yaml", "--suite", again)
    assert result.exit_code == 0, result.output
    assert re.findall(r"--name (\S+)", result.stdout) == ["edits"]
    if ci == "github":
        assert uses(written(), "replay")["with"]["suites"] == "shop/edits.yaml"
    assert baseline_names(["shop/edits.yaml", again]) == {"shop/edits.yaml": "edits"}, "as the action names it"


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


def test_a_pipeline_says_which_images_leave_the_machine(toy: Toy) -> None:
    assert toy("init", "--ci", "gitlab", "--template", "editing").exit_code == 0
    text = _published("gitlab")
    assert "# Artifacts have the runs: all outputs," in text
    assert "For photos of people, write this file with: visioneval init --ci gitlab --redact TAG\n" in text
    assert "reports/" not in text


def test_a_workflow_for_a_template_with_people_redacts_them(toy: Toy) -> None:
    assert toy("init", "--ci", "github", "--template", "try_on").exit_code == 0
    assert "Artifacts have all images, but none of cases with a tag of `redact`." in _published("github")
    for job in ("replay", "live"):
        assert uses(written(), job)["with"]["redact"] == "person"


def test_a_pipeline_for_a_template_with_people_redacts_them(toy: Toy) -> None:
    assert toy("init", "--ci", "gitlab", "--template", "try_on").exit_code == 0
    text = _published("gitlab")
    assert "cases with the tag person have no image and no text about one" in text
    commands = [line for line in text.splitlines() if re.search(r"visioneval (run|merge|compare|report) ", line)]
    assert len(commands) == 10
    assert all(re.search(r" --redact person( \|\| code=\$\?)?$", line) for line in commands)
    uploads = re.findall(r"paths: \[(runs/|reports/|[^\].]*)", text)
    assert sorted(filter(None, uploads)) == [*["reports/"] * 3, "runs/"]
    assert text.count("--output reports/suite-") == 3
    assert "expire_in: 1 day" in text


def test_only_suites_of_gitlab_with_the_tag_redact_it(toy: Toy) -> None:
    for name, tag in (("faces", "face"), ("logos", "logo")):
        cases = f"cases: [{{id: one, prompt: x, tags: [{tag}]}}]"
        Path(f"{name}.yaml").write_text(f"name: {name}\n{cases}\nmodels: [{{provider: mock}}]\n{GRADED}")
    words = ("--ci", "gitlab", "--suite", "faces.yaml", "--suite", "logos.yaml")
    unknown = toy("init", *words, "--redact", "fase")
    assert (unknown.exit_code, unknown.stderr) == (2, "--redact 'fase': no case has this tag (did you mean 'face'?)\n")
    assert toy("init", *words, "--redact", "face").exit_code == 0
    lines = _published("gitlab").splitlines()
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
