"""Suites with parts cut, doubled, swapped and replaced by odd values: each is checked or refused, and none hangs."""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import io
import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.installation import builtin
from visioneval.suite.loading.document import read_yaml

SUITES = 3000
SEED = 12
SLOW_S = 30.0
HANG_S = 300.0
"""After which the stacks of all threads are printed and the program ends."""

UNUSUAL_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 10**30, 1.5, float("1e308"), "", " ", "x", "é" * 50, "\u202e", "../..", "/etc/passwd"),
    *("{{ nothing }}", "{% for i in range(9999) %}{{ range(9999)|sort }}{% endfor %}", "{{ 'x' * 10**9 }}", "{{"),
    *([], {}, [[]], [None] * 3, {"a": {"b": {"c": []}}}, {"": ""}, list(range(50)), "gs://b/o", "https://x.example/y"),
    *("mean(x) >= 1", "pass_rate", "not", ">= 1", "a" * 5000, {"seed": list(range(1000)), "size": list(range(1000))}),
)
SIGNS = "{}[]:,'\"#&*!|>%@`-\n\t \0\ud7ff<"


def seeds() -> list[tuple[Path, Any]]:
    """The suites that are shipped, each with its folder."""
    result = [*sorted(Path(builtin("suites")).rglob("suite.yaml"))]
    return [(path.parent, read_as_json(path)) for path in result]


def read_as_json(path: Path) -> Any:
    return json.loads(json.dumps(read_yaml(path.read_text(encoding="utf-8"), path.name)))


def paths_in(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in the data except the root."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [item for key, value in inner for item in [(*path, key), *paths_in(value, (*path, key))]]


def mutated(data: Any, dice: random.Random) -> Any:
    """One to four changes somewhere."""
    data = copy.deepcopy(data)
    for _ in range(dice.randint(1, 4)):
        known = paths_in(data)
        if not known:
            break
        *parents, last = dice.choice(known)
        inner = data
        for step in parents:
            inner = inner[step]
        change(inner, last, data, known, dice)
    return data


def change(inner: Any, last: Any, data: Any, known: list[tuple[Any, ...]], dice: random.Random) -> None:
    kind = dice.randrange(5)
    if kind == 0:
        del inner[last]
    elif kind == 1 and isinstance(inner, list):
        inner.insert(dice.randrange(len(inner) + 1), copy.deepcopy(inner[last]))
    elif kind == 2 and isinstance(inner, dict):
        inner[dice.choice(["x", "file", "dataset", "id", "grid", "samples", "run", "path"])] = inner.pop(last)
    elif kind == 3:
        other = data
        for step in dice.choice(known):
            other = other[step]
        inner[last] = copy.deepcopy(other)
    else:
        inner[last] = copy.deepcopy(dice.choice(UNUSUAL_VALUES))


def damaged(text: str, dice: random.Random) -> str:
    """Some signs of the text cut, doubled or replaced."""
    for _ in range(dice.choice([0, 0, 0, 1, 3])):
        at = dice.randrange(len(text) + 1)
        end = at + dice.choice([0, 0, 1, 40])
        text = text[:at] + dice.choice([*SIGNS, "&a ", "*a", "<<: *a", text[at : at + 60]]) + text[end:]
    return text


@pytest.fixture
def watched() -> Any:
    faulthandler.dump_traceback_later(HANG_S, exit=True, file=sys.__stderr__)
    yield lambda: faulthandler.dump_traceback_later(HANG_S, exit=True, file=sys.__stderr__)
    faulthandler.cancel_dump_traceback_later()


def test_every_suite_is_checked_or_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    report: Callable[[str], None],
    watched: Callable[[], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    dice, known = random.Random(SEED), seeds()
    fine = 0
    tracebacks: list[str] = []
    slow: list[tuple[float, int]] = []
    longest = 0.0
    start = time.monotonic()
    for at in range(SUITES):
        folder, data = dice.choice(known)
        text = damaged(json.dumps(mutated(data, dice), ensure_ascii=False, indent=dice.choice([None, 1])), dice)
        path = tmp_path / folder.name / "suite.yaml"
        if not path.parent.exists():
            shutil.copytree(folder, path.parent)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        watched()
        began = time.process_time()
        with contextlib.redirect_stderr(io.StringIO()):
            result = CliRunner().invoke(app, ["validate", str(path), *dice.choice([[], ["--trust-suite"]])])
        took = time.process_time() - began
        longest = max(longest, took)
        fine += result.exit_code == 0
        if took > SLOW_S:
            slow.append((took, at))
        is_known = result.exception is None or isinstance(result.exception, SystemExit)
        if not is_known or "Traceback" in result.output or result.exit_code not in (0, 2):
            tracebacks.append(f"{at}: {result.exception!r}: {text[:300]}")
    report(
        f"{SUITES} suites, seed {SEED}, in {time.monotonic() - start:.0f} s: {fine} fine, {SUITES - fine} refused;"
        f" tracebacks {len(tracebacks)}, hangs {len(slow)}; the longest took {longest:.1f} s"
    )
    assert (tracebacks[:3], slow) == ([], [])
