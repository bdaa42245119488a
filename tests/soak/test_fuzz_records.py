"""Hundreds of runs of strangers, each changed at random places, read by every command. Nothing may end in a traceback."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import COMMANDS, LABEL_PAGE, build
from hostile_changes import Change, apply, changes, faults, refusal

CHANGES = int(os.environ.get("VISIONEVAL_FUZZ_RECORDS", "300"))
SEED = 11
RECORDS_READERS = ("show", "compare", "report --single-file")
"""The commands that read a file which its reader rejects: all others stop at the same line."""


def test_every_command_on_runs_changed_at_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Callable[[str], None]
) -> None:
    built = tmp_path / "built"
    built.mkdir()
    monkeypatch.chdir(built)
    build(built)
    every = list(changes(built))
    chance = random.Random(SEED)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(CHANGES):
        folder = tmp_path / "changed"
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(built, folder)
        monkeypatch.chdir(folder)
        change = chance.choice(every)
        apply(change, folder)
        why = refusal(change.file, folder)
        counts["refused at the door" if why else "read"] += 1
        readers = RECORDS_READERS if why else (*COMMANDS, LABEL_PAGE)
        counts["commands"] += len(readers)
        wrong += [f"{number}: {change}: {fault}" for name in readers for fault in faults(name, folder)]
        wrong += _unclear(change, why)
    report(
        f"{CHANGES} changes of {len(every):,}: {counts['read']} read, {counts['refused at the door']} refused;"
        f" {counts['commands']:,} commands: faults (traceback, no clear line, markup, escapes): {len(wrong)}"
    )
    assert wrong == []
    assert counts["read"] > 0
    assert counts["refused at the door"] > 0


def _unclear(change: Change, why: str | None) -> list[str]:
    if why is None or (Path(change.file).name in why and len(why.splitlines()) == 1):
        return []
    return [f"{change}: not one line that names the file: {why}"]
