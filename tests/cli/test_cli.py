"""The commands: what they print, what they write, and what they leave alone."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from toys import LOOK, Toy

from visioneval import __version__

pytestmark = pytest.mark.slow


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


GRID: dict[str, Any] = {
    "models": [{"provider": "mine:Generate", "params": {"model": "m"}, "grid": {"q": ["low", "high"]}}]
}
READ_ONLY_COMMANDS = [["validate"], ["plan"], ["run", "--dry-run"], ["schema"], ["runs"], ["--version"], ["--help"]]


@pytest.mark.parametrize("arguments", READ_ONLY_COMMANDS)
def test_read_only_commands_make_no_calls_and_write_no_files(
    toy: Toy, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (toy.folder / "home").mkdir()
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(toy.folder / "home"))
    path = toy.write({"metadata": {"generate": "exits"}}, **GRID)
    before = files(toy.folder)
    suite = [] if arguments[0] in ("schema", "runs", "--version", "--help") else [path, "--trust-suite"]
    result = toy(*arguments, *suite)
    assert result.exit_code == 0, result.output
    assert files(toy.folder) == before
    assert {entry.name for entry in toy.folder.iterdir()} == {"home", "mine.py", "suite.yaml"}


def test_version(toy: Toy) -> None:
    assert toy("--version").stdout == f"visioneval {__version__}\n"


def test_validate_reports_valid_suites_and_all_problems_of_others(toy: Toy) -> None:
    good = toy.write({}, name="good.yaml", **GRID)
    bad = toy.write({"id": "a b"}, name="bad.yaml", verdict=["fin"])
    result = toy("validate", good, bad, "--trust-suite")
    assert result.exit_code == 2
    assert "good.yaml: valid: 1 case, 2 model runs, 2 cells" in result.stdout
    assert "bad.yaml:1:" in result.stderr


def test_plan_shows_cases_by_model_runs_and_the_work(toy: Toy) -> None:
    toy.outputs("base.png")
    only = {"provider": "mine:Generate", "label": "generation", "tasks": ["image_generation"]}
    cases: list[dict[str, Any]] = [{"id": "generate"}, {"id": "change", "images": ["base.png"]}]
    path = toy.write(*cases, models=[*GRID["models"], only], samples=2)
    lines = toy("plan", path, "--trust-suite", COLUMNS="80").stdout.splitlines()
    assert "1  m,q=low     mine:Generate" in [line.strip() for line in lines]
    assert "generate  image_generation   2   2   2" in lines
    assert "change    image_editing      2   2   -" in lines
    assert "work  10 generation calls, 10 images, 10 other gradings" in [line.strip() for line in lines]
    assert "cost  unknown for 3 of 3" in [line.strip() for line in lines]


def test_plan_of_many_model_runs_is_shortened_but_complete_as_json(toy: Toy) -> None:
    many = [{"provider": "mine:Generate", "label": "m", "grid": {"q": list(range(45))}}]
    path = toy.write({"id": "a"}, {"id": "b"}, models=many, samples=2)
    lines = toy("plan", path, "--trust-suite").stdout.splitlines()
    assert "... and 5 more; 'visioneval plan --json' lists all" in lines
    assert any("m,q=39" in line for line in lines)
    assert not any("m,q=40" in line or "#41" in line for line in lines)
    printed = json.loads(toy("plan", path, "--trust-suite", "--json").stdout)
    assert [run["label"] for run in printed["model_runs"]] == [f"m,q={at}" for at in range(45)]
    assert printed["model_runs"][44]["outputs"] == {"a": 2, "b": 2}
    assert (printed["generation_calls"], printed["cells"], printed["cases"]) == (180, 180, ["a", "b"])
    assert printed["costs"][0] == {"name": "m,q=0", "usd": None, "basis": "none", "seen": 0, "calls": 4}


def test_a_plan_of_existing_outputs_costs_nothing_and_names_missing_files(toy: Toy) -> None:
    model = {"provider": "files", "label": "old", "path": "{case}.png"}
    image = {"graders": [{"key": "file", "type": "properties"}], "verdict": ["file"]}
    path = toy.write(*[{} for _ in range(8)], models=[model], **image)
    printed = toy("plan", path).stdout
    assert "none: no paid calls" in printed
    assert "missing image  case0.png" in printed
    assert "... and 3 more" in printed


def test_run_ends_with_the_run_and_the_next_commands(toy: Toy) -> None:
    result = toy.run({}, {"metadata": {"look": "bad"}}, **GRID)
    run, show, report = result.stdout.splitlines()[-3:]
    assert run == f"run: runs/{toy.latest.name}"
    assert show == f"next: visioneval show {toy.latest.name}@m,q=low case1"
    assert report == f"next: visioneval report {toy.latest.name} --open"
    shown = toy(*show.split("visioneval ")[1].split(" "))
    assert shown.exit_code == 0
    assert "FAIL  m,q=low  sample 0" in shown.stdout


def test_the_suggested_command_is_quoted_for_the_shell(toy: Toy) -> None:
    import shlex

    models = [{"provider": "mine:Generate", "label": "it's $HOME; a"}]
    result = toy.run({"metadata": {"look": "bad"}}, models=models, arguments=("--runs", "my runs/here"))
    arguments = shlex.split(result.stdout.splitlines()[-2].split("next: ")[1])
    assert arguments[:2] == ["visioneval", "show"]
    shown = toy(*arguments[1:])
    assert shown.exit_code == 0, shown.output
    assert "it's $HOME; a" in shown.stdout


def test_quiet_prints_only_the_run(toy: Toy) -> None:
    result = toy.run({}, arguments=("--quiet",))
    assert (len(result.stdout.splitlines()), result.stderr) == (1, "")
    assert result.stdout.startswith("run: runs/")


def test_json_is_a_line_per_suite_equal_to_summary_json(toy: Toy) -> None:
    path = toy.write({}, {"metadata": {"look": "bad"}})
    result = toy("run", path, path, "--trust-suite", "--json")
    first, second = map(json.loads, result.stdout.splitlines())
    assert {first["run_id"], second["run_id"]} == {run.name for run in (toy.folder / "runs").iterdir()}
    assert json.loads((toy.folder / "runs" / second["run_id"] / "summary.json").read_text()) == second
    assert [gate["state"] for gate in second["gates"]] == ["failed", "passed", "passed"]
    assert result.stderr.count("run: runs/") == 2


def test_runs_filters_by_experiment_and_shows_notes(toy: Toy) -> None:
    toy.run({}, experiment="brand", arguments=("--note", "first [try]"))
    toy.run({"metadata": {"generate": "raises"}}, arguments=("--run-id", "loose"))
    (toy.folder / "runs" / "loose" / "results.jsonl").write_text("broken\n{}\n")
    (toy.folder / "runs" / "notes").mkdir()
    printed = toy("runs", COLUMNS="100").stdout
    assert (
        printed.index("no experiment")
        < printed.index("loose")
        < printed.index("experiment brand")
        < printed.index("first [try]")
    )
    assert "unreadable" in printed
    (toy.folder / "runs" / "hollow").mkdir()
    (toy.folder / "runs" / "hollow" / "run.json").write_bytes(b"")
    hollow, loose = toy("runs").stderr.splitlines()
    assert hollow == "runs/hollow: skipped: its run.json cannot be read"
    assert loose.startswith("runs/loose/results.jsonl:1: not a record: damaged or truncated: delete this line;")
    assert "100 % [20.7, 100] n=1" in printed
    only = toy("runs", "--experiment", "brand").stdout
    assert "loose" not in only
    assert toy("runs", "--experiment", "nope").stdout == "runs: no runs here of the experiment 'nope'\n"
    assert toy("runs", "--runs", "elsewhere").stdout == "elsewhere: no runs here\n"


@pytest.fixture
def swept(toy: Toy) -> Toy:
    cases: list[dict[str, Any]] = [
        {"id": "good", "tags": ["x"]},
        {"id": "bad", "metadata": {"look": "bad"}, "criteria": "It is {{ metadata.look }}.", "region": "the middle"},
    ]
    toy.run(*cases, samples=2, **GRID)
    return toy


def test_show_prints_a_summary_or_the_cells_of_a_case(swept: Toy) -> None:
    assert "8 of 8 cells  4 PASS  4 FAIL  0 ERROR" in swept("show", "latest").stdout
    printed = swept("show", "latest", "bad").stdout
    assert printed.count("prompt") == 1
    assert "criteria  It is bad." in printed
    assert "the middle" in printed
    assert printed.count("sample 0") == printed.count("sample 1") == 2
    assert printed.index("m,q=low  sample 0") < printed.index("m,q=low  sample 1") < printed.index("m,q=high  sample 0")
    assert printed.count("all is ill") == 4
    assert f"runs/{swept.latest.name}/artifacts/bad/" in printed


def test_show_narrows_to_a_model_run_a_sample_and_a_verdict(swept: Toy) -> None:
    assert swept("show", "latest@m,q=high", "bad", "--sample", "1").stdout.count("sample ") == 1
    assert swept("show", f"{swept.latest}@m,q=high", "bad", "--verdict", "fail").stdout.count("sample ") == 2
    summary = swept("show", "latest@m,q=high").stdout
    assert "4 of 4 cells" in summary
    assert "q=low" not in summary


BAD_NAMES = [
    (["latest", "goo"], "no case 'goo' in this run (did you mean 'good'?)"),
    (["latest", "good", "--verdict", "FAIL"], "'good': no matching cells in this run"),
    (["latest", "good", "--sample", "7"], "'good': no matching cells in this run"),
    (["latest@m,q=lo", "good"], "no model run 'm,q=lo' in"),
    (["latest", "--sample", "1"], "--sample and --verdict need a CASE"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_NAMES)
def test_show_reports_unknown_names(swept: Toy, arguments: list[str], message: str) -> None:
    result = swept("show", *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_export_writes_one_flat_row_per_cell(swept: Toy) -> None:
    printed = swept("export", "latest").stdout
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [(row["test_id"], row["model_label"], row["sample_index"]) for row in rows][:3] == [
        ("good", "m,q=low", "0"),
        ("good", "m,q=low", "1"),
        ("good", "m,q=high", "0"),
    ]
    bad = rows[-1]
    assert (bad["verdict"], bad["failed_rules"], bad["failure_tags"]) == ("FAIL", "fine", "ill")
    assert (bad["fine"], bad["level"], bad["error"]) == ("false", "0.25", "")
    columns = list(bad)
    assert columns.index("waited_seconds") == columns.index("seconds") + 1
    assert float(bad["waited_seconds"]) >= 0
    result = swept("export", "latest@m,q=low", "--output", "flat.csv")
    assert result.stdout == "wrote flat.csv\n"
    assert len((swept.folder / "flat.csv").read_text().splitlines()) == 5
    assert swept("export", "latest", "--output", "no/flat.csv").exit_code == 2


def test_exported_cells_are_not_formulas(toy: Toy) -> None:
    prompts = ["=HYPERLINK(1)", "+1 tree", "-1 tree", "@sum", " =1", "a=1"]
    done = toy.run(*({"prompt": prompt} for prompt in prompts))
    assert done.exit_code == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(toy("export", "latest").stdout)))
    assert [row["prompt"] for row in rows] == [*(f"'{prompt}" for prompt in prompts[:5]), "a=1"]
    assert "apostrophe" in toy("export", "--help").stdout


def test_truncated_line_is_reported_with_a_fix(swept: Toy) -> None:
    results = swept.latest / "results.jsonl"
    first, second, *rest = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(first + second[:40] + b"\n" + b"".join(rest))
    for arguments in (["show", "latest"], ["run", "--resume", "latest", "--trust-suite"]):
        result = swept(*arguments)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"{results.relative_to(swept.folder)}:2: not a record: ")
        name = f"runs/{swept.latest.name}"
        assert line.endswith(f": delete this line; then 'visioneval run --resume {name}' reruns this cell")
    results.write_bytes(first + b"".join(rest))
    shown = swept("show", "latest")
    assert "marked complete, but results.jsonl has 7 of 8 cells; to resume: visioneval run" in shown.stderr
    assert "the run has 7 of 8 cells: a baseline needs a complete run" in swept("baseline", "set", "latest").stderr
    swept("run", "--resume", "latest", "--trust-suite")
    assert swept("baseline", "set", "latest").exit_code == 0


def test_run_without_results_is_not_shown_as_empty(swept: Toy) -> None:
    results = swept.latest / "results.jsonl"
    swept("baseline", "set", "latest")
    results.write_bytes(b"")
    assert "marked complete, but results.jsonl has 0 of 8 cells" in swept("show", "latest").stderr
    assert "empty" in swept("runs").stdout
    assert swept("baseline", "set", "latest").exit_code == 2
    for sides in (["latest", "baseline"], ["baseline", "latest"]):
        compared = swept("compare", *sides)
        assert compared.exit_code == 2
        missing, empty = compared.stderr.splitlines()
        assert "marked complete, but results.jsonl has 0 of 8 cells" in missing
        assert empty == "latest: the run has no cells to compare"


READING = [
    ["show", "r"], ["compare", "r", "r"], ["report", "r"], ["export", "r", "--format", "csv", "-o", "r.csv"],
    ["grade", "r", "--trust-suite"], ["run", "--resume", "r", "--trust-suite"],
]  # fmt: skip
WITHOUT_RECORDS = "restore this file, or run the suite again with --reuse all, which takes the answers from the cache"


@pytest.mark.parametrize("arguments", READING, ids=lambda arguments: arguments[0])
def test_a_run_folder_that_is_damaged_ends_every_command_with_what_to_do(toy: Toy, arguments: list[str]) -> None:
    assert toy.run({}, arguments=("--run-id", "r")).exit_code == 0
    before, results, artifacts = toy.info, toy.latest / "results.jsonl", toy.latest / "artifacts"
    data = results.read_bytes()
    results.unlink()
    messages = [toy(*arguments).stderr]
    results.mkdir()
    messages.append(toy(*arguments).stderr)
    results.rmdir()
    results.write_bytes(data)
    shutil.rmtree(artifacts)
    artifacts.write_text("a file")
    result = toy(*arguments)
    assert result.exit_code == 2
    assert [*messages, result.stderr] == [
        f"runs/r/results.jsonl: the records of this run are missing: {WITHOUT_RECORDS}\n",
        f"runs/r/results.jsonl: cannot be read: Is a directory: {WITHOUT_RECORDS}\n",
        "runs/r/artifacts: is not a folder: restore the folder of outputs, or run the suite again\n",
    ]
    assert (toy.info, [path.name for path in toy.latest.parent.iterdir()]) == (before, ["r"])


def test_selection_flags_and_a_note_are_in_run_json(toy: Toy) -> None:
    toy.run({"tags": ["x"]}, {}, arguments=("--case", "case*", "--tag", "x", "--limit", "1", "--note", "n"), **GRID)
    info = toy.info
    assert info.selection.model_dump() == {
        "cases": ("case*",), "tags": ("x",), "models": (), "graders": (), "limit": 1, "samples": None, "shard": None
    }  # fmt: skip
    assert (info.note, info.planned_cells) == ("n", 2)
    assert len(info.source_sha256) == 64


def test_gate_without_cells_is_reported_as_skipped(toy: Toy) -> None:
    gates = [{"rule": "pass_rate == 1", "cases": ["case1"]}, "pass_rate >= 0"]
    result = toy.run({}, {}, gates=gates, graders=[LOOK], arguments=("--case", "case0"))
    assert result.exit_code == 0
    assert "skipped" in result.stdout


def test_init_writes_a_valid_suite_and_does_not_overwrite_files(toy: Toy) -> None:
    assert toy("init", "first").exit_code == 0
    assert toy("validate", toy.folder / "first" / "suite.yaml").exit_code == 0
    before = files(toy.folder)
    result = toy("init", "first", "--template", "editing")
    assert result.exit_code == 2
    assert "already exists; nothing was written" in result.stderr
    assert files(toy.folder) == before


def test_schema_is_json(toy: Toy) -> None:
    assert json.loads(toy("schema").stdout)["title"] == "visioneval suite"
