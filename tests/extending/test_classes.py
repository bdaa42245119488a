"""Custom classes at work: what they may do, what their faults become, and what runs again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from classes import Change, OwnClasses
from tables import rows_of
from toys import Toy

import visioneval as ve
from visioneval import read_records

rows = rows_of(__file__)

ASK = "answer = await context.ask('Fine?', {'yes': {'type': 'boolean'}})\n"
GRADE = "return Grade(scores={'look': answer['yes'], 'look.level': self.options.level})"
GENERATION = "return Generation(outputs=(encoded(color=self.options.color),), cost_usd=0.0)"
OUTPUTS = "outputs=(encoded(color=self.options.color),), cost_usd=0.0"
REPLY = "return Reply(text=json.dumps({'yes': self.options.yes}), model='m', cost_usd=0.0)"
SCORES = "scores={'look': answer['yes'], 'look.level': self.options.level}"


def assert_is(text: str, expected: str) -> None:
    """Whether a text is as expected, up to three dots at the end."""
    start = expected.removesuffix("...")
    assert text.startswith(start) if start != expected else text == expected


class TestUse:
    """What the documentation promises of classes."""

    def test_all_kinds_see_their_options(self, ours: OwnClasses) -> None:
        ours.suite(
            ("label: ours", "label: ours, options: {color: teal}"),
            ("judge: default", "judge: default, options: {level: 3}"),
        )
        record = ours.record()
        assert (record.provider, record.graders[0].type, record.verdict) == ("ours:Draw", "ours:Look", "PASS")
        assert record.scores == {"look": True, "look.level": 3}
        ours.suite(("yes: true", "yes: false"))
        ours("run", "suite.yaml", code=1)

    def test_a_module_in_a_package_beside_the_suite(self, ours: OwnClasses) -> None:
        (ours.toy.folder / "pack").mkdir()
        (ours.toy.folder / "pack" / "__init__.py").touch()
        (ours.toy.folder / "pack" / "inner.py").write_text("from ours import Draw\n")
        ours.suite(("ours:Draw", "pack.inner:Draw"))
        assert ours.record().verdict == "PASS"

    def test_modules_beside_a_suite_hide_no_installed_ones(self, ours: OwnClasses) -> None:
        (ours.toy.folder / "json.py").write_text("raise ImportError('shadowed')")
        assert ours.record().verdict == "PASS"
        assert "shadowed" not in str(sys.modules["json"])

    def test_each_suite_of_a_command_has_its_own_modules_and_imports(self, tmp_path: Path, ours: OwnClasses) -> None:
        suites = []
        for name, color in (("one", "red"), ("two", "blue")):
            (tmp_path / name).mkdir()
            other = OwnClasses(Toy(tmp_path / name))
            (tmp_path / name / "shared.py").write_text(f"COLOR = {color!r}\n")
            other.code(("import json", "import json\nimport shared"), ("self.options.color", "shared.COLOR"))
            suites.append(str(tmp_path / name / "suite.yaml"))
        ours("run", *suites)
        outputs = {next(read_records(folder)).artifact_sha256 for folder in (tmp_path / "runs").iterdir()}
        assert len(outputs) == 2

    @pytest.mark.parametrize(
        "changes",
        [
            (("    def generate(", "    async def generate("), ("    def ask(", "    async def ask(")),
            (
                (f"        {ASK}", ""),
                ("async def grade", "def grade"),
                ("answer['yes']", "context.generated.width > 8"),
            ),
        ],
    )
    def test_methods_may_be_async_or_not(self, ours: OwnClasses, changes: tuple[Change, ...]) -> None:
        ours.code(*changes)
        assert ours.record().verdict == "PASS"

    def test_a_provider_may_refuse(self, ours: OwnClasses) -> None:
        ours.code((OUTPUTS, "refused='not that'"))
        assert ours.record(1).status == "refused"

    @pytest.mark.parametrize("name", ["map.png", "a.map.jpg", "1.jpeg", "map-2_x.webp"])
    def test_images_are_saved(self, ours: OwnClasses, name: str) -> None:
        ours.code((SCORES, f"{SCORES}, details={{'map': context.save('{name}', encoded())}}"))
        assert ours.record().graders[0].details == {"map": f"artifacts/one/ours/0.{name}"}

    def test_what_classes_print_is_not_in_the_json(self, ours: OwnClasses) -> None:
        ours.code(
            ("class Look:", "print('a module')\nclass Look:"),
            (
                "self.options = config.options\n    def generate",
                "self.options = config.options; print('an init')\n    def generate",
            ),
            (GENERATION, f"print('a call'); {GENERATION}"),
        )
        result = ours("run", "suite.yaml", "--json")
        assert json.loads(result.stdout)["exit_code"] == 0
        assert {"a module", "an init", "a call"} <= set(result.stderr.splitlines())
        for arguments in (("grade", "latest"), ("plan", "suite.yaml")):
            sys.modules.pop("ours", None)
            json.loads(ours(*arguments, "--json").stdout)


class TestFaults:
    """A fault is the error of its cell, with the line of the user's code, and none passes silently."""

    @pytest.mark.parametrize(("old", "new", "error"), rows("of_graders_and_judges"))
    def test_of_graders_and_judges(self, ours: OwnClasses, old: str, new: str, error: str) -> None:
        ours.code((old, new))
        assert_is(ours.error(), f"grade: look: {error}")
        assert ours.toy.record.scores.get("look") is None
        assert not list((ours.toy.latest / "artifacts").rglob("*.txt"))

    @pytest.mark.parametrize(("old", "new", "error"), rows("of_providers"))
    def test_of_providers(self, ours: OwnClasses, old: str, new: str, error: str) -> None:
        ours.code((old, new))
        assert_is(ours.error(), f"generate: {error}")

    def test_the_innermost_line_of_the_users_files_is_named(self, ours: OwnClasses) -> None:
        ours.code((OUTPUTS, "outputs=encoded(size=None)"))  # Pillow raises
        error = ours.error()
        assert error.startswith("generate: ValueError: Size")
        assert error.endswith(" (mine.py:11)")

    @pytest.mark.parametrize(
        ("code", "error"),
        [("raise SystemExit(3)", "it called exit(3)"), ("raise StopIteration", "it raised StopIteration")],
    )
    def test_a_plain_function_that_ends_its_thread(self, ours: OwnClasses, code: str, error: str) -> None:
        ours.code((f"        {ASK}", ""), ("async def grade", "def grade"), (GRADE, code))
        assert_is(ours.error(), f"grade: look: {error}")

    @pytest.mark.filterwarnings("ignore:coroutine 'GradingContext.ask' was never awaited:RuntimeWarning")
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("use", ["['yes']", ""])
    def test_a_grader_that_does_not_await_an_answer_gets_a_hint(self, ours: OwnClasses, use: str) -> None:
        ask = ASK.removeprefix("answer = await ").strip()
        ours.code((f"        {ASK}", ""), ("async def grade", "def grade"), ("answer['yes']", f"{ask}{use}"))
        assert ours.error().endswith("write 'async def grade' and 'await context.ask(...)'")

    def test_a_grader_without_a_judge_cannot_ask(self, ours: OwnClasses) -> None:
        ours.suite((", judge: default", ""))
        message = "this grader has no judge: name one in the suite, such as 'judge: default'"
        assert ours.error() == f"grade: look: {message}"

    @pytest.mark.parametrize(
        ("code", "who"),
        [(GENERATION, "the quota at ours:Draw is"), (REPLY, "the judge 'default': the quota at ours:Answer is")],
    )
    def test_a_spent_quota_stops_the_run(self, ours: OwnClasses, code: str, who: str) -> None:
        ours.code((code, "raise ProviderError('none left', kind='quota')"))
        result = ours("run", "suite.yaml", code=3)
        assert f"{who} spent: none left; add credit or raise the limit there, then resume" in result.stderr
        assert "to resume: visioneval run --resume" in result.stderr


class TestAgain:
    """What runs again, and what needs the classes."""

    @pytest.mark.parametrize(("version", "again"), rows("a_new_version"))
    def test_a_new_version(self, ours: OwnClasses, version: str, again: str) -> None:
        assert ours.record().graders[0].fingerprint.version == "look 1"
        ours.code((f"'{version}'", "2"))  # any value that str accepts
        assert again in ours("run", "--resume", "latest").stderr
        fingerprint = ours.toy.records["one"].graders[0].fingerprint
        assert (fingerprint.version == "2") is (version == "look 1")
        assert (fingerprint.tool_versions == {"ours:Answer": "2"}) is (version == "answer 1")

    def test_a_changed_default_of_options_alone_runs_nothing(self, ours: OwnClasses) -> None:
        ours.record()
        ours.code(("default=0", "default=1"))
        result = ours("run", "--resume", "latest")
        assert "to generate: 0; to grade again: 0; unchanged: 1" in result.stderr

    def test_grade_runs_graders_whose_version_is_the_same(self, ours: OwnClasses) -> None:
        ours.record()
        ours.code(("answer['yes']", "not answer['yes']"))
        ours("grade", "latest", code=1)
        assert ours.toy.record.scores["look"] is False

    def test_a_run_is_read_without_its_classes(self, ours: OwnClasses) -> None:
        ours.record()
        (ours.toy.folder / "ours.py").unlink()
        sys.modules.pop("ours")
        for arguments in (("show", "latest"), ("report", "latest"), ("export", "latest")):
            result = ours.toy(*arguments)
            assert result.exit_code == 0, result.output

    def test_a_run_is_graded_without_the_class_of_its_provider(self, ours: OwnClasses) -> None:
        (ours.toy.folder / "draws.py").write_text("from ours import Draw\n")
        ours.suite(("ours:Draw", "draws:Draw"))
        ours.record()
        (ours.toy.folder / "draws.py").unlink()
        sys.modules.pop("draws")
        ours("grade", "latest")
        assert ours("run", "suite.yaml", code=2).stderr.startswith("suite.yaml:4:16: draws:Draw: cannot be imported: ")


class TestResumeHint:
    """The command that resumes a run of the Python API."""

    def test_it_has_the_flags_of_the_settings(self, toy: Toy) -> None:
        suite = toy.write(models=[{"provider": "mock"}])  # without calls of unknown cost
        run = ve.run(suite, trust_suite=True, run_id="r", cache="c", reuse="none", budget_usd=2.5, samples=2)
        flags = "--trust-suite --cache c --reuse none --budget 2.5"
        assert run.resume_hint == f"to resume: visioneval run --resume runs/r {flags}"

    def test_it_names_another_suite_and_its_changes(self, ours: OwnClasses, monkeypatch: pytest.MonkeyPatch) -> None:
        ours.suite(("name: ours\n", "name: ours\nvars: {color: red, site_token: none}\n"))
        (ours.toy.folder / "elsewhere").mkdir()
        monkeypatch.chdir(ours.toy.folder / "elsewhere")
        variables = {"color": "blue", "site_token": "hunter2-hunter2"}
        suite = ours.toy.folder / "suite.yaml"
        hint = ve.run(suite, trust_suite=True, run_id="r", samples=2, variables=variables).resume_hint
        assert hint == (
            f"to resume: visioneval run {suite} --resume runs/r"
            " --trust-suite --samples 2 --var color=blue --var 'site_token=***'"
        )
