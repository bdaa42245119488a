"""The Python API, in scripts and in running event loops; and that all outputs agree on the exit code."""

from __future__ import annotations

import asyncio
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from api_runs import KEY, ApiRun
from fake_api import FakeAPI, Fault, JudgeRequest
from fork_server import ForkedProgram
from PIL import Image
from toys import Toy
from typer.testing import CliRunner

import visioneval as ve
from visioneval.cli import app
from visioneval.settings import RunKeywords

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["init"]).exit_code == 0
    suite = tmp_path / "suite.yaml"  # without OCR, which would take most of the time
    text, removed = re.subn(r"^  - (copy|\{key: copy, type: text\}.*)\n", "", suite.read_text(), flags=re.MULTILINE)
    suite.write_text(text)
    assert removed == 2
    return tmp_path


def test_exports_exist() -> None:
    assert all(getattr(ve, name) is not None for name in ve.__all__)
    assert set(ve.__all__) <= set(dir(ve))
    with pytest.raises(AttributeError, match="has no attribute 'runn'"):
        _ = ve.runn
    assert (ROOT / "visioneval" / "py.typed").is_file()


def test_run_inside_a_running_event_loop(toy: Toy) -> None:
    toy.write({}, {"metadata": {"look": "bad"}})

    async def notebook_cell() -> ve.Run:
        return ve.run("suite.yaml", trust_suite=True)

    result = asyncio.run(notebook_cell())
    assert (result.exit_code, len(result.records), result.summary.counts.failed) == (1, 2, 1)


def test_run_async_leaves_the_event_loop_free(toy: Toy) -> None:
    toy.write({"metadata": {"wait": 0.3}})
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def main() -> ve.Run:
        ticker = asyncio.create_task(tick())
        result = await ve.run_async("suite.yaml", trust_suite=True)
        ticker.cancel()
        return result

    assert asyncio.run(main()).exit_code == 0
    assert ticks > 3


def test_cancelled_run_async_saves_calls_in_flight_and_can_be_resumed(
    tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    api_run = ApiRun(tmp_path, api, 12)
    monkeypatch.setenv(KEY, api.key)
    api.latency["images"] = 0.3
    settings: dict[str, Any] = {"cache": api_run.cache, "max_concurrency": 2, "trust_suite": True}

    async def main() -> None:
        work = asyncio.create_task(ve.run_async("suite.yaml", run_id="r", **settings))
        while not api.requests:  # noqa: ASYNC110 - they arrive in another thread
            await asyncio.sleep(0.02)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
    stopped = ve.load_run("r")
    assert (stopped.exit_code, stopped.info.state) == (130, "interrupted")
    assert "visioneval run --resume runs/r" in str(stopped.resume_hint)
    resumed = ve.run(resume="r", **settings)
    assert resumed.exit_code == 0
    api_run.check_complete()
    assert api_run.repeated_calls == 0


def test_settings_select_cells_and_set_the_run_folder(quickstart: Path) -> None:
    plan = ve.plan("suite.yaml", cases=["flyer"])
    assert (plan.estimate.cells, plan.estimate.costs) == (8, ())
    run = ve.run(quickstart / "suite.yaml", cases=["flyer"], runs="elsewhere", note="try", run_id="first")
    assert (run.folder, run.info.note, len(run.records)) == (Path("elsewhere/first"), "try", 8)
    single = ve.load_run("first@mock,flaw=none", runs="elsewhere")
    assert [record.model_label for record in single.records] == ["mock,flaw=none"]
    assert [*single.to_pandas()["verdict"]] == ["PASS"]
    assert ve.load_run("latest", runs="elsewhere").folder == run.folder


def test_grade_compares_with_its_source(toy: Toy) -> None:
    toy.write({}, {"metadata": {"look": "bad"}})
    run = ve.run("suite.yaml", trust_suite=True, run_id="first")
    graded = ve.grade(run, trust_suite=True)
    assert (graded.info.graded_from, len(graded.records)) == ("first", 2)
    assert ve.compare(run, graded).comparison.counts["broken"] == 0


def test_documented_example_runs(quickstart: Path) -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = ForkedProgram(cwd=quickstart, code=example)
    output, errors = program.communicate(timeout=120)
    assert (program.returncode, errors) == (0, "")
    first, *_, last = output.splitlines()
    assert (first, last) == ("0 3 3", "0")
    functions = [name for name in ve.__all__ if name.islower()]
    assert [name for name in functions if f"`{name}(" not in text and f"`await {name}(" not in text] == []
    assert [name for name in RunKeywords.__annotations__ if f"`{name}`" not in text] == []


def test_every_exported_name_is_documented() -> None:
    text = "".join(
        (ROOT / "docs" / page).read_text(encoding="utf-8")
        for page in ("reference/api.md", "reference/extending.md", "reference/python.md")
    )
    assert [name for name in ve.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_records_of_a_folder_are_read_one_at_a_time(toy: Toy) -> None:
    toy.write({}, {"metadata": {"look": "bad"}})
    run = ve.run("suite.yaml", trust_suite=True)
    assert ve.read_info(run.folder) == run.info
    records = ve.read_records(run.folder)
    assert (next(records), *records) == run.records
    (run.folder / "results.jsonl").write_text("no record\n")
    with pytest.raises(ve.RunFormatError, match=r"results\.jsonl:1: "):
        list(ve.read_records(run.folder))


def test_the_api_raises_documented_errors(quickstart: Path) -> None:
    with pytest.raises(ve.UsageError):
        ve.load_run("nowhere")
    (quickstart / "bad.yaml").write_text("name: [")
    with pytest.raises(ve.SuiteError, match=r"bad.yaml:2:1: invalid YAML"):
        ve.run("bad.yaml")
    with pytest.raises(ve.UsageError, match="name a suite, or a run to resume"):
        ve.run()
    for wrong in (
        {"limit": 0},
        {"samples": 0},
        {"max_concurrency": 0},
        {"budget_usd": -1.0},
        {"reuse": "some"},
        {"offline": True, "reuse": "none"},
    ):
        with pytest.raises(ve.UsageError):
            ve.run("suite.yaml", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="samples"):
        ve.grade("latest", samples=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="budgt_usd"):
        ve.run("suite.yaml", budgt_usd=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    [
        ("run", {"model": ["a"]}, r"run\(\) has no setting 'model' \(did you mean 'models'\?\)"),
        ("plan", {"detct": 5}, r"plan\(\) has no setting 'detct' \(did you mean 'detect'\?\)"),
        ("grade", {"resume": "r"}, r"grade\(\) has no setting 'resume'"),
        ("probe", {"kind": []}, r"probe\(\) has no setting 'kind' \(did you mean 'kinds'\?\)"),
        ("run", {"command_line": ()}, r"run\(\) has no setting 'command_line'"),
    ],
)
def test_an_unknown_setting_is_named_with_its_function(function: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        getattr(ve, function)("suite.yaml", **settings)


def test_unknown_settings_of_two_runs_are_named() -> None:
    with pytest.raises(TypeError, match=r"^compare\(\) has no setting 'failon' \(did you mean 'fail_on'\?\)"):
        ve.compare("a", "b", failon=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^pairwise\(\) has no setting 'models'"):
        ve.pairwise("a", "b", models=[])  # type: ignore[call-arg]


def test_a_suite_is_a_path() -> None:
    message = "takes the path of a suite file, not dict"
    for function in (ve.run, ve.plan):
        with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) {message}"):
            function({"name": "s"})  # type: ignore[operator]
    with pytest.raises(TypeError, match=rf"^grade\(\) {message}"):
        ve.grade("latest", {"name": "s"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=rf"^run_async\(\) {message}"):
        asyncio.run(ve.run_async({"name": "s"}))  # type: ignore[arg-type]


def test_results_are_shown_in_one_line(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toy.folder)
    suite = toy.write({}, {}, {"metadata": {"look": "bad"}}, {"metadata": {"generate": "raises"}})
    plan = ve.plan(suite, trust_suite=True)
    assert repr(plan) == "SuitePlan(toy: 4 cases, 1 model run, 4 cells, at least 0 USD)"
    run = ve.run(suite, trust_suite=True, run_id="r")
    assert repr(run) == "Run(runs/r: 4 cells, 2 PASS 1 FAIL 1 ERROR, exit code 3)"
    assert repr(ve.load_run("r@toy")) == "Run(runs/r@toy: 4 cells, 2 PASS 1 FAIL 1 ERROR, exit code 3)"
    compared = ve.compare(run, run)
    assert (
        repr(compared)
        == "ComparisonResult(runs/r -> runs/r: 4 paired cells, gates: 6 passed 1 not_applicable, exit code 0)"
    )
    assert type(compared.exit_code) is type(run.exit_code) is int
    agreement = ve.agreement("r")
    assert repr(agreement) == str(agreement) == "Agreement(r: 0 labels, 0 raters, 1 metric, exit code 0)"


def test_refused_key_is_the_same_exit_code_everywhere(
    tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    api_run = ApiRun(tmp_path, api, 4)
    monkeypatch.setenv(KEY, "wrong")
    run = ve.run("suite.yaml", run_id="r", cache=api_run.cache, trust_suite=True)
    assert "refused the API key" in str(run.error)
    assert (run.exit_code, run.info.stopped_by, run.summary.stopped_by) == (3, "refused_key", "refused_key")
    assert json.loads(Path("runs/r/summary.json").read_text())["exit_code"] == 3
    assert ve.load_run("r").exit_code == 3
    assert "runs/r was stopped by a refused API key; to resume:" in CliRunner().invoke(app, ["show", "r"]).stderr


def test_unjudged_pairs_show_everywhere(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entry = {"provider": "openai", "base_url": api.openai_base_url, "api_key_env": KEY}
    models = [{**entry, "label": name, "params": {"model": "gpt-image-2"}} for name in ("one", "two")]
    graders = [{"key": "file", "type": "properties"}, {"key": "better", "type": "pairwise", "judge": "eye"}]
    api_run = ApiRun(tmp_path, api, 1, models=models, graders=graders, verdict=["not file.blank"])
    monkeypatch.setenv(KEY, api.key)
    columns = iter(range(32))
    api.script.generate(lambda asked: [_photo(next(columns))] * asked.n)
    api.script.judge({"reason": "clearer", "answer": "A"})
    api.faults.when(lambda asked: isinstance(asked, JudgeRequest), Fault("off_schema"))
    run = ve.run("suite.yaml", run_id="r", cache=api_run.cache, trust_suite=True)
    assert (run.exit_code, run.summary.unjudged_pairs) == (3, 1)
    text = "1 pair could not be judged"
    assert text in CliRunner().invoke(app, ["show", "r"]).stdout
    assert CliRunner().invoke(app, ["report", "r"]).exit_code == 0
    assert text in Path("runs/r/report/index.html").read_text()
    resumed = CliRunner().invoke(app, ["run", "--resume", "r", "--trust-suite", "--markdown", "s.md", "--json"])
    assert (resumed.exit_code, json.loads(resumed.stdout)["exit_code"]) == (3, 3)
    assert text in Path("s.md").read_text()


def _photo(column: int) -> bytes:
    out = io.BytesIO()
    image = Image.new("RGB", (32, 24), "white")
    image.paste((9, 90, 9), (column, 4, column + 6, 20))
    image.save(out, "PNG")
    return out.getvalue()
