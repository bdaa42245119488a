"""Untrusted runs: readers accept any file contents, or fail with one line that names the file and line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hostile_changes as hostile
import pytest
from hostile import COMMANDS, FILES, LABEL_PAGE, NONE, OTHER, RUN, build, call
from hostile_changes import DELETE, VALUES, Change, apply, documents, faults, paths_in, refusal

pytestmark = pytest.mark.slow

RESULTS = f"runs/{RUN}/results.jsonl"
READ_RESULTS = [name for name in COMMANDS if RUN in " ".join(COMMANDS[name]) and name != "compare file"]
"""The commands that read the results of the run that is changed, and must not pass a broken line over."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strangers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        build(folder)
    return folder


TWICE = ("show label", "report --single-file", "compare --json", "agree --json", "baseline list")
"""Commands that read the same in another form, which matters for what they print, and not for what they can read."""


@pytest.fixture
def folder(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("runs/*/run.json"):  # the suite is in the working directory
        path.write_text(path.read_text().replace(str(built), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def all_faults(folder: Path, skipped: Sequence[str] = ()) -> list[str]:
    return [fault for name in (*COMMANDS, LABEL_PAGE) if name not in skipped for fault in faults(name, folder)]


def test_unchanged_run_has_no_problem(folder: Path) -> None:
    assert {name: refusal(name, folder) for name in FILES} == dict.fromkeys(FILES)
    assert all_faults(folder) == []


@pytest.mark.parametrize("name", [name for name in FILES if Path(name).name not in ("summary.json", "stale.jsonl")])
def test_every_changed_field_is_read_or_rejected_in_one_line(folder: Path, name: str) -> None:
    """Every path in the last document of each file, with alternating values, read only by its reader."""
    if name in (RESULTS, "loose.jsonl"):  # fewer cells show the same in less time
        (folder / name).write_text("".join((folder / name).read_text().splitlines(keepends=True)[-2:]))
    result = documents(folder / name, FILES[name])
    line = len(result) - 1
    where = re.compile(rf"{re.escape(name)}:{line + 1}: .|{re.escape(name)}: .")
    several = 1 if name.endswith("run.json") else 2
    counts = {"read": 0, "refused": 0}
    before = (folder / name).read_text()
    for turn, position in enumerate(paths_in(result[line])):
        for value in (DELETE, *(VALUES[(turn * several + at) % len(VALUES)] for at in range(several))):
            apply(Change(name, line, position, value), folder)
            why = refusal(name, folder)
            counts["refused" if why else "read"] += 1
            (folder / name).write_text(before)
            if why is not None:
                assert where.search(why), (position, value, why)
                assert len(why.splitlines()) == 1, (position, value, why)
                assert not hostile.CONTROL.search(why), (position, value, why)
                assert len(why) < 1200, (position, value, len(why))
    assert counts["read"] > 0 or name.endswith("labeling_draws.jsonl")  # the id of a draw is a hash of its contents
    assert counts["refused"] > 0


@pytest.mark.parametrize("text", [hostile.ESCAPES, hostile.HTML + hostile.RICH, hostile.MARKDOWN], ids="EHM")
def test_untrusted_text_is_escaped_everywhere(folder: Path, text: str) -> None:
    many = hostile.saturate(folder, lambda value: isinstance(value, str), text, skip=("suite_path", "artifact_path"))
    assert many > 60
    assert all_faults(folder) == []


@pytest.mark.parametrize("values", [(1e308, 2**63), (-(2**63), 0)])
def test_accepts_largest_numbers(folder: Path, values: tuple[float, float]) -> None:
    """The first value where it is accepted, the second elsewhere."""
    for value in values:
        many = hostile.saturate(
            folder,
            lambda old: type(old) in (int, float) and old != values[0],
            value,
            skip=("schema_version", "sample_index"),
        )
        assert many > 20
    assert all_faults(folder) == []


@pytest.mark.parametrize("value", [None, 7, "word", [], {}, [[{}]]], ids=repr)
def test_rejects_values_of_other_types(folder: Path, value: Any) -> None:
    many = hostile.saturate(folder, lambda old: not isinstance(old, dict) or value == {}, value)
    assert many > 20
    assert all_faults(folder, TWICE) == []


def _changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    *lines, last = documents(folder / RESULTS, "lines")
    change(last)
    (folder / RESULTS).write_text("".join(f"{json.dumps(item)}\n" for item in (*lines, last)))


def _rule(last: dict[str, Any]) -> None:
    last.update(failed_rules=["no rule at all"])


def _score(value: float) -> Callable[[dict[str, Any]], None]:
    return lambda last: last["scores"].update(layout=value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        *((name, _rule, "failed_rules.0: 'no rule at all' is not a valid verdict rule") for name in READ_RESULTS),
        *(  # readers of whole records, of cells to compare, and of a report
            (name, _score(value), message)
            for name in ("show", "compare", "report")
            for value, message in (
                (1e308, "scores.layout: expected true, false, a number from -2^63 to 2^63"),
                (float("nan"), "NaN is not a finite number"),
            )
        ),
    ],
)
def test_invalid_record_ends_every_command_with_one_line(
    folder: Path, name: str, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    _changed(folder, change)
    done = call(*COMMANDS[name])
    if f"{RUN}@{NONE}" in COMMANDS[name] and not done.exception:  # the record of another model run is not read
        return
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2
    *before, last = done.stderr.splitlines()
    assert f"results.jsonl:4: {message}" in last
    assert last.endswith(f": delete this line; then 'visioneval run --resume runs/{RUN}' reruns this cell")
    assert before == []


DAMAGES = (
    b"{}\n", b"[]\n", b"null\n", b"{\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", b'{"schema_version":2,"run_id":"\xed\xa0\x80"}\n',
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["results.jsonl", "labels.jsonl", "preferences.jsonl", "labeling.jsonl", "labeling_draws.jsonl", "anchors.jsonl"],
)
def test_damaged_line_is_reported_with_location(folder: Path, name: str) -> None:
    path = folder / "runs" / RUN / name
    first, *rest = path.read_bytes().splitlines(keepends=True)
    for damage in DAMAGES:
        path.write_bytes(first + damage + b"".join(rest))
        why = refusal(f"runs/{RUN}/{name}", folder)
        assert why is not None, damage
        assert f"{name}:2: " in why, damage
        assert len(why.splitlines()) == 1, damage


def test_list_of_runs_names_unreadable_runs(folder: Path) -> None:
    _changed(folder, lambda single: single.pop("verdict"))
    done = call("runs")
    assert f"runs/{RUN}/results.jsonl:4: verdict: Field required" in done.stderr
    assert "unreadable" in done.stdout
    (folder / "runs" / OTHER / "run.json").write_text("{")
    assert f"runs/{OTHER}: skipped: its run.json cannot be read" in call("runs").stderr


def test_truncated_last_line_is_always_reported(folder: Path) -> None:
    path = folder / RESULTS
    path.write_bytes(path.read_bytes()[:-40])
    for name in READ_RESULTS:
        if name in (
            "show label",
            "pairwise",
            "run --resume",
            "label export",
        ):  # of other cells, or it does the cell again
            continue
        shutil.rmtree(folder / "runs" / "graded", ignore_errors=True)
        done = call(*COMMANDS[name])
        if name.startswith("compare") and COMMANDS[name][2] == RUN:  # what is compared with the other lacks a cell
            assert done.exit_code == 3, (name, done.output)
        assert done.exit_code != 0 or "3 of 4 cells" in done.stderr, (name, done.output)
