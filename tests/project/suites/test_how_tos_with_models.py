"""How-tos with real models and judges, as they stand but for the address: a local server answers as the services do."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, GenerationRequest, JudgeRequest, Script
from PIL import Image, ImageDraw, ImageFont
from test_pages_run import COMMAND, HOW_TOS, how_to, run_page
from typer.testing import CliRunner

from visioneval.cli import app

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("reduced_readings", "session_measures")]


def uncommented(text: str, start: str) -> str:
    """A suite without the comment signs of the entry that begins with ``start``, and of its lines below."""
    entry = re.search(rf"^( *)# {re.escape(start)}.*\n(?:\1#   .*\n)*", text, re.MULTILINE)
    assert entry, start
    return text.replace(entry[0], re.sub(r"^( *)# ", r"\1", entry[0], flags=re.MULTILINE))


def drawn(lines: list[str]) -> bytes:
    image = Image.new("RGB", (1024, 1024), "white")
    for at, line in enumerate(lines):
        ImageDraw.Draw(image).text((100, 150 + 180 * at), line, "black", ImageFont.load_default(72))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def drawn_copy(request: GenerationRequest) -> bytes:
    """An image that shows the lines of the starter's prompts."""
    lines = request.prompt.partition("lines: ")[2].split(" / ") if "lines: " in request.prompt else ["Open all summer"]
    return drawn(lines)


def content(request: JudgeRequest) -> dict[str, Any]:
    """The answer of a judge that likes the image."""
    answer = {"usable": True, "verdict": "PASS", "reason": "Clear and readable.", "failure_tags": []}
    return {name: answer[name] for name in (request.schema or {})["properties"]}


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
    ran = run_page(first, tmp_path)
    suite = tmp_path / "flyers" / "suite.yaml"
    text = suite.read_text(encoding="utf-8").replace("  - {provider: mock, params: {size: 1024x1024}}\n", "")
    for entry in (model, "- {key: look", "- usable"):
        text = uncommented(text, entry)
    text = text.replace("# judges:", "judges:").replace(f"#   {judge}", f"  {judge}")
    suite.write_text(text, encoding="utf-8")
    ran += run_page(planned, tmp_path)

    script = Script().generate(drawn_copy).judge(content)
    with FakeAPI(script, models=["my-model", "my-judge"]) as api:
        monkeypatch.setenv("LOCAL_KEY", api.key)
        for provider, url in (("openai", api.openai_base_url), ("gemini", api.gemini_base_url)):
            here = f'{{provider: {provider}, base_url: "{url}", api_key_env: LOCAL_KEY,'
            text = re.sub(rf"{{provider: {provider},(?! api)", here, text)
        text = re.sub(r"http://127.0.0.1:800\d/v1", api.openai_base_url, text)
        prices = f"prices: {{{'gemini' if 'gemini' in model else 'openai'}: {{per_call: 0.01}}}}"
        if model == "- provider: openai":
            prices = re.findall("`(prices: {.*})`", page)[0]
        suite.write_text(f"{text}{prices}\n", encoding="utf-8")
        ran += run_page(rest, tmp_path)
        bought = sum(isinstance(request.asked, GenerationRequest) for request in api.requests)
    assert ran == HOW_TOS["real_model"]
    assert bought == (4 if model == "- {provider: openai" else 2), "the first case is not bought twice"


def flyer(request: GenerationRequest) -> bytes:
    return drawn([re.findall('"(.*)"', request.prompt)[0].replace("COFFEE", "COFEE")])


def test_an_eval_of_promptfoo_runs_as_a_suite(local_api: FakeAPI, tmp_path: Path) -> None:
    """The model misspells one line. A judge that is down decides nothing."""
    page = how_to("from_promptfoo")
    planned, rest = page.split("Both need")
    ran = run_page(planned, tmp_path)
    suite = tmp_path / "flyers.yaml"
    here = f'provider: openai, base_url: "{local_api.openai_base_url}", api_key_env: LOCAL_KEY,'
    suite.write_text(suite.read_text(encoding="utf-8").replace("provider: openai,", here), encoding="utf-8")
    local_api.script.generate(flyer)
    local_api.script.judge(content)
    assert ran + run_page(rest, tmp_path) == HOW_TOS["from_promptfoo"]
    local_api.script.judge("I cannot say.")
    assert CliRunner().invoke(app, ["run", "flyers.yaml", "--reuse", "none"]).exit_code == 3


def _without_output(block: re.Match[str]) -> str:
    return "".join(f"$ {command}\n" for command, _ in COMMAND.findall(block[0]))


def test_a_judge_reads_what_ocr_cannot(
    local_api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced_readings: None
) -> None:
    page = how_to("copy_ocr_cannot_read").partition("## Ask a question")[0]
    run_page(page, tmp_path)
    judged = tmp_path / "copy.yaml"
    here = f'provider: openai, base_url: "{local_api.openai_base_url}", api_key_env: LOCAL_KEY,'
    judged.write_text(judged.read_text(encoding="utf-8").replace("provider: openai,", here), encoding="utf-8")
    grade = ["grade", "latest", "--suite", "copy.yaml", "--trust-suite", "--reuse", "none"]
    for lines, exit_code in ((["HARBOUR ROASTERS", "Open until May"], 0), (["HARBOR ROASTERS", "Open until May"], 1)):
        local_api.script.judge({"lines": lines})
        assert CliRunner().invoke(app, grade).exit_code == exit_code
    asked = [request.asked for request in local_api.requests if isinstance(request.asked, JudgeRequest)]
    assert asked
    assert all("HARBOUR" not in request.text for request in asked), "the judge is told no lines"
