"""The command ``probe``: which perturbations graders catch, its gates, and what cannot be probed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from fake_api import FakeAPI, JudgeRequest
from PIL import Image, ImageDraw
from suite_runner import PRICES, SuiteRunner
from typer.testing import CliRunner, Result

import visioneval as ve
from visioneval import TestCase, UsageError, Verdict
from visioneval.analysis.probe import (
    MinDetection,
    ProbedCell,
    check_gates,
    exit_code,
    parse_min_detection,
    rate_of,
    rates_of,
    weakest_caught,
)
from visioneval.api.options import run_options
from visioneval.cli import app
from visioneval.errors import ClosingError
from visioneval.graders.measures import Measure
from visioneval.probing import prepare
from visioneval.probing.kinds import KINDS, PROMPT_KINDS, Exchange, exchange_of, matching
from visioneval.probing.prepare import ProbeRequest, gradings
from visioneval.probing.probe import run_probe
from visioneval.probing.subject import CannotPerturbError
from visioneval.providers.mock.text import font
from visioneval.running.cells.measurements import Measurements
from visioneval.running.cells.services import Listener
from visioneval.suite.case import Expect, ExpectText

pytestmark = pytest.mark.slow

NAMES = [kind.name for kind in KINDS]
SIZE = (160, 120)


def base_image() -> Image.Image:
    """Colored bars with some texture, so that perturbations show."""
    image = Image.new("RGB", SIZE, (210, 200, 180))
    pen = ImageDraw.Draw(image)
    for at in range(0, 160, 13):
        pen.rectangle((at, 10 + at // 4, at + 7, 110), (at, 120, 200 - at))
    return image


def edited() -> Image.Image:
    """The base with a dark square inside the mask."""
    image = base_image()
    ImageDraw.Draw(image).rectangle((60, 40, 90, 70), (30, 20, 20))
    return image


class Folder:
    """A suite about existing edits of a base image, and its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        base_image().save(path / "base.png")
        edited().save(path / "out.png")
        self.mask((60, 40, 90, 70))

    def mask(self, box: tuple[int, int, int, int]) -> None:
        """Writes the mask, with this box inside."""
        mask = Image.new("RGBA", SIZE, (0, 0, 0, 255))
        ImageDraw.Draw(mask).rectangle(box, (0, 0, 0, 0))
        mask.save(self.path / "mask.png")

    def suite(self, **changes: Any) -> Path:
        cases = [
            {
                "id": name,
                "prompt": "Darken it.",
                "images": ["base.png"],
                "mask": "mask.png",
                "outputs": {"m": ["out.png"]},
            }
            for name in ("one", "two")
        ]
        suite: dict[str, Any] = {
            "name": "edits",
            "cases": cases,
            "models": [{"provider": "files"}],
            "graders": [{"key": "place", "type": "locality"}, {"key": "file", "type": "properties"}],
            "verdict": ["place", "file"],
            **changes,
        }
        path = self.path / "suite.yaml"
        path.write_text(json.dumps(suite))
        return path

    def probe(self, *arguments: str | Path, source: str | Path = "suite.yaml") -> Result:
        words = ["probe", str(source), *map(str, arguments)]
        done = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def kinds(*names: str) -> list[str]:
    return [word for name in names for word in ("--kinds", name)]


def test_a_suite_is_probed_on_its_existing_outputs(folder: Folder) -> None:
    folder.suite()
    done = folder.probe("--json", *kinds("pixels.patch", "pixels.blank", "pixels.format", "harmless.png"))
    assert done.exit_code == 0, done.output
    findings = json.loads(done.stdout)
    rates = {
        (rate["kind"], rate["strength"], rate["metric"]): (rate["failed"], rate["outputs"])
        for rate in findings["detections"]
    }
    assert rates["pixels.patch", "48 px", None] == rates["pixels.patch", "24 px", "place"] == (2, 2)
    assert rates["pixels.patch", "48 px", "file"] == (0, 2)
    assert rates["pixels.blank", "", "file"] == (2, 2)
    assert [(rate["failed"], rate["outputs"]) for rate in findings["false_alarms"] if rate["metric"] is None] == [
        (0, 2),
        (0, 2),
    ]
    assert (findings["outputs"], findings["cases"], findings["metrics"]) == (2, 2, {"place": "place", "file": "file"})
    weakest = {(entry["kind"], entry["metric"]): entry["strength"] for entry in findings["weakest"]}
    assert weakest["pixels.blank", "file"] == ""
    assert weakest["pixels.patch", "file"] is None
    assert findings["notes"] == ["not applied to 2 outputs: pixels.format: its case expects no format"]


def test_the_same_probe_twice_is_the_same_and_another_seed_is_not(folder: Folder) -> None:
    folder.suite()
    words = ["--json", *kinds("pixels.patch", "pixels.erased", "pixels.noise")]
    first, again = folder.probe(*words), folder.probe(*words)
    assert first.stdout == again.stdout
    results = [
        ve.probe("suite.yaml", kinds=["pixels.stroke"], seed=seed, with_images=True, graders=["file"])
        for seed in (0, 0, 1)
    ]
    assert results[0] == results[1]
    assert results[0].images != results[2].images


def test_selecting_other_kinds_changes_no_result(folder: Folder) -> None:
    folder.suite()
    result = ve.probe("suite.yaml", kinds=["pixels.stroke"], limit=1)
    assert repr(result).startswith("ProbeResult(suite.yaml: 1 output of 1 case, ")
    assert len(repr(result)) < 120
    alone = result.findings.detections
    both = ve.probe("suite.yaml", kinds=["pixels.noise", "pixels.stroke"], limit=1).findings.detections
    assert alone == tuple(rate for rate in both if rate.kind == "pixels.stroke")


def test_a_run_is_probed_on_the_outputs_that_passed(folder: Folder) -> None:
    base_image().save("unchanged.png")
    cases = [
        {"id": name, "prompt": "x", "images": ["base.png"], "mask": "mask.png", "outputs": {"m": [output]}}
        for name, output in (("good", "out.png"), ("bad", "unchanged.png"))
    ]
    folder.suite(cases=cases)
    assert CliRunner().invoke(app, ["run", "suite.yaml", "--run-id", "r", "--no-fail"]).exit_code == 0
    done = folder.probe("--json", *kinds("pixels.blank"), source="r")
    findings = json.loads(done.stdout)
    assert (findings["source"], findings["outputs"]) == ("r", 1)
    assert findings["notes"] == ["left out 1 cell that did not pass with an output"]
    assert folder.probe(*kinds("pixels.blank"), source="r@m").exit_code == 0
    nothing = folder.probe("--case", "bad", source="r")
    assert nothing.exit_code == 2
    assert "none of the selected cells passed with an image" in nothing.output
    Path("runs/r/artifacts/good/m/0.png").write_bytes(Path("base.png").read_bytes())
    changed = folder.probe(*kinds("pixels.blank"), source="r")
    assert changed.exit_code == 3
    assert "it was changed after it was generated" in changed.output
    assert list(Path("runs").iterdir()) == [Path("runs/r")]  # a probe leaves no run


def test_references_and_inputs_stand_in_for_outputs(folder: Folder) -> None:
    cases = [
        {"id": "like", "prompt": "x", "reference": "out.png"},
        {"id": "edit", "prompt": "x", "images": ["base.png"]},
    ]
    graders = [{"key": "like", "type": "reference"}, {"key": "file", "type": "properties"}]
    folder.suite(cases=cases, graders=graders, models=[{"provider": "mock"}], verdict=["like", "file"])
    findings = json.loads(folder.probe("--json", *kinds("pixels.blank")).stdout)
    counts = {rate["metric"]: (rate["failed"], rate["outputs"]) for rate in findings["detections"]}
    assert counts == {None: (2, 2), "like": (1, 1), "file": (2, 2)}
    folder.suite(
        cases=[{"id": "new", "prompt": "x"}], graders=graders[1:], models=[{"provider": "mock"}], verdict=["file"]
    )
    done = folder.probe()
    assert done.exit_code == 2
    assert "run it with 'visioneval run', and probe that run" in done.output


def test_gates_hold_the_cautious_bound(folder: Folder) -> None:
    folder.suite()
    done = folder.probe(*kinds("pixels.blank", "harmless.png"), "--min-detection", "pixels.blank:0.3")
    assert done.exit_code == 0, done.output
    done = folder.probe(*kinds("pixels.blank", "harmless.png"), "--min-detection", "pixels:0.9")
    assert done.exit_code == 1
    assert re.search(r"FAILED --min-detection pixels:0.9: caught 2 of 2 in 2 cases: 1, at least 0.34", done.output)
    done = folder.probe(*kinds("pixels.blank", "harmless.png"), "--max-false-alarm", "0.02")
    assert done.exit_code == 1
    assert re.search(r"failed 0 of 2 in 2 cases: 0, at most 0.65", done.output)
    done = folder.probe(*kinds("pixels.blank"), "--min-detection", "copy.letter:0.9")
    assert done.exit_code == 3
    assert "this perturbation could not be applied" in done.output


def test_reports_show_the_missed_damage(folder: Folder) -> None:
    folder.suite()
    words = [*kinds("pixels.size", "pixels.blank"), "--html", "p.html", "--markdown", "p.md"]
    done = folder.probe(*words)
    assert "pixels.size -50 %" in done.output
    page, text = Path("p.html").read_text(), Path("p.md").read_text()
    assert page.count('class="missed-pair"') == 6
    assert page.count("data:image/webp;base64,") == 12
    assert "<script" not in page
    assert "2 of 8 perturbed outputs caught" in page
    assert re.findall(r"(pixels\.\w+): (\d+) missed", page.replace("<wbr>", "")) == [("pixels.size", "6")]
    assert "| `pixels.blank` | 2 | 1.00 [0.34, 1.00] |" in text
    assert "Missed perturbations: 6" in text
    assert "`pixels.size -5 %: one on m, sample 0`" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: folder.mask((2, 2, 157, 117)), "has no verdict as it is"),
        (lambda _: Image.new("RGB", (1, 1)).save("out.png"), "smaller than 32 x 32 pixels"),
        (lambda _: Image.new("1", (10_000, 10_000)).save("out.png"), "the limit of 50 million pixels"),
        (lambda _: Image.new("1", (5000, 4000)).save("out.png"), "more than 16 megapixels"),
        (lambda _: edited().save("out.png", "GIF"), "its format is gif, which cannot be stored again unchanged"),
        (lambda _: Path("out.png").write_bytes(b"no image"), "not a supported image"),
        (lambda _: Path("out.png").unlink(), "there is no such file|No such file"),
        (lambda _: base_image().save("out.png"), "does not pass as it is: place"),
    ],
)
def test_an_output_that_cannot_be_probed_is_one_line(folder: Folder, change: Any, message: str) -> None:
    folder.suite(graders=[{"key": "place", "type": "locality"}], verdict=["place"])
    change(folder)
    done = folder.probe(*kinds("pixels.patch"))
    assert done.exit_code == 3, done.output
    assert len(re.findall(rf"skipped 2 outputs: .*(?:{message})", done.output)) == 1, done.output
    assert "no perturbation could be applied" in done.output


def test_a_mask_over_nearly_everything_leaves_no_place(folder: Folder) -> None:
    folder.mask((4, 4, 156, 116))
    folder.suite(graders=[{"key": "file", "type": "properties"}], verdict=["file"])
    done = folder.probe(*kinds("pixels.patch", "pixels.blank"))
    assert "not applied to 2 outputs: pixels.patch: its mask covers all of it" in done.output
    assert "pixels.blank" in done.output


def test_graders_that_compare_outputs_are_left_out_and_say_what_they_compare(folder: Folder) -> None:
    path = folder.suite(
        models=[{"provider": "files", "label": label} for label in ("m", "n")],
        graders=[
            {"key": "place", "type": "locality"},
            {"key": "spread", "type": "diversity"},
            {"key": "choice", "type": "pairwise"},
        ],
        judges={"default": {"provider": "openai", "model": "gpt-5.4"}},
        verdict=["place"],
    )
    suite = json.loads(path.read_text())
    for case in suite["cases"]:
        case["outputs"]["n"] = ["out.png"]
    path.write_text(json.dumps(suite))
    done = folder.probe(*kinds("pixels.patch"))
    assert done.exit_code == 0, done.output
    assert "left out the grader spread: it compares the samples of a case" in done.output
    assert "left out the grader choice: it compares pairs" in done.output


def test_graders_that_cannot_be_probed_are_named(folder: Folder) -> None:
    graders = [
        {"key": "place", "type": "locality"},
        {"key": "file", "type": "properties"},
        {"key": "copy", "type": "text"},
        {"key": "nice", "type": "rubric", "metrics": {"good": {"type": "pass_fail", "description": "good"}}},
    ]
    judges = {"default": {"provider": "openai", "model": "gpt-5.4"}}
    folder.suite(graders=graders, judges=judges, verdict=["good", {"rule": "place", "level": "warn"}])
    done = folder.probe(*kinds("pixels.patch"))
    assert done.exit_code == 0, done.output
    assert "left out the grader nice: it asks a judge (--judges probes it)" in done.output
    assert "the grader file can catch nothing: no rule reads its metrics" in done.output
    assert "the grader copy can catch nothing: no probed case has anything for it to measure" in done.output
    assert re.search(r"pixels.patch 48 px +2 +1.00 \[0.34, 1.00\] +1.00", done.output)  # a rule that warns counts
    folder.suite(graders=graders[3:], judges=judges, verdict=["good"])
    done = folder.probe()
    assert done.exit_code == 2
    assert "no grader to probe: left out the grader nice" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kinds", "pixel.patch"], r"no kind of change 'pixel.patch'"),
        (["--kinds", "prompt.number"], r"only judges read prompts: add --judges"),
        (["--min-detection", "copy.letter"], r"write KIND:RATE"),
        (
            ["--min-detection", "copy.lettr:0.9"],
            r"no kind of perturbation 'copy.lettr' \(did you mean 'copy.letter'\?\)",
        ),
        (["--min-detection", "harmless.jpeg:0.9"], r"no kind of perturbation 'harmless.jpeg'"),
        (["--min-detection", "copy.letter:9"], r"'9' is not a rate from 0 to 1"),
        (["--min-detection", "pixels@12:0.9"], r"write KIND@STRENGTH:RATE"),
        (["--max-false-alarm", "2"], r"max-false-alarm"),
    ],
)
def test_wrong_usage(folder: Folder, words: list[str], message: str) -> None:
    folder.suite()
    done = folder.probe(*words)
    assert done.exit_code == 2
    assert re.search(message, done.output), done.output


def test_the_api_checks_its_settings(folder: Folder) -> None:
    folder.suite()
    with pytest.raises(UsageError, match="max-false-alarm 2: must be from 0 to 1"):
        ve.probe("suite.yaml", max_false_alarm=2)
    with pytest.raises(UsageError, match="must be lists"):
        ve.probe("suite.yaml", kinds="pixels")
    with pytest.raises(UsageError, match="no such run"):
        ve.probe("nothing")


def test_an_interrupted_probe_says_so(folder: Folder) -> None:
    options = run_options()
    lines: list[str] = []
    listener = Listener(say=lines.append, started=lambda interrupt: interrupt())
    result = run_probe(ProbeRequest(str(folder.suite()), ("pixels.blank",)), options.suite, options.calls, listener)
    assert (result.exit_code, result.findings.outputs) == (130, 0)
    assert any("stopping" in line for line in lines)


def test_an_interrupted_probe_keeps_what_it_has_graded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = itertools.count()

    def run(self: Measurements, measure: Measure[Any]) -> Any:
        if next(measured) >= 8:
            raise ClosingError("the run is being stopped")
        return measure.run()

    monkeypatch.setattr(Measurements, "_run", run)
    options = run_options()
    request = ProbeRequest(str(folder.suite()), ("pixels",))
    result = run_probe(request, options.suite, options.calls, Listener(say=print))
    assert result.exit_code == 130
    assert result.findings.outputs > 0


def test_copy_damage_is_caught_by_the_text_grader(folder: Folder, recorded_readings: None) -> None:
    image = Image.new("RGB", (320, 120), (240, 236, 220))
    ImageDraw.Draw(image).text((40, 60), "Morning Market", (60, 20, 20), font(30), "ls")
    image.save("flyer.png")
    case = {
        "id": "flyer",
        "prompt": "A flyer",
        "expect": {"text": {"required": ["Morning Market"]}},
        "outputs": {"m": ["flyer.png"]},
    }
    folder.suite(cases=[case], graders=[{"key": "copy", "type": "text"}], verdict=["copy"])
    names = ("copy.erased", "copy.letter.dropped", "copy.letter.replaced", "copy.added")
    findings = ve.probe("suite.yaml", kinds=names).findings
    assert {rate.kind: rate.failed for rate in findings.detections if rate.metric == "copy"} == dict.fromkeys(
        names[:3], 1
    )
    assert findings.notes == ("not applied to 1 output: copy.added: its case allows extra text",)


def test_an_image_without_text_takes_no_copy_damage(folder: Folder) -> None:
    folder.suite()
    findings = ve.probe("suite.yaml", kinds=["copy.erased", "pixels.blank"]).findings
    assert findings.notes == ("not applied to 2 outputs: copy.erased: no text grader read text in it",)
    assert {rate.kind for rate in findings.detections} == {"pixels.blank"}


@pytest.fixture
def api() -> Iterator[FakeAPI]:
    with FakeAPI() as server:
        yield server


def rubric_suite(folder: Folder, runner: SuiteRunner) -> None:
    runner.write()
    suite = json.loads(Path("suite.yaml").read_text())
    case = {"id": "cats", "prompt": "Two cats on a red sofa", "outputs": {"m": ["out.png"]}}
    suite |= {"cases": [case], "models": [{"provider": "files"}], "prices": {JUDGE: PRICES[JUDGE]}}
    Path("suite.yaml").write_text(json.dumps(suite))


@pytest.fixture
def judged(runner: SuiteRunner) -> SuiteRunner:
    rubric_suite(Folder(runner.folder), runner)
    return runner


JUDGE = "openai:gpt-5.4"
PROBE = ("probe", "suite.yaml", "--judges", *kinds("prompt", "pixels.flip", "harmless.png"))


def test_a_judge_that_likes_everything_is_seen(judged: SuiteRunner, api: FakeAPI) -> None:
    done = judged(*PROBE, "--json", "--cache", "cache")
    assert done.exit_code == 0, done.output
    findings = json.loads(done.stdout)
    missed = {(entry["kind"], entry["detail"].partition(" -> ")[0]) for entry in findings["missed"]}
    assert missed == {("prompt.number", "two"), ("prompt.color", "red"), ("prompt.object", "sofa"), ("pixels.flip", "")}
    assert {rate["failed"] for rate in findings["detections"]} == {0}
    assert findings["notes"] == [
        "not applied to 1 output: prompt.place: its prompt names no place to exchange",
        "not applied to 1 output: prompt.copy: its prompt names no word of its copy",
    ]
    asked = judged.called[1]
    again = judged(*PROBE, "--json", "--cache", "cache")
    assert again.stdout == done.stdout
    assert judged.called[1] == asked  # from the cache
    offline = judged(*PROBE, "--json", "--cache", "cache", "--offline")
    assert offline.stdout == done.stdout


def test_a_judge_that_reads_prompts_catches_them(judged: SuiteRunner, api: FakeAPI) -> None:
    def answer(request: JudgeRequest) -> dict[str, Any]:
        return {"nice": "Two cats on a red sofa" in request.text, "reason": "so it is", "verdict": "PASS"}

    api.script.judge(answer)
    findings = json.loads(judged(*PROBE, "--json").stdout)
    caught = {rate["kind"] for rate in findings["detections"] if rate["metric"] == "nice" and rate["failed"] == 1}
    assert caught == {"prompt.number", "prompt.color", "prompt.object"}


def test_a_budget_stops_the_probe(judged: SuiteRunner) -> None:
    done = judged(*PROBE, "--budget", "0.03", "--cache", "cache")
    assert done.exit_code == 3, done.output
    assert "incomplete: the budget" in done.output
    assert judged.called[1] <= 3


def test_the_cost_is_estimated_before_a_judge_is_asked(judged: SuiteRunner) -> None:
    done = judged(*PROBE, "--budget", "0.03", "--cache", "cache")
    lines = done.stderr.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("cost if every perturbation can be applied"))
    assert lines[start - 1] == "probing look with up to 7 changes of each of 1 output"
    assert lines[start].endswith("no answer is cached: about 0.08 USD")
    assert lines[start + 1].strip() == "look by default: 8 calls, 0.0800 USD, from the suite's prices"
    assert "this is over the budget of 0.03 USD: the probe stops when the budget is used up" in lines[start + 2]
    assert not [line for line in lines[:start] if line.startswith("probed ")]
    within = judged(*PROBE, "--budget", "1", "--cache", "cache")
    assert "over the budget" not in within.stderr


def test_an_estimate_that_is_no_upper_bound_says_what_is_unknown(judged: SuiteRunner) -> None:
    suite = json.loads(Path("suite.yaml").read_text())
    del suite["prices"]
    Path("suite.yaml").write_text(json.dumps(suite))
    lines = judged(*PROBE).stderr
    assert "unknown for 1 of 1" in lines
    assert "look by default: 8 calls, unknown: " in lines


def test_a_probe_that_pays_nothing_estimates_nothing(judged: SuiteRunner) -> None:
    judged(*PROBE, "--cache", "cache")
    assert "cost" not in judged(*PROBE, "--cache", "cache", "--offline").stderr


def test_copy_damage_adds_the_lines_that_are_set_again() -> None:
    names = ("copy.erased", "pixels.blank")
    original = SimpleNamespace(call=SimpleNamespace(grading=SimpleNamespace(graders=[SimpleNamespace(key="g")])))
    for chosen, times in ((names, 1 + 2 + 3), (names[1:], 1 + 1)):
        prepared = SimpleNamespace(originals=[original] * 2, kinds=matching(chosen), changes=len(chosen))
        assert gradings(cast("Any", prepared)) == {"g": 2 * times}


def test_the_reference_lists_every_kind_with_what_it_changes() -> None:
    """The table is made from the code, as ``test_reference_pages.py`` checks; here, that it is there and has no empty cell."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "probe.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\S[^|]*) \|", text, flags=re.MULTILINE)
    assert [name for name, _ in rows] == [*(kind.name for kind in KINDS), *PROMPT_KINDS]
    assert len({change for _, change in rows}) == len(rows)


def test_outputs_that_nobody_can_probe_are_left_out_of_no_gate_in_silence(folder: Folder) -> None:
    """One of two outputs is cut off: a gate over the other one says nothing about it."""
    Path("cut.png").write_bytes(Path("out.png").read_bytes()[:500])
    outputs = {"one": "out.png", "two": "cut.png"}
    cases = [
        {"id": name, "prompt": "Darken it.", "images": ["base.png"], "mask": "mask.png", "outputs": {"m": [path]}}
        for name, path in outputs.items()
    ]
    gate = ["--min-detection", "pixels.blank:0.1", "--max-false-alarm", "0.9"]
    for gates, code in ((["error_rate == 0"], 3), (["error_rate <= 0.4"], 3), (["error_rate <= 0.5"], 0)):
        folder.suite(cases=cases, gates=gates)
        done = folder.probe(*kinds("pixels.blank", "harmless.png"), *gate)
        assert done.exit_code == code, done.output
        text = " ".join(done.stdout.split())
        assert "1 of 2 outputs was not measured" in text
        assert (text.count("not measured, more than") == 2) == (code == 3)


# Rates and gates on hand-made cells.


def cell(case: str, failed: bool | None, kind: str = "pixels.patch", level: int = 0) -> ProbedCell:
    verdict = {True: Verdict.FAIL, False: Verdict.PASS, None: Verdict.ERROR}[failed]
    metric = frozenset({"m"})
    return ProbedCell(
        case,
        "a",
        0,
        kind,
        f"s{level}",
        float(level),
        verdict,
        failed=metric if failed else frozenset(),
        measured=frozenset() if failed is None else metric,
        unmeasured=metric if failed is None else frozenset(),
    )


def test_an_unmeasured_damage_is_not_caught_and_counts_apart() -> None:
    damage = rate_of([cell("a", True), cell("b", None), cell("c", False)], "k", "", "m", "g")
    assert (damage.failed, damage.outputs, damage.unmeasured) == (1, 3, 1)
    by_any_rule = rate_of([cell("a", True), cell("b", None), cell("c", False)], "k", "", None, None)
    assert (by_any_rule.failed, by_any_rule.outputs, by_any_rule.unmeasured) == (1, 3, 1)
    harmless = rate_of(
        [cell(name, failed, "harmless.png") for name, failed in (("a", False), ("b", None))], "k", "", None, None
    )
    assert (harmless.failed, harmless.outputs, harmless.unmeasured, harmless.rate) == (0, 1, 1, 0.0)


def test_a_metric_is_credited_only_with_its_own_rule() -> None:
    other = cell("a", True)
    cells = [
        ProbedCell(**{**{name: getattr(other, name) for name in ProbedCell.__slots__}, "failed": frozenset({"n"})})
    ]
    assert [rate.failed for rate in rates_of(cells, {"m": "g"})] == [1, 0]


def test_the_weakest_strength_has_only_caught_ones_above_it() -> None:
    def rates(*counts: int) -> Any:
        cells = [cell(f"c{at}", at < count, level=level) for level, count in enumerate(counts) for at in range(10)]
        return [weakest.strength for weakest in weakest_caught(rates_of(cells, {}))]

    assert rates(0, 9, 10) == ["s1"]
    assert rates(10, 8, 10) == ["s2"]
    assert rates(10, 10, 8) == [None]


def test_gates_cover_their_kinds_and_strengths() -> None:
    cells = [cell(f"c{at}", level > 0, level=level) for level in (0, 1) for at in range(40)]
    cells += [cell(f"c{at}", False, "harmless.png") for at in range(40)]
    weak, strong = (
        check_gates(cells, [parse_min_detection(text, NAMES)], None) for text in ("pixels:0.9", "pixels.patch@1:0.9")
    )
    assert (weak[0].state, strong[0].state) == ("failed", "passed")
    assert strong[0].bound == pytest.approx(0.9124, abs=1e-3)  # Wilson, 40 of 40
    assert check_gates(cells, [parse_min_detection("pixels.patch@1:0.95", NAMES)], None)[0].state == "failed"
    (alarms,) = check_gates(cells, [], 0.1)
    assert alarms.state == "passed"
    broken = [*cells, *(cell(f"c{at}", None, "harmless.png") for at in range(40))]
    assert check_gates(broken, [], 0.1)[0].state == "unmeasured"  # no proof, and no false alarm either
    assert check_gates([cell("a", None, "harmless.png")], [], 0.1)[0].state == "unmeasured"


def test_exit_codes() -> None:
    gate = MinDetection("pixels:0.9", "pixels", 0.9)
    caught, missed = [cell("a", True)], [cell("a", False)]
    assert exit_code(caught, [], None, interrupted=False) == 0
    assert exit_code(missed, check_gates(missed, [gate], None), None, interrupted=False) == 1
    assert exit_code([], [], None, interrupted=False) == 3
    assert exit_code(caught, [], "the budget", interrupted=False) == 3
    assert exit_code(caught, [], None, interrupted=True) == 130


@pytest.mark.parametrize(
    ("kind", "prompt", "old"),
    [
        ("number", "A poster with 3 boats", "3"),
        ("number", "Three boats at 10:30", "three"),
        ("color", "A Red barn", "red"),
        ("place", "A cup left of a plate", "left"),
        ("object", "A giraffe in snow", "giraffe"),
        ("copy", "A flyer that says Fresh Bread", "Bread"),
    ],
)
def test_a_counter_prompt_exchanges_one_word(kind: str, prompt: str, old: str) -> None:
    case = TestCase(id="c", prompt=prompt, expect=Expect(text=ExpectText(required=("Bread",))))
    exchange = exchange_of(kind, case, prompt, np.random.default_rng(1))
    changed = exchange.applied(prompt)
    assert exchange.old == old
    assert changed != prompt
    assert changed.lower().replace(exchange.new.lower(), old.lower()) == prompt.lower()


@pytest.mark.parametrize("kind", ["number", "color", "place", "object", "copy"])
def test_a_prompt_without_such_a_word_has_no_counter_prompt(kind: str) -> None:
    with pytest.raises(CannotPerturbError, match="names no"):
        exchange_of(
            kind, TestCase(id="c", prompt="Something calm, 2026"), "Something calm, 2026", np.random.default_rng(1)
        )


def test_pinned_questions_have_no_counter_prompt() -> None:
    case = TestCase(id="c", prompt="Two cats", questions=({"id": "q1", "question": "Are there two cats?"},))
    with pytest.raises(CannotPerturbError, match="questions are pinned"):
        exchange_of("number", case, "Two cats", np.random.default_rng(1))


def test_an_exchange_keeps_capitals_and_other_words() -> None:
    assert Exchange("red", "blue").applied("Red, reddish and red") == "Blue, reddish and blue"


def test_damage_stays_away_from_the_mask(folder: Folder) -> None:
    from visioneval.probing.subject import decode

    mask = Path("mask.png").absolute()
    region = prepare._region(decode(Path("out.png").read_bytes()), {"editable": mask})
    assert not region[40 - 16 : 70 + 17, 60 - 16 : 90 + 17].any()
    assert region[:20].all()
