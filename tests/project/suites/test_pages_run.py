"""The commands of the README, the tutorial and the how-tos run as they stand, in the order of the page."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from buckets import fill_s3, s3_server
from example_server import image_server
from stores import forget_clients, forget_stores
from typer.testing import CliRunner

from visioneval.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("reduced_readings", "session_measures")]

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(
    r"^(?:[^\n]*`([\w./-]+\.(?:yaml|csv|jsonl|json|py))`:\n\n)?```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
IDENTITY = ("-c", "user.name=Ana", "-c", "user.email=ana@example.org", "-c", "commit.gpgsign=false")
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def run_page(text: str, folder: Path) -> list[tuple[str, int]]:
    """Copies the examples that a page links, writes the files that it names before a block, and runs its
    ``$ visioneval`` and ``$ git`` lines. Returns the exit codes of the first.

    A line that ends in ``# exits N`` must exit with N; every other line with 0. The lines below it must be in its
    output, in this order; ``...`` stands for what is left out, and must follow where the output goes on.
    """
    ran = []
    for name in re.findall(r"\(\.\./examples/(\w+\.py)\)", text):
        shutil.copy(ROOT / "docs" / "examples" / name, folder)
    for name, language, block in _BLOCK.findall(text):
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if language == "diff":
                block = changed((folder / name).read_text(encoding="utf-8"), block)
            (folder / name).write_text(block, encoding="utf-8")
        for line, shown in COMMAND.findall(block) if language == "console" else ():
            command, _, comment = line.partition(" # ")
            arguments = shlex.split(command)
            if arguments[0] == "git":
                subprocess.run(["git", *IDENTITY, *arguments[1:]], cwd=folder, check=True, capture_output=True)
                continue
            assert arguments[0] == "visioneval", line
            result = CliRunner().invoke(app, arguments[1:], env={"COLUMNS": "110"})
            expected = int(match[1]) if (match := re.search(r"exits (\d+)", comment)) else 0
            assert result.exit_code == expected, f"{line}\n{result.output}"
            assert missing_output(shown, result.output) == [], f"{line}\n{result.output}"
            ran.append((arguments[1], result.exit_code))
    return ran


def changed(text: str, diff: str) -> str:
    """The text with the lines after ``-`` replaced by those after ``+``. What is replaced must be in it once."""
    lines = diff.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
    assert text.count(before) == 1, diff
    return text.replace(before, after)


def missing_output(shown: str, output: str) -> list[str]:
    """The first part of what a page shows that is not in the output after the parts before it, or ``...`` if the output
    goes on and the page does not say so. White space is equal."""
    rest = " ".join(output.split())
    for part in re.split(r"\.\.\.|\n", shown):
        if words := " ".join(part.split()):
            _, found, rest = rest.partition(words)
            if not found:
                return [words]
    is_cut = bool(shown.strip() and rest.strip() and not shown.rstrip().endswith("..."))
    return ["..."] if is_cut else []


def test_what_a_page_shows_must_be_in_the_output_in_its_order() -> None:
    output = "3 cells\ncopy    FAIL\nfile    PASS\n"
    assert missing_output("3 cells\n...\nfile  PASS\n", output) == []
    assert missing_output("copy ... PASS\n", output) == []
    assert missing_output("file PASS\ncopy FAIL\n", output) == ["copy FAIL"]
    assert missing_output("4 cells\n", output) == ["4 cells"]
    assert missing_output("3 cells\n", output) == ["..."]
    assert missing_output("3 cells\n...\n", output) == []
    assert missing_output("", output) == []


def test_a_diff_changes_what_is_there_once() -> None:
    assert changed("a: 1\nb: 2\n", " a: 1\n-b: 2\n+b: 3\n+c: 4\n") == "a: 1\nb: 3\nc: 4\n"
    with pytest.raises(AssertionError):
        changed("b: 2\nb: 2\n", "-b: 2\n+b: 3\n")


def readme_sections() -> dict[str, str]:
    """The sections of the README that run something, by their titles."""
    parts = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]
    titles = {part.partition("\n")[0]: part for part in parts}
    return {title: part for title, part in titles.items() if "\n$ " in part}


README = {
    "A first verdict": [("init", 0), ("run", 0)],
    "Stop regressions in CI": [("init", 0), ("run", 0), ("baseline", 0), ("run", 1), ("compare", 1)],
    "Generate, edit, compare": [
        *[("init", 0), ("run", 0)] * 2,
        ("show", 0),
        ("report", 0),
        ("export", 0),
        ("compare", 3),
    ],
}
"""The commands of each section, and their exit codes."""


def test_each_section_of_the_readme_is_tested() -> None:
    assert list(readme_sections()) == list(README)


@pytest.mark.parametrize("title", README)
def test_a_section_of_the_readme_runs_alone_on_what_it_builds_on(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sections = readme_sections()
    chain = [title]
    while before := re.search(r"Builds on \[(.+?)\]\(#", sections[chain[0]]):
        chain.insert(0, before[1])
    ran = [run_page(sections[section], tmp_path) for section in chain]
    assert ran[-1] == README[title]


def test_the_copy_of_the_readme_can_be_wrong() -> None:
    """Its CI example fails for the reason that it states, and not whatever its copy is."""
    section = readme_sections()["Stop regressions in CI"]
    assert "provider: files" in readme_sections()["A first verdict"], "not 'mock', which renders whatever is expected"
    assert 'missing "FEILD": the nearest text is "FIELD"' in section


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1100


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_page((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), tmp_path)
    assert {"init", "plan", "label", "agreement", "baseline", "report"} <= {command for command, _ in ran}
    assert ran[-4:] == [("run", 0), ("compare", 1), ("run", 0), ("compare", 0)], "broken on a branch, and undone"
    in_git = subprocess.run(["git", "ls-files"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    folders = {line.partition("/")[0] for line in in_git.splitlines()}
    assert folders == {".github", ".gitignore", "baselines", "shop", "visioneval-cache"}
    assert len((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8").split()) <= 1250


def explanation(name: str) -> str:
    return (ROOT / "docs" / "explanation" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "ran"), [("cells", [("plan", 0), ("run", 1)]), ("verdicts", [("run", 3)])])
def test_an_explanation_runs(
    name: str, ran: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(explanation(name), tmp_path) == ran


WITH_MODELS = ("from_promptfoo", "real_model")
"""Pages whose models are on a local server: test_how_tos_with_models runs them."""
HOW_TOS: dict[str, list[tuple[str, int]]] = {
    "buckets": [("run", 0), ("show", 0), ("run", 0), ("compare", 0), ("run", 0), ("run", 0), ("merge", 0)],
    "claims": [("init", 0), ("run", 0), ("show", 0), ("questions", 0), ("run", 0)],
    "copy_ocr_cannot_read": [("run", 3), ("grade", 0)],
    "cost": [("plan", 0), ("run", 3), ("run", 0), ("show", 0)],
    "dataset": [("validate", 0), ("run", 0)],
    "from_promptfoo": [("validate", 0), ("run", 0)],
    "gitlab": [("init", 0)],
    "install": [("init", 0), ("run", 0)],
    "keys_and_trust": [("validate", 2)],
    "label": [("run", 0)],
    "local_model": [("run", 0), ("show", 0)],
    "nightly": [("init", 0), ("run", 0), ("baseline", 0), ("run", 0), ("baseline", 2)],
    "probe_graders": [("init", 0), ("run", 0), ("probe", 0), ("probe", 0), ("probe", 1)],
    "prompts": [("run", 0), ("compare", 0), ("plan", 0)],
    "published_questions": [("run", 0), ("show", 0)],
    "pull_request": [
        *[("init", 0), ("init", 0), ("run", 0), ("baseline", 0)],
        *[("run", 1), ("compare", 1), ("run", 0), ("compare", 0)],
    ],
    "rank_models": [("run", 0), ("label", 0), ("rank", 0)],
    "raters": [("run", 0), *[("label", 0)] * 4, ("agreement", 0)],
    "ray_cluster": [],
    "real_model": [("init", 0), ("run", 0), ("validate", 0), ("plan", 0), ("run", 0), ("show", 0), ("run", 0)],
    "redrawn_edits": [("init", 0), ("run", 1), ("grade", 1), ("probe", 0), ("run", 1)],
    "reports": [("run", 0), ("report", 0), ("site", 0), ("report", 2)],
    "resume_and_replay": [*[("run", 0)] * 4, ("run", 3)],
    "see_all_runs": [("init", 0), ("run", 0), ("run", 0), ("site", 0)],
    "trackers": [("run", 0)],
    "trusted_judge": [
        ("run", 0),
        *[("label", 0)] * 4,
        ("agreement", 1),
        ("agreement", 0),
        ("run", 0),
        ("agreement", 0),
        ("label", 0),
        ("grade", 0),
    ],
    "write_a_grader": [],
}
"""The commands of each page, and their exit codes."""


def how_to(name: str) -> str:
    return (ROOT / "docs" / "how_to" / f"{name}.md").read_text(encoding="utf-8")


def test_each_how_to_is_tested() -> None:
    assert sorted(page.stem for page in (ROOT / "docs" / "how_to").glob("*")) == list(HOW_TOS)


@pytest.mark.parametrize("name", [name for name in HOW_TOS if name not in ("buckets", "local_model", *WITH_MODELS)])
def test_a_how_to_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run_page(how_to(name), tmp_path) == HOW_TOS[name]


def test_a_changed_prompt_has_no_answer_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page about offline runs shows, with the cache of the how-to about replays."""
    monkeypatch.chdir(tmp_path)
    run_page(how_to("resume_and_replay"), tmp_path)
    suite = (tmp_path / "flyers.yaml").read_text(encoding="utf-8")
    (tmp_path / "flyers.yaml").write_text(suite.replace("A flyer for soup.", "A flyer for hot soup."), encoding="utf-8")
    words = ["run", "flyers.yaml", "--cache", "answers", "--offline", "--trust-suite"]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "110"})
    (shown,) = re.findall(r"^    flyers (?:.*\n)(?:    .*\n)*", explanation("offline"), re.MULTILINE)
    assert (result.exit_code, missing_output(shown, result.output)) == (3, [])


def test_a_local_model_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCAL_KEY", "none")
    with image_server(ROOT / "docs" / "examples", "stand-in") as url:
        page = how_to("local_model").replace("http://127.0.0.1:8123/v1", url)
        assert run_page(page, tmp_path) == HOW_TOS["local_model"]


def test_runs_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("VISIONEVAL_STORES", str(tmp_path / "stores"))
    forget_clients()
    forget_stores()
    with s3_server() as url:
        fill_s3(url, "team", {})
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        assert run_page(how_to("buckets"), tmp_path) == HOW_TOS["buckets"]
    forget_stores()
