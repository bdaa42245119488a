"""What ``validate`` and ``run`` report about custom classes and their use, each at its place in the suite."""

from __future__ import annotations

import colorsys
from typing import Any

import pytest
from classes import OwnClasses
from PIL import Image
from pydantic import BaseModel, Field, ValidationError
from tables import rows_of
from toys import Toy

from visioneval.suite.messages import explain

rows = rows_of(__file__)

DRAW, ANSWER, LOOK = "suite.yaml:4:16: ours:Draw: ", "suite.yaml:6:23: ours:Answer: ", "suite.yaml:8:23: ours:Look: "
INIT = "def __init__(self, config): self.options = config.options\n"
DRAW_INIT, ANSWER_INIT = f"{INIT}    def generate", f"{INIT}    def ask"
METRICS = "return {'look': Metric(type='bool'), 'look.level': Metric(type='number')}"
IMPORTED = "cannot be imported: "


@pytest.mark.parametrize(("code", "problem"), rows("a_module_that_fails"))
def test_a_module_that_fails(ours: OwnClasses, code: str, problem: str) -> None:
    (ours.toy.folder / "later.py").write_text("raise RuntimeError('too early\\nby far')\n")
    ours.code(("class Draw", f"{code}\nclass Draw"))
    assert ours.problems() == [f"{entry}{IMPORTED}{problem}" for entry in (DRAW, ANSWER, LOOK)]


@pytest.mark.parametrize(("old", "new", "problem"), rows("a_broken_class"))
def test_a_broken_class(ours: OwnClasses, old: str, new: str, problem: str) -> None:
    ours.code((old, new))
    assert ours.problems() == [problem]


@pytest.mark.parametrize(("old", "new", "problem"), rows("a_wrong_use"))
def test_a_wrong_use(ours: OwnClasses, old: str, new: str, problem: str) -> None:
    ours.suite((old, new))
    assert problem in ours.problems()


@pytest.mark.parametrize(("first", "second", "meanings"), rows("a_name_has_one_meaning_in_all_cases"))
def test_a_name_has_one_meaning_in_all_cases(ours: OwnClasses, first: str, second: str, meanings: str | None) -> None:
    declared = f"Metric({first}) if case.id == 'two' else Metric({second})"
    ours.code((METRICS, METRICS.replace("}", f", 'look.x': {declared}}}")))
    ours.suite(("cases: [", "cases: [{id: two, prompt: a bush}, "))
    message = f"suite.yaml:8:5: ours:Look declares 'look.x' as {meanings} for 'one': use two names"
    if meanings is None:
        ours("validate", "suite.yaml")
    else:
        assert ours.problems() == [message]


def test_an_error_of_an_options_validator_names_its_key(ours: OwnClasses) -> None:
    check = "\n        @field_validator('color')\n        @classmethod\n        def check(cls, value): raise ValueError('unknown color')"
    ours.code(
        ("import BaseModel, ", "import BaseModel, field_validator, "),
        ("color: str = 'red'", f"\n        color: str = 'red'{check}"),
    )
    ours.suite(("label: ours", "options: {color: blu}"))
    assert ours.problems() == ["suite.yaml:4:46: color: unknown color"]


@pytest.mark.parametrize("options", ["", ", options: {color: blu}"])
@pytest.mark.parametrize(("code", "problem"), rows("an_options_validator_that_fails"))
def test_an_options_validator_that_fails(ours: OwnClasses, options: str, code: str, problem: str) -> None:
    check = f"@model_validator(mode='before')\n        @classmethod\n        def check(cls, value): {code}"
    ours.code(
        ("import BaseModel, ", "import BaseModel, model_validator, "),
        ("color: str = 'red'", f"\n        color: str = 'red'\n        {check}"),
    )
    ours.suite((", label: ours", f"{options}, label: ours"))
    assert ours.problems() == [f"{DRAW}Options failed: {problem}"]


@pytest.mark.parametrize("arguments", [("run", "--resume", "latest"), ("grade", "latest")])
def test_a_run_goes_on_only_if_options_can_be_checked(ours: OwnClasses, arguments: tuple[str, ...]) -> None:
    ours.record()
    entry, version = ("Draw", "draw 1") if arguments[0] == "run" else ("Look", "look 1")
    check = "@model_validator(mode='before')\n        @classmethod\n        def check(cls, value): return {}['no']"
    ours.code(
        ("import BaseModel, ", "import BaseModel, model_validator, "),
        (
            "color: str = 'red'",
            f"\n        color: str = 'red'\n        {check}" if entry == "Draw" else "color: str = 'red'",
        ),
        ("level: int =", f"{check}\n        level: int =" if entry == "Look" else "level: int ="),
        (version, "another"),
    )
    problem = f"ours:{entry}: Options failed: KeyError: 'no' (ours.py:"
    (line,) = ours(*arguments, code=2).stderr.splitlines()
    assert line.startswith(problem), line


@pytest.mark.parametrize(("options", "written", "problem"), rows("options_of_any_pydantic_model"))
def test_options_of_any_pydantic_model(ours: OwnClasses, options: str, written: str, problem: str) -> None:
    ours.code(
        ("import BaseModel, ", "import BaseModel, RootModel, "),
        ("class Draw:", "class Paint: ...\nclass Draw:"),
        ("class Options(BaseModel): color: str = 'red'", options),
    )
    ours.suite(("label: ours", f"options: {written}"))
    if problem:
        assert ours.problems() == [f"suite.yaml:4:{problem}"]
    else:
        ours.record()


def test_all_problems_are_reported_together(ours: OwnClasses) -> None:
    ours.code(("def generate", "def draw"), ("def ask", "def reply"))
    ours.suite(("prompt: a tree", "prompt: a tree, promt: b"))
    places = [problem.partition(": ")[0] for problem in ours.problems()]
    assert places == ["suite.yaml:2:35", "suite.yaml:4:16", "suite.yaml:6:23"]


def test_cases_that_are_invalid_need_no_method_and_no_metrics(ours: OwnClasses) -> None:
    ours.code(("def generate", "def edit"), (METRICS, f"case.metadata['x']; {METRICS}"))
    ours.suite(("prompt: a tree", "promt: a tree"))
    assert [problem.partition(": ")[0] for problem in ours.problems()] == ["suite.yaml:2:19"]


def test_a_method_of_the_instance_counts(ours: OwnClasses) -> None:
    ours.code((DRAW_INIT, f"{INIT[:-1]}; self.generate = self.draw\n    def draw"))
    ours("validate", "suite.yaml")


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
def test_a_task_without_a_method(ours: OwnClasses, command: str) -> None:
    Image.new("RGB", (8, 8)).save(ours.toy.folder / "base.png")
    edit = ("a tree}", "a tree}, {id: two, prompt: add a bird, task: image_editing, images: [base.png]}")
    ours.suite(edit)
    problem = f"{DRAW}has no method 'edit', so it cannot do image_editing; restrict it with 'tasks'"
    assert ours(command, "suite.yaml", code=2).stderr.splitlines() == [problem]
    ours.suite(edit, ("label: ours", "tasks: [image_generation]"))
    assert "no model of this suite supports image_editing" in ours(command, "suite.yaml", code=2).stderr


def test_a_resumed_run_reports_a_missing_method_too(ours: OwnClasses) -> None:
    ours.record()
    ours.code(("def generate", "def edit"), ("'draw 1'", "'draw 2'"))
    result = ours("run", "--resume", "latest", code=2)
    assert "ours:Draw: has no method 'generate', so it cannot do image_generation" in result.stderr


class TestTrustAndKeys:
    """Code of a suite runs with --trust-suite alone, and keys are asked for and hidden."""

    def test_without_trust_no_code_is_loaded_and_skipped_checks_are_reported(self, ours: OwnClasses) -> None:
        ours.code(("import json", "import json, pathlib; pathlib.Path('loaded').touch()"))
        ours.suite(("label: ours", "options: {colour: teal}"))
        for arguments in (("validate",), ("plan",), ("run", "--dry-run"), ("run",)):
            result = ours.toy(*arguments, "suite.yaml")
            assert result.exit_code == 2
            asks = "runs code from the suite: pass --trust-suite if you trust it"
            assert [line.partition(asks)[2] for line in result.stderr.splitlines()] == [
                "; until then, its options are not checked", "; until then, its options are not checked", "",
            ]  # fmt: skip
        assert not (ours.toy.folder / "loaded").exists()
        assert ours.problems()  # which is how its options and metrics are checked
        assert (ours.toy.folder / "loaded").exists()

    def test_a_class_whose_key_is_missing_is_imported_only(self, ours: OwnClasses) -> None:
        ours.code((DRAW_INIT, f"{INIT.replace('self.options = config.options', '1 / 0')}    def generate"))
        ours.suite(("label: ours", "api_key_env: OUR_KEY"))
        for command in ("validate", "plan"):
            assert "OUR_KEY" in ours(command, "suite.yaml").stdout
        assert "set the environment variable OUR_KEY" in ours("run", "suite.yaml", code=2).stderr
        assert not (ours.toy.folder / "runs").exists()
        result = ours("validate", "suite.yaml", code=2, OUR_KEY="sk-0123456789")
        assert f"{DRAW}cannot be created: ZeroDivisionError" in result.stderr
        ours.code()
        ours("run", "suite.yaml", OUR_KEY="sk-0123456789")

    def test_a_key_in_an_error_is_hidden(self, ours: OwnClasses) -> None:
        ours.code(
            (
                DRAW_INIT,
                "def __init__(self, config): import os; raise OSError(os.environ['TOY_API_KEY'])\n    def generate",
            )
        )
        result = ours("run", "suite.yaml", code=2, TOY_API_KEY="sk-0123456789")
        assert result.stderr.strip() == f"{DRAW}cannot be created: OSError: *** (ours.py:19)"


class TestHiddenModules:
    """An installed module comes before one of the same name next to the suite."""

    @pytest.mark.parametrize(
        ("file", "old", "new", "name", "problem"),
        [
            ("colorsys.py", "ours:Draw", "colorsys:Draw", "colorsys:Draw",
             "the module 'colorsys' has no 'Draw'; 'colorsys' was loaded from "
             f"{colorsys.__file__}, which takes precedence over colorsys.py next to the suite: rename colorsys.py"),
            ("time.py", "ours:Draw", "time:Draw", "time:Draw", "the module 'time' has no 'Draw'; 'time' was loaded from Python"
             " itself, which takes precedence over time.py next to the suite: rename time.py"),
            ("other.py", "ours:Draw", "colorsys:Draw", "colorsys:Draw", "the module 'colorsys' has no 'Draw'"),
        ],
    )  # fmt: skip
    def test_the_loaded_file_is_named(
        self, ours: OwnClasses, file: str, old: str, new: str, name: str, problem: str
    ) -> None:
        (ours.toy.folder / file).write_text("class Draw: ...\n")
        ours.suite((old, new))
        assert ours.problems() == [f"suite.yaml:4:16: {name}: cannot be imported: {problem}"]

    def test_a_module_in_a_hidden_package_is_explained(self, ours: OwnClasses) -> None:
        (ours.toy.folder / "yaml").mkdir()
        (ours.toy.folder / "yaml" / "draws.py").write_text("class Draw: ...\n")
        ours.suite(("ours:Draw", "yaml.draws:Draw"))
        (problem,) = ours.problems()
        assert "ModuleNotFoundError: No module named 'yaml.draws'; 'yaml' was loaded from " in problem
        assert problem.endswith("which takes precedence over yaml/ next to the suite: rename yaml/")

    def test_an_imported_helper_is_explained(self, ours: OwnClasses) -> None:
        (ours.toy.folder / "colorsys.py").write_text("def blue(): ...\n")
        ours.code(("class Draw", "from colorsys import blue\nclass Draw"))
        assert "which takes precedence over colorsys.py next to the suite" in ours.problems()[0]

    def test_an_error_in_an_installed_module_has_its_path_in_the_package(
        self, ours: OwnClasses, toy: Toy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = toy.folder / "site-packages" / "bought" / "inner"
        package.mkdir(parents=True)
        (package / "draws.py").write_text("class Draw:\n    def __init__(self, config): 1 / 0\n")
        monkeypatch.syspath_prepend(package.parent.parent)
        ours.suite(("ours:Draw", "bought.inner.draws:Draw"))
        (problem,) = ours.problems()
        assert problem.endswith("ZeroDivisionError: division by zero (bought/inner/draws.py:2)")


class TestPrices:
    """Prices of custom classes."""

    def test_a_budget_asks_for_the_price_of_every_call(self, ours: OwnClasses) -> None:
        example = "prices: {ours:Answer: {per_call: 0.02}, ours:Draw: {per_image: 0.02}}"
        assert ours("run", "suite.yaml", "--budget", "1", code=2).stderr.strip() == (
            "the budget needs the price of every call, but these are unknown: ours:Answer, ours:Draw."
            f" Set them in the suite, 0 for free calls, for example '{example}'"
        )
        ours.suite(("verdict:", f"{example.replace('0.02', '0')}\nverdict:"))
        ours("run", "suite.yaml", "--budget", "1")

    @pytest.mark.parametrize(("model", "prices", "problem"), rows("a_judge_priced_by_image_alone_is_refused"))
    def test_a_judge_priced_by_image_alone_is_refused(
        self, ours: OwnClasses, model: str, prices: str, problem: str | None
    ) -> None:
        ours.suite((", options: {yes: true}}", f", options: {{yes: true}}{model}}}\nprices: {prices}"))
        if problem is None:
            ours("validate", "suite.yaml")
            return
        position = f"suite.yaml:7:{len('prices: ') + prices.index('{', 1) + 1}"
        message = "the judge 'default' generates no images, so per_image prices its calls at 0"
        assert ours.problems() == [f"{position}: {message}: {problem}"]

    @pytest.mark.parametrize(
        ("model", "advice"), [("", "add per_call"), (", model: m", "add a price for 'ours:Both:m'")]
    )
    def test_a_price_of_a_model_run_too_is_a_warning(self, ours: OwnClasses, model: str, advice: str) -> None:
        ours.code(("class Answer:", "class Both(Draw):"), ("yes: object", "yes: object = True"))
        names = (("ours:Draw", "ours:Both"), ('"ours:Answer"', f'"ours:Both"{model}'))
        ours.suite(*names, ("verdict:", "prices: {ours:Both: {per_image: 0.02}}\nverdict:"))
        output = ours("validate", "suite.yaml").output
        assert "suite.yaml:9:21: warning: the judge 'default' generates no images" in output
        assert advice in output


class Limits(BaseModel):
    """Limits on lengths."""

    pair: list[int] = Field(default=[1, 2], min_length=2)
    some: list[int] = Field(default=[1], min_length=1)
    few: list[int] = Field(default=[], max_length=1)
    word: str = Field(default="word", min_length=3)
    name: str = Field(default="n", min_length=1)
    short: str = Field(default="", max_length=2)


@pytest.mark.parametrize(("written", "message"), rows("limits_on_lengths_are_named"))
def test_limits_on_lengths_are_named(written: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as failure:
        Limits.model_validate(written)
    (error,) = failure.value.errors()
    assert explain(error, Limits.model_json_schema()) == message
