"""What ``action.yml`` runs: several suites with one outcome, and a comment and a status on GitHub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fork_server import ForkedProgram
from github_api import FORK_TOKEN, JOB_TOKEN, USER_TOKEN, FakeGitHub, fake_github
from toys import Toy

from visioneval.cli import action

ROOT = Path(__file__).parents[2]
SUITE = """\
name: {name}
cases:
  - {{id: bread, prompt: A flyer for bread., tags: [{tag}]}}
  - {{id: soup, prompt: A flyer for soup.}}
models: [{{provider: mock}}]
graders: [{{key: image, type: properties}}]
verdict: [not image.blank]
"""
PAGE = "https://github.com/owner/shop/actions/runs/5"
COMMENT = "<!-- visioneval: visioneval -->\n"


def environment_of(step: str, **inputs: str) -> dict[str, str]:
    """The variables that ``action.yml`` gives a step for these inputs, without those from other contexts."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    unknown = inputs.keys() - document["inputs"].keys()
    assert not unknown
    values = {name: str(entry.get("default", "")) for name, entry in document["inputs"].items()} | inputs
    (chosen,) = (item for item in document["runs"]["steps"] if item.get("run") == step)
    named = {name: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value) for name, value in chosen["env"].items()}
    return {name: values[found[1]] for name, found in named.items() if found}


@pytest.fixture
def suites(toy: Toy) -> Callable[..., None]:
    """``suites("logos", ...)`` writes suites with these names and their baselines."""

    def write(*names: str) -> None:
        for name in names:
            Path(f"{name}.yaml").write_text(SUITE.format(name=name, tag=name))
            assert toy("run", f"{name}.yaml", "--runs", "earlier", "--run-id", name).exit_code == 0
            assert toy("baseline", "set", f"earlier/{name}", "--name", name).exit_code == 0

    return write


def break_suite(name: str) -> None:
    path = Path(f"{name}.yaml")
    path.write_text(path.read_text().replace("[not image.blank]", "[not image.blank, not image]"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, dict[str, str]]]:
    """``run(suites="a.yaml", name="ci", ...)``: the exit code and the outputs of the step."""
    commands: list[tuple[str, ...]] = []

    def visioneval(*words: str | Path) -> int:
        program = ForkedProgram(*words, cwd=Path.cwd())
        print(*program.communicate(timeout=120))
        commands.append(tuple(map(str, words)))
        assert program.returncode is not None
        return program.returncode

    def step(**inputs: str) -> tuple[int, dict[str, str]]:
        files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        inputs = {name.replace("_", "-"): value for name, value in inputs.items()}
        code = action.run({**environment_of("python -P -m visioneval.cli.action", **inputs), **files})
        written = Path(files["GITHUB_OUTPUT"]).read_text(encoding="utf-8")
        return int(code), dict(re.findall(r"^(\w+)<<END\n(.*?)\nEND$", written, re.DOTALL | re.MULTILINE))

    monkeypatch.setattr(action, "_visioneval", visioneval)
    step.commands = commands  # type: ignore[attr-defined]
    return step


def test_a_suite_is_replayed_and_compared_with_its_baseline(suites: Callable[..., None], run: Any) -> None:
    suites("logos")
    code, outputs = run(suites="logos.yaml")
    assert (code, outputs["code"]) == (0, "0")
    assert outputs["outcome"] == "All gates passed: 0 broken, 2 still passing"
    assert outputs["paths"].splitlines() == ["visioneval-results", "runs"]
    assert (outputs["artifact"], outputs["days"]) == ("visioneval", "0")
    assert [words[0] for words in run.commands] == ["validate", "run", "compare", "site"]
    assert "--offline" in run.commands[1]
    assert "--budget" not in run.commands[1]
    assert run.commands[2][:3] == ("compare", "baseline:logos", "logos-visioneval")
    assert {path.name for path in Path("visioneval-results").iterdir()} == {
        *("logos-run.md", "logos-run.xml", "logos-compare.md", "logos-compare.xml", "logos-compare.html"),
        *("comment.md", "site"),
    }
    assert Path("visioneval-results/site/run/logos-visioneval").is_dir()
    summary = Path("GITHUB_STEP_SUMMARY").read_text()
    assert summary.startswith("## visioneval compare: All gates passed")
    assert "\n## visioneval: `logos`: " in summary


def test_later_suites_run_after_one_that_failed(suites: Callable[..., None], run: Any) -> None:
    suites("logos", "signs")
    break_suite("logos")
    code, outputs = run(suites="logos.yaml\n\n  ./signs.yaml\n")
    assert code == 1
    assert outputs["outcome"] == "1 of 2 suites failed; logos: A gate failed: 2 broken"
    assert [words[1] for words in run.commands if words[0] == "run"] == ["logos.yaml", "signs.yaml"]
    summary = Path("GITHUB_STEP_SUMMARY").read_text()
    assert summary.count("## visioneval compare: ") == 2


def test_suites_that_pass_have_one_outcome(suites: Callable[..., None], run: Any) -> None:
    suites("logos", "signs")
    code, outputs = run(suites="logos.yaml\nsigns.yaml", baseline="signs\nlogos")
    assert (code, outputs["outcome"]) == (0, "All gates of 2 suites passed")
    assert [words[1] for words in run.commands if words[0] == "compare"] == ["baseline:signs", "baseline:logos"]


def test_an_invalid_suite_is_the_most_severe(suites: Callable[..., None], run: Any) -> None:
    suites("logos", "signs")
    break_suite("logos")
    Path("signs.yaml").write_text("name: [")
    code, outputs = run(suites="logos.yaml\nsigns.yaml")
    assert code == 2
    assert outputs["outcome"] == "2 of 2 suites failed; signs: exit code 2, see the log of the job"
    assert not [words for words in run.commands if words[0] == "compare" and "baseline:signs" in words]


def test_live_runs_have_a_budget_and_new_samples(suites: Callable[..., None], run: Any) -> None:
    suites("logos")
    code, _ = run(
        suites="logos.yaml",
        offline="false",
        budget="2.5",
        confirm="3",
        name="nightly",
        fail_on="must_pass\nregressed",
        allow="cannot-tell",
        run_flags="--samples 2",
    )
    assert code == 0
    _, run_words, compare_words, _ = run.commands
    assert run_words[-4:] == ("--budget", "2.5", "--samples", "2")
    assert "--offline" not in run_words
    text = " ".join(compare_words)
    assert "logos-nightly --fail-on must_pass --fail-on regressed --allow cannot-tell" in text
    assert "--confirm 3 --budget 2.5" in text


def test_shards_are_merged(suites: Callable[..., None], run: Any) -> None:
    suites("logos")
    for number in (1, 2):
        code, outputs = run(suites="logos.yaml", shard=f"{number}/2")
        assert (code, outputs["artifact"], outputs["paths"]) == (0, f"visioneval-shard-{number}", "runs")
    assert not [words for words in run.commands if words[0] in ("compare", "site")]
    Path("runs").rename("visioneval-shards")
    code, outputs = run(suites="logos.yaml", merge="true")
    assert (code, outputs["outcome"], outputs["artifact"]) == (
        0,
        "All gates passed: 0 broken, 2 still passing",
        "visioneval",
    )
    assert [words[0] for words in run.commands[-3:]] == ["merge", "compare", "site"]


def test_only_suites_with_the_tag_are_redacted(suites: Callable[..., None], run: Any) -> None:
    suites("faces", "logos")
    code, _ = run(suites="faces.yaml\nlogos.yaml", redact="faces")
    assert code == 0
    for words in run.commands:
        is_hidden = words[0] != "validate" and ("faces.yaml" in words or "faces-visioneval" in words)
        assert ("--redact" in words) == (is_hidden or words[0] == "site"), words
    assert "`bread`" not in Path("visioneval-results/comment.md").read_text()


@pytest.mark.parametrize(
    ("inputs", "name", "paths", "days"),
    [
        ({}, "visioneval", "visioneval-results\nruns", 0),
        ({"redact": "face"}, "visioneval", "visioneval-results", 0),
        ({"shard": "2/4"}, "visioneval-shard-2", "runs", 0),
        ({"shard": "2/4", "redact": "face", "name": "night"}, "night-shard-2", "runs", 1),
    ],
)
def test_redacted_outputs_are_in_no_artifact_but_those_of_shards(
    inputs: dict[str, str], name: str, paths: str, days: int
) -> None:
    read = action.Inputs.read(environment_of("python -P -m visioneval.cli.action", suites="a.yaml", **inputs))
    uploaded = read.upload()
    assert (uploaded["artifact"], str(uploaded["paths"]), uploaded["days"]) == (name, paths, days)


def test_images_are_small_files_that_only_the_comment_refers_to(suites: Callable[..., None], run: Any) -> None:
    suites("logos")
    break_suite("logos")
    code, _ = run(suites="logos.yaml", images="true")
    assert code == 1
    (compare,) = (words for words in run.commands if words[0] == "compare")
    assert " ".join(compare).endswith("--thumbnails visioneval-results/thumbnails --cache visioneval-cache")
    named = re.findall(r"!\[.*?\]\((thumbnails/.*?)\)", Path("visioneval-results/comment.md").read_text())
    assert len(named) == 2
    assert all(Path("visioneval-results", name).is_file() for name in named)
    summary = Path("GITHUB_STEP_SUMMARY").read_text()
    assert (summary.count("(image in the artifact)"), summary.count("](thumbnails/")) == (2, 0)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"suites": " \n"}, "suites: name at least one"),
        ({"suites": "a.yaml\na.yml"}, "suites: a.yaml: 'a' would name two baselines: rename the file"),
        ({"baseline": "a\nb"}, "baseline: 2 for 1 suites: name one for each suite, or none"),
        ({"offline": "yes"}, "offline: true or false, not 'yes'"),
        ({"merge": ""}, "merge: true or false, not ''"),
        ({"images": "1"}, "images: true or false, not '1'"),
        ({"confirm": "3"}, "confirm: new samples need calls: set 'offline' to false"),
        ({"shard": "2"}, "shard: '2': the number of the shard and of all, such as 2/4"),
        ({"shard": "1/2", "merge": "true"}, "shard and merge: a job runs a shard or merges all, so leave one out"),
        ({"name": "a b"}, "name: 'a b': use letters, digits, _ - and ."),
        ({"redact": "fase"}, "redact: 'fase': no case of any suite has this tag"),
    ],
)
def test_a_bad_input_is_one_line(
    toy: Toy, run: Any, inputs: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (toy.folder / "logos.yaml").write_text(SUITE.format(name="logos", tag="logo"))
    code, outputs = run(**{"suites": "logos.yaml", **inputs})
    assert (code, outputs) == (2, {"code": "2", "outcome": message})
    assert capsys.readouterr().out == f"::error title=visioneval::{message}\n"
    assert run.commands == []


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "visioneval-results" / "thumbnails").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    with fake_github(tmp_path / "bin") as server:
        yield server


def post(text: str | None, *, token: str = JOB_TOKEN, **inputs: str) -> None:
    """Runs the step after a run that wrote this text."""
    if text is not None:
        Path("visioneval-results/comment.md").write_text(text, encoding="utf-8")
    action.post(
        {
            **environment_of("python -P -m visioneval.cli.action post", **inputs),
            "TOKEN": token,
            "NUMBER": "7",
            "SHA": "0abc",
            "ARTIFACT": f"{PAGE}/artifacts/9",
            **({"CODE": "", "OUTCOME": ""} if text is None else {"CODE": "1", "OUTCOME": "A gate failed"}),
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "owner/shop",
            "GITHUB_RUN_ID": "5",
        }
    )


def test_a_comment_is_replaced_and_those_of_others_stay(github: FakeGitHub) -> None:
    others = [
        ("github-actions[bot]", "Coverage: 81 %"),
        ("eve", f"{COMMENT}All gates passed"),
        ("github-actions[bot]", "<!-- visioneval: nightly -->\nAll gates passed"),
    ]
    for login, body in others:
        github.add(login, body)
    post("## First\n")
    post("## Second\n")
    link = f"([all images and reports]({PAGE}/artifacts/9))"
    assert github.bodies == [*others, ("github-actions[bot]", f"{COMMENT}**A gate failed** {link}\n\n## Second\n")]


def test_the_status_of_the_commit_is_the_outcome(github: FakeGitHub) -> None:
    post("## Text\n")
    fields = {"state": "failure", "context": "visioneval", "description": "A gate failed", "target_url": PAGE}
    assert github.statuses == [("0abc", fields)]


def test_a_job_without_an_outcome_is_an_error(github: FakeGitHub) -> None:
    post(None)
    ((_, fields),) = github.statuses
    assert (fields["state"], fields["description"]) == ("error", "visioneval did not run: see the log of the job")
    assert "visioneval did not run" in github.bodies[0][1]


def test_a_token_of_a_fork_is_a_notice(github: FakeGitHub, capsys: pytest.CaptureFixture[str]) -> None:
    post("## Text\n", token=FORK_TOKEN)
    assert (github.comments, github.statuses) == ([], [])
    why = "gh: Resource not accessible by integration (HTTP 403). The token of a pull request from a fork only reads"
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        f"::notice title=visioneval::no comment: {why}",
        f"::notice title=visioneval::no commit status: {why}",
    ]


THUMBNAILS = (
    "| `bread` | ![bread: A, B](thumbnails/bread-1.webp) |\n| `soup` | ![soup \\[x\\]: B](thumbnails/soup-2.webp) |\n"
)
WITHOUT = "| `bread` | (image in the artifact) |\n| `soup` | (image in the artifact) |\n"


@pytest.fixture
def thumbnails(github: FakeGitHub) -> str:
    for name in ("bread-1", "soup-2"):
        Path(f"visioneval-results/thumbnails/{name}.webp").write_bytes(name.encode())
    assert not github.assets
    return THUMBNAILS


def test_thumbnails_are_attached_with_the_token_of_a_user(github: FakeGitHub, thumbnails: str) -> None:
    github.add("ada", f"{COMMENT}Before")
    github.add("github-actions[bot]", f"{COMMENT}Before")
    inputs = {"images": "true", "images-token": USER_TOKEN}
    post(thumbnails, **inputs)
    assert list(github.assets.values()) == [b"bread-1", b"soup-2"]
    assert [login for login, _ in github.bodies] == ["github-actions[bot]", "ada"]
    assert [address in github.bodies[1][1] for address in github.assets] == [True, True]
    assert "thumbnails/" not in github.bodies[1][1]
    assert len(github.statuses) == 1


def test_nothing_is_attached_where_nothing_broke(github: FakeGitHub) -> None:
    github.add("ada", f"{COMMENT}Before")
    post("## Fine\n", **{"images": "true", "images-token": USER_TOKEN})
    assert [(login, body.endswith("## Fine\n")) for login, body in github.bodies] == [("ada", True)]


@pytest.mark.parametrize(
    ("token", "notice"),
    [
        ("", "no images in the comment: images-token is empty, as it is in pull requests from forks"),
        (JOB_TOKEN, "no images in the comment: unsupported authentication type."),
    ],
)
def test_without_a_token_of_a_user_the_comment_names_the_artifact(
    github: FakeGitHub, thumbnails: str, token: str, notice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    post(thumbnails, **{"images": "true", "images-token": token})
    assert github.assets == {}
    ((_, body),) = github.bodies
    assert body.endswith(WITHOUT)
    assert notice in capsys.readouterr().out


def test_a_comment_is_not_longer_than_github_takes(github: FakeGitHub) -> None:
    post("ä" * 70_000)
    ((_, body),) = github.bodies
    assert len(body) == action.MAX_COMMENT


def test_without_gh_there_is_a_notice(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(github.folder / "empty"))
    post("## Text\n")
    assert "no comment: gh: No such file or directory" in capsys.readouterr().out
