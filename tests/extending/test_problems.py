"""What ``validate`` and ``run`` report about custom classes and their use, each at its place in the suite."""

from __future__ import annotations

import colorsys
from typing import Any

import pytest
from classes import OwnClasses
from PIL import Image
from pydantic import BaseModel, Field, ValidationError
from toys import Toy

from visioneval.suite.messages import explain

DRAW, ANSWER, LOOK = "suite.yaml:4:16: ours:Draw: ", "suite.yaml:6:23: ours:Answer: ", "suite.yaml:8:23: ours:Look: "
INIT = "def __init__(self, config): self.options = config.options\n"
DRAW_INIT, ANSWER_INIT = f"{INIT}    def generate", f"{INIT}    def ask"
METRICS = "return {'look': Metric(type='bool'), 'look.level': Metric(type='number')}"
IMPORTED = "cannot be imported: "
INVALID_METRIC = "metrics(case) returned an invalid 'x' for 'one': "
FAILED_METRICS = "metrics(case) failed for 'one': "


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (ours.py:16)"),
        ("import later", "RuntimeError: too early (later.py:1)"),
        ("import nix", "ModuleNotFoundError: No module named 'nix' (ours.py:16)"),
        ("raise SystemExit(5)", "SystemExit: 5 (ours.py:16)"),
        ("def x(:", "SyntaxError: invalid syntax (ours.py, line 16)"),
    ],
)
def test_a_module_that_fails(ours: OwnClasses, code: str, problem: str) -> None:
    (ours.toy.folder / "later.py").write_text("raise RuntimeError('too early\\nby far')\n")
    ours.code(("class Draw", f"{code}\nclass Draw"))
    assert ours.problems() == [f"{entry}{IMPORTED}{problem}" for entry in (DRAW, ANSWER, LOOK)]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        # the class
        ("class Draw", "class Drow", f"{DRAW}{IMPORTED}the module 'ours' has no 'Draw' (did you mean 'Drow'?)"),
        ("class Draw", "Draw = 3\nclass Other", f"{DRAW}is not a class, but a value of the type int"),
        ("class Draw:", "class Draw:\n    visioneval_api = '2'",
         f"{DRAW}has visioneval_api = '2', but this version of visioneval has 1: install versions of both that fit"),
        ("def generate", "def draw", f"{DRAW}has no method 'generate' or 'edit'"),
        ("def generate", "def edit", f"{DRAW}has no method 'generate', so it cannot do image_generation; restrict it with 'tasks'"),
        ("async def grade", "async def judge", f"{LOOK}has no method 'grade'"),
        ("def ask", "def reply", f"{ANSWER}has no method 'ask'"),
        # its constructor
        (DRAW_INIT, f"{INIT.replace('config.options', 'config.opts')}    def generate",
         f"{DRAW}cannot be created: AttributeError: 'CustomProvider' object has no attribute 'opts' (ours.py:19)"),
        (DRAW_INIT, "def __new__(cls, config): raise OSError('no GPU\\nat all')\n    def generate",
         f"{DRAW}cannot be created: OSError: no GPU (ours.py:19)"),
        (DRAW_INIT, "def __init__(self, config): raise SystemExit('no GPU')\n    def generate",
         f"{DRAW}cannot be created: SystemExit: no GPU (ours.py:19)"),
        (ANSWER_INIT, "def ask", f"{ANSWER}cannot be created: the class needs an __init__(self, config)"),
        # its metrics
        (METRICS, METRICS.replace("{'look'", "{'': Metric(), 'look'"),
         "suite.yaml:8:5: it writes '', but the name of a metric is one line of text: use another name"),
        (METRICS, METRICS.replace("{'look'", "{'pass_rate': Metric(), 'look'"),
         "suite.yaml:8:5: it writes 'pass_rate', which is reserved: use another name"),
        (METRICS, METRICS.replace("{'look'", "{'x': Metric(type='number', range=(1, 0)), 'look'"),
         "suite.yaml:8:5: it writes 'x' with a wrong range: 1 is not below 0"),
        (METRICS, METRICS.replace("{'look'", "{'s: a': Metric(), 's': Metric(type='one_of', choices=('a', 'b')), 'look'"),
         "suite.yaml:8:5: it writes 's: a', the name of a share of 's': use another name"),
        (METRICS, "return case.nothing",
         f"{LOOK}{FAILED_METRICS}AttributeError: 'TestCase' object has no attribute 'nothing' (ours.py:11)"),
        (METRICS, "return [3]", f"{LOOK}metrics(case) returned list, not dict, for 'one'"),
        (METRICS, "return {'x': {'type': 'colour', 'beter': 'lower'}}",
         f"{LOOK}{INVALID_METRIC}type: 'colour' is not one of bool, number, one_of; unknown key 'beter' (did you mean 'better'?)"),
        (METRICS, "Metric(type='colour', range=(0, 'x'))",
         f"{LOOK}{FAILED_METRICS}ValidationError: Metric: type: Input should be 'bool', 'number' or 'one_of'; range.1: Input should be a"
         " valid number, unable to parse string as a number (ours.py:11)"),
        ("def metrics", "def _metrics",
         "suite.yaml:8:5: the key 'writes' is missing: list the metrics, since the class ours:Look has no metrics(case)"),
        ("class Draw:", "import abc\nclass Draw(abc.ABC):\n    @abc.abstractmethod\n    def b(self): ...\n    a = abc.abstractmethod(lambda self: 1)",
         f"{DRAW}cannot be created: the class is abstract, without 'a', 'b'"),
        # its version
        ("'draw 1'", "''", f"{DRAW}a 'version' must be a number or one line of text"),
        ("'draw 1'", "' '", f"{DRAW}a 'version' must be a number or one line of text"),
        ("'draw 1'", "'a\\nb'", f"{DRAW}a 'version' must be a number or one line of text"),
        ("'draw 1'", "'a\\n'", f"{DRAW}a 'version' must be a number or one line of text"),
        ("'draw 1'", "property(lambda self: 1)", f"{DRAW}a 'version' must be a number or one line of text, not a property"),
        ("version = 'draw 1'", "def version(self): ...", f"{DRAW}a 'version' must be a number or one line of text, not a function"),
        ("version = 'draw 1'", "class Text(str):\n        def __str__(self): return {}['no']\n    version = Text('x')",
         f"{DRAW}'version' cannot be read: KeyError: 'no' (ours.py:18)"),
        ("class Draw:", "class Meta(type):\n    def __getattr__(cls, name): raise OSError(name)\nclass Draw(metaclass=Meta):",
         f"{DRAW}'visioneval_api' cannot be read: OSError: visioneval_api (ours.py:17)"),
        ("def generate", "generate = property(lambda self: {}['no'])\n    def draw", f"{DRAW}'generate' cannot be read: KeyError: 'no' (ours.py:20)"),
        # its options
        ("class Options(BaseModel):\n", "class Options:\n",
         f"{LOOK}Options must be a pydantic model: derive it from pydantic.BaseModel"),
        ("class Options(BaseModel): color: str", "class Options(BaseModel): color: 'Paint'",
         f"{DRAW}Options cannot be used: PydanticUndefinedAnnotation: name 'Paint' is not defined"),
    ],
)  # fmt: skip
def test_a_broken_class(ours: OwnClasses, old: str, new: str, problem: str) -> None:
    ours.code((old, new))
    assert ours.problems() == [problem]


WRITES = "judge: default, writes: "


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("ours:Draw", "nowhere:Draw", "suite.yaml:4:16: nowhere:Draw: cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("ours:Look", "ours.deep:Look", "suite.yaml:8:23: ours.deep:Look: cannot be imported: ModuleNotFoundError: No module named "
         "'ours.deep'; 'ours' is not a package"),
        ("judge: default", "judge: default, options: {level: -1}", "suite.yaml:8:69: level: must be at least 0, not -1"),
        ("label: ours", "options: {colour: teal}", "suite.yaml:4:39: unknown key 'colour' (did you mean 'color'?)"),
        (", options: {yes: true}", "", "suite.yaml:6:12: the key 'yes' is missing"),
        ("judge: default", "judge: defualt", "suite.yaml:8:43: there is no judge 'defualt' under 'judges' (did you mean 'default'?)"),
        ("judge: default", WRITES + "{look: {}, look.lvel: {}}",
         "suite.yaml:8:71: the class ours:Look does not write 'look.lvel' (did you mean 'look.level'?)"),
        ("judge: default", WRITES + "{look: {}}",
         "suite.yaml:8:60: the class ours:Look also writes 'look.level': add it, or remove 'writes'"),
        ("judge: default", WRITES + "{look: {type: number}, look.level: {type: number}}",
         "suite.yaml:8:67: the class ours:Look defines 'look' differently: remove 'writes'"),
    ],
)  # fmt: skip
def test_a_wrong_use(ours: OwnClasses, old: str, new: str, problem: str) -> None:
    ours.suite((old, new))
    assert problem in ours.problems()


@pytest.mark.parametrize(
    ("first", "second", "meanings"),
    [
        ("type='bool'", "type='number'", "yes or no, higher is better, but number, higher is better"),
        ("type='number', range=(0, 1)", "type='number', range=(0, 9)",
         "number from 0 to 1, higher is better, but number from 0 to 9, higher is better"),
        ("type='one_of', choices=('a', 'b')", "type='one_of', choices=('a', 'c')", "one of a, b, but one of a, c"),
        ("type='one_of', choices=('a', 'b')", "type='one_of', choices=('b', 'a')", None),
        ("type='bool'", "type='bool'", None),
    ],
)  # fmt: skip
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
@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("return {}['no']", "KeyError: 'no' (ours.py:22)"),
        ("open('no\\nfile')", "FileNotFoundError: [Errno 2] No such file or directory: 'no\\nfile' (ours.py:22)"),
        ("raise SystemExit(3)", "SystemExit: 3 (ours.py:22)"),
    ],
)
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


ARBITRARY = "class Options(BaseModel):\n        model_config = {'arbitrary_types_allowed': True}\n        "


@pytest.mark.parametrize(
    ("options", "written", "problem"),
    [
        ("class Options(RootModel[dict[str, int]]): color = property(lambda self: 'red')", "{a: 1}", ""),
        ("class Options(RootModel[dict[str, int]]): color = property(lambda self: 'red')", "{a: x}", "42: a: expected a whole number, not 'x'"),
        (f"{ARBITRARY}color: str = 'red'\n        paint: Paint | None = None", "{color: blue}", ""),
        (f"{ARBITRARY}color: str = 'red'\n        paint: Paint | None = None", "{paint: 1}",
         "46: paint: Input should be an instance of Paint"),
        (f"{ARBITRARY}color: str = 'red'\n        paint: Paint | None = None", "{colour: blue}", "39: unknown key 'colour'"),
    ],
)  # fmt: skip
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

    @pytest.mark.parametrize(
        ("model", "prices", "problem"),
        [
            ("", "{ours:Answer: {per_image: 0.02}}", "set per_call, or a price per token"),
            ("", "{ours:Answer: {per_image: 0.02, per_call: 0}}", None),
            ("", "{ours:Answer: {per_image: 0}}", None),
            (", model: m", "{m: {per_image: 0.02}}", "set per_call, or a price per token"),
            (", model: m", "{m: {per_image: 0.02}, ours:Answer:m: {per_call: 0.1}}", None),
        ],
    )
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


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"pair": [1]}, "pair: must have at least 2 items"),
        ({"some": []}, "some: must not be empty"),
        ({"few": [1, 2]}, "few: must have at most 1 item"),
        ({"word": "ab"}, "word: must have at least 3 characters"),
        ({"name": ""}, "name: must not be empty"),
        ({"short": "abc"}, "short: 'abc' is longer than 2 characters"),
    ],
)
def test_limits_on_lengths_are_named(written: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as failure:
        Limits.model_validate(written)
    (error,) = failure.value.errors()
    assert explain(error, Limits.model_json_schema()) == message
