"""Custom classes: the examples of docs/extending.md, and what it promises."""

from __future__ import annotations

import asyncio
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys import Toy

import visioneval as ve

DOCS = (Path(__file__).parents[3] / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^(?:Added to )?`([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^visioneval (.*)$", re.MULTILINE)


@pytest.fixture
def folder(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page writes, in the working directory."""
    for name, text in BLOCK.findall(DOCS):
        with (toy.folder / name).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{text}" if name.endswith(".py") and file.tell() else text)
    monkeypatch.chdir(toy.folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("plugins", None)
    sys.modules.pop("plain", None)
    return toy.folder


def changed(folder: Path, name: str, *changes: tuple[str, str]) -> None:
    """Writes a file anew."""
    text = (folder / name).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text, encoding="utf-8")
    sys.modules.pop("plugins", None)


def run(toy: Toy, *arguments: str) -> Any:
    result = toy("run", "suite.yaml", "--trust-suite", *arguments)
    assert "Traceback" not in result.output
    return result


def test_the_documented_examples_run(toy: Toy, folder: Path) -> None:
    assert sorted({name for name, _ in BLOCK.findall(DOCS)}) == ["plugins.py", "suite.yaml", "test_plugins.py"]
    commands = COMMANDS.findall(DOCS)
    assert [command.split()[0] for command in commands] == ["validate", "run", "show"]
    for command in commands:
        result = toy(*command.split())
        assert result.exit_code == 0, result.output
    three, other = toy.records["three"], toy.records["any"]
    assert three.scores["count"] is True
    assert three.scores["count.counted"] == 3
    assert "count" not in other.scores
    assert (three.width, three.height) == (192, 64)
    mark = three.graders[0]
    assert (mark.fingerprint.version, mark.fingerprint.judge_model) == ("1", "fixed")


def test_the_page_shows_the_error_that_a_misspelt_option_gives(toy: Toy, folder: Path) -> None:
    changed(folder, "suite.yaml", ("tolerance", "tolerence"))
    result = toy("validate", "suite.yaml", "--trust-suite")
    assert result.exit_code == 2
    assert result.stderr.strip() in DOCS


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{tolerance: 0}", "{tolerance: -1}", "suite.yaml:10:84: tolerance: must be at least 0, not -1"),
        ("{color: teal}", "{colour: teal}", "suite.yaml:6:89: unknown key 'colour' (did you mean 'color'?)"),
        ("options: {answers: {count: 3}}", "model: x", "suite.yaml:8:12: the key 'answers' is missing"),
    ],
)
def test_invalid_options_are_reported_with_a_position(toy: Toy, folder: Path, old: str, new: str, message: str) -> None:
    changed(folder, "suite.yaml", (old, new))
    assert run(toy).stderr.strip() == message


def test_without_trust_skipped_option_checks_are_reported(toy: Toy, folder: Path) -> None:
    changed(folder, "suite.yaml", ("tolerance", "tolerence"))
    result = toy("validate", "suite.yaml")
    assert result.exit_code == 2
    assert result.stderr.count("pass --trust-suite if you trust it; until then, its options are not checked") == 3
    assert len(result.stderr.splitlines()) == 3


def test_the_documented_unit_test_passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop("test_plugins", None)
    import_module("test_plugins").test_a_wrong_count_fails(folder)


def count_context(folder: Path, **more: Any) -> Any:
    Image.new("RGB", (8, 6)).save(folder / "image.png")
    return ve.grading_context(folder / "image.png", **more)


def test_a_context_for_tests_describes_the_image_and_the_case(folder: Path) -> None:
    context = count_context(folder, prompt="a tree", metadata={"count": 3}, variables={"brand": "Alder"})
    assert (context.generated.width, context.generated.height, context.generated.mime) == (8, 6, "image/png")
    assert (context.prompt, context.case.metadata, context.variables) == ("a tree", {"count": 3}, {"brand": "Alder"})
    assert context.save("map.png", b"") == "map.png"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (None, "this grader has no judge"),
        ({}, "no answer for 'n': add it to 'answers' of grading_context"),
        ({"n": "many"}, "the judge's answer does not match the schema: n: 'many' is not of the type integer"),
    ],
)
def test_a_context_for_tests_answers_only_what_was_given(
    folder: Path, answers: dict[str, Any] | None, message: str
) -> None:
    context = count_context(folder, answers=answers)
    with pytest.raises(ve.GraderError, match=message):
        asyncio.run(context.ask("How many?", {"n": {"type": "integer"}}))


def test_a_changed_default_of_options_alone_grades_nothing_again(toy: Toy, folder: Path) -> None:
    changed(folder, "suite.yaml", (", options: {tolerance: 0}", ""))
    assert run(toy).exit_code == 0
    changed(folder, "plugins.py", ("default=0", "default=1"))
    result = toy("run", "--resume", "latest", "--trust-suite")
    assert "to generate: 0; to grade again: 0; unchanged: 2" in result.stderr


def test_grade_runs_graders_whose_version_is_the_same(toy: Toy, folder: Path) -> None:
    assert run(toy).exit_code == 0
    changed(folder, "plugins.py", ("correct = abs", "correct = not abs"))
    assert toy("grade", "latest", "--trust-suite").exit_code == 1
    assert toy.records["three"].scores["count"] is False


def graders_version(folder: Path) -> None:
    changed(folder, "plugins.py", ('compares."""\n\n    version = "1"', 'compares."""\n\n    version = "2"'))


def test_a_new_grader_version_regrades_without_generating(toy: Toy, folder: Path) -> None:
    assert run(toy).exit_code == 0
    graders_version(folder)
    result = toy("run", "--resume", "latest", "--trust-suite")
    assert result.exit_code == 0, result.output
    assert "to generate: 0; to grade again: 1 (1 grader.count changed); unchanged: 1" in result.stderr
    assert toy.records["three"].graders[0].fingerprint.version == "2"


def test_grade_uses_another_version_too(toy: Toy, folder: Path) -> None:
    assert run(toy).exit_code == 0
    graders_version(folder)
    result = toy("grade", "latest", "--trust-suite")
    assert result.exit_code == 0, result.output
    assert toy.records["three"].graders[0].fingerprint.version == "2"
    shown = toy("compare", *sorted(path.name for path in (folder / "runs").iterdir()))
    assert "version" in shown.stdout + shown.stderr


def test_another_version_of_a_provider_generates_again(toy: Toy, folder: Path) -> None:
    assert run(toy).exit_code == 0
    changed(
        folder,
        "plugins.py",
        ('a complete provider."""\n\n    version = "1"', 'a complete provider."""\n\n    version = "2"'),
    )
    result = toy("run", "--resume", "latest", "--trust-suite")
    assert "to generate: 2 (2 model changed)" in result.stderr


def test_another_version_of_a_judge_is_asked_again(toy: Toy, folder: Path) -> None:
    assert run(toy).exit_code == 0
    changed(
        folder,
        "plugins.py",
        (
            "    class Options(BaseModel):\n        answers",
            "    version = 2\n\n    class Options(BaseModel):\n        answers",
        ),
    )
    result = toy("run", "--resume", "latest", "--trust-suite")
    assert "to generate: 0; to grade again: 1 (1 grader.count changed); unchanged: 1" in result.stderr


def test_a_run_is_read_without_its_classes(toy: Toy, folder: Path) -> None:
    assert run(toy).exit_code == 0
    (folder / "plugins.py").unlink()
    for arguments in (("show", "latest"), ("report", "latest"), ("export", "latest")):
        result = toy(*arguments)
        assert result.exit_code == 0, result.output


def test_a_run_is_graded_without_its_generator_class(toy: Toy, folder: Path) -> None:
    (folder / "circles.py").write_text("from plugins import CirclesProvider\n")
    changed(folder, "suite.yaml", ("plugins:CirclesProvider", "circles:CirclesProvider"))
    assert run(toy).exit_code == 0
    (folder / "circles.py").unlink()
    sys.modules.pop("circles", None)
    assert toy("grade", "latest", "--trust-suite").exit_code == 0
    assert run(toy).stderr.startswith("suite.yaml:6:16: circles:CirclesProvider: cannot be imported: ")


def test_the_work_may_be_async_everywhere(toy: Toy, folder: Path) -> None:
    changed(
        folder, "plugins.py", ("    def generate(", "    async def generate("), ("    def ask(", "    async def ask(")
    )
    assert run(toy).exit_code == 0


def test_a_grader_may_be_a_plain_function(toy: Toy, folder: Path) -> None:
    (folder / "plain.py").write_text(
        "from visioneval.graders.base import Grade\n"
        "class Wide:\n"
        "    def __init__(self, config): self.key = config.key\n"
        "    def metrics(self, case): return {self.key: {'type': 'bool'}}\n"
        "    def grade(self, context): return Grade(scores={self.key: context.generated.width > context.generated.height})\n"
    )
    changed(
        folder,
        "suite.yaml",
        ("{key: file, type: properties}", "{key: wide, type: 'plain:Wide'}"),
        ("not file.blank", "wide"),
    )
    assert run(toy).exit_code == 0
    assert toy.records["any"].scores == {"wide": True}


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "raise StopIteration", "return None"])
def test_a_plain_function_that_breaks_is_the_error_of_its_cell(toy: Toy, folder: Path, code: str) -> None:
    (folder / "plain.py").write_text(
        "class Breaks:\n    def __init__(self, config): pass\n"
        "    def metrics(self, case): return {'broken': {'type': 'bool'}}\n"
        f"    def grade(self, context): {code}\n"
    )
    changed(
        folder,
        "suite.yaml",
        ("{key: file, type: properties}", "{key: broken, type: 'plain:Breaks'}"),
        ("not file.blank", "broken"),
    )
    assert run(toy).exit_code == 3
    assert toy.records["any"].graders[0].error


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ("", "this grader has no judge: name one in the suite, such as 'judge: default'"),
        (" judge: defualt,", "suite.yaml:10:54: there is no judge 'defualt' under 'judges' (did you mean 'default'?)"),
    ],
)
def test_a_grader_asks_no_judge_that_the_suite_does_not_name(toy: Toy, folder: Path, judge: str, message: str) -> None:
    changed(folder, "suite.yaml", (" judge: default,", judge))
    result = run(toy)
    if judge:
        assert result.stderr.strip() == message
    else:
        assert toy.records["three"].graders[0].error == message


def test_an_off_schema_answer_is_retried_once_and_is_no_score(toy: Toy, folder: Path) -> None:
    changed(folder, "suite.yaml", ("{answers: {count: 3}}", "{answers: {count: many}}"))
    assert run(toy).exit_code == 3
    record = toy.records["three"]
    assert record.scores["count"] is None
    assert "the judge's answer does not match the schema: count: 'many' is not of the type integer" in str(
        record.graders[0].error
    )


@pytest.mark.parametrize(
    ("writes", "message"),
    [
        (
            "{count: {}, cuont.counted: {}}",
            "suite.yaml:10:67: the class plugins:CountGrader does not write 'cuont.counted'",
        ),
        (
            "{count: {}}",
            "the class plugins:CountGrader also writes 'count.counted': add it, or remove 'writes'",
        ),
        (
            "{count: {type: number}, count.counted: {type: number, range: [0, null], better: none}}",
            "defines 'count' differently: remove 'writes'",
        ),
    ],
)
def test_writes_is_checked_against_the_class(toy: Toy, folder: Path, writes: str, message: str) -> None:
    changed(folder, "suite.yaml", ("judge: default, options", f"writes: {writes}, judge: default, options"))
    assert message in run(toy).stderr


def test_a_class_without_metrics_leaves_them_to_the_suite(toy: Toy, folder: Path) -> None:
    changed(folder, "plugins.py", ("def metrics(", "def _metrics("))
    missing = run(toy).stderr
    assert (
        "suite.yaml:10:5: the key 'writes' is missing: list the metrics, since the class plugins:CountGrader has no metrics(case)"
        in missing
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "metrics(case) failed for 'three': ZeroDivisionError: division by zero (plugins.py:35)"),
        ("return [3]", "metrics(case) returned list, not dict, for 'three'"),
        (
            "return {'x': {'type': 'colour', 'beter': 'lower'}}",
            "metrics(case) returned an invalid 'x' for 'three': type: 'colour' is not one of bool, number, one_of; "
            "unknown key 'beter' (did you mean 'better'?)",
        ),
        (
            "Metric(type='colour', range=(0, 'x'))",
            "metrics(case) failed for 'three': ValidationError: Metric: type: Input should be 'bool', 'number' or 'one_of'; "
            "range.1: Input should be a valid number, unable to parse string as a number (plugins.py:35)",
        ),
    ],
)
def test_failing_metrics_are_reported_in_one_line(toy: Toy, folder: Path, code: str, message: str) -> None:
    changed(
        folder,
        "plugins.py",
        ('        if "count" not in case.metadata:\n', f'        {code}\n        if "count" not in case.metadata:\n'),
    )
    result = run(toy)
    assert result.exit_code == 2
    assert result.stderr.strip() == f"suite.yaml:10:24: plugins:CountGrader: {message}"


def test_options_without_a_model_are_reported_in_one_line(toy: Toy, folder: Path) -> None:
    changed(folder, "plugins.py", ("class Options(BaseModel):\n        tolerance", "class Options:\n        tolerance"))
    assert run(toy).stderr.strip() == (
        "suite.yaml:10:24: plugins:CountGrader: Options must be a pydantic model: derive it from pydantic.BaseModel"
    )
