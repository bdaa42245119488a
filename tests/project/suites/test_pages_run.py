"""The commands of the README, the tutorial and the how-tos run as they stand, in the order of the page."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest
from example_server import image_server
from fake_api import FakeAPI, GenerationRequest, Script
from PIL import Image, ImageDraw, ImageFont
from typer.testing import CliRunner

from visioneval.cli import app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(
    r"^(?:[^\n]*`([\w./-]+\.(?:yaml|csv|jsonl|json|py))`:\n\n)?```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def run_page(text: str, folder: Path) -> list[tuple[str, int]]:
    """Writes the files that a page names before a block, runs its ``$ visioneval`` lines, and returns their exit codes.

    A line that ends in ``# exits N`` must exit with N; every other line with 0. The lines below it must be in its
    output, in this order; ``...`` stands for what is left out.
    """
    ran = []
    for name, language, block in _BLOCK.findall(text):
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(block, encoding="utf-8")
        for line, shown in _COMMAND.findall(block) if language == "console" else ():
            command, _, comment = line.partition(" # ")
            arguments = shlex.split(command)
            assert arguments[0] == "visioneval", line
            result = CliRunner().invoke(app, arguments[1:], env={"COLUMNS": "110"})
            expected = int(match[1]) if (match := re.search(r"exits (\d+)", comment)) else 0
            assert result.exit_code == expected, f"{line}\n{result.output}"
            assert missing_output(shown, result.output) == [], f"{line}\n{result.output}"
            ran.append((arguments[1], result.exit_code))
    return ran


def missing_output(shown: str, output: str) -> list[str]:
    """The first part of what a page shows that is not in the output after the parts before it. White space is equal."""
    rest = " ".join(output.split())
    for part in re.split(r"\.\.\.|\n", shown):
        if words := " ".join(part.split()):
            _, found, rest = rest.partition(words)
            if not found:
                return [words]
    return []


def test_what_a_page_shows_must_be_in_the_output_in_its_order() -> None:
    output = "3 cells\ncopy    FAIL\nfile    PASS\n"
    assert missing_output("3 cells\n...\nfile  PASS\n", output) == []
    assert missing_output("copy ... PASS\n", output) == []
    assert missing_output("file PASS\ncopy FAIL\n", output) == ["copy FAIL"]
    assert missing_output("4 cells\n", output) == ["4 cells"]


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured_once: None) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [command for command, _ in run_page((ROOT / "README.md").read_text(encoding="utf-8"), tmp_path)]
    assert commands[:3] == ["init", "run", "validate"]
    assert {"show", "report", "export", "compare", "baseline"} <= set(commands)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured_once: None) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_page((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), tmp_path)
    assert ("compare", 1) in ran
    assert {"init", "plan", "label", "agreement", "baseline", "report"} <= {command for command, _ in ran}


def explanation(name: str) -> str:
    return (ROOT / "docs" / "explanation" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "ran"), [("cells", [("plan", 0), ("run", 1)]), ("verdicts", [("run", 3)])])
def test_an_explanation_runs(
    name: str, ran: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(explanation(name), tmp_path) == ran


HOW_TOS = {
    "copy_ocr_cannot_read": [("run", 3), ("validate", 0), ("grade", 0)],
    "cost": [("plan", 0), ("run", 3), ("run", 0), ("show", 0)],
    "dataset": [("validate", 0), ("plan", 0), ("run", 0), ("run", 0)],
    "local_model": [("validate", 0), ("run", 0), ("show", 0)],
    "prompts": [("run", 0), ("compare", 0), ("plan", 0), ("run", 0), ("run", 0), ("compare", 0)],
    "published_questions": [("validate", 0), ("run", 0), ("show", 0)],
    "raters": [("run", 0), *[("label", 0)] * 4, ("agreement", 0)],
    "real_model": [("init", 0), ("run", 0), ("validate", 0), ("plan", 0), ("run", 0), ("show", 0), ("run", 0)],
    "redrawn_edits": [("init", 0), ("run", 1), ("grade", 1), ("probe", 0), ("run", 0)],
    "resume_and_replay": [*[("run", 0)] * 4, ("run", 3), ("cache", 0)],
    "trusted_judge": [
        ("run", 0),
        *[("label", 0)] * 4,
        ("agreement", 1),
        ("agreement", 0),
        ("run", 0),
        ("agreement", 0),
    ],
}
"""The commands of each page, and their exit codes."""


def how_to(name: str) -> str:
    return (ROOT / "docs" / "how_to" / f"{name}.md").read_text(encoding="utf-8")


def test_each_how_to_is_tested() -> None:
    assert sorted(page.stem for page in (ROOT / "docs" / "how_to").glob("*")) == list(HOW_TOS)


@pytest.mark.parametrize("name", [name for name in HOW_TOS if name not in ("local_model", "real_model")])
def test_a_how_to_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced_readings: None) -> None:
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


def test_what_the_page_about_prompts_says_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers in their text: eight cases cannot prove a difference."""
    monkeypatch.chdir(tmp_path)
    run_page(how_to("prompts").partition("## Two runs")[0], tmp_path)
    sides = ["latest@*prompt=plain", "latest@*prompt=styled"]
    compared = CliRunner().invoke(app, ["compare", *sides], env={"COLUMNS": "120"}).output
    assert "0 broken, 3 fixed" in compared
    assert "With 8 cases, a change below 59 points (pass_rate) can be missed" in compared
    assert "the case: " not in compared, "both variants are graded by the case's own prompt"


def test_a_local_model_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCAL_KEY", "none")
    with image_server(ROOT / "docs" / "examples", "stand-in") as url:
        page = how_to("local_model").replace("http://127.0.0.1:8123/v1", url)
        assert run_page(page, tmp_path) == HOW_TOS["local_model"]


def uncommented(text: str, start: str) -> str:
    """A suite without the comment signs of the entry that begins with ``start``, and of its lines below."""
    entry = re.search(rf"^( *)# {re.escape(start)}.*\n(?:\1#   .*\n)*", text, re.MULTILINE)
    assert entry, start
    return text.replace(entry[0], re.sub(r"^( *)# ", r"\1", entry[0], flags=re.MULTILINE))


def drawn_copy(request: GenerationRequest) -> bytes:
    """An image that shows the lines of the starter's prompts."""
    lines = request.prompt.partition("lines: ")[2].split(" / ") if "lines: " in request.prompt else ["Open all summer"]
    image = Image.new("RGB", (1024, 1024), "white")
    for at, line in enumerate(lines):
        ImageDraw.Draw(image).text((100, 150 + 180 * at), line, "black", ImageFont.load_default(72))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


CONTENT = {"usable": True, "verdict": "PASS", "reason": "Clear and readable.", "failure_tags": []}


@pytest.mark.parametrize(
    ("model", "judge"),
    [
        ("- {provider: openai", "default: {provider: openai, model"),
        ("- {provider: gemini", "default: {provider: gemini"),
        ("- provider: openai", "default: {provider: openai, api: chat"),
    ],
    ids=["openai", "gemini", "local"],
)
def test_each_commented_entry_of_the_starter_runs(
    model: str, judge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced_readings: None
) -> None:
    """Only the address differs from what a user has: that of the local server, whose prices nobody knows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = how_to("real_model")
    if "openai, model" not in judge:  # the page shows the output of OpenAI's
        page = re.sub(r"(?<=\n```console\n).*?(?=```)", _without_output, page, flags=re.DOTALL)
    first, planned, rest = re.split("## (?:Change the suite|Buy one image)", page)
    run_page(first, tmp_path)
    suite = tmp_path / "flyers" / "suite.yaml"
    text = suite.read_text(encoding="utf-8").replace("  - {provider: mock, params: {size: 1024x1024}}\n", "")
    for entry in (model, "- {key: look", "- usable"):
        text = uncommented(text, entry)
    text = text.replace("# judges:", "judges:").replace(f"#   {judge}", f"  {judge}")
    suite.write_text(text, encoding="utf-8")
    run_page(planned, tmp_path)

    script = Script().generate(drawn_copy)
    script.judge(lambda request: {name: CONTENT[name] for name in (request.schema or {})["properties"]})
    with FakeAPI(script, models=["my-model", "my-judge"]) as api:
        monkeypatch.setenv("LOCAL_KEY", api.key)
        for provider, url in (("openai", api.openai_base_url), ("gemini", api.gemini_base_url)):
            here = f'{{provider: {provider}, base_url: "{url}", api_key_env: LOCAL_KEY,'
            text = re.sub(rf"{{provider: {provider},(?! api)", here, text)
        text = re.sub(r"http://127.0.0.1:800\d/v1", api.openai_base_url, text)
        prices = f"prices: {{{'gemini' if 'gemini' in model else 'openai'}: {{per_call: 0.01}}}}\n"
        suite.write_text(text + prices, encoding="utf-8")
        assert run_page(rest, tmp_path) == [("run", 0), ("show", 0), ("run", 0)]
        bought = sum(isinstance(request.asked, GenerationRequest) for request in api.requests)
    assert bought == (4 if model == "- {provider: openai" else 2), "the first case is not bought twice"


def _without_output(block: re.Match[str]) -> str:
    return "".join(f"$ {command}\n" for command, _ in _COMMAND.findall(block[0]))


def test_a_judge_reads_what_ocr_cannot(
    local_api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced_readings: None
) -> None:
    page = how_to("copy_ocr_cannot_read").partition("## Ask a question")[0]
    run_page(page, tmp_path)
    judged = tmp_path / "judged.yaml"
    here = f'provider: openai, base_url: "{local_api.openai_base_url}", api_key_env: LOCAL_KEY,'
    judged.write_text(judged.read_text(encoding="utf-8").replace("provider: openai,", here), encoding="utf-8")
    grade = ["grade", "latest", "--suite", "judged.yaml", "--trust-suite", "--reuse", "none"]
    for lines, exit_code in ((["HARBOUR ROASTERS", "Open until May"], 0), (["HARBOR ROASTERS", "Open until May"], 1)):
        local_api.script.judge({"lines": lines})
        assert CliRunner().invoke(app, grade).exit_code == exit_code
    assert all("HARBOUR" not in request.asked.text for request in local_api.requests), "the judge is told no lines"
