"""Plug-ins: graders, providers and judges of installed packages, which suites name without --trust-suite."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packages import SUITE, Site
from tables import rows_of

from visioneval import UsageError
from visioneval.plugins import GRADERS
from visioneval.suite.load import load_suite
from visioneval.suite.plugins import build

rows = rows_of(__file__)

PROVIDER_AT, JUDGE_AT, GRADER_AT = "suite.yaml:4:16", "suite.yaml:6:19", "suite.yaml:8:23"
OTHER_SUITE = """\
name: other
cases: [{id: one, prompt: a tree}]
models: [{provider: mock}]
graders: [{key: image, type: properties}]
verdict: [not image.blank]
"""


def run(site: Site, *arguments: str, code: int = 0) -> Any:
    result = site.toy("run", "suite.yaml", *arguments)
    assert result.exit_code == code, result.output
    return result


def resumed(site: Site) -> str:
    result = site.toy("run", "--resume", "latest")
    assert result.exit_code == 0, result.output
    return str(result.stderr)


def listed(site: Site, code: int = 0) -> list[dict[str, Any]]:
    result = site.toy("plugins", "--json")
    assert result.exit_code == code, result.output
    entries: list[dict[str, Any]] = json.loads(result.stdout)
    return entries


class TestUse:
    """A suite names plug-ins like built-in types."""

    def test_all_three_kinds_run_without_trust(self, site: Site) -> None:
        site.install()
        run(site)
        assert site.calls() == {"ask": 2, "generate": 2, "grade": 2}
        record = site.toy.records["one"]
        assert (record.provider, record.graders[0].type, record.verdict) == ("acme_draw", "acme_look", "PASS")
        fingerprint = record.graders[0].fingerprint
        assert (fingerprint.version, fingerprint.tool_versions) == ("1.0", {"acme_eye": "1.0"})

    def test_the_version_of_a_class_comes_before_that_of_its_package(self, site: Site) -> None:
        site.install(("class Look:", "class Look:\n    version = 7"))
        run(site)
        assert site.toy.records["one"].graders[0].fingerprint.version == "7"

    @pytest.mark.parametrize("trust", [(), ("--trust-suite",)])
    def test_options_are_checked_with_a_position(self, site: Site, trust: tuple[str, ...]) -> None:
        site.install()
        site.suite(("judge: eye", "judge: eye, options: {anwser: true}"))
        result = site.toy("validate", "suite.yaml", *trust)
        assert result.stderr.strip() == ("suite.yaml:8:56: unknown key 'anwser' (did you mean 'answer'?)")
        site.suite(("judge: eye", "judge: eye, options: {answer: false}"))
        run(site, code=1)

    def test_classes_of_the_suite_still_need_trust(self, site: Site) -> None:
        site.install()
        site.suite(("type: acme_look", "type: 'acme:Look'"))
        assert site.problem() == (
            f"{GRADER_AT}: 'acme:Look' runs code from the suite: pass --trust-suite if you trust it"
        )

    @pytest.mark.parametrize("trust", [(), ("--trust-suite",)])
    def test_a_module_beside_the_suite_does_not_replace_one_of_the_package(
        self, site: Site, trust: tuple[str, ...]
    ) -> None:
        site.install(("import io\n", "import io\nimport acme_part\n"))
        for name in ("acme.py", "acme_part.py"):
            (site.toy.folder / name).write_text("raise ValueError('of the suite')")
        (problem, *_) = site.toy("validate", "suite.yaml", *trust).stderr.splitlines()
        assert problem.endswith("ModuleNotFoundError: No module named 'acme_part' (acme.py:3)")
        site.install()
        run(site, *trust)

    @pytest.mark.parametrize(
        ("entry", "name", "position"),
        [("class Draw:", "acme_draw", "suite.yaml:4:40"), ("class Answer:", "acme_eye", "suite.yaml:6:42")],
    )
    def test_an_untrusted_suite_names_no_key_but_the_usual_one(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, entry: str, name: str, position: str
    ) -> None:
        monkeypatch.setenv("ACME_KEY", "sk-0123456789")
        site.install((entry, f"{entry}\n    api_key_env = 'ACME_KEY'"))
        site.suite((name, f"{name}, api_key_env: OTHER_KEY"))
        usual = f"'OTHER_KEY' is not the variable of {name} (acme 1.0): pass --trust-suite if you trust the suite"
        assert site.problem() == f"{position}: {usual}"
        assert site.toy("validate", "suite.yaml", "--trust-suite").exit_code == 0
        site.suite((name, f"{name}, api_key_env: ACME_KEY"))
        run(site)

    def test_a_judge_of_the_command_line(self, site: Site) -> None:
        site.install()
        run(site, "--judge", "eye=acme_eye:some-model")
        assert site.toy.info.suite.judges["eye"].title == "acme_eye:some-model"
        result = site.toy("run", "suite.yaml", "--judge", "eye=acme_draw:some-model")
        assert result.exit_code == 2
        assert "write PROVIDER:MODEL with the provider openai, gemini, litellm or acme_eye; without" in result.stderr

    def test_a_judge_of_the_command_line_for_pairs(self, site: Site) -> None:
        answer = ('{"fine": true}', '{"reason": "calm", "answer": "A"}')
        site.install(answer)
        models = "models: [{provider: mock, label: x}, {provider: mock, label: y, params: {size: 64x64}}]"
        (site.toy.folder / "suite.yaml").write_text(OTHER_SUITE.replace("models: [{provider: mock}]", models))
        run(site, "--run-id", "r")
        pairwise = ("pairwise", "r@x", "r@y", "--judge", "eye=acme_eye:m")
        result = site.toy(*pairwise)
        assert result.exit_code == 0, result.output
        assert site.calls() == {"ask": 2}
        result = site.toy("pairwise", "r@x", "r@y", "--judge", "eye=acme:Answer:m", "--trust-suite")
        assert (result.exit_code, site.calls()) == (2, {})
        assert "or acme_eye; without a key" in result.stderr
        for change, problem in (
            ("class Answer:\n    visioneval_api = 2", "acme_eye (acme 1.0): has visioneval_api = 2, but"),
            ("class Answer:\n    class Options(BaseModel): level: int", "acme_eye (acme 1.0): invalid options: "),
            ("class Answer:\n    x = 1 / 0", "acme_eye (acme 1.0): cannot be imported: ZeroDivisionError"),
        ):
            site.install(answer, ("class Answer:", change))
            result = site.toy(*pairwise, "--reuse", "none")
            assert result.exit_code == 2, result.output
            count, line = result.stderr.splitlines()
            assert (count, line.startswith(problem)) == ("1 pair", True), line

    @pytest.mark.parametrize("provider", ["acme_draw", "'acme:Draw'"])
    @pytest.mark.parametrize(("size", "verdict"), [("8x8", "PASS"), ("8x9", "FAIL"), (None, "ERROR")])
    def test_a_class_reports_the_requested_size(
        self, site: Site, provider: str, size: str | None, verdict: str
    ) -> None:
        params = f", run_params={{'size': {size!r}}})" if size else ")"
        site.install((", cost_usd=0.0)\n\nclass Answer", f", cost_usd=0.0{params}\n\nclass Answer"))
        site.suite(
            ("a tree}", "a tree, expect: {size: requested}}"),
            ("a house}", "a house, expect: {size: requested}}"),
            ("acme_draw", provider),
            ("type: acme_look, judge: eye", "type: properties"),
            ("[look]", "[look.size]"),
        )
        run(site, "--trust-suite", code={"PASS": 0, "FAIL": 1, "ERROR": 3}[verdict])
        assert site.toy.records["one"].verdict == verdict

    def test_limits_prices_and_budget_know_the_name(self, site: Site) -> None:
        site.install()
        prices = "prices: {acme_draw: {per_image: 0.5}, acme_eye: {per_call: 0}}\nlimits: {acme_draw: {max_concurrency: 1}}\n"
        site.install((", cost_usd=0.0)\n\nclass Answer", ")\n\nclass Answer"))
        site.suite(("verdict:", f"{prices}verdict:"))
        result = run(site, "--budget", "0.6", code=3)
        assert "budget" in result.stderr
        assert site.calls()["generate"] == 1

    def test_shards_merge(self, site: Site) -> None:
        site.install()
        for number in (1, 2):
            run(site, "--shard", f"{number}/2", "--run-id", f"s{number}")
        result = site.toy("merge", "runs/s1", "runs/s2", "--run-id", "all")
        assert result.exit_code == 0, result.output
        site.install(version="1.1")
        run(site, "--shard", "2/2", "--run-id", "new")
        result = site.toy("merge", "runs/s1", "runs/new", "--run-id", "mixed")
        assert result.exit_code == 2
        assert "Traceback" not in result.output


class TestImports:
    """A package that fails is only noticed where a suite names it."""

    def test_nothing_else_imports_it(self, site: Site) -> None:
        site.install(code="raise SystemExit('no GPU')", groups={"graders": "acme_look = acme:Look\ntext = acme:Look"})
        (site.toy.folder / "other.yaml").write_text(OTHER_SUITE)
        for arguments in (("--help",), ("schema",), ("init", "new"), ("validate", "other.yaml"), ("run", "other.yaml")):
            result = site.toy(*arguments)
            assert result.exit_code == 0, result.output
        for arguments in (("show",), ("runs",)):
            assert site.toy(*arguments).exit_code == 0
        assert "acme" not in sys.modules
        assert listed(site, 1)[0]["problem"] == "cannot be imported: SystemExit: no GPU (acme.py:1)"

    @pytest.mark.parametrize(("changes", "problem"), rows("a_broken_package"))
    def test_a_broken_package(self, site: Site, changes: list[tuple[str, str]], problem: str) -> None:
        site.install(*changes, groups={"graders": "acme_look = acme:Look"})
        site.suite(("acme_draw", "mock"), ("acme_eye", "recorded, path: a.csv"))
        (site.toy.folder / "a.csv").write_text("case,question,answer\none,fine,yes\n")
        assert site.problem() == f"{GRADER_AT}: acme_look (acme 1.0): {problem}"
        (entry,) = listed(site, 1)
        assert (entry["name"], entry["version"], entry["problem"]) == ("acme_look", None, problem)

    def test_the_same_version_of_the_api_is_fine(self, site: Site) -> None:
        site.install(("class Look:", "class Look:\n    visioneval_api = 1"))
        run(site)

    @pytest.mark.parametrize("target", ["acme", "acme:", "acme.Look"])
    def test_an_entry_point_without_a_class(self, site: Site, target: str) -> None:
        site.install(groups={"graders": f"acme_look = {target}"})
        assert listed(site, 1)[0]["problem"] == f"its entry point {target!r} is not module:Class"

    def test_a_provider_and_a_judge_without_their_methods(self, site: Site) -> None:
        site.install(("def generate", "def draw"), ("def ask", "def reply"))
        result = site.toy("validate", "suite.yaml")
        assert result.stderr.splitlines() == [
            f"{PROVIDER_AT}: acme_draw (acme 1.0): has no method 'generate' or 'edit'",
            f"{JUDGE_AT}: acme_eye (acme 1.0): has no method 'ask'",
        ]
        problems = {entry["name"]: entry["problem"] for entry in listed(site, 1)}
        assert problems["acme_draw"] == "has no method 'generate' or 'edit'"
        assert problems["acme_look"] is None

    @pytest.mark.parametrize(("changes", "problem"), rows("a_broken_class_does_not_hide_the_others"))
    def test_a_broken_class_does_not_hide_the_others(
        self, site: Site, changes: list[tuple[str, str]], problem: str
    ) -> None:
        site.install(*changes)
        assert site.problem() == f"{GRADER_AT}: acme_look (acme 1.0): {problem}"
        assert [entry["problem"] for entry in listed(site, 1)] == [problem, None, None]

    def test_a_class_whose_check_fails_does_not_hide_the_others(self, site: Site) -> None:
        odd = "class Odd:\n    def __repr__(self): raise OSError('odd')\n"
        site.install(("class Look:", f"{odd}class Look:\n    visioneval_api = Odd()"))
        assert [entry["problem"] for entry in listed(site, 1)] == ["OSError: odd (acme.py:13)", None, None]

    def test_an_error_names_the_line_of_the_package(self, site: Site) -> None:
        site.install(('count("grade")', "{}['start']"))
        run(site, code=3)
        (grader,) = site.toy.records["one"].graders
        assert grader.error == "KeyError: 'start' (acme.py:18)"


class TestNames:
    """Each name means one class."""

    def test_two_packages_with_one_name_are_both_named(self, site: Site) -> None:
        site.install()
        site.install(name="other", version="2.0", groups={"graders": "acme_look = other:Look"})
        both = "several installed packages have a grader of this name, acme 1.0 (acme:Look) and other 2.0 (other:Look): keep one"
        assert site.problem() == f"{GRADER_AT}: acme_look: {both}"
        looks = [entry for entry in listed(site, 1) if entry["name"] == "acme_look"]
        assert [(entry["distribution"], entry["problem"]) for entry in looks] == [("acme", both), ("other", both)]
        site.suite(("type: acme_look, judge: eye", "type: properties"), ("[look]", "[look.blank]"))
        run(site)

    def test_one_name_may_be_of_two_kinds(self, site: Site) -> None:
        site.install(
            groups={"graders": "acme = acme:Look", "providers": "acme = acme:Draw", "judges": "acme = acme:Answer"}
        )
        site.suite(("acme_draw", "acme"), ("acme_eye", "acme"), ("acme_look", "acme"))
        run(site)

    def test_the_name_of_a_built_in_type_stays_its_own(self, site: Site) -> None:
        site.install(groups={"graders": "properties = acme:Look"})
        (site.toy.folder / "suite.yaml").write_text(OTHER_SUITE)
        run(site)
        assert site.calls() == {}
        assert listed(site, 1)[0]["problem"] == (
            "visioneval has a grader of this name, which suites get: rename the entry point"
        )
        assert "properties" not in json.dumps(schema_of(site)["$defs"]["CustomGrader"]["properties"]["type"])

    def test_a_name_that_no_suite_can_write(self, site: Site) -> None:
        site.install(groups={"graders": "Acme = acme:Look"})
        site.suite(("acme_look", "Acme"))
        problem = "a name has only a-z, 0-9, '_' and '-', begins with a letter, and has at most 60 characters"
        assert listed(site, 1)[0]["problem"] == problem
        assert f"{GRADER_AT}: unknown grader type 'Acme'" in site.toy("validate", "suite.yaml").stderr

    @pytest.mark.parametrize(("name", "typo", "message"), rows("a_misspelled_name_has_a_hint"))
    def test_a_misspelled_name_has_a_hint(self, site: Site, name: str, typo: str, message: str) -> None:
        site.install()
        site.suite((name, typo))
        assert message in site.toy("validate", "suite.yaml").stderr.splitlines()

    def test_a_name_that_nothing_declares_is_unknown(self, site: Site) -> None:
        lines = site.toy("validate", "suite.yaml").stderr.splitlines()
        assert all(line.endswith("); or is a package that adds it not installed?") for line in lines)
        assert [line.partition(" (")[0] for line in lines] == [
            f"{PROVIDER_AT}: unknown provider 'acme_draw'",
            f"{JUDGE_AT}: unknown provider 'acme_eye'",
            f"{GRADER_AT}: unknown grader type 'acme_look'",
        ]

    def test_a_suite_cannot_say_what_a_package_declares(self, site: Site) -> None:
        site.suite(
            ("acme_draw", "mock"), ("acme_eye}", "recorded, path: a.csv}"), ("judge: eye", "declared: {version: x}")
        )
        (site.toy.folder / "a.csv").write_text("case,question,answer\none,fine,yes\n")
        assert f"{GRADER_AT}: acme_look: no installed package has a grader of this name: install its package" in (
            site.toy("validate", "suite.yaml").stderr
        )


def schema_of(site: Site) -> dict[str, Any]:
    result = site.toy("schema")
    assert result.exit_code == 0, result.output
    schema: dict[str, Any] = json.loads(result.stdout)
    return schema


class TestListing:
    """``visioneval plugins`` and ``visioneval schema``."""

    def test_plugins_with_versions_and_packages(self, site: Site) -> None:
        site.install(("class Look:", "class Look:\n    version = 7"), editable=True)
        result = site.toy("plugins")
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "kind      name       version  package",
            "grader    acme_look  7        acme 1.0  editable",
            "judge     acme_eye   1.0      acme 1.0  editable",
            "provider  acme_draw  1.0      acme 1.0  editable",
        ]
        assert listed(site)[0] == {
            "kind": "grader",
            "name": "acme_look",
            "version": "7",
            "distribution": "acme",
            "distribution_version": "1.0",
            "editable": True,
            "class": "acme:Look",
            "problem": None,
        }

    def test_no_plugins(self, site: Site) -> None:
        result = site.toy("plugins")
        assert (result.exit_code, result.stdout) == (0, "no installed package has plug-ins\n")
        assert listed(site) == []

    def test_what_packages_print_is_not_in_the_list(self, site: Site) -> None:
        site.install(("import io\n", "import io\nprint('hello')\n"))
        assert len(listed(site)) == 3

    @pytest.mark.parametrize("form", ["json", "github"])
    def test_what_packages_print_is_not_in_what_validate_prints(self, site: Site, form: str) -> None:
        site.install(("import io\n", "import io\nprint('hello')\n"))
        result = site.toy("validate", "suite.yaml", "--format", form)
        assert (result.exit_code, "hello" in result.stdout, "hello" in result.stderr) == (0, False, True)
        if form == "json":
            assert len(json.loads(result.stdout)["suites"]) == 1

    def test_a_key_in_an_error_is_hidden(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACME_API_KEY", "sk-0123456789")
        site.install(("import io\n", "import os\nraise OSError(os.environ['ACME_API_KEY'])\n"))
        assert listed(site, 1)[0]["problem"] == "cannot be imported: OSError: *** (acme.py:3)"
        assert "sk-0123456789" not in site.toy("plugins").output

    def test_the_schema_accepts_installed_names_only(self, site: Site) -> None:
        before = schema_of(site)
        suite = yaml.safe_load(SUITE)
        assert not jsonschema.Draft202012Validator(before).is_valid(suite)
        site.install()
        after = schema_of(site)
        jsonschema.Draft202012Validator(after).validate(suite)
        suite["graders"][0]["type"] = "acme:Look"
        jsonschema.Draft202012Validator(after).validate(suite)
        suite["graders"][0]["type"] = "acme_draw"  # of another kind
        assert not jsonschema.Draft202012Validator(after).is_valid(suite)
        site.uninstall()
        assert schema_of(site) == before


class TestVersions:
    """A new version generates and grades again, and a comparison says that it differs."""

    @pytest.mark.parametrize(("first", "second"), [("1.0", "2.0"), ("2.0", "1.0")])
    def test_another_version_of_a_package_runs_everything_again(self, site: Site, first: str, second: str) -> None:
        site.install(version=first)
        run(site)
        assert "unchanged: 2" in resumed(site)
        site.calls()
        site.install(version=second)
        assert "to generate: 2 (2 model changed)" in resumed(site)
        assert site.calls() == {"ask": 2, "generate": 2, "grade": 2}
        assert site.toy.records["one"].graders[0].fingerprint.version == second

    @pytest.mark.parametrize(("changed", "again"), rows("another_version_of_one_class"))
    def test_another_version_of_one_class(self, site: Site, changed: str, again: str) -> None:
        names = ("class Look:", "class Answer:", "class Draw:")
        site.install(*((name, f"{name}\n    version = 1") for name in names))
        run(site)
        site.install(
            *((name, f"{name}\n    version = {1 + (name == changed)}") for name in names), version="1.1"
        )  # the versions of classes come first
        assert again in resumed(site)

    def test_answers_of_another_version_are_not_reused(self, site: Site) -> None:
        site.install()
        cached = ("--cache", "cache", "--reuse", "all")
        run(site, *cached)
        site.calls()
        run(site, *cached)
        assert site.calls() == {"grade": 2}
        site.install(version="2.0")
        run(site, *cached)
        assert site.calls() == {"ask": 2, "generate": 2, "grade": 2}
        site.install(version="1.0")
        run(site, *cached, "--offline")
        assert site.calls() == {"grade": 2}

    def test_compare_names_the_versions(self, site: Site) -> None:
        site.install()
        run(site, "--run-id", "a")
        site.install(version="2.0")
        run(site, "--run-id", "b")
        for arguments in ((), ("--markdown", "-")):
            result = site.toy("compare", "a", "b", *arguments)
            text = result.stdout
            assert "acme: version of acme_draw: 1.0 -> 2.0" in text
            assert "look: version: 1.0 -> 2.0 (2 of 2 pairs)" in text
            assert "look: acme_eye version: 1.0 -> 2.0 (2 of 2 pairs)" in text
        assert "version" not in site.toy("compare", "a", "a").stdout

    def test_a_worker_with_another_version_does_not_begin(self, site: Site, tmp_path: Path) -> None:
        site.install()
        planned = site.toy.folder / "suite.yaml"
        suite = load_suite(planned, run_labels=lambda _: []).suite
        build("acme_look", GRADERS, suite.graders[0], tmp_path)
        site.install(version="2.0")  # on the worker's machine
        message = "acme_look (acme 2.0): the run needs version 1.0, but this machine has 2.0: install the same package"
        with pytest.raises(UsageError, match=re.escape(message)):
            build("acme_look", GRADERS, suite.graders[0], tmp_path)

    def test_grade_uses_the_installed_version(self, site: Site) -> None:
        site.install()
        run(site)
        site.calls()
        site.install(version="2.0")
        result = site.toy("grade", "latest")
        assert result.exit_code == 0, result.output
        assert site.calls() == {"ask": 2, "grade": 2}
        assert site.toy.records["one"].graders[0].fingerprint.version == "2.0"

    def test_code_that_changes_without_a_version_is_a_warning(self, site: Site) -> None:
        own_versions = (
            ("class Draw:", "class Draw:\n    version = 3"),
            ("class Answer:", "class Answer:\n    version = '1.0'"),
        )
        site.install(own_versions[0], editable=True)
        stays = "its package is installed in editable mode, so its version stays 1.0 when its code changes, and nothing runs"
        result = site.toy("validate", "suite.yaml")
        assert result.exit_code == 0
        warnings = [line for line in result.output.splitlines() if "warning" in line]
        assert warnings == [
            f"{JUDGE_AT}: warning: acme_eye: {stays} again: give the class a 'version'",
            f"{GRADER_AT}: warning: acme_look: {stays} again: give the class a 'version'",
        ]
        site.install(*own_versions, editable=True)  # one is equal to that of the package
        result = site.toy("validate", "suite.yaml")
        assert [line for line in result.output.splitlines() if "warning" in line] == warnings[1:]
        run(site)
        site.install(own_versions[0], ("import io\n", "import io\n1 / 0\n"), editable=True)
        result = site.toy("run", "--resume", "latest")
        assert "Traceback" not in result.output
        site.install(editable=False)
        assert "warning" not in site.toy("validate", "suite.yaml").output


class TestUninstalled:
    """A run is read without the packages that it used."""

    @pytest.fixture
    def finished(self, site: Site) -> Site:
        site.install()
        run(site, "--run-id", "a")
        run(site, "--run-id", "b")
        site.uninstall()
        return site

    @pytest.mark.parametrize("arguments", rows("it_is_read"))
    def test_it_is_read(self, finished: Site, arguments: tuple[str, ...]) -> None:
        result = finished.toy(*arguments)
        assert "Traceback" not in result.output
        assert "acme_" not in result.stderr, result.output
        assert result.exit_code == 0, result.output
        assert "acme" not in sys.modules

    @pytest.mark.parametrize("arguments", [("grade", "a"), ("run", "--resume", "a")])
    def test_to_use_it_the_package_is_needed(self, finished: Site, arguments: tuple[str, ...]) -> None:
        result = finished.toy(*arguments)
        assert result.exit_code == 2
        entry = (
            "acme_draw: no installed package has a provider"
            if arguments[0] == "run"
            else "acme_look: no installed package has a grader"
        )
        assert result.stderr == f"{entry} of this name: install its package\n"

    def test_a_run_is_graded_without_the_package_of_its_provider(self, site: Site) -> None:
        site.install(groups={"graders": "acme_look = acme:Look", "judges": "acme_eye = acme:Answer"})
        site.install(name="draws", groups={"providers": "acme_draw = draws:Draw"})
        run(site)
        site.uninstall("draws")
        result = site.toy("grade", "latest")
        assert result.exit_code == 0, result.output
