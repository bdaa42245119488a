"""How many processors a process may use: by affinity, and by the limits of its control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from visioneval import processors


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of control groups, in which this process belongs to ``pods/one``, on eight processors."""
    groups = tmp_path / "cgroup"
    (groups / "pods" / "one").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("1:cpu:/\n0::/pods/one\n")
    monkeypatch.setattr(processors, "_CGROUPS", groups)
    monkeypatch.setattr(processors, "_OWN_CGROUP", own)
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return groups


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({"pods/one": "max 100000"}, 8),
        ({"pods/one": "200000 100000"}, 2),
        ({"pods/one": "250000 100000"}, 3),
        ({"pods/one": "10000 100000"}, 1),
        ({"pods/one": "400000 100000", "pods": "max 100000", ".": "150000 50000"}, 3),
        ({"pods/one": "3200000 100000"}, 8),
        ({"pods/one": "nonsense"}, 8),
        ({"pods/one": "100000 0"}, 8),
    ],
)
def test_the_least_limit_counts(limits: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        (limits / name / "cpu.max").write_text(f"{text}\n")
    assert processors.processors.__wrapped__() == expected


def test_without_control_groups_the_affinity_counts(limits: Path, tmp_path: Path) -> None:
    (tmp_path / "own").unlink()
    assert processors.processors.__wrapped__() == 8
