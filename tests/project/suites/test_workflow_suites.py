"""The suites for real workflows, run whole through the real SDKs against a local server."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeAPI, JudgeRequest
from PIL import Image, ImageDraw, ImageFont
from typer.testing import CliRunner
from workflow_images import generated_copy

from visioneval import Record, Verdict, read_info, read_records
from visioneval.cli import app

SUITES = Path(__file__).parents[3] / "suites"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("reduced_readings", "session_measures")]

CELLS = {"ui_mockups": 40, "marketing": 45}
READ = ["“Steep & Sip”", "Oct 3–5 • 10 am–6 pm", "Save 15% + free refills!"]  # noqa: RUF001 - the copy itself


def best(request: JudgeRequest, **changes: Any) -> dict[str, Any]:
    """The best answer that a schema allows, changed as asked."""
    assert request.schema is not None
    properties: dict[str, Any] = request.schema["properties"]
    output = {name: _best(name, item) for name, item in properties.items()}
    return output | {name: value for name, value in changes.items() if name in output}


def _best(name: str, schema: dict[str, Any]) -> Any:
    if name == "lines":
        return READ
    if schema["type"] == "array":
        return []
    if schema["type"] == "boolean":
        return True
    return "PASS" if name == "verdict" else max(schema["enum"]) if "enum" in schema else "well made"


@pytest.fixture
def run(local_api: FakeAPI, tmp_path: Path) -> Any:
    """``run(name, *flags)`` runs a built-in suite whose calls go to the local server: exit code, output, run, records.

    The models generate ``image``, or else images with the copy of their case.
    """
    urls = {"openai": local_api.openai_base_url, "gemini": local_api.gemini_base_url}

    def run_suite(name: str, *flags: str, image: bytes | None = None) -> tuple[int, str, Path, list[Record]]:
        data = yaml.safe_load((SUITES / name / "suite.yaml").read_text(encoding="utf-8"))
        for entry in [*data["models"], *data["judges"].values()]:
            entry |= {"base_url": urls[entry["provider"]], "api_key_env": "LOCAL_KEY"}
        path = tmp_path / "suite.yaml"
        path.write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False), encoding="utf-8")
        local_api.script.generate(image or generated_copy(name))
        done = CliRunner().invoke(app, ["run", str(path), "--runs", str(tmp_path / "runs"), *flags])
        (folder,) = (tmp_path / "runs").iterdir()
        return done.exit_code, done.output, folder, list(read_records(folder))

    return run_suite


@pytest.mark.parametrize("name", CELLS)
def test_every_image_is_judged_and_passes_where_the_judge_is_content(name: str, api: FakeAPI, run: Any) -> None:
    api.script.judge(best)
    code, output, folder, records = run(name)
    assert code == 0, output
    assert len(records) == CELLS[name] == read_info(folder).planned_cells
    assert {record.verdict for record in records} == {Verdict.PASS}
    assert {record.provider for record in records} == {"openai", "gemini"}
    assert all(record.width and record.artifact_path for record in records)


@pytest.mark.parametrize("name", CELLS)
def test_the_rules_decide_and_a_judge_that_disagrees_is_counted(name: str, api: FakeAPI, run: Any) -> None:
    api.script.judge(lambda request: best(request, layout_hierarchy=2, verdict="PASS"))
    code, output, _, records = run(name, "--limit", "2", "--model", "gemini*")
    assert code == 1
    assert {record.verdict for record in records} == {Verdict.FAIL}
    assert {record.failed_rules for record in records} == {("layout_hierarchy >= 3",)}
    assert "disagree in 2 of 2" in " ".join(output.split())


@pytest.mark.parametrize(
    ("name", "metric", "verdict"),
    [("marketing", "text_rendering", Verdict.PASS), ("ui_mockups", "in_image_text_rendering", Verdict.FAIL)],
)
def test_a_judge_that_misreads_the_copy_is_counted_beside_the_measure(
    name: str, metric: str, verdict: Verdict, api: FakeAPI, run: Any
) -> None:
    """All text that a flyer may have is measured; a screen also has text that only the judge reads."""
    api.script.judge(lambda request: best(request, **{metric: False}))
    _, output, folder, records = run(name, "--limit", "2", "--model", "gemini*")
    assert [record.verdict for record in records] == [verdict, verdict]
    pair, _ = json.loads((folder / "summary.json").read_text())["same_question"]
    assert (pair["judge"], pair["measure"]) == (metric, "text_rendering_ocr")
    assert (pair["cells"], pair["only_judge_passes"], pair["only_measure_passes"]) == (2, 0, 2)
    assert f"{metric} text_rendering_ocr 2 0 2" in " ".join(output.split())


def test_a_judge_gets_the_rubric_and_not_the_model_name(api: FakeAPI, run: Any) -> None:
    asked: list[JudgeRequest] = []

    def answer(request: JudgeRequest) -> dict[str, Any]:
        asked.append(request)
        return best(request)

    api.script.judge(answer)
    run("ui_mockups", "--case", "minimal", "--model", "gemini*")
    (request,) = asked
    words = " ".join(part for part in request.parts if isinstance(part, str))
    assert "as the designer and the engineer who would have to build it do" in words
    assert "- any other component" in words
    assert "One notable issue that needs another round" in words
    assert "layout_hierarchy >= 3" not in words, "a judge never sees the rules"
    assert "text_rendering_ocr" not in words
    assert "gemini-nano-banana-2.1" not in words


def test_a_flyer_with_the_brand_name_passes(api: FakeAPI, run: Any) -> None:
    image = Image.new("RGB", (1024, 1024), "white")
    pen = ImageDraw.Draw(image)
    pen.text((160, 300), "Ride quietly", "black", ImageFont.load_default(90))
    pen.text((160, 700), "Oakline Bicycles", "black", ImageFont.load_default(60))
    data = io.BytesIO()
    image.save(data, "PNG")
    api.script.judge(best)
    flags = ("--case", "minimal_text", "--model", "*quality=high,size=1024x1024")
    code, _, _, records = run("marketing", *flags, image=data.getvalue())
    assert code == 0
    (record,) = records
    assert (record.verdict, record.warned_rules) == (Verdict.PASS, ())
    assert record.scores["text_rendering_ocr"] is True


def drawn(*lines: tuple[str, int, int, str]) -> bytes:
    """A white image with lines: text, height from the top, font size and color."""
    image = Image.new("RGB", (1024, 1024), "white")
    pen = ImageDraw.Draw(image)
    for text, top, px, color in lines:
        pen.text((160, top), text, color, ImageFont.load_default(px))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


@pytest.mark.parametrize(
    ("between", "verdict"), [((), Verdict.PASS), ((("By paying you accept", 600, 40, "black"),), Verdict.FAIL)]
)
def test_a_note_between_the_total_and_the_button_fails_whatever_the_judge_says(
    api: FakeAPI, run: Any, between: tuple[tuple[str, int, int, str], ...], verdict: Verdict
) -> None:
    api.script.judge(best)
    screen = drawn(
        ("Your order", 100, 60, "black"), ("Total", 480, 50, "black"), *between, ("Confirm and pay", 760, 60, "black")
    )
    flags = ("--case", "total_above_action", "--model", "*quality=high,size=1024x1024")
    _, _, _, (record,) = run("ui_mockups", *flags, image=screen)
    assert (record.verdict, record.failed_rules) == (verdict, ("order",) if between else ())
    assert ("between" in record.reasons["order"]) is bool(between)


@pytest.mark.parametrize(("color", "failed"), [("black", ()), ("#c9c9c9", ("contrast",))])
def test_a_faint_notice_fails_whatever_the_judge_says(
    api: FakeAPI, run: Any, color: str, failed: tuple[str, ...]
) -> None:
    api.script.judge(best)
    notice = drawn(
        ("Millbrook Library", 150, 90, "black"), ("Quiet Hour", 450, 90, color), ("Daily at 10", 750, 90, "black")
    )
    flags = ("--case", "high_contrast", "--model", "*quality=high,size=1024x1024")
    _, _, _, (record,) = run("marketing", *flags, image=notice)
    assert record.failed_rules == failed
    assert record.scores["text_rendering_ocr"] is True, "OCR reads it"
