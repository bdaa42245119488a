"""The registry is complete, and no other module checks for plug-in classes."""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import pytest

from visioneval.plugins import GRADERS, JUDGES, PROVIDERS, Part, config_of, load_object
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import BaseProvider

PACKAGE = Path(__file__).parents[2] / "visioneval"
CONCRETE = re.compile(
    "|".join({part.config.partition(":")[2] for table in (GRADERS, PROVIDERS, JUDGES) for part in table.values()})
    + r"|\w+Options"
)
HOOKS = {"problems", "run_problems", "warnings", "answer_problems"}
ENTRIES = [
    *((name, part, BaseGrader, "type") for name, part in GRADERS.items()),
    *((name, part, BaseProvider, "provider") for name, part in PROVIDERS.items()),
    *((name, part, BaseJudge, "provider") for name, part in JUDGES.items()),
]


@pytest.mark.parametrize(("name", "part", "base", "field"), ENTRIES)
def test_every_name_has_options_and_work(name: str, part: Part, base: type, field: str) -> None:
    table = next(table for table in (GRADERS, PROVIDERS, JUDGES) if table.get(name) is part)
    config = config_of(table, name)
    assert issubclass(config, base)
    assert config.model_fields[field].annotation.__args__ == (name,)
    assert callable(load_object(part.work))
    own = {name for name, value in vars(import_module(part.config.partition(":")[0])).items() if callable(value)}
    assert not [name for name in own - HOOKS if get_close_matches(name, HOOKS, cutoff=0.85)], "nobody would call it"


def test_no_code_outside_a_plugin_package_checks_for_its_classes() -> None:
    asking = []
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in ("graders", "providers"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                names = {item.id for item in ast.walk(node.args[1]) if isinstance(item, ast.Name)}
                asking += [f"{path.name}:{node.lineno}" for name in names if CONCRETE.fullmatch(name)]
    assert not asking
