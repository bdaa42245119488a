"""Resource bounds of a suite: cells, model runs, template steps and pixels in memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from visioneval.bounds import MEGAPIXELS
from visioneval.cli import app
from visioneval.errors import TemplateError
from visioneval.media.images import PixelBudget
from visioneval.templates.render import render

pytestmark = pytest.mark.slow

TEN = list(range(10))
GRID = {"seed": TEN, **dict.fromkeys("abcde", TEN)}
ISSUE = "{% for i in range(9000) %}{{ range(9999)|sort|length }}{% endfor %}"


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(**changes: Any) -> Path:
    suite = {
        "name": "bounded",
        "cases": [{"id": "a", "prompt": "a tree"}, {"id": "b", "prompt": "a boat"}],
        "models": [{"provider": "mock", "params": {"model": "mock", "size": "64x64"}}],
        "graders": [{"key": "file", "type": "properties"}],
        "verdict": ["not file.blank"],
        **changes,
    }
    path = Path("suite.yaml")
    path.write_text(json.dumps(suite))
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)


def refused(*arguments: object) -> str:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    return result.output


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
def test_a_grid_of_a_million_is_not_expanded(command: str) -> None:
    suite = write(models=[{"provider": "mock", "params": {"model": "mock"}, "grid": GRID}])
    message = "the suite has 1,000,000 model runs, over the limit of 10,000"
    assert f"{message} (to raise it: --max-model-runs N or VISIONEVAL_MAX_MODEL_RUNS=N)" in refused(command, suite)


def test_model_runs_are_bounded_over_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"provider": "mock", "params": {"model": "mock"}, "grid": {"seed": TEN}}
    suite = write(models=[{**entry, "label": "x"}, {**entry, "label": "y"}])
    assert "20 model runs, over the limit of 19" in refused("validate", suite, "--max-model-runs", "19")
    monkeypatch.setenv("VISIONEVAL_MAX_MODEL_RUNS", "19")
    assert "20 model runs, over the limit of 19" in refused("validate", suite)
    assert call("validate", suite, "--max-model-runs", "20").exit_code == 0, "the flag goes before the environment"


def test_cells_are_bounded_by_flag_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = write(samples=5)
    message = "2 cases on 1 model runs result in 10 cells, over the limit of 9"
    hint = "(to raise it: --max-cells N or VISIONEVAL_MAX_CELLS=N)"
    assert f"suite.yaml:1:30: {message} {hint}" in refused("validate", suite, "--max-cells", "9")
    monkeypatch.setenv("VISIONEVAL_MAX_CELLS", "9")
    assert message in refused("run", suite)
    assert "--samples 6: 2 cases on 1 model runs result in 12 cells" in refused(
        "run", suite, "--samples", "6", "--max-cells", "11"
    )
    assert call("run", suite, "--samples", "1").exit_code == 2, "the suite as it is written has too many"
    assert call("run", suite, "--max-cells", "10", "--run-id", "r").exit_code == 0
    assert "over the limit of 9" in refused("grade", "r")
    assert "over the limit of 9" in refused("run", "--resume", "runs/r")


def test_images_per_call_count_as_cells() -> None:
    models = [{"provider": "openai", "params": {"model": "gpt-image-2", "n": 100}}]
    assert "result in 200,000 cells" in refused("validate", write(models=models, samples=1000), "--max-cells", "199999")


def test_rows_of_a_dataset_count_as_cells() -> None:
    Path("rows.csv").write_text("id,prompt\n" + "".join(f"r{at},p\n" for at in range(30)))
    dataset = {"path": "rows.csv", "fields": {"id": "id", "prompt": "prompt"}}
    suite = write(cases=[{"dataset": dataset}])
    message = refused("validate", suite, "--max-cells", "20")
    assert (
        "rows.csv:22:1: the dataset has more than 20 rows, and each row is at least one cell (to raise it: --max-cells N"
        in message
    )


@pytest.mark.parametrize("value", ["many", "0", "-1", "1.5", "9" * 40])
def test_a_non_numeric_environment_variable_is_reported(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("VISIONEVAL_MAX_CELLS", value)
    assert refused("validate", write()).startswith(f"VISIONEVAL_MAX_CELLS='{value}': must be a whole number from 1 to ")


def test_the_resume_command_includes_the_bounds() -> None:
    from visioneval.records.runs import resume_command

    typed = ["run", "s.yaml", "--max-cells", "5", "--max-megapixels=80"]
    assert resume_command(Path("runs/r"), typed) == "visioneval run --resume runs/r --max-cells 5 --max-megapixels 80"


@pytest.mark.parametrize("key", ["prompt", "criteria"])
def test_the_work_of_a_prompt_is_bounded(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = write(cases=[{"id": "a", "prompt": "a tree", key: ISSUE}])
    message = "it takes more than 1,000,000 steps of work (to raise it: --max-template-steps N"
    assert f"suite.yaml:1:{53 if key == 'prompt' else 75}: the template cannot be rendered: {message}" in refused(
        "validate", suite
    )
    suite = write(cases=[{"id": "a", "prompt": "a tree {% for i in range(50) %}{{ i }}{% endfor %}"}])
    assert call("validate", suite).exit_code == 0
    assert "it takes more than 100 steps of work" in refused("validate", suite, "--max-template-steps", "100")
    monkeypatch.setenv("VISIONEVAL_MAX_TEMPLATE_STEPS", "100")
    assert "it takes more than 100 steps of work" in refused("run", suite)


def test_the_work_of_a_judges_template_is_bounded() -> None:
    Path("mine.md.j2").write_text(ISSUE)
    grader = {
        "key": "look",
        "type": "rubric",
        "template": "mine.md.j2",
        "metrics": {"nice": {"type": "pass_fail", "description": "it is nice"}},
    }
    judges = {"default": {"provider": "openai", "model": "gpt-5.4"}}
    message = refused("validate", write(judges=judges, graders=[grader], verdict=["nice"]))
    assert "mine.md.j2" in message
    assert "more than 1,000,000 steps of work" in message


def test_the_work_of_all_templates_of_a_suite_is_bounded() -> None:
    slow = "{% for i in range(900) %}{{ 'x' * 40 ~ i }}{% endfor %}"
    many = [{"id": f"c{at}", "prompt": f"{slow} {at}"} for at in range(300)]
    assert call("validate", write(cases=many[:3])).exit_code == 0
    message = refused("validate", write(cases=many), "--max-template-steps", "50000")
    assert "the suite's templates take more than 2,500,000 steps of work" in message


def test_a_spent_budget_of_the_suite_is_no_second_problem() -> None:
    """The other templates of the dataset fail only since one of them took all of the suite's budget."""
    Path("rows.csv").write_text("id,p\n" + "".join(f"c{at},x\n" for at in range(100)))
    fields = {"id": "{{ row.id }}", "prompt": "{{ 'x' * 3000000000 }}", "criteria": "{{ row.p }}"}
    message = refused("validate", write(cases=[{"dataset": {"path": "rows.csv", "fields": fields}}]))
    assert message.count("steps of work") == 1
    assert "prompt: the template cannot be rendered: it takes more than 1,000,000 steps of work" in message
    fields["prompt"] = "{% for i in range(900) %}{{ 'x' * 40 ~ i }}{% endfor %}{{ row.p }}"
    Path("rows.csv").write_text("id,p\n" + "".join(f"c{at},x\n" for at in range(300)))
    suite = write(cases=[{"dataset": {"path": "rows.csv", "fields": fields}}])
    message = refused("validate", suite, "--max-template-steps", "60000")
    assert message.count("steps of work") == 1
    assert "the suite's templates take more than 3,000,000 steps of work" in message


DEEP = "{% for a in [['x', 'x', 'x']] %}" + "{% for a in [[a, a, a]] %}" * 18
HARD = {
    "sort": ISSUE,
    "comparison": DEEP + "{{ [a, 1] == [a, 1] }}" + "{% endfor %}" * 19,
    "key": "{% for a in [(1, 1)] %}" + "{% for a in [(a, a)] %}" * 18 + "{{ {a: 1} }}" + "{% endfor %}" * 19,
    "power in a filter": "{{ 1 | round(99999999, 'ceil') }}",
    "sum of lists": "{{ ([[1]] * 99999) | sum(start=[]) | length }}",
    "attribute": "{{ ([{}] * 9999) | map(attribute='" + ".".join("a" * 20_000) + "', default=1) | list | length }}",
    "long body": "{% for i in range(9000) %}{{ [" + "1, " * 5000 + "] | length }}{% endfor %}",
    "search": "{% for i in range(9000) %}{{ 'a' in 'b' * 99999 }}{% endfor %}",
    "slice": "{% for i in range(9000) %}{{ ('b' * 99999)[1:] | length }}{% endfor %}",
    "condition": "{% for a in range(9999) if a in range(9999) | list %}{% endfor %}",
    "methods": "{% for i in range(9000) %}{{ ('a ' * 9999).split() | length }}{% endfor %}",
    "big numbers": "{{ ('f' * 900000) | int(base=16) // ('f' * 300000) | int(base=16) }}",
    "format": "{{ '{:9999999999}'.format(1) }}",
    "hidden format": "{% for f in ['{:9999999999}'] | map(attribute='format') %}{{ f(1) }}{% endfor %}",
    "blocks": "".join(f"{{% block b{n} %}}{{{{ self.b{n + 1}() ~ self.b{n + 1}() }}}}{{% endblock %}}" for n in range(40))
    + "{% block b40 %}x{% endblock %}",
    "else": "{% for i in range(9000) %}{% for j in [] %}{% else %}" + "{{ 1 + 1 }}" * 400 + "{% endfor %}{% endfor %}",
    "words": "{% if 1 %}{{ " + "1 + " * 9999 + "1 }}{% endif %}",
    "join": "{{ range(9999) | join('x' * 9999) }}",
    "arguments": "{% for i in range(9000) %}{{ loop.cycle(*['x' * 9999] * 999) }}{% endfor %}",
}  # fmt: skip


OTHER_REFUSALS = {
    "power in a filter": "a number has too many digits",
    "sum of lists": "sum() works only with numbers",
    "format": "'format' cannot be called in a template",
    "hidden format": "'format' cannot be called in a template",
    "words": "the template has more than 20,000 tokens",
}
"""Why a template is refused before any of its steps is counted."""


@pytest.mark.parametrize("name", HARD)
def test_hard_work_is_refused_before_it_is_done(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TemplateError) as caught:
        render(HARD[name], {})
    assert OTHER_REFUSALS.get(name, "it takes more than 1,000,000 steps of work") in str(caught.value)
    assert "\n" not in str(caught.value)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 * 1024 * (1024 if before > 10**8 else 1)


def test_template_steps_are_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "{% for i in range(20) %}{{ ('a' ~ i) | upper | replace('A', 'b') }}{{ [i, 3] | sort | join('-') }}{% endfor %}"
    )

    def fits(steps: int) -> bool:
        monkeypatch.setenv("VISIONEVAL_MAX_TEMPLATE_STEPS", str(steps))
        try:
            return bool(render(text, {}))
        except TemplateError:
            return False

    low, high = 1, 100_000
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    assert [fits(low - 1), fits(low), fits(low - 1), fits(low)] == [False, True, False, True]


def test_pixels_are_reserved_in_order_and_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MEGAPIXELS, "override", 1)
    budget, lock, holding, most = PixelBudget(), threading.Lock(), 0, 0

    def reserve_pixels(pixels: int) -> None:
        nonlocal holding, most
        with budget.reserve(pixels), budget.reserve(10**9):  # what a thread does within its share takes no more
            with lock:
                holding += min(pixels, 10**6)
                most = max(most, holding)
            time.sleep(0.002)
            with lock:
                holding -= min(pixels, 10**6)

    threads = [
        threading.Thread(target=reserve_pixels, args=(size,)) for size in (400_000, 10**6, 10**8, 300_000, 700_000) * 8
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert (holding, most) == (0, 10**6)


def test_large_images_are_measured_one_at_a_time() -> None:
    """Four images of 25 million pixels, of which only one may be in memory while it is measured. On a machine with
    sixteen processors, as each thread has its own memory.
    """
    image = Image.new("RGBA", (5000, 5000), (250, 240, 230, 255))
    image.paste((1, 2, 3, 0), (0, 0, 1000, 1000))
    image.save("large.png", compress_level=1)
    models = [{"provider": "files", "path": "large.png"}]
    suite = write(cases=[{"id": f"c{at}", "prompt": "p"} for at in range(4)], models=models)
    code = (
        "import os, pathlib, resource, sys\nos.sched_getaffinity = lambda _: range(16)\nfrom visioneval.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "status = pathlib.Path('/proc/self/status')\n"
        "own = [line.split()[1] for line in status.read_text().splitlines() if 'VmHWM' in line] if status.exists() else []\n"
        "print('peak', *own or [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss])"  # which starts at the parent's peak
    )
    arguments = ["run", str(suite), "--quiet", "--max-megapixels", "25", "--run-id", "r"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert json.loads(Path("runs/r/summary.json").read_text())["counts"]["errors"] == 0
    assert int(done.stdout.split()[-1]) < 700 * 1024 * (1 if sys.platform == "linux" else 1024)
