"""What ``action.yml`` runs: several suites with one outcome, and what is published of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from fork_server import ForkedProgram
from PIL import Image
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
    assert outputs["paths"].splitlines() == ["visioneval-results/visioneval", "visioneval-runs/visioneval"]
    assert (outputs["artifact"], outputs["days"]) == ("visioneval", "0")
    assert [words[0] for words in run.commands] == ["validate", "run", "compare", "site"]
    assert "--offline" in run.commands[1]
    assert "--budget" not in run.commands[1]
    assert run.commands[2][:3] == ("compare", "baseline:logos", "logos-visioneval")
    assert {path.name for path in Path("visioneval-results/visioneval").iterdir()} == {
        *("logos-run.md", "logos-run.xml", "logos-compare.md", "logos-compare.xml", "logos-compare.html"),
        *("comment.md", "site"),
    }
    assert Path("visioneval-results/visioneval/site/run/logos-visioneval").is_dir()
    summary = Path("GITHUB_STEP_SUMMARY").read_text()
    assert summary.startswith("## visioneval compare: All gates passed")
    assert "\n## visioneval: `logos`: " in summary


def test_later_suites_run_after_one_that_failed(suites: Callable[..., None], run: Any) -> None:
    suites("logos", "signs")
    break_suite("logos")
    code, outputs = run(suites="logos.yaml\n\n  ./signs.yaml\n")
    assert code == 1
    assert outputs["outcome"] == "1 of 2 suites did not pass; logos: A gate failed: 2 broken"
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
    assert outputs["outcome"] == "2 of 2 suites did not pass; signs: The suite is not valid: see the log of the job"


def test_a_suite_that_is_only_invalid_in_what_was_not_run_is_said(
    suites: Callable[..., None], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    suites("logos")
    evaluate = action._visioneval
    monkeypatch.setattr(action, "_visioneval", lambda *words: 2 if words[0] == "validate" else evaluate(*words))
    code, outputs = run(suites="logos.yaml")
    assert (code, outputs["outcome"]) == (2, "The suite is not valid: see the log of the job")


def test_a_missing_baseline_is_no_outcome_of_the_run(suites: Callable[..., None], run: Any) -> None:
    suites("logos")
    code, outputs = run(suites="logos.yaml", baseline="signs")
    assert (code, outputs["outcome"]) == (2, "exit code 2, see the log of the job")


def test_a_run_that_is_missing_is_compared_in_vain(
    suites: Callable[..., None], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    suites("logos")
    evaluate = action._visioneval
    monkeypatch.setattr(action, "_visioneval", lambda *words: 0 if words[0] == "run" else evaluate(*words))
    code, _ = run(suites="logos.yaml")
    assert code == 2
    assert [words[0] for words in run.commands] == ["validate", "compare"]


@pytest.mark.parametrize(("ended", "code"), [(-9, 3), (137, 3), (1, 1), (130, 130)])
def test_a_command_that_was_killed_is_incomplete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ended: int, code: int
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], ended))
    assert action._visioneval("run", "logos.yaml") == code
    assert ("::error title=visioneval::run was ended by " in capsys.readouterr().out) is (code == 3)


def test_a_site_that_was_not_written_is_a_notice(
    suites: Callable[..., None], run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suites("logos")
    notice = "::notice title=visioneval::the site was not written: see the log\n"
    assert run(suites="logos.yaml")[0] == 0
    assert notice not in capsys.readouterr().out
    evaluate = action._visioneval
    monkeypatch.setattr(action, "_visioneval", lambda *words: 2 if words[0] == "site" else evaluate(*words))
    assert run(suites="logos.yaml")[0] == 0
    assert notice in capsys.readouterr().out


def test_reports_of_an_earlier_job_are_deleted(suites: Callable[..., None], run: Any) -> None:
    suites("logos", "signs")
    assert run(suites="logos.yaml\nsigns.yaml")[0] == 0
    Path("signs.yaml").write_text("name: [")
    assert run(suites="signs.yaml")[0] == 2
    assert [path.name for path in Path("visioneval-results/visioneval").iterdir()] == ["comment.md"]
    assert Path("visioneval-results/visioneval/comment.md").read_text() == ""
    assert not list(Path("visioneval-runs").glob("visioneval/*"))


def test_a_second_use_publishes_nothing_of_the_first(suites: Callable[..., None], run: Any) -> None:
    suites("faces", "logos")
    assert run(suites="faces.yaml", redact="faces", name="people")[0] == 0
    code, outputs = run(suites="logos.yaml")
    assert code == 0
    published = [path for folder in outputs["paths"].splitlines() for path in Path(folder).rglob("*")]
    assert [path.name for path in published if path.name == "logos-visioneval"]
    assert not [path for path in published if "faces" in path.name]
    assert Path("visioneval-runs/people/faces-people").is_dir()


def test_variables_reach_every_command_that_reads_the_suite(suites: Callable[..., None], run: Any) -> None:
    suites("logos")
    text = Path("logos.yaml").read_text()
    Path("logos.yaml").write_text("vars: {food: bread}\n" + text.replace("A flyer for bread.", "'For {{ food }}.'"))
    code, _ = run(suites="logos.yaml", run_flags="--var 'food=brown bread' --samples 1")
    assert code == 0
    validate, evaluate, compare, _ = run.commands
    assert validate == ("validate", "logos.yaml", "--format", "github", "--var", "food=brown bread")
    assert evaluate[-4:] == ("--var", "food=brown bread", "--samples", "1")
    assert "--var" not in compare


def test_new_samples_get_the_secret_variables_and_no_others(
    suites: Callable[..., None], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those named or valued like a secret: the run stores all other values."""
    suites("logos")
    monkeypatch.setenv("SHOP_TOKEN", "open-sesame-123")
    text = Path("logos.yaml").read_text()
    text = "vars: {food: bread, shop: none, api_key: none}\n" + text
    Path("logos.yaml").write_text(text.replace("A flyer for bread.", "'{{ food }} of {{ shop }} {{ api_key }}'"))
    flags = "--var food=rye --var shop=open-sesame-123 --var=api_key=open-sesame-456"
    assert run(suites="logos.yaml", offline="false", confirm="3", run_flags=flags)[0] == 0
    assert run(suites="logos.yaml", offline="false", run_flags=flags)[0] == 0
    given = [
        [word for before, word in pairwise(words) if before == "--var"]
        for words in run.commands
        if words[0] == "compare"
    ]
    assert given == [["shop=open-sesame-123", "api_key=open-sesame-456"], []]


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
        artifact = f"visioneval-shard-{number}"
        assert (code, outputs["artifact"], outputs["paths"]) == (0, artifact, f"visioneval-runs/{artifact}")
        shutil.copytree(outputs["paths"], "visioneval-shards/visioneval", dirs_exist_ok=True)
    assert not [words for words in run.commands if words[0] in ("compare", "site")]
    code, outputs = run(suites="logos.yaml", merge="true")
    assert (code, outputs["outcome"], outputs["artifact"]) == (
        0,
        "All gates passed: 0 broken, 2 still passing",
        "visioneval",
    )
    assert [words[0] for words in run.commands[-3:]] == ["merge", "compare", "site"]


def test_only_the_shards_of_a_suite_are_merged(suites: Callable[..., None], run: Any, capsys: Any) -> None:
    suites("logos", "logos-shard-x")
    for number in (1, 2):
        for suite in ("logos", "logos-shard-x"):
            code, outputs = run(suites=f"{suite}.yaml", shard=f"{number}/2")
            assert code == 0
            shutil.copytree(outputs["paths"], "visioneval-shards/visioneval", dirs_exist_ok=True)
    assert run(suites="logos.yaml", merge="true")[0] == 0
    shutil.rmtree("visioneval-shards")
    assert run(suites="logos.yaml", merge="true")[0] == 2
    assert (
        "::error title=visioneval::logos.yaml: this workflow run has no shards of it to merge\n"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(("broken", "is_refused"), [(("logos",), True), (("logos", "faces"), False)])
def test_a_mistyped_tag_is_refused_though_a_suite_is_broken(
    suites: Callable[..., None], run: Any, broken: tuple[str, ...], *, is_refused: bool
) -> None:
    """Where no suite can be loaded, there is nothing to hide, and ``validate`` says what is wrong."""
    suites("faces", "logos")
    for name in broken:
        Path(f"{name}.yaml").write_text("name: [")
    code, outputs = run(suites="faces.yaml\nlogos.yaml", redact="fase")
    message = "redact: 'fase': no case of any suite has this tag; logos.yaml cannot be read: see 'visioneval validate'"
    assert (code, outputs["outcome"] == message, bool(run.commands)) == (2, is_refused, not is_refused)


def test_only_suites_with_the_tag_are_redacted(suites: Callable[..., None], run: Any) -> None:
    suites("faces", "logos")
    code, _ = run(suites="faces.yaml\nlogos.yaml", redact="faces")
    assert code == 0
    for words in run.commands:
        is_hidden = words[0] != "validate" and ("faces.yaml" in words or "faces-visioneval" in words)
        assert ("--redact" in words) == (is_hidden or words[0] == "site"), words
    assert "`bread`" not in Path("visioneval-results/visioneval/comment.md").read_text()


def test_a_tag_that_a_suite_has_lost_is_redacted(suites: Callable[..., None], run: Any) -> None:
    """In the comparison by the tag of the baseline; in the run's own report and in the site by the case."""
    suites("faces", "logos")
    for name in ("faces", "logos"):
        break_suite(name)
    text = Path("logos.yaml").read_text()
    Path("logos.yaml").write_text(text.replace("tags: [logos]", "tags: []"))
    Path("faces.yaml").write_text(Path("faces.yaml").read_text().replace("tags: [faces]", "tags: [faces, logos]"))
    code, _ = run(suites="faces.yaml\nlogos.yaml", redact="logos", images="true")
    assert code == 1
    redacted = {
        (words[0], words[1]): words[words.index("--redact") + 1 :] for words in run.commands if "--redact" in words
    }
    assert redacted["run", "logos.yaml"] == ("case:bread",)
    assert redacted["run", "faces.yaml"] == ("logos",)
    assert redacted["site", "--output"] == ("logos", "--redact", "case:bread")
    by_suite = {words[1:3]: words for words in run.commands if words[0] == "compare"}
    assert "logos" in by_suite["baseline:logos", "logos-visioneval"]
    site = Path("visioneval-results/visioneval/site/run/logos-visioneval")
    assert len(list(site.rglob("images/**/*.png"))) == 1
    compared = Path("visioneval-results/visioneval/logos-compare.md").read_text()
    assert (compared.count("left out by --redact"), compared.count("](thumbnails/soup-")) == (1, 1)


def test_a_case_that_became_turns_without_its_tag_is_redacted(suites: Callable[..., None], run: Any) -> None:
    suites("logos", "faces")
    Image.new("RGB", (64, 64)).save("base.png")
    text = Path("logos.yaml").read_text()
    case = "{id: bread, prompt: A flyer for bread., tags: [logos]}"
    assert case in text
    Path("logos.yaml").write_text(
        text.replace(case, "{id: bread, images: [base.png], turns: [A red one., A blue one.]}")
    )
    run(suites="logos.yaml\nfaces.yaml", redact="logos\nfaces")
    flags = {words[1]: words[words.index("--redact") :] for words in run.commands if words[0] == "run"}
    assert flags == {"logos.yaml": ("--redact", "case:bread"), "faces.yaml": ("--redact", "faces")}


@pytest.mark.parametrize(
    ("inputs", "name", "paths", "days"),
    [
        ({}, "visioneval", "visioneval-results/visioneval\nvisioneval-runs/visioneval", 0),
        ({"redact": "face"}, "visioneval", "visioneval-results/visioneval", 0),
        ({"shard": "2/4"}, "visioneval-shard-2", "visioneval-runs/visioneval-shard-2", 0),
        ({"shard": "2/4", "redact": "face", "name": "night"}, "night-shard-2", "visioneval-runs/night-shard-2", 1),
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
    assert " ".join(compare).endswith("--thumbnails visioneval-results/visioneval/thumbnails --cache visioneval-cache")
    named = re.findall(r"!\[.*?\]\((thumbnails/.*?)\)", Path("visioneval-results/visioneval/comment.md").read_text())
    assert len(named) == 2
    assert all(Path("visioneval-results/visioneval", name).is_file() for name in named)
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
        ({"comment": "yes"}, "comment: true or false, not 'yes'"),
        ({"name": "a b"}, "name: 'a b': use letters, digits, _ - and . (not first)"),
        ({"name": ".."}, "name: '..': use letters, digits, _ - and . (not first)"),
        ({"run-flags": "--runs elsewhere"}, "run-flags: leave out --runs: each use of the action has its own folder"),
        ({"run-flags": "--run-id=a"}, "run-flags: leave out --run-id: the input 'name' is the end of the ID"),
        ({"run-flags": "--markdown a"}, "run-flags: leave out --markdown: the action writes it"),
        ({"run-flags": "--samples 3 --junit a"}, "run-flags: leave out --junit: the action writes it"),
        ({"run-flags": "--no-fail"}, "run-flags: leave out --no-fail: the gates decide"),
        (
            {"run-flags": "--redact a"},
            "run-flags: leave out --redact: use the input 'redact', which reaches all commands",
        ),
        (
            {"run-flags": "--trust-suite"},
            "run-flags: leave out --trust-suite: suites of pull requests are never trusted",
        ),
        ({"run-flags": "--var 'a=b"}, 'run-flags: "--var \'a=b": no closing quotation'),
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


@pytest.mark.parametrize("name", ["visioneval-results", "visioneval-runs"])
def test_a_file_in_place_of_a_folder_is_one_line(suites: Callable[..., None], run: Any, name: str) -> None:
    suites("logos")
    Path(name).mkdir()
    Path(name, "visioneval").write_text("mine")
    code, outputs = run(suites="logos.yaml")
    assert (code, outputs["outcome"]) == (2, f"{name}/visioneval: cannot empty this folder: Not a directory")
