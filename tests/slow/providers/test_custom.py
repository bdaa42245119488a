"""Custom providers and graders, ``module:Class``, beside the suite."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from toys import LOOK, Toy

from visioneval import read_records


def problems(toy: Toy, *, code: str | None = None, **changes: Any) -> str:
    """The message of ``run`` for a suite that it does not start."""
    if code is not None:
        (toy.folder / "own.py").write_text(code)
    result = toy.run({}, **changes)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert not (toy.folder / "runs").exists()
    return str(result.stderr).strip()


def provider(name: str, **more: Any) -> list[dict[str, Any]]:
    return [{"provider": name, "label": "own", **more}]


def grader(name: str) -> list[dict[str, Any]]:
    return [{**LOOK, "type": name}]


def test_a_provider_and_a_grader_beside_the_suite_are_loaded(toy: Toy) -> None:
    result = toy.run({}, models=[{"provider": "mine:Generate", "label": "toy", "options": {"steps": 3}}])
    assert result.exit_code == 0
    assert toy.record.provider == "mine:Generate"
    assert toy.record.graders[0].type == "mine:Look"


def test_a_class_sees_its_options(toy: Toy) -> None:
    (toy.folder / "own.py").write_text(
        "from mine import Generate, Look\n"
        "class Own(Generate):\n"
        "    def __init__(self, config): self.how = config.options['how']\n"
        "    async def generate(self, request): return getattr(self, self.how)(request)\n"
    )
    assert toy.run({}, models=provider("own:Own", options={"how": "refuses"})).exit_code == 1
    assert toy.record.status == "refused"


def test_a_module_in_a_package_beside_the_suite_is_found(toy: Toy) -> None:
    (toy.folder / "pack").mkdir()
    (toy.folder / "pack" / "__init__.py").touch()
    (toy.folder / "pack" / "inner.py").write_text("from mine import Generate\n")
    assert toy.run({}, models=provider("pack.inner:Generate")).exit_code == 0


@pytest.mark.parametrize("name", ["nowhere:Generate", "mine:Nothing", "mine.deeper:Generate"])
def test_a_missing_class_is_reported_in_one_line(toy: Toy, name: str) -> None:
    assert f"suite.yaml:1:89: {name}: cannot be imported: " in problems(toy, models=provider(name))
    assert f"suite.yaml:1:160: {name}: cannot be imported: " in problems(toy, graders=grader(name))


@pytest.mark.parametrize("code", ["1 / 0", "import nothing_of_this_name", "def x(:", "raise SystemExit(5)"])
def test_a_module_that_fails_to_import_is_reported_in_one_line(toy: Toy, code: str) -> None:
    output = problems(toy, code=code, models=provider("own:Generate"))
    assert "suite.yaml:1:89: own:Generate: cannot be imported: " in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize("code", ["def __init__(self): pass", "def __init__(self, config): raise SystemExit('no GPU')"])
def test_a_class_that_cannot_be_instantiated_is_reported_in_one_line(toy: Toy, code: str) -> None:
    output = problems(toy, code=f"class Own:\n    {code}\n", models=provider("own:Own"))
    assert "suite.yaml:1:89: own:Own: cannot be created: " in output


def test_a_key_in_an_error_of_a_class_is_hidden(toy: Toy) -> None:
    (toy.folder / "own.py").write_text(
        "import os\nclass Own:\n    def __init__(self, config): raise OSError(os.environ['TOY_API_KEY'])\n"
    )
    result = toy("run", toy.write({}, models=provider("own:Own")), "--trust-suite", TOY_API_KEY="sk-0123456789")
    assert result.stderr.strip().endswith("suite.yaml:1:89: own:Own: cannot be created: OSError: *** (own.py:3)")


def test_a_class_without_the_tasks_method_is_reported_before_generation(toy: Toy) -> None:
    code = "class Own:\n    def __init__(self, config): pass\n    async def edit(self, request): pass\n"
    output = problems(toy, code=code, models=provider("own:Own"))
    assert output.endswith(
        "suite.yaml:1:89: own:Own: has no method 'generate', so it cannot do image_generation; restrict it with 'tasks'"
    )


def test_custom_code_is_not_loaded_without_trust(toy: Toy) -> None:
    (toy.folder / "own.py").write_text(
        "import pathlib\npathlib.Path('loaded').touch()\nfrom mine import Generate, Look\n"
    )
    path = toy.write({}, models=provider("own:Generate"), graders=grader("own:Look"))
    for arguments in (("validate",), ("plan",), ("run", "--dry-run"), ("run",)):
        result = toy(*arguments, path)
        assert result.exit_code == 2
        assert result.stderr.count("runs code from the suite: pass --trust-suite") == 2
    assert not (toy.folder / "loaded").exists()
    assert toy("validate", path, "--trust-suite").exit_code == 0
    assert (toy.folder / "loaded").exists()  # which is how its options and metrics are checked


def test_modules_beside_a_suite_hide_no_installed_ones(toy: Toy) -> None:
    (toy.folder / "json.py").write_text("raise ImportError('shadowed')")
    (toy.folder / "own.py").write_text("import json\njson.dumps\nfrom mine import Generate\n")
    assert toy.run({}, models=provider("own:Generate")).exit_code == 0
    assert "shadowed" not in str(sys.modules["json"])


def test_a_missing_key_is_reported_before_generation(toy: Toy) -> None:
    path = toy.write({}, models=provider("mine:Generate", api_key_env="TOY_KEY"))
    assert "TOY_KEY" in toy("plan", path, "--trust-suite").stdout
    assert "TOY_KEY" in toy("validate", path, "--trust-suite").stdout
    result = toy("run", path, "--trust-suite")
    assert result.exit_code == 2
    assert "set the environment variable TOY_KEY" in result.stderr
    assert not (toy.folder / "runs").exists()
    assert toy("run", path, "--trust-suite", TOY_KEY="sk-0123456789").exit_code == 0


def test_each_suite_of_a_command_has_its_own_modules_and_imports(toy: Toy, tmp_path: Path) -> None:
    suites = []
    for name, output in (("one", "refuses"), ("two", "generate")):
        (tmp_path / name).mkdir()
        other = Toy(tmp_path / name)
        (other.folder / "shared.py").write_text(f"HOW = {output!r}\n")
        (other.folder / "own.py").write_text(
            "from mine import Generate, Look\nimport shared\n"
            "class Own(Generate):\n"
            "    async def generate(self, request):\n"
            "        return self.refuses(request) if shared.HOW == 'refuses' else await super().generate(request)\n"
        )
        suites.append(other.write({}, models=provider("own:Own")))
    toy("run", *suites, "--trust-suite")
    result = [next(read_records(folder)).status for folder in (toy.folder / "runs").iterdir()]
    assert sorted(result) == ["completed", "refused"]
