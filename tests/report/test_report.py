"""The content of a report, without a browser: its files, its data, its plots, and what it rejects."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from record_factory import record
from report_runs import LABELS, demo, grader, page_data, png, report, run_info, save_run
from typer.testing import CliRunner

from visioneval import CellError, Metric, UsageError, Verdict, read_info
from visioneval.analysis.scores import verdict_rate
from visioneval.analysis.summary.counts import count
from visioneval.analysis.summary.summary import summarize
from visioneval.cli import app
from visioneval.graders.gecko import GeckoGrader
from visioneval.report.html.images import EmbeddedImages, FolderImages
from visioneval.report.html.overview import CellNumbers, distributions, time_section
from visioneval.report.html.page_data import as_block, as_json, as_script, command_of
from visioneval.report.html.pages import BINS, coordinates, histogram, verdict_bar
from visioneval.report.html.report import GalleryFilters, read_slim
from visioneval.report.sections import Bars, Interval, quoted


def test_a_report_is_a_folder_of_static_files(tmp_path: Path) -> None:
    created = report(demo(tmp_path))
    names = {path.relative_to(created.parent).as_posix().split("/")[0] for path in created.parent.rglob("*")}
    assert names == {"index.html", "report.js", "report.css", "data", "thumbs", "images"}
    page = created.read_text(encoding="utf-8")
    assert not re.search(r"https?://", page)
    assert not re.search(r"\son[a-z]+=|style=", page)
    index = page_data(created.parent, "index")
    assert isinstance(index, dict)
    assert index["cells"]["verdict"] == "PFPF"
    assert index["cells"]["scores"]["look.cer"] == [None, None, 0.25, 0.25]


def test_thumbnails_are_cached(tmp_path: Path) -> None:
    run = demo(tmp_path)
    first = {path: path.stat().st_mtime_ns for path in (report(run).parent / "thumbs").iterdir()}
    (run / "artifacts/sign/0/0.png").write_bytes(png("white", (200, 100)))
    second = {path: path.stat().st_mtime_ns for path in (report(run).parent / "thumbs").iterdir()}
    assert len(first) == 4
    assert first.items() <= second.items()
    assert len(second) == 5


def test_uses_the_last_record_of_a_cell(tmp_path: Path) -> None:
    run = demo(tmp_path)
    lines = (run / "results.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    later = lines[0].replace("nothing to mend", "looked at again")
    (run / "results.jsonl").write_text("".join([*lines, later, lines[1][:40]]), encoding="utf-8")
    created = report(run)
    details = page_data(created.parent, "details-0")
    index = page_data(created.parent, "index")
    assert isinstance(details, list)
    assert isinstance(index, dict)
    assert len(details) == index["count"] == 4
    assert details[0]["record"]["reasons"]["look"] == "looked at again"


def test_reports_a_single_model_run(tmp_path: Path) -> None:
    run = demo(tmp_path)
    done = CliRunner().invoke(app, ["report", f"demo-run@{LABELS[1]}", "--runs", str(run.parent)])
    assert done.exit_code == 0
    index = page_data(run / "report", "index")
    assert isinstance(index, dict)
    assert index["models"] == [LABELS[1]]
    assert index["cells"]["verdict"] == "FF"


def test_refuses_a_folder_with_other_files(tmp_path: Path) -> None:
    run = demo(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="contains files that are not part of a report"):
        report(run, out=tmp_path / "mine")
    with pytest.raises(UsageError, match="is a file"):
        report(run, out=tmp_path / "mine" / "thesis.txt")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_shows_a_run_without_cells(tmp_path: Path) -> None:
    run = save_run(tmp_path, run_info(tmp_path, {"one": {}}), ())
    page = report(run).read_text(encoding="utf-8")
    assert "0</b> of 2 cells" in page


def test_command_reruns_one_cell_without_trust_flags(tmp_path: Path) -> None:
    arguments = (
        "run",
        "s.yaml",
        "--var",
        "mood=loud and clear",
        "--trust-suite",
        "--judge=default=openai:x",
        "--note",
        "--var",
    )
    info = run_info(tmp_path, {"one": {}}, suite_path="--trust-suite", command_line=arguments)
    cell = record(test_id="one", model_label="m;rm -rf ~")
    assert command_of(info, cell) == (
        "visioneval run ./--trust-suite --case one --model 'm;rm -rf ~' --var 'mood=loud and clear' --judge default=openai:x"
    )


def test_command_keeps_every_flag_that_the_cell_needs(tmp_path: Path) -> None:
    """Those that trust, read keys or lift limits only where the reader trusts the run."""
    needed = ("--samples", "5", "--runs", "out", "--cache=shared", "--var", "a=b")
    typed = ("--env-file", ".env", "run", "s.yaml", *needed, "--limit", "3", "--trust-suite", "--max-megapixels", "90")
    info = run_info(tmp_path, {"one": {}}, suite_path="s.yaml", command_line=typed)
    cell = record(test_id="one", model_label="m")
    kept = "--case one --model m --samples 5 --runs out --cache shared --var a=b"
    assert command_of(info, cell) == f"visioneval run s.yaml {kept}"
    assert command_of(info, cell, trust=True) == (
        f"visioneval --env-file .env run s.yaml {kept} --trust-suite --max-megapixels 90"
    )


def test_overview_begins_with_one_failure_of_each_reason(tmp_path: Path) -> None:
    info = run_info(tmp_path, {name: {} for name in "abcde"}, suite_path="s.yaml")
    cells = [record(test_id=name, verdict="FAIL", failed_rules=["look"], reasons={"look": name}) for name in "abc"]
    cells.append(record(test_id="d", verdict="FAIL", failed_rules=["look.score >= 3"], scores={"look.score": 1}))
    cells.append(record(test_id="e"))
    text = report(save_run(tmp_path, info, cells)).read_text(encoding="utf-8")
    tiles = re.findall(r'#cell\?case=(\w)&amp;at=m&amp;sample=0"><span class="thumb"><span class="none">no image', text)
    assert tiles == ["a", "d", "b", "c"]
    assert text.index("What did not pass") < text.index("<h2>Gates")


def test_the_first_reason_is_that_of_the_failed_rule(tmp_path: Path) -> None:
    reasons = {"calm": "it is calm", "look": "it spills"}
    cell = record(verdict="FAIL", failed_rules=["look"], reasons=reasons, scores={"calm": True, "look": False})
    page = report(save_run(tmp_path, run_info(tmp_path, {"one": {}}), [cell]))
    assert page_data(page.parent, "texts")["why"] == ["it spills\nit is calm"]


def test_an_output_that_stayed_at_its_address_is_not_called_missing(tmp_path: Path) -> None:
    error = CellError(stage="generate", kind="timeout", message="late")
    cells = [record(), record(test_id="two", status="error", verdict="ERROR", error=error)]
    page = report(save_run(tmp_path, run_info(tmp_path, {"one": {}, "two": {}}), cells))
    outputs = [cell["output"] for cell in page_data(page.parent, "details-0")]
    assert outputs[1] is None
    assert outputs[0]["why"].startswith("not downloaded: ")


def test_data_cannot_end_its_script() -> None:
    odd = {"a": "</script><script>\u2028\u2029<!--\ud800"}
    for text in (
        as_json(odd),
        as_script("index", as_json(odd)),
        as_block("index", as_json(odd)).split(">", 1)[1].rsplit("<", 1)[0],
    ):
        assert "<" not in text
        assert "\u2028" not in text
        text.encode()
    assert json.loads(as_json({"a": "</b>"})) == {"a": "</b>"}


def test_inputs_outside_the_suite_folder_need_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "secret.png").write_bytes(png())
    monkeypatch.chdir(tmp_path / "suite")
    image_files = EmbeddedImages(tmp_path, tmp_path / "suite", trust=False)
    assert "outside" in image_files.input("../secret.png")["why"]
    assert (
        EmbeddedImages(tmp_path, tmp_path / "suite", trust=True)
        .input("../secret.png")["src"]
        .startswith("data:image/webp")
    )


def test_symlinks_out_of_the_run_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png())
    run = tmp_path / "run"
    (run / "artifacts").mkdir(parents=True)
    (run / "artifacts" / "a.png").symlink_to(tmp_path / "secret.png")
    assert EmbeddedImages(run, tmp_path, trust=False).run_image("artifacts/a.png")["why"] == "it is outside the run"
    assert EmbeddedImages(run, tmp_path, trust=False).thumb("artifacts/a.png") == ""


def test_converts_formats_that_browsers_do_not_support(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), "red").save(tmp_path / "base.tif")
    (tmp_path / "out").mkdir()
    (tmp_path / "words.png").write_text("no image")
    image_files = FolderImages(tmp_path, tmp_path, tmp_path / "out", trust=True)
    shown = image_files.input("base.tif")["src"]
    assert shown.endswith(".png")
    assert (tmp_path / "out" / shown).read_bytes().startswith(b"\x89PNG")
    assert "not a supported image" in image_files.input("words.png")["why"]
    assert not list((tmp_path / "out" / "images").glob("*words*"))


def test_a_mask_is_a_tint_of_its_inside(tmp_path: Path) -> None:
    demo(tmp_path)
    (tmp_path / "out").mkdir()
    image_files = FolderImages(tmp_path, tmp_path, tmp_path / "out", trust=True)
    with Image.open(tmp_path / "out" / image_files.input("assets/mask.png", mask=True)["src"]) as handle:
        tint = handle.copy()
    assert tint.mode == "RGBA"
    assert tint.getpixel((45, 30))[3] == 128  # type: ignore[index]
    assert tint.getpixel((2, 2))[3] == 0  # type: ignore[index]


def test_index_distinguishes_unmeasured_from_not_applicable(tmp_path: Path) -> None:
    info = run_info(tmp_path, {"one": {}, "two": {}})
    run = save_run(tmp_path, info, [record(model_label=LABELS[0], scores={"look": None, "look.score": 1.23456789})])
    scores = page_data(report(run).parent, "index")["cells"]["scores"]
    assert scores == {"look": [None], "look.score": [1.2346], "look.cer": [""]}


def test_overview_shows_costs_reuse_and_stop_reason(tmp_path: Path) -> None:
    info = run_info(tmp_path, {"one": {}})
    cells = [
        record(model_label=LABELS[0], artifact_path="artifacts/a.png", cached=True, cost_usd=0.0),
        record(model_label=LABELS[1], cost_usd=12.5),
        record(model_label=LABELS[1], sample_index=1),
    ]
    run = save_run(tmp_path, info, cells)
    ended = {"stopped_by": "budget", "reused_since": "2025-01-01T10:00:00+00:00"}
    (run / "run.json").write_text(read_info(run).model_copy(update=ended).model_dump_json(), encoding="utf-8")
    expected = report(run).read_text(encoding="utf-8")
    for fact in (
        "Stopped by its budget",
        "1 image from the cache, oldest from 2025-01-01 10:00 UTC",
        "<b>\u2265 12.50</b> USD",
    ):
        assert fact in expected


def test_a_short_integer_scale_has_a_bar_per_step(tmp_path: Path) -> None:
    info = run_info(tmp_path, {"one": {}})
    cells = [record(model_label=LABELS[0], sample_index=at, scores={"look.score": at}) for at in range(6)]
    numbers = CellNumbers()
    plots = distributions(summarize(info, numbers.counted(cells)), numbers)
    assert ("look.score", LABELS[1]) not in plots
    assert plots["look.score", LABELS[0]] == Bars((1.0,) * 6, ("0", "5"), is_good=True)


@pytest.mark.parametrize("kind", ["bool", "number"])
def test_only_bars_of_metrics_whose_higher_values_are_better_are_good(tmp_path: Path, kind: str) -> None:
    metrics = {better: Metric(type=kind, better=better) for better in ("higher", "lower", "none")}
    info = run_info(tmp_path, {"one": {}}).model_copy(update={"metrics": metrics})
    cells = [record(model_label=LABELS[0], scores=dict.fromkeys(metrics, 1 if kind == "number" else True))]
    numbers = CellNumbers()
    plots = distributions(summarize(info, numbers.counted(cells)), numbers)
    assert {better: plots[better, LABELS[0]].is_good for better in metrics} == {
        "higher": True,
        "lower": False,
        "none": False,
    }


def test_bars_of_failure_tags_are_gray(tmp_path: Path) -> None:
    cells = [record(model_label=LABELS[0], scores={"look": True}, failure_tags=["typo"], verdict="FAIL")]
    text = report(save_run(tmp_path, run_info(tmp_path, {"one": {}}), cells)).read_text(encoding="utf-8")
    rows = {row.partition('metric=look">')[1] or row.partition("failure=typo")[1]: row for row in text.split("<tr>")}
    assert '<rect class="bar" ' in rows['metric=look">']
    assert '<rect class="bar neutral" ' in rows["failure=typo"]


def test_times_by_model_run_and_by_grader() -> None:
    cells = [record(model_label="m", seconds=second, graders=[grader()]) for second in (1, 2, 9)]
    numbers = CellNumbers()
    assert list(numbers.counted(cells)) == cells
    (section,) = time_section("Grading", "grader", numbers.grading)
    ((*row, _),) = section.rows
    assert row == [quoted("look"), "3", "0.50", "0.50", "0.50"]


def test_histogram_counts_every_value() -> None:
    bars = histogram([0, 0, 0, 5, 2.5], 0, 5)
    third = pytest.approx(1 / 3, abs=0.01)
    assert {at: height for at, height in enumerate(bars) if height} == {0: 1, BINS // 2: third, BINS - 1: third}
    assert histogram([3, 3], 3, 3) == (1, *[0] * (BINS - 1))


def test_plots_are_within_their_axis(tmp_path: Path) -> None:
    rate = verdict_rate([("one", Verdict.PASS), ("two", Verdict.FAIL)])
    points = coordinates(Interval(rate.low, rate.value, rate.high))
    assert 6 <= points["low"] < points["value"] < points["high"] <= 194
    assert points["marks"] == [6, 100, 194]
    assert coordinates(Interval(None, None, None))["value"] is None
    lean = read_slim(run := demo(tmp_path), read_info(run))
    counts = count(lean.records)
    assert verdict_bar(counts, counts.cells) == [("pass", 0, 300), ("fail", 300, 300)]
    assert verdict_bar(counts, 2 * counts.cells) == [("pass", 0, 150), ("fail", 150, 150)], "what a run lacks is empty"


def test_questions_by_type(tmp_path: Path) -> None:
    asked = [
        {"id": "q1", "question": "Is there a sun?", "type": "object", "answer": "yes", "score": 1},
        {"id": "q2", "question": "Is it red?", "type": "colour", "answer": "no", "score": 0},
    ]
    info = run_info(tmp_path, {"one": {}})
    gecko = GeckoGrader(key="gecko", type="gecko", questions="q.json")
    info = info.model_copy(update={"suite": info.suite.model_copy(update={"graders": (gecko,)})})
    cells = [
        record(model_label=LABELS[0], graders=[grader("gecko", questions=asked, source="pinned", replies=["long"])])
    ]
    run = save_run(tmp_path, info, cells)
    expected = report(run).read_text(encoding="utf-8")
    assert "Questions by type (gecko)" in expected
    assert re.search(r"colour</th>\s*<td class=\"number value-text\">0 % \[0, 79.3\] \(1\)", expected)


def test_a_gallery_of_some_cells_says_what_it_leaves_out(tmp_path: Path) -> None:
    run = demo(tmp_path, samples=2)
    target = tmp_path / "three"
    result = CliRunner().invoke(app, ["report", str(run), "-o", str(target), "--max-cells", "3"])
    assert result.exit_code == 0, result.output
    left_out = "The gallery has 3 of 8 cells, those that did not pass first"
    assert left_out in " ".join(result.stderr.split())
    page = (target / "index.html").read_text(encoding="utf-8")
    assert left_out in page
    assert "<b>4</b> fail" in page  # the overview counts all cells
    index, details = page_data(target, "index"), page_data(target, "details-0")
    assert isinstance(index, dict)
    assert isinstance(details, list)
    assert (index["count"], index["cells"]["verdict"]) == (3, "FFF")
    assert [cell["record"]["verdict"] for cell in details] == ["FAIL"] * 3


def test_a_gallery_can_have_some_cases_and_tags_only(tmp_path: Path) -> None:
    run = demo(tmp_path)
    info = read_info(run)
    assert {cell.test_id for cell in read_slim(run, info, None, GalleryFilters(cases=("fl*",))).gallery} == {"flyer"}
    slim = read_slim(run, info, "steady", GalleryFilters(tags=("edit",)))
    assert [cell.cell for cell in slim.gallery] == [("sign", "steady", 0)]
    assert (slim.left_out or "").startswith("The gallery has 1 of 2 cells; the overview counts all.")
    cut = read_slim(run, info, None, GalleryFilters(cases=("fl*",), max_cells=1))
    assert (cut.left_out or "").startswith(
        "The gallery has 1 of 2 cells that --case and --tag choose, those that did not pass first; the overview"
    )
    assert read_slim(run, info).left_out is None
    with pytest.raises(UsageError, match="no cell of the run is of these cases and tags"):
        read_slim(run, info, None, GalleryFilters(cases=("none",)))
