"""Counter-examples in numbers over all cells: left out of how well images match their prompts, counted where named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from visioneval import Summary
from visioneval.cli import app
from visioneval.report.markdown import report_markdown
from visioneval.report.run import run_report

RIGHT = [("yes", "no"), ("yes", "no"), ("yes", "no"), ("no", "no"), ("yes", "no")]
"""By image: whether it shows what its prompt says, and what its counter-example says. One image is wrong."""
Answers = list[tuple[str, str]]
Run = Callable[..., dict[str, Any]]


def case(name: str, count: str, **fields: Any) -> dict[str, Any]:
    questions = [
        {"id": "count", "question": f"Are there {count}?", "type": "counting"},
        {"id": "plate", "question": "Is there a plate?", "type": "object"},
    ]
    return {"id": name, "prompt": f"{count} buns on a plate", "questions": questions, **fields}


def write(folder: Path, answers: Answers, gates: list[Any], **changes: Any) -> Path:
    cases, rows = [], ["case,model,question,answer"]
    for number, row in enumerate(answers):
        cases.append(case(f"two{number}", "two", tags=["food"]))
        counter = {"output_of": f"two{number}", "expect": {"aligned": False}, "tags": ["counter"]}
        cases.append(case(f"three{number}", "three", **counter))
        for name, answer in zip((f"two{number}", f"three{number}"), row, strict=True):
            rows += [f"{name},m,count,{answer}", f"{name},m,plate,yes"]
    (folder / "answers.csv").write_text("\n".join(rows) + "\n")
    suite = {
        "name": "buns",
        "judges": {"vqa": {"provider": "recorded", "path": "answers.csv", "fields": {"model": "model"}}},
        "cases": cases,
        "models": [{"provider": "mock", "label": "m", "params": {"size": "64x64"}}],
        "graders": [{"key": "gecko", "type": "gecko", "judge": "vqa"}, {"key": "image", "type": "properties"}],
        "verdict": [{"rule": "gecko >= 0.5"}, {"rule": "gecko < 1", "tags": ["counter"]}],
        "gates": gates,
        **changes,
    }
    (folder / "suite.yaml").write_text(json.dumps(suite))
    return folder / "suite.yaml"


def command(*args: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*map(str, args)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def go(answers: Answers, gates: list[Any] | None = None, *args: str, code: int = 0, **changes: Any) -> Any:
        path = write(tmp_path, answers, gates or ["pass_rate >= 0"], **changes)
        command("run", path, "--runs", tmp_path / "runs", *args, code=code)
        newest = max((tmp_path / "runs").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)
        return {**json.loads((newest / "summary.json").read_text()), "folder": newest}

    return go


def test_a_right_answer_lowers_no_mean_over_all_cells(run: Run) -> None:
    gates = ["mean(gecko) >= 0.9", "p50(gecko) >= 1", "mean(gecko.counting) >= 0.8", "mean(image) >= 0"]
    summary = run(RIGHT, ["rate(image) == 1", *gates[:3], "pass_rate == 1", "separation(gecko) >= 0.3"])
    values = {gate["rule"]: (gate["value"], gate["n"], gate["scope"]) for gate in summary["gates"]}
    without = "without counterexamples"
    assert values["mean(gecko) >= 0.9"] == (pytest.approx(0.9), 5, without)
    assert values["p50(gecko) >= 1"] == (1, 5, without)
    assert values["mean(gecko.counting) >= 0.8"] == (0.8, 5, without)
    assert values["rate(image) == 1"] == (1, 10, ""), "another metric, and verdicts, count every cell"
    assert values["pass_rate == 1"] == (1, 10, "")
    (model,) = summary["models"]
    assert {name: model["metrics"][name]["n"] for name in ("gecko", "image")} == {"gecko": 5, "image": 10}
    assert model["metrics"]["gecko"]["value"] == pytest.approx(0.9)
    questions = summary["questions"]["gecko"]
    assert (questions["models"]["m"]["types"]["counting"]["value"], questions["prompts"]) == (0.8, 2)
    assert [noise["cases"] for noise in summary["noise"] if noise["name"] == "gecko"] == [5]


def test_a_scope_that_names_cases_counts_them(run: Run) -> None:
    scopes: list[tuple[dict[str, Any], float, int]] = [
        ({}, 0.9, 5),
        ({"models": ["m"]}, 0.9, 5),
        ({"tags": ["counter"]}, 0.5, 5),
        ({"tags": ["food"]}, 0.9, 5),
        ({"cases": ["*"]}, 0.7, 10),
        ({"tasks": ["image_generation"]}, 0.7, 10),
        ({"weights": {"food": 1, "counter": 3}}, 0.6, 10),
    ]
    gates = run(RIGHT, [{"rule": "mean(gecko) >= 0", **scope} for scope, *_ in scopes])["gates"]
    values = [(pytest.approx(value), n) for _, value, n in scopes]
    assert [(gate["value"], gate["n"]) for gate in gates[: len(scopes)]] == values


def test_a_cell_that_is_left_out_does_not_count_against_a_gate(run: Run) -> None:
    wrong: Answers = [("no", "yes"), *RIGHT[1:]]
    summary = run(wrong, ["mean(gecko) >= 0.95"], code=1)
    failed = {cell["test_id"]: cell["failed_gates"] for cell in summary["failing"]}
    assert failed["three0"] == [], "a counter-example that scores 1 fails, and not because of this gate"


def test_a_separation_pairs_the_cases_that_share_an_image(run: Run) -> None:
    """Images differ much, and every counter-example scores half a point less than its own image's prompt."""
    rows: Answers = [("yes", "no"), ("yes", "no"), ("yes", "no"), ("yes", "no"), ("yes", "yes"), ("no", "no")]
    summary = run(rows, ["separation(gecko) >= 0.2"])
    single = summary["separations"]["gecko"]["m"]
    assert single["left_out"] is True
    (gate, *_) = summary["gates"]
    assert (gate["low"], gate["high"]) == (single["difference_low"], single["difference_high"])
    from scipy import stats

    above, below = ([{"yes": 1.0, "no": 0.5}[row[side]] for row in rows] for side in (0, 1))
    paired = stats.ttest_rel(above, below).confidence_interval()
    assert (gate["low"], gate["high"]) == pytest.approx((paired.low, paired.high))


def test_reports_say_what_the_means_leave_out(run: Run, tmp_path: Path) -> None:
    folder = run(RIGHT, ["mean(gecko) >= 0.9"])["folder"]
    sentence = "question types of gecko leave out counterexamples"
    assert sentence in command("show", folder)
    command("report", folder, "-o", tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text()
    assert sentence in page
    assert "without counterexamples" in page
    assert sentence in report_markdown(run_report(Summary.model_validate_json((folder / "summary.json").read_text())))


@pytest.mark.parametrize("gate", ["mean(gecko) >= 0.5", "p90(gecko.counting) >= 0"])
def test_a_gate_that_leaves_out_all_of_its_cases_is_refused(tmp_path: Path, gate: str) -> None:
    only = {"cases": [case("three0", "three", expect={"aligned": False}, tags=["counter"])]}
    path = write(tmp_path, RIGHT, [gate], **only)
    output = " ".join(command("validate", path, code=2).split())
    assert "without a scope it leaves out counterexamples, and all its cases are" in output
    write(tmp_path, RIGHT, [{"rule": gate, "cases": ["three0"]}], **only)
    command("validate", path)


def test_a_selection_keeps_the_images_of_counter_examples(run: Run) -> None:
    (gate, *_) = run(RIGHT, ["mean(gecko) >= 0.9"], "--case", "three0")["gates"]
    assert (gate["value"], gate["n"], gate["state"]) == (1, 1, "passed")


# --- compare


def difference(output: str, metric: str = "gecko") -> dict[str, Any]:
    rows = [*json.loads(output)["metrics"], *json.loads(output)["by_type"]]
    return next(row for row in rows if row["name"] == metric)


def test_a_comparison_leaves_them_out_unless_a_filter_names_cases(run: Run) -> None:
    accepts_all: Answers = [(row[0], "yes") for row in RIGHT]
    a, b = run(RIGHT)["folder"], run(accepts_all, code=0)["folder"]
    compared = command("compare", a, b, "--fail-on", "gecko:0", "--json")
    assert (difference(compared)["difference"], difference(compared)["n_pairs"]) == (0, 5)
    assert difference(compared, "gecko.counting")["n_pairs"] == 5
    assert difference(compared, "image")["n_pairs"] == 10
    for option in (("--tag", "counter"), ("--case", "three*")):
        named = difference(command("compare", a, b, *option, "--fail-on", "gecko:0", "--json"))
        assert (named["difference"], named["n_pairs"]) == (0.5, 5)
    assert "5 of 10 cells broke" in command("compare", a, b, "--fail-on", "broken", code=1), "verdicts are as before"


def test_a_drop_of_the_aligned_cases_is_not_hidden_by_counter_examples(run: Run) -> None:
    """All images get worse, and the judge now also accepts every counter-example."""
    a, b = run(RIGHT)["folder"], run([("no", "yes")] * 5)["folder"]
    assert difference(command("compare", a, b, "--fail-on", "gecko:0.3", "--json", code=1))["difference"] == -0.4


def test_a_baseline_knows_its_counter_examples(run: Run, tmp_path: Path) -> None:
    a = run(RIGHT)["folder"]
    command("baseline", "set", a)
    header = json.loads((tmp_path / "baselines" / "main.jsonl").read_text().splitlines()[0])
    assert header["counter_examples"] == [f"three{number}" for number in range(5)]
    aligned = json.loads((tmp_path / "suite.yaml").read_text())["cases"]
    for entry in aligned:
        entry.pop("expect", None)
    b = run(RIGHT, cases=aligned)["folder"]
    compared = command("compare", "baseline:main", b, "--fail-on", "gecko:0", "--json")
    assert difference(compared)["n_pairs"] == 5, "A says which cases are counter-examples"
    reverse = command("compare", b, a, "--fail-on", "gecko:0", "--json")
    assert difference(reverse)["n_pairs"] == 10, "a suite cannot hide cases from a comparison by a new mark"


def test_plan_measures_the_noise_that_a_comparison_has(run: Run, tmp_path: Path) -> None:
    plan = ("plan", tmp_path / "suite.yaml", "--detect", "gecko:0.2", "--like")
    a = run([("yes", "yes")] * 3 + [("no", "no")] * 3)["folder"]
    assert "assumes a correlation" in command(*plan, a)
    b = run([("yes", "yes")] * 3 + [("yes", "no")] * 3)["folder"]
    assert "gecko is the same in all samples" in command(*plan, b, code=2), "only counter-examples differ"
    assert command(*plan, a, "--like", b)
