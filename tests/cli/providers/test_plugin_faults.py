"""Faults in custom classes: each is reported where it is, and none passes silently."""

from __future__ import annotations

import colorsys
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pydantic import BaseModel, Field, ValidationError
from toys import Toy

import visioneval as ve
from visioneval import Record
from visioneval.suite.loading.messages import explain

IMPORTS = "import asyncio\nfrom visioneval import *\nfrom mine import encoded\n"
GRADER = """
class Look:
    def __init__(self, config): self.options = config.options
    def metrics(self, case): return {'look': {'type': 'bool'}}
    async def grade(self, context): return Grade(scores={'look': True})
"""
PROVIDER = """
class Draw:
    def __init__(self, config): self.config = config
    def generate(self, request): return Generation(outputs=(encoded(),), cost_usd=0.0)
"""
JUDGE = """
class Answer:
    def __init__(self, config): self.config = config
    def ask(self, question, about): return Reply(text='{"yes": true}', model='m', cost_usd=0.0)
"""
ASKS = "return Grade(scores={'look': (await context.ask('Fine?', {'yes': {'type': 'boolean'}}))['yes']})"
SUITE = """\
name: ours
cases: [{id: one, prompt: a tree}]
models:
  - {provider: "ours:Draw", label: ours}
judges:
  default: {provider: "ours:Answer"}
graders:
  - {key: look, type: "ours:Look", judge: default}
verdict: [look]
"""
PROVIDER_AT, JUDGE_AT, GRADER_AT = "suite.yaml:4:16", "suite.yaml:6:23", "suite.yaml:8:23"


class PluginSuite:
    """A suite with one class of each kind."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        (toy.folder / "suite.yaml").write_text(SUITE)
        self.code(("return Grade(scores={'look': True})", ASKS))

    def code(self, *changes: tuple[str, str]) -> None:
        """Writes the classes with changes."""
        text = IMPORTS + GRADER + PROVIDER + JUDGE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.toy.folder / "ours.py").write_text(text)
        sys.modules.pop("ours", None)

    def suite(self, old: str, new: str) -> None:
        """Changes the suite."""
        assert old in SUITE
        (self.toy.folder / "suite.yaml").write_text(SUITE.replace(old, new))

    def problems(self) -> list[str]:
        """What ``validate`` reports."""
        result = self.toy("validate", "suite.yaml", "--trust-suite")
        assert "Traceback" not in result.output
        return str(result.stderr).splitlines() if result.exit_code == 2 else []

    def record(self) -> Record:
        """The record of a run."""
        result = self.toy("run", "suite.yaml", "--trust-suite")
        assert "Traceback" not in result.output
        return self.toy.record

    def error(self) -> str:
        """The error of a run's only cell."""
        error = self.record().error
        assert error is not None
        return f"{error.stage}: {error.message}"


@pytest.fixture
def plugins(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> PluginSuite:
    monkeypatch.chdir(toy.folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return PluginSuite(toy)


def test_classes_without_a_fault_pass(plugins: PluginSuite) -> None:
    assert plugins.problems() == []
    assert plugins.record().verdict == "PASS"


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def generate", "def draw", f"{PROVIDER_AT}: ours:Draw: has no method 'generate' or 'edit'"),
        ("async def grade", "async def judge", f"{GRADER_AT}: ours:Look: has no method 'grade'"),
        ("def ask", "def reply", f"{JUDGE_AT}: ours:Answer: has no method 'ask'"),
        ("self.options = config.options", "1 / 0", f"{GRADER_AT}: ours:Look: cannot be created: ZeroDivisionError: "),
        ("class Draw:", "class Draw:\n    def __new__(cls, config): raise OSError('no GPU\\nat all')",
         f"{PROVIDER_AT}: ours:Draw: cannot be created: OSError: no GPU"),
        ("class Answer:\n    def __init__(self, config): self.config = config", "class Answer:",
         f"{JUDGE_AT}: ours:Answer: cannot be created: the class needs an __init__(self, config)"),
        ("class Look:", "class Look:\n    class Options: pass",
         f"{GRADER_AT}: ours:Look: Options must be a pydantic model"),
        ("return {'look': {'type': 'bool'}}", "return case.nothing",
         f"{GRADER_AT}: ours:Look: metrics(case) failed for 'one': AttributeError: "),
        ("class Draw", "class Drow",
         f"{PROVIDER_AT}: ours:Draw: cannot be imported: the module 'ours' has no 'Draw' (did you mean 'Drow'?)"),
        ("class Draw", "Draw = 3\nclass Other", f"{PROVIDER_AT}: ours:Draw: is not a class, but a value of the type int"),
    ],
)  # fmt: skip
def test_a_broken_class_is_reported_at_its_entry(plugins: PluginSuite, old: str, new: str, message: str) -> None:
    plugins.code((old, new))
    (problem,) = plugins.problems()
    assert problem.startswith(message)


EDIT = "{id: two, prompt: add a bird, task: image_editing, images: [base.png]}"


class TestTasks:
    """A provider class lacks the method of a task."""

    @pytest.fixture
    def edits(self, plugins: PluginSuite) -> PluginSuite:
        Image.new("RGB", (8, 8)).save(plugins.toy.folder / "base.png")
        plugins.suite("a tree}", f"a tree}}, {EDIT}")
        return plugins

    @pytest.mark.parametrize("command", ["validate", "plan", "run"])
    def test_it_is_reported_at_its_entry(self, edits: PluginSuite, command: str) -> None:
        result = edits.toy(command, "suite.yaml", "--trust-suite")
        assert result.exit_code == 2
        missing = "ours:Draw: has no method 'edit', so it cannot do image_editing; restrict it with 'tasks'"
        assert result.stderr.splitlines() == [f"suite.yaml:4:16: {missing}"]

    def test_tasks_excludes_it(self, edits: PluginSuite) -> None:
        entry = '"ours:Draw",'
        text = (edits.toy.folder / "suite.yaml").read_text().replace(entry, f"{entry} tasks: [image_generation],")
        (edits.toy.folder / "suite.yaml").write_text(text + "task: image_generation\n")
        (problem,) = edits.problems()
        assert "no model of this suite supports image_editing" in problem

    def test_cases_that_are_invalid_need_no_method(self, plugins: PluginSuite) -> None:
        plugins.code(
            ("def generate", "def edit"), ("def metrics(self, case): ", "def metrics(self, case): case.metadata['x']; ")
        )
        plugins.suite("id: one, prompt: a tree", "id: one, promt: a tree")
        assert [problem.partition(": ")[0] for problem in plugins.problems()] == ["suite.yaml:2:19"]

    def test_a_resumed_run_reports_it_too(self, plugins: PluginSuite) -> None:
        plugins.record()
        plugins.code(("def generate", "def edit"), ("class Draw:", "class Draw:\n    version = 2"))
        result = plugins.toy("run", "--resume", "latest", "--trust-suite")
        assert result.exit_code == 2
        assert "ours:Draw: has no method 'generate', so it cannot do image_generation" in result.stderr


def test_all_broken_classes_and_other_problems_are_reported_together(plugins: PluginSuite) -> None:
    plugins.code(("def generate", "def draw"), ("def ask", "def reply"))
    plugins.suite("prompt: a tree", "prompt: a tree, promt: b")
    assert [problem.partition(": ")[0] for problem in plugins.problems()] == ["suite.yaml:2:35", PROVIDER_AT, JUDGE_AT]


def test_a_method_of_the_instance_counts(plugins: PluginSuite) -> None:
    plugins.code(
        ("def generate", "def draw"), ("self.config = config\n    def draw", "self.generate = self.draw\n    def draw")
    )
    assert plugins.problems() == []


def test_a_class_whose_key_is_missing_is_not_built(plugins: PluginSuite) -> None:
    plugins.code(
        (
            "def __init__(self, config): self.config = config\n    def gen",
            "def __init__(self, config): 1 / 0\n    def gen",
        )
    )
    plugins.suite('"ours:Draw",', '"ours:Draw", api_key_env: OUR_KEY,')
    assert plugins.problems() == []
    result = plugins.toy("validate", "suite.yaml", "--trust-suite", OUR_KEY="sk-0123456789")
    assert f"{PROVIDER_AT}: ours:Draw: cannot be created: ZeroDivisionError" in result.stderr


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("outputs=encoded()", "it returned outputs=bytes: it must be a tuple of bytes"),
        ("outputs=(encoded(),), refused='no'", "it returned both outputs and a refusal: return one of them"),
        (
            "outputs=(encoded(),), cost_usd=-1",
            "it returned cost_usd=-1: it must be a number from 0, or None if it is unknown",
        ),
        ("outputs=(encoded(),), cost_usd=float('nan')", "it returned cost_usd=nan: "),
        ("outputs=(encoded(),), cost_usd='1'", "it returned cost_usd='1': "),
    ],
)
def test_an_impossible_generation_is_an_error(plugins: PluginSuite, returned: str, message: str) -> None:
    plugins.code(("outputs=(encoded(),), cost_usd=0.0", returned))
    assert plugins.error().startswith(f"generate: {message}")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("'yes'", "ask() returned str, not Reply"),
        ("Reply(text=None, model='m')", "ask() returned a Reply whose text is NoneType, not str"),
        ("Reply(text='{}', model='m', cost_usd=-1)", "ask() returned cost_usd=-1: it must be a number from 0"),
    ],
)
def test_a_judge_that_returns_no_reply_is_named(plugins: PluginSuite, returned: str, message: str) -> None:
    reply = """Reply(text='{"yes": true}', model='m', cost_usd=0.0)"""
    plugins.code(("return Grade(scores={'look': True})", ASKS), (reply, returned))
    assert plugins.error().startswith(f"grade: look: the judge 'default': {message}")


@pytest.mark.filterwarnings("ignore:coroutine 'GradingContext.ask' was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("use", ["['yes']", ""])
def test_a_grader_that_does_not_await_an_answer_gets_a_hint(plugins: PluginSuite, use: str) -> None:
    plugins.code(
        ("async def grade", "def grade"),
        ("scores={'look': True}", f"scores={{'look': context.ask('Fine?', {{'yes': {{'type': 'boolean'}}}}){use}}}"),
    )
    assert plugins.error().endswith("write 'async def grade' and 'await context.ask(...)'")


class TestPlaces:
    """An exception names the line of the user's code."""

    def test_of_a_grader(self, plugins: PluginSuite) -> None:
        plugins.code(("return Grade(scores={'look': True})", "return {}['start']"))
        assert plugins.error() == "grade: look: KeyError: 'start' (ours.py:8)"

    def test_of_a_provider(self, plugins: PluginSuite) -> None:
        plugins.code(("outputs=(encoded(),)", "outputs=encoded(size=None)"))
        # the innermost line of the user's files, although Pillow raises
        assert plugins.error().startswith("generate: ValueError: Size")
        assert plugins.error().endswith(" (mine.py:11)")

    def test_of_a_judge_with_its_name(self, plugins: PluginSuite) -> None:
        reply = """Reply(text='{"yes": true}', model='m', cost_usd=0.0)"""
        plugins.code(("return Grade(scores={'look': True})", ASKS), (reply, "{}['on']"))
        assert plugins.error() == "grade: look: the judge 'default': KeyError: 'on' (ours.py:16)"

    @pytest.mark.parametrize(
        ("old", "new", "problem"),
        [
            ("class Draw", "1 / 0\nclass Draw", "cannot be imported: ZeroDivisionError: division by zero (ours.py:10)"),
            ("class Draw", "import later\nclass Draw", "cannot be imported: RuntimeError: too early (later.py:1)"),
            ("class Draw", "def x(:\nclass Draw", "cannot be imported: SyntaxError: invalid syntax (ours.py, line 10)"),
        ],
    )
    def test_of_an_import(self, plugins: PluginSuite, old: str, new: str, problem: str) -> None:
        (plugins.toy.folder / "later.py").write_text("raise RuntimeError('too early\\nby far')\n")
        plugins.code((old, new))
        assert plugins.problems()[0] == f"{PROVIDER_AT}: ours:Draw: {problem}"

    def test_of_a_constructor(self, plugins: PluginSuite) -> None:
        plugins.code(("self.options = config.options", "self.options = config.opts['x']"))
        (problem,) = plugins.problems()
        assert problem.startswith(f"{GRADER_AT}: ours:Look: cannot be created: AttributeError: ")
        assert problem.endswith(" (ours.py:6)")

    def test_of_an_installed_package(
        self, plugins: PluginSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "site-packages" / "bought" / "inner"
        package.mkdir(parents=True)
        (package / "draws.py").write_text("class Draw:\n    def __init__(self, config): 1 / 0\n")
        monkeypatch.syspath_prepend(package.parent.parent)
        plugins.suite("ours:Draw", "bought.inner.draws:Draw")
        (problem,) = plugins.problems()
        assert problem.endswith("ZeroDivisionError: division by zero (bought/inner/draws.py:2)")

    def test_not_of_an_error_that_is_meant(self, plugins: PluginSuite) -> None:
        plugins.code(("return Grade(scores={'look': True})", "raise GraderError('too dark')"))
        assert plugins.error() == "grade: look: too dark"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("'q', {'on': 'boolean'}", "TypeError: answers['on'] must be a JSON Schema, a dict, not str"),
        ("'q', ['on']", "TypeError: answers must be a dict with a JSON Schema for each answer, such as "),
        ("'q', {}", "TypeError: answers must be a dict with a JSON Schema for each answer, such as "),
        ("3, {'on': {}}", "TypeError: the question must be text, not int"),
    ],
)
def test_wrong_arguments_of_ask_are_named(plugins: PluginSuite, asked: str, message: str) -> None:
    plugins.code(("return Grade(scores={'look': True})", f"return await context.ask({asked})"))
    assert plugins.error().startswith(f"grade: look: {message}")


def test_an_unknown_kind_of_error_is_refused(plugins: PluginSuite) -> None:
    plugins.code(("return Generation(outputs=(encoded(),), cost_usd=0.0)", "raise ProviderError('x', kind='oops')"))
    kinds = "rate_limit, transient, auth, quota, invalid, refused, bad_image, offline, pending, unusable"
    assert plugins.error() == f"generate: ValueError: ProviderError: unknown kind 'oops': use {kinds} (ours.py:12)"


@pytest.mark.parametrize(
    ("code", "who"),
    [
        ("return Generation(outputs=(encoded(),), cost_usd=0.0)", "the quota at ours:Draw is"),
        (
            "return Reply(text='{\"yes\": true}', model='m', cost_usd=0.0)",
            "the judge 'default': the quota at ours:Answer is",
        ),
    ],
)
def test_a_class_may_report_a_spent_quota(plugins: PluginSuite, code: str, who: str) -> None:
    asks = ("return Grade(scores={'look': True})", ASKS)
    plugins.code(asks, (code, "raise ProviderError('none left', kind='quota')"))
    result = plugins.toy("run", "suite.yaml", "--trust-suite", "--run-id", "q")
    assert result.exit_code == 3, result.output
    assert f"{who} spent: none left; add credit or raise the limit there, then resume" in result.stderr
    assert "to resume: visioneval run --resume" in result.stderr


def test_an_error_of_an_options_validator_names_its_key(plugins: PluginSuite) -> None:
    options = (
        "from pydantic import BaseModel, field_validator\nclass Draw:\n    class Options(BaseModel):\n"
        "        fill: str = 'red'\n        @field_validator('fill')\n        @classmethod\n"
        "        def check(cls, value): raise ValueError('unknown color')\n"
    )
    plugins.code(("class Draw:\n", options))
    plugins.suite('"ours:Draw",', '"ours:Draw", options: {fill: blu},')
    assert plugins.problems() == ["suite.yaml:4:45: fill: unknown color"]


class TestPrices:
    """Prices of custom classes."""

    def test_a_budget_asks_for_a_price_per_call_of_a_judge(self, plugins: PluginSuite) -> None:
        plugins.code(("return Grade(scores={'look': True})", ASKS))
        result = plugins.toy("run", "suite.yaml", "--trust-suite", "--budget", "1")
        assert result.exit_code == 2
        example = "prices: {ours:Answer: {per_call: 0.02}, ours:Draw: {per_image: 0.02}}"
        assert result.stderr.strip() == (
            "the budget needs the price of every call, but these are unknown: ours:Answer, ours:Draw."
            f" Set them in the suite, 0 for free calls, for example '{example}'"
        )
        plugins.suite("verdict:", f"{example.replace('0.02', '0')}\nverdict:")
        assert plugins.toy("run", "suite.yaml", "--trust-suite", "--budget", "1").exit_code == 0

    @pytest.mark.parametrize(
        ("judge", "prices", "problem"),
        [
            ("ours:Answer", "{ours:Answer: {per_image: 0.02}}", "set per_call, or a price per token"),
            ("ours:Answer", "{ours:Answer: {per_image: 0.02, per_call: 0}}", None),
            ("ours:Answer", "{ours:Answer: {per_image: 0}}", None),
            ('ours:Answer", model: "m', "{m: {per_image: 0.02}}", "set per_call, or a price per token"),
            ('ours:Answer", model: "m', "{m: {per_image: 0.02}, ours:Answer:m: {per_call: 0.1}}", None),
        ],
    )
    def test_a_judge_priced_by_image_alone_is_refused(
        self, plugins: PluginSuite, judge: str, prices: str, problem: str | None
    ) -> None:
        plugins.suite('{provider: "ours:Answer"}', f'{{provider: "{judge}"}}\nprices: {prices}')
        position = f"suite.yaml:7:{len('prices: ') + prices.index('{', 1) + 1}"
        message = "the judge 'default' generates no images, so per_image prices its calls at 0"
        assert plugins.problems() == ([] if problem is None else [f"{position}: {message}: {problem}"])

    @pytest.mark.parametrize(
        ("judge", "advice"), [("ours:Both", "add per_call"), ('ours:Both", model: "m', "add a price for 'ours:Both:m'")]
    )
    def test_a_price_of_a_model_run_too_is_a_warning(self, plugins: PluginSuite, judge: str, advice: str) -> None:
        plugins.code(("class Answer:", "class Both(Draw):"))
        suite = SUITE.replace("ours:Draw", "ours:Both").replace("ours:Answer", judge)
        (plugins.toy.folder / "suite.yaml").write_text(suite + "prices: {ours:Both: {per_image: 0.02}}\n")
        result = plugins.toy("validate", "suite.yaml", "--trust-suite")
        assert result.exit_code == 0
        assert "suite.yaml:10:21: warning: the judge 'default' generates no images" in result.output
        assert advice in result.output


class TestHiddenModules:
    """An installed module comes before one of the same name next to the suite."""

    def test_the_loaded_file_is_named(self, plugins: PluginSuite) -> None:
        (plugins.toy.folder / "colorsys.py").write_text("class Draw: ...\n")
        plugins.suite("ours:Draw", "colorsys:Draw")
        (problem,) = plugins.problems()
        assert problem == (
            f"{PROVIDER_AT}: colorsys:Draw: cannot be imported: the module 'colorsys' has no 'Draw'; 'colorsys' was"
            f" loaded from {colorsys.__file__}, which takes precedence over colorsys.py next to the suite: rename colorsys.py"
        )

    def test_a_module_in_a_hidden_package_is_explained(self, plugins: PluginSuite) -> None:
        (plugins.toy.folder / "yaml").mkdir()
        (plugins.toy.folder / "yaml" / "draws.py").write_text("class Draw: ...\n")
        plugins.suite("ours:Draw", "yaml.draws:Draw")
        (problem,) = plugins.problems()
        assert "ModuleNotFoundError: No module named 'yaml.draws'; 'yaml' was loaded from " in problem
        assert problem.endswith("which takes precedence over yaml/ next to the suite: rename yaml/")

    def test_an_imported_helper_is_explained(self, plugins: PluginSuite) -> None:
        (plugins.toy.folder / "colorsys.py").write_text("def blue(): ...\n")
        plugins.code(("class Draw", "from colorsys import blue\nclass Draw"))
        assert "which takes precedence over colorsys.py next to the suite" in plugins.problems()[0]

    def test_a_module_of_python_itself_has_no_file(self, plugins: PluginSuite) -> None:
        (plugins.toy.folder / "time.py").write_text("class Draw: ...\n")
        plugins.suite("ours:Draw", "time:Draw")
        assert "'time' was loaded from Python itself, which takes precedence over time.py" in plugins.problems()[0]

    def test_other_missing_classes_are_not_explained_so(self, plugins: PluginSuite) -> None:
        plugins.suite("ours:Draw", "colorsys:Draw")
        assert plugins.problems()[0].endswith("the module 'colorsys' has no 'Draw'")


def test_a_null_score_needs_a_cause(plugins: PluginSuite) -> None:
    plugins.code(("scores={'look': True}", "scores={'look': None}"))
    assert plugins.error() == "grade: look: look is null, and the grader gave no cause in Grade.error"
    plugins.code(("scores={'look': True}", "scores={'look': None}, error='too dark'"))
    assert plugins.error() == "grade: look: too dark"


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ("'map.txt', encoded()", "save('map.txt'): the name must have only letters, digits, _ - and . (not first), and end in"),
        ("'../map.png', encoded()", "save('../map.png'): the name must have only "),
        ("'.png', encoded()", "save('.png'): the name must have only "),
        ("3, encoded()", "save(3): the name must have only "),
        ("'map.png', b'image'", "save('map.png'): the data is not a valid image: "),
        ("'map.png', 'text'", "save('map.png'): the data must be the bytes of an image, not str"),
        ("'map.png', encoded()) and context.save('map.png', encoded()",
         "save('map.png'): a grader of this cell has already saved this name"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_saved_is_an_error(plugins: PluginSuite, saved: str, message: str) -> None:
    plugins.code(("scores={'look': True}", f"scores={{'look': True}}, details={{'map': context.save({saved})}}"))
    assert plugins.error().startswith(f"grade: look: {message}")
    assert not list((plugins.toy.latest / "artifacts").rglob("*.txt"))


@pytest.mark.parametrize("name", ["map.png", "a.map.jpg", "1.jpeg", "map-2_x.webp"])
def test_images_are_saved(plugins: PluginSuite, name: str) -> None:
    plugins.code(
        ("scores={'look': True}", f"scores={{'look': True}}, details={{'map': context.save('{name}', encoded())}}")
    )
    assert plugins.record().graders[0].details == {"map": f"artifacts/one/ours/0.{name}"}


def test_print_output_of_plugins_is_not_in_the_json(plugins: PluginSuite) -> None:
    plugins.code(
        ("class Look:", "print('a module')\nclass Look:"),
        ("self.options = config.options", "print('an init')"),
        ("def generate(self, request): ", "def generate(self, request):\n        print('a call')\n        "),
    )
    result = plugins.toy("run", "suite.yaml", "--trust-suite", "--json")
    assert json.loads(result.stdout)["exit_code"] == 0
    assert {"a module", "an init", "a call"} <= set(result.stderr.splitlines())
    for arguments in (("grade", "latest"), ("plan", "suite.yaml")):
        sys.modules.pop("ours", None)
        json.loads(plugins.toy(*arguments, "--trust-suite", "--json").stdout)


class TestResumeHint:
    """The command that resumes a run of the Python API."""

    def test_it_has_the_flags_of_the_settings(self, plugins: PluginSuite) -> None:
        suite = plugins.toy.write(models=[{"provider": "mock"}])  # without calls of unknown cost
        run = ve.run(suite, trust_suite=True, run_id="r", cache="c", reuse="none", budget_usd=2.5, samples=2)
        flags = "--trust-suite --cache c --reuse none --budget 2.5"
        assert run.resume_hint == f"to resume: visioneval run --resume runs/r {flags}"

    def test_the_hint_names_another_suite_and_its_changes(
        self, plugins: PluginSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plugins.suite("name: ours\n", "name: ours\nvars: {color: red, site_token: none}\n")
        (plugins.toy.folder / "elsewhere").mkdir()
        monkeypatch.chdir(plugins.toy.folder / "elsewhere")
        variables = {"color": "blue", "site_token": "hunter2-hunter2"}
        suite = plugins.toy.folder / "suite.yaml"
        hint = ve.run(suite, trust_suite=True, run_id="r", samples=2, variables=variables).resume_hint
        assert hint == (
            f"to resume: visioneval run {suite} --resume runs/r"
            " --trust-suite --samples 2 --var color=blue --var 'site_token=***'"
        )
